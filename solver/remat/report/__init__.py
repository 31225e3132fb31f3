"""Renderers of results: table, actions, plot, trace. They show only what the verifier has measured."""

VIEWS = {
    "time": ("chain", "adjoint", "dag", "tree", "pipeline", "join"),
    "values": ("chain", "adjoint", "dag", "tree", "pipeline", "join"),
    "stages": ("chain", "adjoint"),
    "reversal": ("chain", "adjoint"),
    "tree": ("tree",),
    "devices": ("pipeline",),
    "convergence": ("chain", "adjoint", "dag", "tree", "pipeline", "join"),
    "addresses": ("chain", "adjoint", "dag", "tree", "pipeline", "join"),
}
"""The pictures of a schedule (see `remat.report.plot.schedule`), each with the kinds of instances that it is for."""
