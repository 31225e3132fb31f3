"""Placement: which device runs what of a stream, and where its parameters lie."""
