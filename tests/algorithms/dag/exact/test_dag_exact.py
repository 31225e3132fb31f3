"""`dag-exact` against exhaustive search, at its limits, and beyond one memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.generate.layered import layered_dag
from remat.instance import load
from remat.plugin import ALL_SCHEDULES, Context, Proposal
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.exact.dag_exact import MOST_TASKS, ONE_MEMORY, DagExactOptions, solve
from remat_algorithms.dag.exact.dominance import Covers
from remat_algorithms.dag.exact.search import Work, beam, quickest
from remat_algorithms.dag.exact.states import States
from tests.algorithms.dag.exact.graphs import random_graph
from tests.oracles import search


def check(graph: dict[str, Any], shares: tuple[int, ...]) -> bool:
    """Compare with exhaustive search at, below and above the minimum budget; return whether recomputation helped."""
    least = search.chain_least_budget(graph)
    if least is None:
        # `recomputable: false` may leave a graph without any schedule, whatever the budget.
        alone = remat.solve(graph, algorithm="dag-exact")
        assert (str(alone.status), alone.scope, alone.least_budget) == ("infeasible", ALL_SCHEDULES, None)
        return False
    states = States(make_problem(load(graph)))
    proved = states.time_before(states.end)
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
        assert proved is not None
        assert float(proved * states.unit) <= optimum * (1 + 1e-9)
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


@pytest.mark.parametrize("seed", range(1, 6))
def test_exhaustive_search_agrees_on_layered_graphs(seed: int) -> None:
    graph = layered(12, seed)
    least, peak = search.chain_least_budget(graph), remat.solve(graph, algorithm="keep-all").peak_memory["memory"]
    for budget in (least, least + (peak - least) // 4, least + (peak - least) // 2):
        assert remat.solve(graph, algorithm="dag-exact", budget=budget).makespan == search.chain_best(graph, budget)


def test_orders_and_reruns_together() -> None:
    """The optimum needs both: the best order alone and recomputation alone are slower or do not fit."""
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
    graph = layered(MOST_TASKS + 1, 1)
    keep = remat.solve(graph, algorithm="keep-all")
    peak = keep.peak_memory["memory"]
    ample, short = (remat.solve(graph, algorithm="dag-exact", budget=budget) for budget in (peak, peak - 1))
    assert (str(ample.status), ample.makespan) == ("optimal", keep.makespan)
    assert (str(short.status), str(short.termination)) == ("unknown", "size limit")
    assert f"{MOST_TASKS} tasks" in short.notes[0]


def test_beams_find_schedules_and_prove_nothing() -> None:
    graph = layered(20, 1)
    states = States(make_problem(load(graph)))
    room = remat.solve(graph, algorithm="dag-exact", budget=1).least_budget.size  # type: ignore[union-attr]
    ample = 100_000
    best = quickest(states, room, Work(ample, lambda: False)).value
    times = []
    for width in (1, 8, 1_000):
        found = beam(states, room, width, Work(ample, lambda: False), None)
        assert not found.finished
        if found.tasks is not None:
            assert states.replay(found.tasks)[1] <= room
            assert sum(states.times[task] for task in found.tasks) == found.value
            times.append(found.value)
    assert best is not None
    assert times[-1] == best  # no state was left out
    assert beam(states, room, 1_000, Work(ample, lambda: False), best).tasks is None


def test_covers_know_the_parts_of_a_set() -> None:
    rng = random.Random(1)
    for _ in range(30):
        covers, kept = Covers(), [(rng.getrandbits(6), rng.randint(0, 5)) for _ in range(rng.randint(0, 12))]
        for mask, price in kept:
            covers.add(mask, price)
        for mask in range(64):
            for price in range(6):
                expected = any(part & ~mask == 0 and asked <= price for part, asked in kept)
                assert covers.has_part(mask, price) == expected
    assert not Covers(patience=0).has_part(1, 9)


def test_more_than_one_memory_is_named() -> None:
    graph = layered(12, 4)
    peak = remat.solve(graph, algorithm="keep-all").peak_memory["memory"]
    memories, processors = [{"name": "device"}, {"name": "host"}], [{"name": "gpu", "memory": "device"}]
    links = [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}]
    machine = {"memories": memories, "processors": processors, "links": links}
    short, ample = (
        remat.solve(graph, algorithm="dag-exact", budget=share, machine=machine) for share in (1, peak * 9 // 10)
    )
    assert (ample.optimal_within, ample.makespan) == (ONE_MEMORY, 4824)
    assert short.scope == ALL_SCHEDULES  # a task alone takes more


def known(graph: dict[str, Any], budget: int, result: remat.Result, states: int) -> Proposal:
    """Solve with the schedule of a result that is known before."""
    context = Context()
    context.best_steps, context.best_makespan = result.columns, result.makespan
    return solve(make_problem(load(graph), budget=budget), DagExactOptions(states=states), context)


def test_a_known_schedule_is_the_first_incumbent() -> None:
    graph = layered(32, 1)
    budget = remat.solve(graph, algorithm="keep-all").peak_memory["memory"] * 7 // 10
    better = remat.solve(graph, algorithm="dag-auto", budget=budget, options={"iterations": 30, "reorder": True})
    alone = remat.solve(graph, algorithm="dag-exact", budget=budget, options={"states": 30})
    assert better.makespan is not None
    assert alone.makespan is None or alone.makespan > better.makespan
    found = known(graph, budget, better, 30)
    assert found.makespan == better.makespan


@pytest.mark.parametrize("seed", range(200, 215))
def test_known_schedules_change_no_optimum(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(3, 7))
    least = search.chain_least_budget(graph)
    if least is None:
        return
    slow = remat.solve(graph, algorithm="dag-exact", budget=least, options={"states": 20_000})
    for budget in (least, least + 2, 2 * least):
        assert known(graph, budget, slow, 20_000).makespan == search.chain_best(graph, budget)
