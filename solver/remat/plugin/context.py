"""The context of a solve: limits, seed, threads, incumbents, progress and interruption."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from remat.plugin.proposal import Termination
from remat.schedule.steps import Steps
from remat.units import Number


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress message of a running solver."""

    seconds: float
    makespan: Number | None
    bound: Number | None
    message: str


@dataclass
class Context:
    """What surrounds an algorithm while it runs.

    An anytime algorithm calls `report` with each better list of steps and asks `stopped` now and then; when
    that is true it returns what it has.

    Attributes
    ----------
    deadline : float or None
        `time.monotonic()` value after which to stop.
    seed : int
    threads : int
    listener : callable or None
        Receives `Progress`.
    """

    deadline: float | None = None
    seed: int = 0
    threads: int = 1
    listener: Callable[[Progress], None] | None = None
    started: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    best_steps: Steps | None = None
    best_makespan: Number | None = None
    best_bound: Number | None = None

    @property
    def stopped(self) -> bool:
        """Whether the deadline has passed or the user has interrupted."""
        return self.interrupted or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def termination(self) -> Termination:
        """Why a solver that stopped because of `stopped` did so."""
        if self.interrupted:
            return Termination.INTERRUPTED
        return Termination.TIME_LIMIT if self.stopped else Termination.COMPLETED

    def aside(
        self,
        *,
        share: float = 1.0,
        seconds: float | None = None,
        threads: int | None = None,
        over: Callable[[], bool] | None = None,
    ) -> Context:
        """Return a context within this one, whose incumbents stay with it: it ends with this one, or before.

        For an algorithm that asks another one, on another machine or for a start: what that one reports is no answer.

        Parameters
        ----------
        share : float
            Share of the time that is left; without a deadline there is none either.
        seconds : float, optional
            At most so many seconds.
        threads : int, optional
            Default: as many as here.
        over : callable, optional
            Asked, besides, whether to stop; what it stops counts as interrupted.
        """
        now = time.monotonic()
        ends = [] if self.deadline is None else [now + share * max(0.0, self.deadline - now)]
        if seconds is not None:
            ends.append(now + seconds)
        return _Aside(self, min(ends, default=None), threads, over)

    def random(self) -> random.Random:
        """Return a generator seeded with `seed`."""
        return random.Random(self.seed)

    def report(
        self,
        steps: Steps | None = None,
        *,
        makespan: Number | None = None,
        bound: Number | None = None,
        message: str = "",
    ) -> None:
        """Hand over a better list of steps, a better bound, or merely a sign of life."""
        if steps is not None:
            self.best_steps, self.best_makespan = steps, makespan
        if bound is not None:
            self.best_bound = bound if self.best_bound is None else max(bound, self.best_bound)
        if self.listener is not None:
            seconds = time.monotonic() - self.started
            self.listener(Progress(seconds, self.best_makespan, self.best_bound, message))


class _Aside(Context):
    """A context that stops with another one, and reports to nobody."""

    def __init__(
        self, outer: Context, deadline: float | None, threads: int | None, over: Callable[[], bool] | None
    ) -> None:
        self._outer, self._over, self._own = outer, over, False
        super().__init__(deadline=deadline, seed=outer.seed, threads=outer.threads if threads is None else threads)

    @property
    def interrupted(self) -> bool:
        """Whether the other one is, or something besides says so."""
        return self._own or self._outer.interrupted or (self._over is not None and self._over())

    @interrupted.setter
    def interrupted(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._own = value

    @property
    def stopped(self) -> bool:
        """Whether this one is over, or the other one."""
        return super().stopped or self._outer.stopped


@contextmanager
def interruptible(context: Context) -> Iterator[None]:
    """Turn the first Ctrl-C into `context.interrupted`; a second one interrupts at once.

    Only the main thread can do so; elsewhere the scope does nothing.
    """
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    previous = signal.getsignal(signal.SIGINT)

    def note(signum: int, frame: object) -> None:
        if context.interrupted:
            raise KeyboardInterrupt
        context.interrupted = True

    try:
        signal.signal(signal.SIGINT, note)
        yield
    finally:
        signal.signal(signal.SIGINT, previous if previous is not None else signal.SIG_DFL)
