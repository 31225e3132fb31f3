"""Schedules whose pictures are known."""

from tests.report.results import CHAIN, result_of

HALVES = [
    {"run": "F1"},
    {"run": "F2", "drop": ["x1"]},
    {"run": "Fe3"},
    {"run": "loss"},
    {"run": "B3", "drop": ["x3", "s3", "y3", "x2"]},
    {"run": "Fe1"},
    {"run": "Fe2"},
    {"run": "B2", "drop": ["x2", "s2", "y2"]},
    {"run": "B1", "drop": ["x0", "x1", "s1", "y1"]},
]
"""Steps for three stages: the last is saved at once, the others are recomputed from the input."""

LINKS = {
    "machine": {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
    }
}
OFFLOADED = [
    {"run": "Fe1"},
    {"copy": "s1", "from": "device", "to": "host", "drop": True},
    {"run": "Fe2", "drop": []},
    {"copy": "x1", "from": "device", "to": "host", "drop": True},
    {"run": "Fe3"},
    {"run": "loss"},
    {"run": "B3", "drop": ["x3", "s3", "y3"]},
    {"copy": "x1", "from": "host", "to": "device", "drop": True},
    {"copy": "s1", "from": "host", "to": "device", "drop": True},
    {"run": "B2", "drop": ["x2", "s2", "y2"]},
    {"run": "B1", "drop": ["x0", "x1", "s1", "y1"]},
]

ADJOINT = {
    "schema": "remat.instance/1",
    "kind": "adjoint",
    "units": {"time": "unit", "memory": "unit"},
    "steps": 4,
    "forward_time": 1,
    "backward_time": 2,
    "state_size": 1,
}
REVERSED = [
    {"run": "F1"},
    {"run": "F2", "drop": ["x1"]},
    {"run": "F3"},
    {"run": "loss", "drop": ["x3"]},
    {"run": "B3", "drop": ["x2", "y3"]},
    {"run": "F1"},
    {"run": "B2", "drop": ["x1", "y2"]},
    {"run": "B1", "drop": ["x0", "y1"]},
]
"""x0 and x2 are kept; step 1 (the second) starts again from x0."""


def halves():
    return result_of(CHAIN, HALVES)


def offloaded():
    return result_of(CHAIN | LINKS, OFFLOADED)


def reversed_adjoint():
    return result_of(ADJOINT, REVERSED)


TREE = {
    "schema": "remat.instance/1",
    "kind": "tree",
    "units": {"time": "unit", "memory": "unit"},
    #          0
    #        1   2
    #       3 4   5
    "parent": [-1, 0, 0, 1, 1, 2],
    "output_size": [10, 20, 30, 15, 15, 10],
}
DISK = {
    "machine": {
        "memories": [{"name": "core"}, {"name": "disk"}],
        "processors": [{"name": "cpu", "memory": "core"}],
        "links": [{"source": "core", "target": "disk"}, {"source": "disk", "target": "core"}],
    }
}


def run(node, *drop):
    return {"run": f"T{node}", "drop": [f"v{child}" for child in drop]}


def spilled_tree():
    """The subtree of 2 first; its output goes to the disk by two thirds, and comes back."""
    part = {"copy": "v2", "drop": True, "bytes": 20}
    steps = [run(5), run(2, 5), part | {"from": "core", "to": "disk"}]
    steps += [run(3), run(4), run(1, 3, 4), part | {"from": "disk", "to": "core"}, run(0, 1, 2)]
    return result_of(TREE | DISK, steps)


def a_schedule(document, *, quickly):
    """Return what to solve with for schedules that move and repeat: as `auto` does, or what answers at once."""
    plain = {"chain": "dtr", "adjoint": "dtr", "dag": "dtr", "tree": "postorder-min-io"}
    if quickly:
        return {"algorithm": plain[document["kind"]]}
    if document["kind"] == "adjoint":  # an algorithm of `auto`, with less time
        few = {"iterations": 10, "moves": 20_000, "window": 1000, "work": 0}
        return {"algorithm": "adjoint-best", "options": few}
    return {"algorithm": "auto"}
