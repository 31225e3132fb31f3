"""What a solver of programs says, and running one in a thread, so that the deadline and Ctrl-C are seen meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from remat_algorithms.kit.programs.program import FloatArray

POLL_SECONDS = 0.02
"""How often the caller of a running solver is asked whether to stop."""

LATE = 0.3
"""Seconds after its limit at which a solver that has not come back by itself is stopped."""


class Outcome(Enum):
    """How a solver ended, as it says."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver says; nobody has checked it.

    Attributes
    ----------
    outcome : Outcome
    solution : (columns,) float64 or None
    bound : float
        Lower bound on the objective; minus infinity if there is none.
    work : float
        What it took, in the solver's own units, where it counts them.
    """

    outcome: Outcome
    solution: FloatArray | None = None
    bound: float = -np.inf
    work: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the search came to its end, rather than to a limit."""
        return self.outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)

    @property
    def values(self) -> list[float]:
        """The solution's columns; empty if there is none."""
        return [] if self.solution is None else self.solution.tolist()


class Job:
    """One run of a solver, and a way to stop it."""

    def solve(self) -> Answer:
        """Solve, in a thread of its own."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the solver to come back; it is asked again until it does."""

    def poll(self) -> None:
        """Look, in the caller's thread, at what the solver has found."""


def watched(job: Job, over: Callable[[], bool], limit: float | None = None) -> Answer:
    """Run a solver in a thread of its own, stop it when the time is over or somebody says so, and wait for its end.

    Nothing is left behind, not even where the caller's thread is interrupted: a thread that comes back from a solver
    while the interpreter ends would abort the process. A job must therefore hear `stop`, or be short; what may be deaf
    for long goes into a process (`remat_algorithms.kit.programs.solver_process`), which is killed.

    Parameters
    ----------
    job : Job
    over : callable
        Asked every `POLL_SECONDS`, and sooner at first, whether to stop.
    limit : float, optional
        Seconds after which the solver comes back by itself; it is stopped `LATE` later.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(job.solve())
        except BaseException as error:  # handed over to the caller's thread
            errors.append(error)

    # No daemon: where even the wait below is interrupted, the interpreter waits at its end.
    thread = threading.Thread(target=work)
    thread.start()
    end = None if limit is None else time.monotonic() + limit + LATE
    wait = POLL_SECONDS / 20
    try:
        while thread.is_alive() and not over() and (end is None or time.monotonic() < end):
            thread.join(wait)
            job.poll()
            wait = min(POLL_SECONDS, 2 * wait)
    finally:
        while thread.is_alive():
            job.stop()  # more than once: before it has begun, a solver does not hear it
            thread.join(POLL_SECONDS)
    job.poll()
    if errors:
        raise errors[0]
    return answers[0] if answers else Answer(Outcome.UNKNOWN)
