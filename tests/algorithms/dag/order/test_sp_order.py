"""`sp-order`: equal to the exact search on series-parallel graphs; its bound holds where readers are in doubt."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.instance import load
from remat.plugin import Context, Termination
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.order.model import order_model
from remat_algorithms.dag.order.series_parallel import NotSeriesParallelError, evaluate, reduced
from remat_algorithms.dag.order.sp_order import series_parallel_order, solve
from tests.algorithms.dag.order.graphs import document, random_graph, random_series_parallel
from tests.oracles.search import dag_best_order_peak


def peak(graph: dict[str, Any], algorithm: str) -> int:
    return remat.solve(graph, algorithm=algorithm).peak_memory["memory"]


@pytest.mark.parametrize("seed", range(80))
def test_series_parallel_graphs_are_solved_exactly(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_series_parallel(rng, rng.randint(1, 9))
    assert peak(graph, "sp-order") == dag_best_order_peak(graph)


@pytest.mark.parametrize("seed", range(25))
def test_larger_ones_equal_the_search_over_downsets(seed: int) -> None:
    graph = random_series_parallel(random.Random(seed), 18)
    exact = remat.solve(graph, algorithm="dag-order-exact")
    assert exact.notes == ()
    assert peak(graph, "sp-order") == exact.peak_memory["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_many_series_parallel_graphs(seed: int) -> None:
    graph = random_series_parallel(random.Random(seed), 11)
    assert peak(graph, "sp-order") == dag_best_order_peak(graph)


@pytest.mark.parametrize("seed", range(100))
def test_bound_holds_where_the_last_reader_is_in_doubt(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 8))
    problem = make_problem(load(graph))
    model = order_model(problem, "test")
    try:
        found = series_parallel_order(problem, model, lambda: False)
    except remat.OptionError:
        return
    assert found is not None
    order, bound = found
    assert sorted(order) == list(range(len(model)))
    assert bound <= dag_best_order_peak(graph) <= model.peak(order)


def test_shared_values_of_two_branches() -> None:
    """One value, read by the heads of two branches: proved by the search, bounded by the shares."""
    tasks: list[dict[str, Any]] = [{"id": "s", "time": 1, "size": 10}]
    for branch, sizes in (("a", (6, 1)), ("b", (7, 2))):
        tasks.append({"id": f"{branch}0", "time": 1, "reads": ["s"], "size": sizes[0]})
        tasks.append({"id": f"{branch}1", "time": 1, "reads": [f"{branch}0"], "size": sizes[1]})
    tasks.append({"id": "t", "time": 1, "reads": ["a1", "b1"], "size": 1})
    graph = document(values=[], tasks=tasks, outputs=["t"])
    result = remat.solve(graph, algorithm="sp-order")
    optimum = dag_best_order_peak(graph)
    assert result.peak_memory["memory"] >= optimum
    assert remat.solve(graph, algorithm="sp-order", budget=9).status.value == "infeasible"


def test_release_as_a_task_of_its_own() -> None:
    """A value read by all single-task branches of a fork is freed when the last of them ends: exact."""
    tasks: list[dict[str, Any]] = [{"id": "s", "time": 1, "size": 10}, {"id": "c", "time": 1, "size": 9}]
    tasks += [{"id": f"b{i}", "time": 1, "reads": ["s"], "size": 2 + i, "workspace": 11 - 3 * i} for i in range(3)]
    tasks.append({"id": "t", "time": 1, "reads": ["b0", "b1", "b2", "c"], "size": 1})
    graph = document(values=[], tasks=tasks, outputs=["t"])
    result = remat.solve(graph, algorithm="sp-order")
    assert result.notes == ()
    assert result.peak_memory["memory"] == dag_best_order_peak(graph)


def test_other_graphs_are_refused() -> None:
    """The N: a before c and d, b before d only."""
    tasks = [
        {"id": "a", "time": 1, "writes": ["ac", "ad"]},
        {"id": "b", "time": 1, "writes": ["bd"]},
        {"id": "c", "time": 1, "reads": ["ac"], "writes": []},
        {"id": "d", "time": 1, "reads": ["ad", "bd"], "writes": []},
    ]
    graph = document(values=[{"id": v, "size": 1} for v in ("ac", "ad", "bd")], tasks=tasks)
    with pytest.raises(remat.OptionError, match="series-parallel precedence, which fails at task"):
        remat.solve(graph, algorithm="sp-order")


def test_superfluous_edges_do_not_matter() -> None:
    assert reduced([[], [0], [0, 1], [0, 1, 2]]) == [[], [0], [1], [2]]


def test_graphs_decompose_into_series_and_parallel_parts() -> None:
    def composed(predecessors: list[list[int]]) -> str:
        return evaluate(predecessors, str, lambda one, other: f"({one}.{other})", lambda one, other: f"({one}|{other})")

    assert composed([[]]) == "0"
    assert composed([[], [0], [1]]) == "((0.1).2)"
    assert composed([[], []]) == "(0|1)"
    assert composed([[], [0], [0], [1, 2]]) == "((0.(1|2)).3)"
    with pytest.raises(NotSeriesParallelError):
        composed([[], [], [0], [0, 1]])
    # A bridge: complete bipartite everywhere, and yet no series-parallel order (Wheatstone).
    with pytest.raises(NotSeriesParallelError):
        composed([[], [0], [0], [1], [1], [2, 3], [4, 5]])


@pytest.mark.parametrize("family", ["chain", "star", "caterpillar", "random"])
def test_peaks_of_long_trees_are_at_most_those_of_liu_postorder(family: str) -> None:
    from remat.generate import generate

    made = generate("tree", family, nodes=1000, seed=1)
    liu = remat.solve(made, algorithm="liu-postorder").peak_memory["memory"]
    assert peak(made, "sp-order") <= liu


def test_unknown_where_it_is_stopped() -> None:
    graph = random_series_parallel(random.Random(0), 9)
    problem = make_problem(load(graph))
    assert series_parallel_order(problem, order_model(problem, "test"), lambda: True) is None
    proposal = solve(problem, None, Context(deadline=0.0))
    assert proposal.steps is None
    assert proposal.termination is Termination.TIME_LIMIT


def test_releases_are_asked_about_the_stop_one_by_one() -> None:
    """The third of the values in doubt is not looked at any more."""
    tasks: list[dict[str, Any]] = [{"id": f"s{i}", "time": 1, "size": 1} for i in range(5)]
    tasks += [{"id": reader, "time": 1, "reads": [f"s{i}" for i in range(5)], "size": 1} for reader in "ab"]
    problem = make_problem(load(document(values=[], tasks=tasks, outputs=["a", "b"])))
    asked: list[bool] = []

    def stopped() -> bool:
        asked.append(len(asked) == 2)
        return asked[-1]

    assert series_parallel_order(problem, order_model(problem, "test"), stopped) is None
    assert len(asked) == 3
