"""`dag-exact` against exhaustive search, at its limits, and beyond one memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.generate.layered import layered_dag
from remat.plugin import ALL_SCHEDULES
from remat_algorithms.dag.exact.dag_exact import MOST_TASKS, ONE_MEMORY
from tests.algorithms.dag.exact.graphs import random_graph
from tests.oracles import search


def check(graph: dict[str, Any], shares: tuple[int, ...]) -> bool:
    """Compare with the search of all schedules at the least budget, below it, and above; say whether any rerun paid."""
    least = search.chain_least_budget(graph)
    if least is None:
        # `recomputable: false` may leave a graph without any schedule, whatever the budget.
        alone = remat.solve(graph, algorithm="dag-exact")
        assert (str(alone.status), alone.scope, alone.least_budget) == ("infeasible", ALL_SCHEDULES, None)
        return False
    highest = max(least, *remat.solve(graph, algorithm="keep-all").peak_memory.values())
    paid = False
    for budget in {least - 1, *(least + (highest - least) * share // 100 for share in shares), least, highest}:
        if budget < 0:
            continue
        optimum = search.chain_best(graph, budget)
        result = remat.solve(graph, algorithm="dag-exact", budget=budget)
        if optimum is None:
            assert (str(result.status), result.scope) == ("infeasible", ALL_SCHEDULES)
            assert result.least_budget is not None
            assert (result.least_budget.size, result.least_budget.sufficient) == (least, True)
            continue
        assert str(result.status) == "optimal"
        assert result.makespan == (optimum if isinstance(optimum, int) else pytest.approx(optimum, rel=1e-9, abs=0))
        paid = paid or result.recompute_time > 0
    return paid


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_exhaustive_search_agrees(first: int) -> None:
    paid = 0
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        paid += check(random_graph(rng, rng.randint(1, 7)), (rng.randint(0, 99), 25))
    assert paid


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_exhaustive_search_agrees_on_larger_graphs(seed: int) -> None:
    rng = random.Random(seed)
    check(random_graph(rng, rng.randint(6, 9)), (10, 25, 50, 75))


def layered(count: int, seed: int) -> dict[str, Any]:
    return layered_dag(nodes=count, seed=seed)


def test_orders_and_reruns_together() -> None:
    """Where the best order alone, and reruns in the listed order alone, are both too slow or do not fit."""
    graph = layered(12, 4)
    peak = remat.solve(graph, algorithm="keep-all").peak_memory["memory"]
    best = remat.solve(graph, algorithm="dag-exact", budget=peak * 9 // 10)
    assert str(best.status) == "optimal"
    assert best.makespan == search.chain_best(graph, peak * 9 // 10) == 4824


def test_states_are_limited() -> None:
    graph = layered(32, 1)
    least = remat.solve(graph, algorithm="dag-exact", budget=1, options={"states": 20_000}).least_budget
    assert least is not None
    assert least.sufficient
    bounds = []
    for states in (100, 300, 20_000):
        result = remat.solve(graph, algorithm="dag-exact", budget=least.size, options={"states": states})
        bounds.append(result.lower_bound)
        if states < 20_000:
            assert str(result.termination) == "iteration limit"
            assert f"{states:,} states" in result.notes[0]
        else:
            assert str(result.status) == "optimal"
            assert result.makespan == result.lower_bound
    assert bounds == sorted(bounds)
    none = remat.solve(graph, algorithm="dag-exact", budget=least.size - 1, options={"states": 0})
    assert (str(none.status), str(none.termination)) == ("unknown", "iteration limit")


def test_large_graphs_are_not_searched() -> None:
    result = remat.solve(layered(MOST_TASKS + 1, 1), algorithm="dag-exact", budget=1_000)
    assert str(result.termination) == "size limit" or str(result.status) == "infeasible"


def test_more_than_one_memory_is_named() -> None:
    graph = layered(12, 4)
    peak = remat.solve(graph, algorithm="keep-all").peak_memory["memory"]
    host = {"name": "host"}
    machine = {"memories": [{"name": "device"}, host], "processors": [{"name": "gpu", "memory": "device"}]}
    short, ample = (
        remat.solve(graph, algorithm="dag-exact", budget=share, machine=machine) for share in (1, peak * 9 // 10)
    )
    assert (ample.optimal_within, ample.makespan) == (ONE_MEMORY, 4824)
    assert short.scope == ALL_SCHEDULES  # a task alone takes more
