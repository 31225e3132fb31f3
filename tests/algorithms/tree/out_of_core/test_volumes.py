"""I/O volumes against the reference values and against exhaustive search."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.instance import load
from remat.solving.problem_setup import make_problem
from remat_algorithms.tree.out_of_core.intree import InTree
from remat_algorithms.tree.out_of_core.postorder_min_io import best_postorder_for_io
from tests import places
from tests.algorithms.tree.out_of_core import oracle

REFERENCE = json.loads((places.REFERENCE / "tree.json").read_text())
TREES = {entry["instance"]["name"]: entry["instance"] for entry in REFERENCE["trees"]}
FIF = {"divisible": True}
MACHINES = {
    "instant": ("in", {}),
    "overlapped": ("in", {"bandwidth": 3}),
    "synchronous-outward": ("out", {"bandwidth": 3, "latency": 1, "channel": "cpu"}),
}


def draws(count):
    return settings(max_examples=count, derandomize=True, database=None, deadline=None)


def io_volume(document, algorithm, memory, options=None, **link):
    """Solve on a machine with a disk; check common properties, and return the bytes written."""
    result = remat.solve(document, algorithm=algorithm, machine=oracle.machine(memory, **link), options=options)
    assert result.report.ok
    assert result.peak_memory["memory"] <= memory
    named = "I/O volume 0:" if oracle.volume(result) == 0 else f"I/O volume {oracle.volume(result):,}"
    assert result.notes[0].startswith(named)
    return oracle.volume(result)


@pytest.mark.parametrize("entry", REFERENCE["io"], ids=lambda entry: f"{entry['id']}-{entry['M']}")
@pytest.mark.parametrize("kind", MACHINES)
def test_volumes_equal_published_ones(entry, kind):
    orientation, link = MACHINES[kind]
    document = TREES[entry["id"]] | {"orientation": orientation}
    memory = entry["M"]
    assert io_volume(document, "postorder-min-io", memory, **link) == entry["postorder_min_io"]
    best = io_volume(document, "min-io-lsnf", memory, FIF | {"traversal": "liu-postorder"}, **link)
    assert best == entry["note_fif_liu_best_postorder"]
    assert io_volume(document, "min-io-lsnf", memory, FIF, **link) == entry["note_fif_optimal_traversal"]


@pytest.mark.parametrize("entry", REFERENCE["io_small"], ids=lambda entry: f"{len(entry['f'])}-{entry['M']}")
def test_volumes_of_small_trees_equal_published_ones(entry):
    document = oracle.tree(entry["parent"], entry["f"], entry["m"])
    assert io_volume(document, "postorder-min-io", entry["M"]) == entry["best_postorder_io"]
    for options in ({"traversal": "liu"}, {"traversal": "listed"}, {"traversal": "postorder"}):
        assert io_volume(document, "min-io-lsnf", entry["M"], FIF | options) >= entry["optimal_io_divisible"]


@pytest.mark.parametrize("name", [name for name, instance in TREES.items() if len(instance["parent"]) <= 50])
def test_recurrence_counts_what_is_written(name):
    """V_root equals the verifier's bytes on the link, at budgets from the minimum to the peak."""
    document = TREES[name]
    low = oracle.requirement(document)
    high = remat.solve(document, algorithm="liu-postorder").peak_memory["memory"]
    for memory in {low, max(low, high - 1), high}:
        claimed = best_postorder_for_io(InTree.of(make_problem(load(document))), memory).volume
        assert io_volume(document, "postorder-min-io", memory) == claimed
        assert (claimed == 0) == (memory >= high)


@st.composite
def tiny(draw, largest=5, size=3):
    count = draw(st.integers(2, largest))
    parent = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, count))]
    number = draw(st.permutations(range(count)))
    named = [0] * count
    for node, above in enumerate(parent):
        named[number[node]] = -1 if above < 0 else number[above]
    sizes = st.lists(st.integers(0, size), min_size=count, max_size=count)
    return oracle.tree(named, draw(sizes), draw(sizes), orientation=draw(st.sampled_from(["in", "out"])))


def memories(document):
    """Budgets from the least one to one more than any traversal needs."""
    return range(oracle.requirement(document), sum(document["output_size"]) + max(document["workspace"]) + 1)


def check_traversal(document):
    for traversal, memory in itertools.product(("liu", "liu-postorder", "postorder", "listed"), memories(document)):
        options = {"traversal": traversal}
        order = oracle.runs(remat.solve(document, algorithm="min-io-lsnf", options=options))
        least = oracle.least_volume(document, order, memory)
        assert io_volume(document, "min-io-lsnf", memory, FIF | options) == least
        whole = oracle.least_volume(document, order, memory, whole=True)
        for name in oracle.HEURISTICS:
            assert io_volume(document, name, memory, options) >= whole >= least


def check_postorders(document):
    inward = document["orientation"] == "in"
    for memory in memories(document):
        orders = [order if inward else order[::-1] for order in oracle.postorders(document["parent"])]
        least = min(oracle.least_volume(document, order, memory) for order in orders)
        assert io_volume(document, "postorder-min-io", memory) == least


@draws(10)
@given(tiny())
def test_furthest_in_future_is_best_for_a_traversal(document):
    """With divisible values; and no heuristic moves less than whole values allow."""
    check_traversal(document)


@pytest.mark.slow
@draws(200)
@given(tiny(largest=6))
def test_furthest_in_future_is_best_for_a_traversal_thoroughly(document):
    check_traversal(document)


@draws(60)
@given(tiny(largest=6))
def test_no_postorder_moves_less(document):
    check_postorders(document)


@pytest.mark.slow
@draws(600)
@given(tiny(largest=7))
def test_no_postorder_moves_less_thoroughly(document):
    check_postorders(document)


def test_huge_sizes_are_exact():
    """Sizes beyond 2^53 move to the byte."""
    huge = 2**58
    document = oracle.tree([1, 4, 3, 4, -1], [3 * huge + 1, huge + 3, 3 * huge + 1, huge + 5, 0])
    memory = oracle.requirement(document)
    assert memory == 4 * huge + 6
    assert io_volume(document, "postorder-min-io", memory) == io_volume(document, "min-io-lsnf", memory, FIF)
    order = oracle.runs(remat.solve(document, algorithm="postorder-min-io", machine=oracle.machine(memory)))
    first = order.index(1) > order.index(3)  # which of the two outputs waits
    waits = huge + 5 if first else huge + 3
    other = (3 * huge + 1) + (huge + 3 if first else huge + 5)
    assert io_volume(document, "postorder-min-io", memory) == waits + other - memory


def test_the_least_peak_is_not_the_least_volume():
    """Two subtrees that both overflow 10 bytes: the one with the smaller output (2) should come first.

    P - f is 14 - 2 at node 1 and 12 - 1 at node 2, min(M, P) - f is 8 and 9. Inside them 4 and 2 bytes must go.
    """
    document = oracle.tree([-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6], [1, 2, 1, 4, 4, 2, 2, 6, 6, 8, 8])
    assert oracle.requirement(document) == 10
    assert io_volume(document, "postorder-min-io", 10) == 4 + 2 + 1
    assert io_volume(document, "min-io-lsnf", 10, FIF | {"traversal": "liu-postorder"}) == 4 + 2 + 2
