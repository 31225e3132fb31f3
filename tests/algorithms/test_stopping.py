"""Test that stopped algorithms end soon: on large graphs, they poll the context only a few more times."""

import random
import time

import pytest

from remat.errors import OptionError
from remat.instance import load
from remat.plugin import Context, check_reach, registry
from remat.solving.auto import AUTO
from remat.solving.problem_setup import make_problem
from remat.solving.problem_setup import run as run_algorithm
from tests.algorithms.dag.test_first_schedule import adjoint, chain, graph

DOCUMENTS = {
    "chain": (chain(random.Random(1), 110), "30%"),
    "adjoint": (adjoint(random.Random(1), 160), "20%"),
    "dag": (graph(random.Random(1), 160), "40%"),
    "tree": (
        {
            "schema": "remat.instance/1",
            "kind": "tree",
            "parent": [-1, *(random.Random(node).randrange(node) for node in range(1, 300))],
            "output_size": [1 + node % 7 for node in range(300)],
        },
        "60%",
    ),
}
"""For each kind an instance and its budget."""

AFTER = 60
"""Looks at the context after which it says that the time is over."""

MOST_FURTHER = 400
"""Further ones at most. An algorithm that waits for a solver in another process looks now and then meanwhile."""


class Counting(Context):
    """A context whose time is over after a number of polls, independent of the clock."""

    looks = 0

    @property
    def ended(self):
        self.looks += 1
        return self.looks > AFTER


CASES = [
    # An algorithm for task graphs does the same on the graph of any kind.
    pytest.param(kind, entry.name, marks=pytest.mark.slow if kind == "adjoint" and entry.accepts("dag") else ())
    for kind in DOCUMENTS
    for entry in (*registry.algorithms(kind, available=True), AUTO)
    if entry.anytime
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_algorithms_end_soon_after_a_stop(kind, name):
    document, budget = DOCUMENTS[kind]
    problem = make_problem(load(document), budget=budget)
    entry = AUTO if name == AUTO.name else registry.find(name, kind)
    try:
        check_reach(problem, entry)
    except OptionError:
        pytest.skip("refuses the instance")
    context = Counting(deadline=time.monotonic() + 1e6)
    model = entry.load_options()
    try:
        run_algorithm(problem, entry, None if model is None else model(), context)
    except OptionError:
        return
    assert context.looks <= AFTER + MOST_FURTHER
