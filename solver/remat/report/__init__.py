"""Renderers of results: table, actions, plot, trace. They compute nothing that the verifier has not measured."""
