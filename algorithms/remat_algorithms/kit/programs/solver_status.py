"""Answers of solvers, and a thread runner that watches the deadline and Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from remat_algorithms.kit.programs.program import FloatArray

POLL_SECONDS = 0.02
"""Seconds between two checks whether to stop a running solver."""

LATE = 0.3
"""Seconds after its limit at which a solver that has not returned is stopped."""


class Outcome(Enum):
    """Reported termination status of a solver."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """Unchecked answer of a solver.

    Attributes
    ----------
    outcome : Outcome
    solution : (columns,) float64 or None
    bound : float
        Lower bound on the objective; minus infinity without one.
    work : float
        Work of the run in the solver's own units; 0 if the solver does not count any.
    """

    outcome: Outcome
    solution: FloatArray | None = None
    bound: float = -np.inf
    work: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the search finished without reaching a limit."""
        return self.outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)

    @property
    def values(self) -> list[float]:
        """Values of the solution's columns; empty without a solution."""
        return [] if self.solution is None else self.solution.tolist()


class Job:
    """One run of a solver, and a way to stop it.

    Attributes
    ----------
    patience : float or None
        Seconds of processor time after which a solver with a work limit counts as stuck and is stopped.
    """

    patience: float | None = None

    def solve(self) -> Answer:
        """Solve; called in a separate thread."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the solver to return; repeated until it does."""

    def poll(self) -> None:
        """Process the solver's new findings, in the caller's thread."""


def watched(job: Job, over: Callable[[], bool], limit: float | None = None) -> Answer:
    """Run a solver in a separate thread, stop it on timeout or request, and wait for its end.

    The thread never outlives the call, even if the caller's thread is interrupted. A thread that returns from a solver
    while the interpreter exits would abort the process. A job must therefore react to `stop`, or be short. A solver
    that may ignore `stop` for long runs in a process (`remat_algorithms.kit.programs.solver_process`), which can be
    killed.

    Parameters
    ----------
    job : Job
    over : callable
        Whether to stop. Polled every `POLL_SECONDS`, and more often at first.
    limit : float, optional
        Seconds after which the solver should return without a request. It is stopped `LATE` seconds later.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []
    clocks: list[int] = []

    def work() -> None:
        try:
            clocks.extend(_clock_of_this_thread())
            answers.append(job.solve())
        except BaseException as error:  # re-raised in the caller's thread
            errors.append(error)

    # Not a daemon: if the wait below is interrupted too, the interpreter waits for the thread before it exits.
    thread = threading.Thread(target=work)
    thread.start()
    end = None if limit is None else time.monotonic() + limit + LATE
    wait = POLL_SECONDS / 20
    try:
        while thread.is_alive() and not over() and (end is None or time.monotonic() < end):
            if job.patience is not None and clocks and _spent(clocks[0]) > job.patience:
                break
            thread.join(wait)
            job.poll()
            wait = min(POLL_SECONDS, 2 * wait)
    finally:
        while thread.is_alive():
            job.stop()  # repeated, because a solver that has not started ignores it
            thread.join(POLL_SECONDS)
    job.poll()
    if errors:
        raise errors[0]
    return answers[0] if answers else Answer(Outcome.UNKNOWN)


def _clock_of_this_thread() -> list[int]:
    """Return the clock of the calling thread's processor time, if the system has one."""
    find = getattr(time, "pthread_getcpuclockid", None)
    return [] if find is None else [find(threading.get_ident())]


def _spent(clock: int) -> float:
    """Return the seconds on a clock of a thread, which may have ended."""
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0
