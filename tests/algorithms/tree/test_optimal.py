"""`liu` and `minmem` against exhaustive search over all traversals, and against each other."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_algorithms.tree.liu import best_traversal
from remat_algorithms.tree.minmem import least_memory_traversal
from remat_algorithms.tree.postorder import best_postorder
from tests.algorithms.tree.trees import random_parents, random_weights, simulate, tree
from tests.oracles import search

EXACT = (best_traversal, least_memory_traversal)


def check_exhaustively(seed):
    parent, size, workspace = random_weights(seed, largest=9)
    numbered = tree(parent, size, workspace)
    optimum = search.tree_best_traversal(parent, size, workspace)
    for algorithm in EXACT:
        order = numbered.node[algorithm(numbered)].tolist()
        assert simulate(parent, size, workspace, order) == optimum


def check_agreement(numbered):
    liu, minmem, postorder = (numbered.peak_of(f(numbered))[0] for f in (*EXACT, best_postorder))
    assert liu == minmem
    assert numbered.requirement.max() <= liu <= postorder
    for algorithm in EXACT:
        order = algorithm(numbered).tolist()
        place = {node: at for at, node in enumerate(order)}
        assert len(place) == len(numbered)
        assert all(place[c] < place[node] for node, start, end in numbered.rows() for c in range(start, end))


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_least_of_all_traversals(seed):
    check_exhaustively(seed)


@pytest.mark.slow
@settings(max_examples=4000, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_least_of_all_traversals_thoroughly(seed):
    check_exhaustively(seed)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_both_agree_on_larger_trees(seed):
    check_agreement(tree(*random_weights(seed, largest=300)))


@pytest.mark.slow
@settings(max_examples=1500, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_both_agree_on_larger_trees_thoroughly(seed):
    check_agreement(tree(*random_weights(seed, largest=2000)))


@pytest.mark.parametrize("reach", [1, 3, 400])
@pytest.mark.parametrize("rising", [True, False])
def test_trees_with_many_segments_are_optimal(reach, rising):
    """Sizes that grow towards the root leave a segment for each node: heaps are large, and are melded."""
    draw = random.Random(reach)
    parent = random_parents(draw, 400, reach)
    size = [0] * 400
    numbered = tree(parent, size)
    for place, node in enumerate(numbered.node.tolist()):
        size[node] = place**2 if rising else (400 - place) ** 2
    workspace = [10**6 - s for s in size] if rising else [draw.randint(0, 10**5) for _ in size]
    check_agreement(tree(parent, size, workspace))
