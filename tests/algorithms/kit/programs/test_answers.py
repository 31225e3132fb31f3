"""Test jobs in threads: results arrive, and no thread outlives its job."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from remat_algorithms.kit.programs import solver_status
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome, watched


class Waiting(Job):
    """Works until it is stopped; deaf, it does not hear the first calls."""

    def __init__(self, deaf: int = 0) -> None:
        self.deaf, self.stops, self.polls, self.halted = deaf, 0, 0, threading.Event()

    def solve(self) -> Answer:
        assert self.halted.wait(30)
        return Answer(Outcome.FEASIBLE, np.array([1.0, 0.0]), 3.0)

    def stop(self) -> None:
        self.stops += 1
        if self.stops > self.deaf:
            self.halted.set()

    def poll(self) -> None:
        self.polls += 1


class Failing(Job):
    def solve(self) -> Answer:
        raise ZeroDivisionError


def never() -> bool:
    return False


def test_answers_know_whether_they_are_proofs() -> None:
    assert Answer(Outcome.OPTIMAL, np.array([2.0]), 1.0).ended
    assert Answer(Outcome.INFEASIBLE).ended
    assert not Answer(Outcome.FEASIBLE).ended
    assert Answer(Outcome.OPTIMAL, np.array([2.0])).values == [2.0]
    assert Answer(Outcome.UNKNOWN).values == []


def test_a_job_is_stopped_until_it_hears() -> None:
    job = Waiting(deaf=3)
    answer = watched(job, lambda: job.polls > 2)
    assert answer.values == [1.0, 0.0]
    assert job.stops >= 4


def test_a_job_is_stopped_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_status, "LATE", 0.02)
    job = Waiting()
    assert watched(job, never, 0.01).outcome is Outcome.FEASIBLE
    assert job.stops >= 1


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="no clocks of threads")
def test_a_job_that_counts_no_work_is_stopped() -> None:
    """Only the job's own processor time counts, not waiting and not the work of other threads."""

    class Stuck(Waiting):
        def solve(self) -> Answer:
            while not self.halted.is_set():
                pass
            return Answer(Outcome.UNKNOWN)

    stuck, waiting = Stuck(), Waiting()
    stuck.patience = waiting.patience = 0.05
    assert watched(stuck, never).outcome is Outcome.UNKNOWN
    assert watched(waiting, lambda: waiting.polls > 20).outcome is Outcome.FEASIBLE
    assert waiting.polls > 20


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_thread_outlives_an_exception_of_the_caller(error: type[BaseException]) -> None:
    job, before = Waiting(deaf=3), threading.active_count()

    def over() -> bool:
        raise error

    with pytest.raises(error):
        watched(job, over)
    assert job.stops >= 4
    assert threading.active_count() == before


def test_errors_are_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        watched(Failing(), never)


def test_cp_sat_hands_over_solutions_and_bounds() -> None:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    row = [model.new_int_var(0, 5, "") for _ in range(2)]
    model.add(row[0] + 2 * row[1] >= 7)
    model.minimize(row[0] + row[1])
    found: list[list[int]] = []
    bounds: list[float] = []
    job = CpSatJob(
        model,
        threads=1,
        seed=0,
        seconds=None,
        chosen=lambda value: [value(column) for column in row],
        found=found.append,
        bounded=bounds.append,
    )
    answer = watched(job, never)
    assert (answer.outcome, answer.bound) == (Outcome.OPTIMAL, 4)
    assert sum(found[-1]) == 4
    assert bounds == sorted(bounds)
    assert not job.refusal


def test_cp_sat_says_what_it_refuses() -> None:
    from ortools.sat.python import cp_model

    model: Any = cp_model.CpModel()
    column = model.new_int_var(0, 2**60, "")
    model.add(2**60 * column <= 3)
    job = CpSatJob(model, threads=1, seed=0, seconds=None)
    assert watched(job, never).outcome is Outcome.UNKNOWN
    assert "overflow" in job.refusal
