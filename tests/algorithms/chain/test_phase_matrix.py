"""The bit matrices of `chain-best`: peaks, twins and bounds."""

from __future__ import annotations

import random
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin.emit import run_in_order
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain import phase_matrix_kernel
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.phase_matrix_kernel import Facts, Walk
from remat_algorithms.chain.phase_matrix_kernel import improve as improve_plain
from remat_algorithms.chain.phase_matrix_kernel import peak as peak_of
from remat_algorithms.kit.compile.lowering import Kernel, checked_indices
from tests.algorithms.chain.rotor.test_rotor import draw_chain

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


def peak(facts: Facts, walk: Walk) -> int:
    return peak_of(facts, walk, walk.current)


PEAK = Kernel(peak)


@pytest.mark.parametrize("seed", range(40))
def test_every_matrix_is_a_schedule_with_the_peak_that_is_computed(seed: int) -> None:
    rng = random.Random(seed)
    instance = draw_any(seed, rng.randint(1, 7))
    problem = make_problem(remat.load(instance))
    phases = Phases.of(problem.chain)
    facts = phase_matrix_kernel.facts_of(phases, 2**62)
    for density in (0.1, 0.5):
        runs = draw_matrix(rng, phases.length, density)
        tasks = phases.tasks(runs)
        steps = run_in_order(problem.graph, problem.machine, tasks)
        document = {"schema": "remat.schedule/1", "steps": _named(problem, steps)}
        report = remat.verify(remat.load(instance), document)
        assert report.ok, report.violations
        # Only the report's peak includes values in memory before the first step.
        expected = report.peak_memory["memory"] - problem.chain.static_memory
        inputs = int(problem.chain.activation_size[0])
        assert max(phases.peak(tasks), inputs) == expected
        walk = phase_matrix_kernel.walk_from(phases, runs, 1)
        assert max(peak(facts, walk), inputs) == expected
        assert max(PEAK.bind(facts, walk)(), inputs) == expected
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


def start_of(instance: dict[str, Any], beyond: int) -> tuple[Phases, int, Any]:
    """Return a chain, the bytes there are, and the matrix of rotor's schedule."""
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    assert least is not None
    budget = least.size + beyond
    start = remat.solve(instance, algorithm="rotor", budget=budget).columns
    assert start is not None
    problem = make_problem(remat.load(instance), budget=budget)
    phases = Phases.of(problem.chain)
    return phases, budget - problem.chain.static_memory, phases.matrix(start.runs.tolist())


@pytest.mark.parametrize("checked", [False, True])
def test_improve_keeps_to_the_budget_and_to_its_cost(checked: bool) -> None:
    phases, room, current = start_of(draw_chain(7, 12), 4)
    facts = phase_matrix_kernel.facts_of(phases, room)
    first = (current[:-1] * phases.time).sum()
    outcomes = []
    for compiled in (False, True):
        walk = phase_matrix_kernel.walk_from(phases, current, 2**63 + 12345)
        with checked_indices() if checked else nullcontext():
            improve = phase_matrix_kernel.IMPROVE.bind(facts, walk) if compiled else partial(improve_plain, facts, walk)
        improve(40)
        assert walk.progress.best == (walk.best[:-1] * phases.time).sum() <= first
        assert phase_matrix_kernel.peak(facts, walk, walk.best) <= room
        outcomes.append((walk.best.tolist(), walk.trial.tolist(), walk.progress.random))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 100, 400])
def test_keys_are_sorted(count: int) -> None:
    rng = random.Random(count)
    phases = Phases.of(make_problem(remat.load(draw_chain(0, 20))).chain)
    for keys in ([rng.random() for _ in range(count)], [float(rng.randint(0, 3)) for _ in range(count)]):
        walk = phase_matrix_kernel.walk_from(phases, np.zeros((21, 20), dtype=np.bool_), 1)
        walk.keys[:count] = keys
        phase_matrix_kernel.sort(walk, count)
        order = walk.order[:count].tolist()
        assert sorted(order) == list(range(count))
        assert [keys[number] for number in order] == sorted(keys)
