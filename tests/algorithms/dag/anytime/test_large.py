"""Large graphs: several candidates at once, gains by blocks, deep cuts."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.plans import records
from remat_algorithms.dag.plans.differences import BLOCK, FEW, SHORT, add, clear, gain_of, summarise
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.plans.records import HERE, NOW
from remat_algorithms.dag.plans.search_state import ALPHAS, Search

SMALL = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def perceptron(layers):
    """Return a training graph with three tasks per layer and direction; values take most of the memory."""
    return dict(generate("dag", "mlp", layers=layers, batch=8192, keep_gradients=False))


def search_of(document, share, *, compiled):
    """A document's search for a share of its peak."""
    model = stage_model(make_problem(remat.load(document)))
    search = Search(model, 0, 0, compiled=compiled)
    search.budget = search.measure(model.tables.first, range(model.stages)).peak * share // 100
    return search


SEARCH = search_of(dict(generate("dag", "layered", nodes=400, seed=1)), 80, compiled=False)


@settings(max_examples=80, **SMALL)
@given(st.integers(0, 10**6), st.integers(1, FEW), st.integers(0, 300), st.data())
def test_gains_by_blocks_are_those_of_each_position(seed, most, budget, data):
    # Two positions for each difference: up to half of `FEW` they are sorted.
    work, room = SEARCH._work, SEARCH.room
    count = int(room.length[NOW])
    assert count > SHORT + 2 * BLOCK
    levels = [(seed * (place + 7) // 3 + place * place) % 400 for place in range(count)]
    # Neighbours are alike, so that whole blocks lie above the budget, or below.
    levels = [sum(levels[place // 50 * 5 : place // 50 * 5 + 5]) // 5 + levels[place] // 9 for place in range(count)]
    work.memory[:count] = levels
    clear(room)
    summarise(work, room, count, budget)
    change = [0] * (count + 1)
    for _ in range(data.draw(st.integers(1, most))):
        low = data.draw(st.integers(0, count - 1))
        high, size = data.draw(st.integers(low, count)), data.draw(st.integers(-90, 60))
        add(room, low, high, size)
        for place in range(low, high):
            change[place] += size
    gain = sum(
        max(0, level - budget) - max(0, level + more - budget) for level, more in zip(levels, change, strict=False)
    )
    assert gain_of(work, room, budget) == gain
    assert not any(room.delta)


@pytest.mark.parametrize(("document", "share"), [
    (dict(generate("dag", "layered", nodes=120, seed=5)), 85),
    (dict(generate("dag", "layered", nodes=90, seed=3, training=True)), 60),
    (perceptron(20), 40),
])  # fmt: skip
def test_several_at_once_come_out_alike_compiled(document, share, monkeypatch):
    monkeypatch.setattr(records, "MANY_FROM", 0)
    plans = []
    for compiled in (False, True):
        search = search_of(document, share, compiled=compiled)
        found = [search.construct(alpha, noise) for alpha in ALPHAS for noise in (0.0, 0.5)]
        assert search.room.state.batch > 0
        best = min((plan for plan in found if plan is not None), key=lambda plan: plan.time)
        assert best.peak <= search.budget
        search.start(best)
        plans.append((found, search.improve(3)[1], [int(n) for n in search.room.item[HERE]]))
    assert plans[0] == plans[1]


def test_several_at_once_take_fewer_steps_and_are_no_worse(monkeypatch):
    monkeypatch.setattr(records, "MANY_FROM", 10**9)
    one = search_of(perceptron(120), 50, compiled=True)
    by_one = one.construct(1.0)
    monkeypatch.setattr(records, "MANY_FROM", 0)
    search = search_of(perceptron(120), 50, compiled=True)
    by_many = search.construct(1.0)
    assert by_one is not None
    assert by_many is not None
    assert by_many.time <= by_one.time * 1.001
    reruns = len(by_many.item) - search.model.stages
    assert reruns > 100 > 5 * search.room.state.batch


@pytest.mark.slow
def test_deep_cuts_of_long_graphs_are_found(monkeypatch):
    # Each rerun amid hundreds of others adds a position above the budget: by positions nothing seems to gain.
    monkeypatch.setattr(records, "MANY_FROM", 10**9)
    search = search_of(perceptron(450), 15, compiled=True)
    search.room.state.dearest = 1e300  # As if a plan were known: then the area is not measured by stages.
    assert search.construct(1.0) is None
    search.room.state.dearest = math.inf
    plan = search.construct(1.0)
    assert plan is not None
    assert plan.peak <= search.budget


def test_a_network_of_thousands_of_tasks_is_planned_and_bounded():
    instance = remat.load(perceptron(700))
    problem = make_problem(instance)
    peak = next(iter(remat.solve(instance, algorithm="keep-all").peak_memory.values()))
    result = remat.solve(instance, algorithm="dag-auto", budget=peak // 2, time_limit=120, threads=2)
    assert result.makespan is not None
    assert result.makespan <= 1.02 * problem.no_recompute_time
    assert result.status == "optimal"
