"""Test `dag-order-exact` against exhaustive search and at its limits, and its search in isolation."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.instance import load
from remat.plugin.context import Context
from remat.plugin.proposal import Termination
from remat.plugin.registry import find
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.order.dag_order_exact import ExactOptions
from remat_algorithms.dag.order.model import order_model
from remat_algorithms.dag.order.search import block_of, search
from remat_algorithms.dag.order.window_search import good_order, improve, improved
from tests.algorithms.dag.order.graphs import document, random_graph, random_series_parallel, width
from tests.oracles.search import dag_best_order_peak


def check_graph(graph: dict[str, Any]) -> None:
    optimum = dag_best_order_peak(graph)
    result = remat.solve(graph, algorithm="dag-order-exact")
    assert result.peak_memory["memory"] == optimum
    assert result.recompute_time == 0
    problem = make_problem(load(graph))
    model = order_model(problem, "test")
    # The search without heuristics, bounds or cuts.
    whole = block_of(model, list(range(len(model))), 0, len(model))
    found = search(whole, floor=0, ceiling=10**9, limit=10**6, stopped=lambda: False)
    assert found.order is not None
    assert sorted(found.order) == list(range(len(model)))
    assert max(found.bound, model.start_peak) == model.peak(found.order) == optimum
    # The optimum is no ceiling that anything stays below.
    assert search(whole, floor=0, ceiling=found.bound, limit=10**6, stopped=lambda: False).order is None
    for name in ("dag-order-greedy", "dag-order-lpmf"):
        assert remat.solve(graph, algorithm=name).peak_memory["memory"] >= optimum
    order = [model.tasks.index(task) for task in improve(problem.graph).tolist()]
    assert optimum <= model.peak(order) <= model.peak(good_order(model))


@pytest.mark.parametrize("seed", range(80))
def test_exhaustive_search_agrees(seed: int) -> None:
    rng = random.Random(seed)
    check_graph(random_graph(rng, rng.randint(1, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_exhaustive_search_agrees_on_larger_graphs(seed: int) -> None:
    rng = random.Random(seed)
    check_graph(random_graph(rng, rng.randint(8, 12)))


@pytest.mark.parametrize("seed", range(20))
def test_budget_below_the_optimum_is_infeasible(seed: int) -> None:
    graph = random_graph(random.Random(seed), 7)
    optimum = dag_best_order_peak(graph)
    if optimum:
        short = remat.solve(graph, algorithm="dag-order-exact", budget=optimum - 1)
        assert short.scope is not None
        assert short.least_budget is not None
        assert short.least_budget.size <= optimum


def test_states_are_limited() -> None:
    wide = width(5, 5)
    # A task that reads from two of the chains, so that the graph is not series-parallel.
    wide["tasks"].insert(-1, {"id": "cross", "time": 1, "reads": ["T0_2", "T1_1"], "size": 3})
    unlimited = remat.solve(wide, algorithm="dag-order-exact", options={"states": 20_000})
    none = remat.solve(wide, algorithm="dag-order-exact", options={"states": 0})
    assert none.peak_memory["memory"] >= unlimited.peak_memory["memory"]
    if none.termination is Termination.ITERATION_LIMIT:
        assert "at least" in none.notes[0]
    peak = none.peak_memory["memory"]
    small = remat.solve(wide, algorithm="dag-order-exact", options={"states": 0}, budget=peak - 1)
    assert str(small.status) in ("unknown", "infeasible")


@pytest.mark.parametrize("context", [Context(interrupted=True), Context(deadline=0.0)])
def test_stopped_before_it_starts(context: Context) -> None:
    problem = make_problem(load(width(5, 5)))
    proposal = find("dag-order-exact", "dag").load()(problem, ExactOptions(), context)
    assert proposal.steps is not None
    assert context.best_steps is not None
    if proposal.notes:
        assert proposal.termination is context.termination


def test_long_narrow_graphs_are_cheap() -> None:
    """The cost follows the width: 1500 tasks, two abreast, cut at every joint."""
    tasks: list[dict[str, Any]] = [{"id": "j0", "time": 1, "size": 5}]
    for k in range(500):
        tasks.append({"id": f"a{k}", "time": 1, "reads": [f"j{k}"], "size": k % 13, "workspace": k % 7})
        tasks.append({"id": f"b{k}", "time": 1, "reads": [f"j{k}"], "size": k % 11, "workspace": k % 5})
        tasks.append({"id": f"j{k + 1}", "time": 1, "reads": [f"a{k}", f"b{k}"], "size": 5})
    result = remat.solve(document(values=[], tasks=tasks, outputs=["j500"]), algorithm="dag-order-exact")
    assert str(result.termination) == "completed"
    assert not result.notes


def test_values_with_several_origins_are_refused() -> None:
    tasks = [{"id": f"T{i}", "time": 1, "writes": ["v"]} for i in range(2)]
    graph = document(values=[{"id": "v", "size": 1}], tasks=tasks)
    for name in ("dag-order-exact", "dag-order-greedy", "dag-order-lpmf", "sp-order"):
        with pytest.raises(remat.OptionError, match="'v' has several origins"):
            remat.solve(graph, algorithm=name)


def test_inputs_that_nobody_reads_are_dropped_first() -> None:
    graph = document(
        values=[{"id": "x", "size": 10}, {"id": "y", "size": 8}],
        tasks=[{"id": "T", "time": 1, "writes": ["y"]}],
        inputs=["x"],
        outputs=["y"],
    )
    assert remat.solve(graph, algorithm="dag-order-exact").peak_memory == {"memory": 10}


def test_windows_only_improve() -> None:
    for seed in range(5):
        problem = make_problem(load(random_series_parallel(random.Random(seed), 40)))
        model = order_model(problem, "test")
        start = good_order(model)
        better = improved(model, start, lambda: False)
        assert sorted(better) == sorted(start)
        assert model.peak(better) <= model.peak(start)
