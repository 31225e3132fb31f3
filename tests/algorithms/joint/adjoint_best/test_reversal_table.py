"""The recurrence for equal steps: no schedule beats it, and its own schedules reach it."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

import remat
from remat.plugin import ALL_SCHEDULES, Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best.bound import lower_bound
from remat_algorithms.joint.adjoint_best.initial_schedules import judged
from remat_algorithms.joint.adjoint_best.reversal_schedules import schedules
from remat_algorithms.joint.adjoint_best.reversal_table import NEVER, EqualSteps, Units, filled, least_time
from tests.oracles.taped import best_forward_steps
from tests.oracles.taped_levels import best_time
from tests.seeds import seeds

UNIT = {"time": "unit", "memory": "unit"}
DISK = {"name": "disk", "write_time": 2, "read_time": 2}


def go_on() -> bool:
    return False


def loop(steps: int, tape: int | None, **more: Any) -> dict[str, Any]:
    tapes = {} if tape is None else {"tape_size": tape}
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps} | tapes | more


def test_the_recurrence_is_the_optimum_of_all_orders_of_storing_and_restarting() -> None:
    for state, tape in ((1, 1), (1, 2), (1, 3), (2, 3)):
        for steps in range(2, 5):
            tables = filled(Units(steps, 5, state, tape, 0, 1), [], go_on)
            assert tables is not None
            for size, time in enumerate(tables.plain.times[:, steps].tolist()):
                best = best_forward_steps(steps, size, state, tape, None)
                assert time == (NEVER if best is None else best), (state, tape, steps, size)


@pytest.mark.parametrize("seed", seeds(20, 500))
def test_no_schedule_with_a_slow_memory_beats_the_recurrence(seed: int) -> None:
    draw = random.Random(seed)
    steps, state, tape = draw.randint(2, 3), draw.randint(1, 2), draw.choice([None, 1, 2, 3])
    adjoint, write, read = draw.randint(0, 2), draw.randint(1, 4), draw.randint(0, 3)
    size = state + (tape or 0) + adjoint + draw.randint(0, 2)
    best = best_time(steps, size, state, tape, adjoint, write, read)
    found = least_time(EqualSteps(steps, state, adjoint, tape, 1, write, read), size, slow=True, stopped=go_on)
    assert best is None or found <= best


@pytest.mark.parametrize(
    ("steps", "size", "state", "tape", "adjoint", "time"),
    [(3, 3, 1, 1, 1, 6), (3, 4, 1, 2, 1, 7), (3, 5, 1, 2, 1, 5), (4, 2, 1, None, 1, 8), (3, 4, 2, None, 1, 5)],
)
def test_the_recurrence_with_a_slow_memory_is_reached(
    steps: int, size: int, state: int, tape: int | None, adjoint: int, time: int
) -> None:
    given = EqualSteps(steps, state, adjoint, tape, 1, 2, 1)
    assert least_time(given, size, slow=True, stopped=go_on) == time
    assert best_time(steps, size, state, tape, adjoint, 2, 1) == time


@pytest.mark.parametrize("tape", [1, 2, 3, 5])
@pytest.mark.parametrize("room", [1, 4, 9, 30])
def test_equal_steps_in_one_memory_are_optimal(tape: int, room: int) -> None:
    document = loop(60, tape, state_size=1, forward_time=2, backward_time=3)
    result = remat.solve(document, algorithm="adjoint-best", budget=2 + tape + room)
    assert result.optimal_within == ALL_SCHEDULES
    assert result.makespan == result.lower_bound


@pytest.mark.parametrize(("tape", "slots"), [(1, 2), (1, 8), (3, 4), (3, 15), (4, 2)])
def test_states_and_tapes_on_a_disk_are_nearly_optimal(tape: int, slots: int) -> None:
    problem = make_problem(remat.load(loop(100, tape, storage=[{"name": "ram", "slots": slots}, DISK])))
    times = [start.makespan for each in schedules(problem, Context()) if (start := judged(problem, "", each))]
    bound = lower_bound(problem, Context())
    assert bound <= min(times) <= bound * 1.01


def test_one_slow_level_is_enough() -> None:
    problem = make_problem(remat.load(loop(100, 3, storage=[DISK])))
    times = [start.makespan for each in schedules(problem, Context()) if (start := judged(problem, "", each))]
    assert lower_bound(problem, Context()) <= min(times) <= lower_bound(problem, Context()) * 1.01


def test_a_given_state_saves_one_write() -> None:
    storage = [{"name": "ram", "slots": 4}, DISK]
    found = [
        lower_bound(make_problem(remat.load(loop(100, 2, storage=storage) | given)), Context())
        for given in ({}, {"initial_state": "disk"})
    ]
    assert found[1] == found[0] - 2
    problem = make_problem(remat.load(loop(100, 2, storage=storage, initial_state="disk")))
    assert all(judged(problem, "", each) for each in schedules(problem, Context()))


def test_sizes_and_times_that_are_no_multiples_of_each_other() -> None:
    plain = least_time(EqualSteps(200, 1000, 1000, 2000, 3, 6, 6), 13_000, slow=True, stopped=go_on)
    odd = least_time(EqualSteps(200, 1001, 1001, 2003, 3, 6.001, 6), 13_012, slow=True, stopped=go_on)
    assert isinstance(odd, Fraction)
    assert plain * Fraction(99, 100) < odd <= plain * Fraction(101, 100)


def test_two_thousand_steps_without_a_disk_have_the_optimum_of_revolve() -> None:
    problem = make_problem(remat.load(loop(2000, None)), budget=6)
    assert lower_bound(problem, Context()) == 21_800
