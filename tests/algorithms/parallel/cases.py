"""Machines, solves and checks that the tests of this family share."""

import pytest

import remat
from remat.testing.strategies import trees
from tests.oracles import referee

TREES = (
    "all-to-all",
    "proportional",
    "memory-aware",
    "par-subtrees",
    "par-inner-first",
    "par-deepest-first",
    "mem-booking",
    "dag-list-memory",
)
BOUNDED = ("memory-aware", "mem-booking", "dag-list-memory")


def machine(processors, capacity=None):
    memory = {"name": "memory"} | ({} if capacity is None else {"capacity": capacity})
    return {"memories": [memory], "processors": [{"name": "cpu", "memory": "memory", "count": processors}]}


def solve(document, algorithm, processors, budget=None, **options):
    """Solve on so many processors."""
    return remat.solve(document, algorithm=algorithm, machine=machine(processors), budget=budget, options=options)


def tree(parent, output_size, **more):
    head = {"schema": "remat.instance/1", "kind": "tree", "units": {"time": "unit", "memory": "unit"}}
    return head | {"parent": list(parent), "output_size": list(output_size)} | more


def on_any_tree(largest=14):
    """Draw trees whose nodes may use several processors, for machines given elsewhere."""
    return trees(largest=largest).map(lambda document: {key: document[key] for key in document if key != "machine"})


def peak(result):
    return result.peak_memory["memory"]


def check(document, result):
    """Have the independent referee look at a schedule, too."""
    report = referee.check(document, result.to_dict())
    assert report.ok, report.violations
    assert float(report.makespan) == pytest.approx(result.makespan, rel=1e-12, abs=1e-12)
    assert report.peaks["memory"] == peak(result)
