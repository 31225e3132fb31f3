"""The bit matrices of `chain-best`: peaks, twins and bounds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin.emit import run_in_order
from remat.solving.single import make_problem
from remat_algorithms.chain import phases_kernel
from remat_algorithms.chain.phases import Phases
from remat_algorithms.chain.time_bound import recompute_bound
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.oracles import search

READS = [["input", "output", "saved"], ["saved"], ["input"], ["output", "saved"], []]


def draw_any(seed: int, stages: int) -> dict[str, Any]:
    """Return a chain that may run in place and read less."""
    rng = random.Random(seed)
    instance = draw_chain(seed, stages) | {"in_place": rng.random() < 0.4}
    for stage in instance["stages"]:
        if rng.random() < 0.4:
            stage["backward_reads"] = rng.choice(READS)
    return instance


def draw_matrix(rng: random.Random, length: int, density: float) -> Any:
    runs = np.zeros((length + 1, length), dtype=np.bool_)
    runs[length] = True
    for phase in range(length):
        for stage in range(phase + 1):
            runs[phase, stage] = rng.random() < density
    return runs


@pytest.mark.parametrize("seed", range(40))
def test_every_matrix_is_a_schedule_with_the_peak_that_is_computed(seed: int) -> None:
    rng = random.Random(seed)
    instance = draw_any(seed, rng.randint(1, 7))
    problem = make_problem(remat.load(instance))
    phases = Phases.of(problem.chain)
    arrays = (phases.sizes, phases.workspace, phases.reads, phases.in_place)
    for density in (0.1, 0.5):
        runs = draw_matrix(rng, phases.length, density)
        tasks = phases.tasks(runs)
        steps = run_in_order(problem.graph, problem.machine, tasks)
        document = {"schema": "remat.schedule/1", "steps": _named(problem, steps)}
        report = remat.verify(remat.load(instance), document)
        assert report.ok, report.violations
        # What lies in memory before the first step is part of the report's peak only.
        expected = report.peak_memory["memory"] - problem.chain.static_memory
        inputs = int(problem.chain.activation_size[0])
        assert max(phases.peak(tasks), inputs) == expected
        assert max(phases_kernel.peak(runs, *arrays, 2**62), inputs) == expected
        assert max(phases_kernel.peak.py_func(runs, *arrays, 2**62), inputs) == expected
        again = phases.matrix(tasks)
        assert again is not None
        assert np.array_equal(again, runs)


def _named(problem: Any, steps: Any) -> list[dict[str, Any]]:
    graph = problem.graph
    drops = steps.drop.to_lists()
    return [
        {"run": graph.tasks[task], "drop": [graph.values[value] for value in drops[k]]}
        for k, task in enumerate(steps.runs.tolist())
    ]


def test_other_orders_have_no_matrix() -> None:
    phases = Phases.of(make_problem(remat.load(draw_chain(0, 3))).chain)
    assert phases.matrix([0, 1, 2]) is not None
    assert phases.matrix([0, 1, 1, 2]) is None
    assert phases.matrix([1, 2]) is None


def test_improve_keeps_to_the_budget_and_to_its_cost() -> None:
    instance = draw_chain(7, 12)
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    assert least is not None
    budget = least.size + 4
    start = remat.solve(instance, algorithm="rotor", budget=budget).columns
    assert start is not None
    problem = make_problem(remat.load(instance), budget=budget)
    phases = Phases.of(problem.chain)
    room = budget - problem.chain.static_memory
    outcomes = []
    for improve in (phases_kernel.improve, phases_kernel.improve.py_func):
        current = phases.matrix(start.runs.tolist())
        assert current is not None
        best, first = current.copy(), (current[:-1] * phases.time).sum()
        cost, state = np.array([first, first]), np.array([12345], dtype=np.uint64)
        arrays = (phases.sizes, phases.workspace, phases.reads, phases.in_place, room)
        with np.errstate(over="ignore"):
            improve(40, current, best, cost, phases.time, *arrays, state)
        assert cost[1] == (best[:-1] * phases.time).sum() <= first
        assert phases_kernel.peak(best, *arrays) <= room
        outcomes.append((best.tolist(), state.tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seed", range(30))
def test_no_schedule_recomputes_less_than_the_bound(seed: int) -> None:
    instance = draw_any(seed, 1 + seed % 4)
    problem = make_problem(remat.load(instance))
    low = search.chain_least_budget(instance)
    high = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    for budget in {low, (2 * low + high) // 3, high}:
        best = search.chain_best(instance, budget)
        assert problem.no_recompute_time + recompute_bound(problem.chain, budget) <= best
