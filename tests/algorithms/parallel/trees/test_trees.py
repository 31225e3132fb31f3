"""All algorithms for trees on several processors: valid, within the budget, no better than possible."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from tests.algorithms.parallel.cases import BOUNDED, TREES, check, on_any_tree, peak, solve, tree
from tests.algorithms.parallel.optimum import shortest

PROCESSORS = st.sampled_from([2, 3, 8])


def exploring(examples):
    return settings(max_examples=examples, derandomize=True, database=None, deadline=None)


def every_schedule_is_valid(document, processors):
    for algorithm in TREES:
        if algorithm == "all-to-all" and "parallel" not in document:
            continue
        result = solve(document, algorithm, processors)
        check(document, result)
        assert result.lower_bound <= result.makespan * (1 + 1e-9)


@exploring(40)
@given(on_any_tree(), PROCESSORS)
def test_every_schedule_is_valid(document, processors):
    every_schedule_is_valid(document, processors)


@pytest.mark.slow
@exploring(400)
@given(on_any_tree(), PROCESSORS)
def test_every_schedule_is_valid_thoroughly(document, processors):
    every_schedule_is_valid(document, processors)


def the_bound_holds(document, processors, share):
    """Every budget from the sequential peak on has a schedule; one byte less has none."""
    least = peak(remat.solve(document, algorithm="liu"))
    for algorithm in BOUNDED:
        most = peak(solve(document, algorithm, processors))
        for budget in {least, least + max(0, most - least) * share // 100, max(least, most)}:
            result = solve(document, algorithm, processors, budget)
            assert peak(result) <= budget
            check(document, result)
        if least > 0:
            less = solve(document, algorithm, processors, least - 1)
            assert less.columns is None
            if algorithm != "dag-list-memory":
                assert (less.status, less.scope, less.least_budget.size) == ("infeasible", "all schedules", least)


@exploring(40)
@given(on_any_tree(), PROCESSORS, st.integers(0, 99))
def test_bounds_hold_on_drawn_trees(document, processors, share):
    the_bound_holds(document, processors, share)


@pytest.mark.slow
@exploring(400)
@given(on_any_tree(largest=30), PROCESSORS, st.integers(0, 99))
def test_the_bound_holds_thoroughly(document, processors, share):
    the_bound_holds(document, processors, share)


@exploring(25)
@given(st.data())
def test_none_beats_the_optimum(data):
    count = data.draw(st.integers(1, 6))
    parent = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, count))]
    size, workspace, time = (data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)) for _ in range(3))
    processors, extra = data.draw(st.integers(2, 3)), data.draw(st.integers(0, 4))
    document = tree(parent, size, workspace=workspace, time=time)
    budget = peak(remat.solve(document, algorithm="liu")) + extra
    best = shortest(parent, size, workspace, time, processors, budget)
    for algorithm in TREES[1:]:
        result = solve(document, algorithm, processors, budget)
        assert result.lower_bound <= best
        assert result.makespan is None or result.makespan >= best
        if algorithm in BOUNDED:
            assert result.makespan is not None


def assembly_trees():
    data = os.environ.get("REMAT_DATA")
    if data is None:
        pytest.skip("REMAT_DATA is not set")
    return sorted(str(path) for path in (Path(data) / "trees").glob("*.json.gz"))


def holds_on(instance, processors):
    least = peak(remat.solve(instance, algorithm="liu"))
    for algorithm in TREES[1:]:
        assert solve(instance, algorithm, processors).makespan is not None
    for budget in (least, 3 * least // 2, 3 * least):
        for algorithm in BOUNDED:
            assert peak(solve(instance, algorithm, processors, budget)) <= budget


def test_a_small_assembly_tree():
    instance = next(path for path in assembly_trees() if "bcsstk01" in path)
    for processors in (2, 32):
        holds_on(instance, processors)


@pytest.mark.slow
@pytest.mark.parametrize("processors", [2, 4, 8, 16, 32])
def test_bounds_hold_on_assembly_trees(processors):
    for path in assembly_trees():
        holds_on(path, processors)


@pytest.mark.slow
@pytest.mark.parametrize("processors", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("family", ["random", "caterpillar", "binary", "grid2d"])
def test_bounds_hold_on_generated_trees(family, processors):
    shape = {"nx": 30, "ny": 30} if family == "grid2d" else {"nodes": 1000}
    holds_on(generate("tree", family, **shape), processors)


@pytest.mark.parametrize("algorithm", TREES[1:])
def test_leaves_of_a_star_run_in_parallel(algorithm):
    # Eight leaves on four processors, then the root.
    document = tree([-1] + [0] * 8, [1] * 9)
    assert solve(document, algorithm, 4).makespan == (3 if algorithm != "par-subtrees" else 6)


def test_par_subtrees_spread():
    document = tree([-1] + [0] * 8, [1] * 9)
    assert solve(document, "par-subtrees", 4, spread=True).makespan == 3


def test_inner_nodes_come_before_leaves():
    # Node 1 is ready when its leaves 3 and 4 have ended; the leaf 2 waits, although it lies on the longer path.
    document = tree([-1, 0, 0, 1, 1], [1] * 5, time=[1, 1, 5, 1, 1], workspace=[0, 0, 0, 3, 3])
    inner = [step.task for step in solve(document, "par-inner-first", 2).steps]
    deepest = [step.task for step in solve(document, "par-deepest-first", 2).steps]
    assert inner.index("T1") < inner.index("T2")
    assert deepest[0] == "T2"


def test_idle_processors_are_shared_out():
    document = tree([-1, 0, 0], [1, 1, 1], time=[6, 6, 6], parallel={"max": 3, "alpha": 1.0})
    result = solve(document, "par-deepest-first", 4)
    assert [len(step.on) for step in result.steps] == [2, 2, 3]
    assert result.makespan == 5


def test_the_budget_delays_but_does_not_forbid():
    # Two leaves with large workspaces fit one after the other only.
    document = tree([-1, 0, 0], [1, 1, 1], workspace=[0, 9, 9])
    for algorithm in TREES[1:]:
        result = solve(document, algorithm, 2, 11)
        assert (result.makespan, peak(result)) == (3, 11)


def test_only_processors_of_the_first_memory_are_used():
    # Only the processors of the first one's memory are used.
    document = tree([-1, 0, 0, 0, 0], [1] * 5)
    document["machine"] = {
        "memories": [{"name": "near"}, {"name": "far"}],
        "processors": [{"name": "a", "memory": "near", "count": 2}, {"name": "b", "memory": "far", "count": 2}],
    }
    for algorithm in ("par-inner-first", "proportional", "dag-list-memory"):
        result = remat.solve(document, algorithm=algorithm)
        assert result.makespan == 3
        assert {name for step in result.steps for name in step.on} == {"a0", "a1"}
