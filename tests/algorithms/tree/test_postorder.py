"""The given post-order and the best one, against trying every order of children."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat_algorithms.tree.postorder import best_postorder
from tests.algorithms.tree.trees import document, is_postorder, random_weights, simulate, tree
from tests.oracles import search


def check_best(seed):
    parent, size, workspace = random_weights(seed, largest=9)
    numbered = tree(parent, size, workspace)
    order = numbered.node[best_postorder(numbered)].tolist()
    assert is_postorder(parent, order)
    assert simulate(parent, size, workspace, order) == search.tree_best_postorder(parent, size, workspace)


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_postorders_equal_exhaustive_search(seed):
    check_best(seed)


@pytest.mark.slow
@settings(max_examples=5000, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_postorders_equal_exhaustive_search_on_many_trees(seed):
    check_best(seed)


def test_given_order_is_that_of_the_numbers():
    result = remat.solve(document([4, 4, 1, 1, -1], [1, 2, 3, 4, 5]), algorithm="postorder")
    assert [step.task for step in result.steps] == ["T0", "T2", "T3", "T1", "T4"]
    assert result.peak_memory == {"memory": 1 + 3 + 4 + 2}


def test_given_order_is_one_schedule_whatever_the_budget():
    instance = document([2, 2, -1], [1, 1, 1], [0, 9, 0])
    assert remat.solve(instance, algorithm="liu-postorder").peak_memory == {"memory": 10}
    result = remat.solve(instance, algorithm="postorder", budget=10)
    assert (result.status, result.scope, result.least_budget.size) == (
        "unknown",
        "the post-order by node numbers",
        11,
    )
    assert remat.solve(instance, algorithm="postorder", budget=11).peak_memory == {"memory": 11}


def test_ties_go_by_numbers():
    result = remat.solve(document([3, 3, 3, -1], [1, 1, 1, 1]), algorithm="liu-postorder")
    assert [step.task for step in result.steps] == ["T0", "T1", "T2", "T3"]
