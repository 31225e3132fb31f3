"""Bounds on what chains recompute: never above a schedule, each at least as strong as the one before."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain import chain_best
from remat_algorithms.chain.bounds.cover import recompute_bound
from remat_algorithms.chain.bounds.gap_closing import close
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.chain.bounds.moment_program import MomentProgram
from remat_algorithms.chain.bounds.one_moment import least_remade
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.rotor.front import NEVER
from remat_algorithms.kit.programs import cp_sat
from remat_algorithms.kit.programs.solver_status import Outcome
from tests.algorithms.chain.test_phase_matrix import draw_any
from tests.oracles import search
from tests.seeds import seeds

WORK = 5.0


def solved(program: MomentProgram) -> Any:
    return cp_sat.solve(program.program, seconds=None, stopped=lambda: False, step=1, work=WORK)


def check_bounds(seed: int) -> tuple[int, int]:
    """Hold all bounds of a drawn chain against exhaustive search; return how many were looked at, and were met."""
    rng = random.Random(seed)
    instance = draw_any(seed, 1 + seed % 4)
    problem = make_problem(remat.load(instance))
    low = search.chain_least_budget(instance)
    high = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    looked = met = 0
    for budget in {low, (2 * low + high) // 3, high}:
        excess = search.chain_best(instance, budget) - problem.no_recompute_time
        moments = Moments.of(problem.chain, budget)
        assert moments.exact
        least = least_remade(moments)
        assert recompute_bound(problem.chain, budget) <= max(least) <= excess
        # What takes more than a known schedule need not be looked at.
        assert [min(ticks, excess + 1) for ticks in least] == [
            min(ticks, excess + 1) for ticks in least_remade(moments, excess)
        ]
        chosen = tuple(sorted(rng.sample(range(moments.length + 1), rng.randint(1, moments.length + 1)), reverse=True))
        program = MomentProgram.of(moments, chosen, excess + rng.choice([0, 3]))
        answer = solved(program)
        assert answer.outcome is Outcome.OPTIMAL
        several = program.excess(answer.bound)
        assert max(least[p] for p in chosen) <= several <= excess
        # The solution as a schedule takes no more, but perhaps too many bytes.
        runs = program.matrix(answer.solution)
        assert (runs[:-1] * moments.forward).sum() <= several
        assert Phases.of(problem.chain).matrix(Phases.of(problem.chain).tasks(runs)) is not None
        looked, met = looked + 1, met + (several == excess)
    return looked, met


@pytest.mark.parametrize("seed", seeds(24, 400))
def test_no_schedule_recomputes_less_than_the_bounds(seed: int) -> None:
    check_bounds(seed)


def test_bounds_are_often_met() -> None:
    figures = [check_bounds(seed) for seed in range(1000, 1016)]
    looked, met = map(sum, zip(*figures, strict=True))
    assert met > looked / 2


@pytest.mark.parametrize("seed", seeds(4, 150))
def test_what_chain_best_proves_is_true(seed: int) -> None:
    instance = draw_any(seed, 2 + seed % 4)
    low = search.chain_least_budget(instance)
    high = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    for budget in {low, (2 * low + high) // 3}:
        best = search.chain_best(instance, budget)
        # Without the search over live sets, which settles chains as short as these.
        result = remat.solve(instance, algorithm="chain-best", budget=budget, options={"states": 0, "iterations": 50})
        assert result.makespan is None or result.lower_bound <= best <= result.makespan
        assert result.status is not remat.Status.OPTIMAL or result.makespan == best


@pytest.mark.parametrize("seed", range(6))
def test_more_moments_say_no_less(seed: int) -> None:
    rng = random.Random(seed)
    instance = draw_any(seed, 8)
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    assert least is not None
    result = remat.solve(instance, algorithm="rotor", budget=least.size + 2)
    assert result.columns is not None
    moments = Moments.of(make_problem(remat.load(instance)).chain, least.size + 2)
    most = moments.excess(result.columns.runs.tolist())
    order = rng.sample(range(moments.length + 1), moments.length + 1)
    bounds = []
    for count in (1, 3, 6, 9):
        program = MomentProgram.of(moments, tuple(sorted(order[:count], reverse=True)), most)
        bounds.append(program.excess(solved(program).bound))
    assert all(fewer <= more for fewer, more in pairwise(bounds))


def test_times_that_are_no_whole_numbers() -> None:
    for seed in range(12):
        instance = draw_any(seed, 6)
        budget = remat.solve(instance, algorithm="rotor", budget=0).least_budget
        chain = make_problem(remat.load(instance)).chain
        rough = draw_any(seed, 6)
        for stage in rough["stages"]:
            for key in ("forward_time", "backward_time", "saving_forward_time"):
                stage[key] = stage[key] / 7
        fine = make_problem(remat.load(rough)).chain
        assert budget is not None
        exact, floats = Moments.of(chain, budget.size), Moments.of(fine, budget.size)
        for whole, ticks in zip(least_remade(exact), least_remade(floats), strict=True):
            if whole < NEVER:
                assert floats.time(ticks) <= whole / 7
                assert floats.time(ticks) == pytest.approx(whole / 7)
            else:
                assert ticks == NEVER


@pytest.mark.slow
def test_several_moments_settle_a_real_network() -> None:
    instance = remat.example("chains/resnet50_b32_224")
    one = remat.solve(instance, algorithm="chain-best", budget=10**9, options={"states": 0, "work": 0})
    more = remat.solve(instance, algorithm="chain-best", budget=10**9, options={"states": 0})
    assert one.status is remat.Status.FEASIBLE
    assert more.status is remat.Status.OPTIMAL
    assert one.no_recompute_time < one.lower_bound < more.lower_bound <= one.makespan


def test_closing_finds_a_better_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = remat.example("chains/random_l30")
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    assert least is not None
    budget = (3 * least.size + remat.solve(instance, algorithm="rotor").peak_memory["memory"]) // 4
    problem = make_problem(remat.load(instance), budget=budget)
    phases, moments = Phases.of(problem.chain), Moments.of(problem.chain, budget)
    start = remat.solve(instance, algorithm="rotor", budget=budget)
    assert start.columns is not None
    runs = start.columns.runs.tolist()
    assert moments.excess(runs) == start.makespan - start.no_recompute_time
    told: list[int] = []
    room = budget - problem.chain.static_memory
    closed = close(
        moments, phases, least_remade(moments), moments.excess(runs), Context(), room=room, work=3, told=told.append
    )
    assert closed.runs is not None
    assert closed.bound <= closed.most < moments.excess(runs)
    assert phases.peak(phases.tasks(closed.runs)) <= room
    assert told == sorted(set(told))
    monkeypatch.setattr(chain_best, "MOST_FRONTS", 10)
    covered = remat.solve(instance, algorithm="chain-best", budget=budget, options={"iterations": 0})
    assert covered.lower_bound == problem.no_recompute_time + recompute_bound(problem.chain, budget)
    assert covered.lower_bound <= problem.no_recompute_time + closed.bound
    assert np.array_equal(phases.matrix(phases.tasks(closed.runs)), closed.runs)
