"""The context of a solve: limits, seed, threads, incumbents, progress and interruption."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remat.plugin.proposal import ALL_SCHEDULES, Termination
from remat.schedule.steps import Steps
from remat.units import Number

if TYPE_CHECKING:
    from fractions import Fraction

    from remat.plugin.cancel import Cancel
    from remat.plugin.forms import Forms
    from remat.schedule.patterns import Pattern
    from remat.schedule.samples import SamplePattern


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress message of a running solver.

    Attributes
    ----------
    seconds : float
        Since the beginning.
    makespan : int, float or None
        Of the best schedule so far, as the algorithm claims it.
    bound : int, float or None
        Best lower bound on the makespan of every schedule so far.
    message : str
    source : str
        The algorithm that runs.
    steps : Steps or None
        The better schedule that is reported, for whoever listens; a history does not keep it.
    """

    seconds: float
    makespan: Number | None
    bound: Number | None
    message: str
    source: str = ""
    steps: Steps | None = field(default=None, repr=False, compare=False)

    @property
    def gap(self) -> float | None:
        """Distance of the makespan to the bound, as a share of the makespan, as in a result."""
        if self.makespan is None or self.bound is None:
            return None
        return max(0.0, (self.makespan - self.bound) / self.makespan) if self.makespan else 0.0


@dataclass
class Context:
    """What surrounds an algorithm while it runs.

    An anytime algorithm calls `report` with each better list of steps and asks `stopped` now and then; when
    that is true it returns what it has.

    Attributes
    ----------
    deadline : float or None
        `time.monotonic()` value after which to stop.
    gap : float or None
        Distance of the best makespan to the best bound over all schedules, as a share of the makespan, at which to
        stop; None where nobody said so.
    patience : float or None
        Seconds without a better schedule or bound after which to stop, once there is a schedule.
    seed : int
    threads : int
    listener : callable or None
        Receives `Progress`; what returns False stops the solve.
    source : str
        Name of the algorithm that runs.
    limit_given : bool
        Whether the user set the deadline; if not, it guards against long runs, and limits of work decide.
    enough : int, float, Fraction or None
        A makespan at which to stop, whatever the bound; infinity stops at any schedule. None where every better
        schedule is wanted.
    speaks_for_all : bool
        Whether a bound that the algorithm calls one over all schedules is one on this machine (`remat.solving.scopes`).
    history : list of Progress
        Each better schedule and each better bound.
    forms : Forms or None
        Prepared forms of algorithms, where an instance is solved for many budgets.
    cancel : Cancel or None
        What another thread may stop the solve with; `interrupted` is true from then on.
    takes_signals : bool
        Whether Ctrl-C sets `interrupted` already.
    """

    deadline: float | None = None
    seed: int = 0
    threads: int = 1
    listener: Callable[[Progress], object] | None = None
    started: float = field(default_factory=time.monotonic)
    gap: float | None = None
    patience: float | None = None
    enough: Number | Fraction | None = None
    source: str = ""
    interrupted: bool = False
    limit_given: bool = True
    speaks_for_all: bool = True
    best_steps: Steps | None = None
    best_pattern: Pattern | SamplePattern | None = None
    best_makespan: Number | None = None
    best_bound: Number | None = None
    history: list[Progress] = field(default_factory=list[Progress])
    changed: float = field(default_factory=time.monotonic)
    forms: Forms | None = None
    cancel: Cancel | None = None
    takes_signals: bool = False

    @property
    def stopped(self) -> bool:
        """Whether the deadline has passed, the user has interrupted, or the answer is good enough to stop."""
        return self.ended or self._impatient(time.monotonic())

    @property
    def ended(self) -> bool:
        """Whether there is no time left, or no need to go on, for anybody: `stopped`, but for the patience."""
        return self.interrupted or self.near or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def near(self) -> bool:
        """Whether the best schedule is within `gap` of the best bound, or takes no longer than `enough`."""
        if self.satisfied:
            return True
        if not self.gap or self.best_makespan is None or self.best_bound is None:
            return False
        return self.best_makespan - self.best_bound <= self.gap * self.best_makespan

    @property
    def satisfied(self) -> bool:
        """Whether the best schedule takes no longer than `enough`."""
        return self.enough is not None and self.best_makespan is not None and self.best_makespan <= self.enough

    def _impatient(self, now: float) -> bool:
        return self.patience is not None and self.has_schedule and now - self.changed > self.patience

    @property
    def has_schedule(self) -> bool:
        """Whether a schedule was reported."""
        return self.best_steps is not None or self.best_pattern is not None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def termination(self) -> Termination:
        """Why a solver that stopped because of `stopped` did so."""
        if self.interrupted:
            return Termination.INTERRUPTED
        if self.near:
            return Termination.GAP
        if not self.stopped:
            return Termination.COMPLETED
        now = time.monotonic()
        early = self.deadline is None or now < self.deadline
        return Termination.PATIENCE if early and self._impatient(now) else Termination.TIME_LIMIT

    @property
    def limit(self) -> float | None:
        """Seconds from the beginning to the deadline; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - self.started)

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

    def part(
        self,
        source: str,
        *,
        share: float = 1.0,
        admits: Callable[[Steps], bool] | None = None,
        speaks_for_all: bool = True,
    ) -> Context:
        """Return a context within this one, for an algorithm that answers in its name: what is better is reported here.

        It ends with this one, or before. Of the patience that is left it has its share, too: however many parts follow
        each other without finding anything, together they take no longer than the patience of this context.

        Parameters
        ----------
        source : str
            Name of the algorithm.
        share : float
            Share of the time that is left, and of the patience.
        admits : callable, optional
            Whether a schedule is one for this context, too; default: all are.
        speaks_for_all : bool
            Whether its bounds over all schedules hold on this machine.
        """
        now = time.monotonic()
        deadline = None if self.deadline is None else now + share * max(0.0, self.deadline - now)
        part = _Part(self, deadline, source, admits, share)
        part.speaks_for_all = speaks_for_all
        return part

    def random(self) -> random.Random:
        """Return a generator seeded with `seed`."""
        return random.Random(self.seed)

    def report(
        self,
        steps: Steps | None = None,
        *,
        pattern: Pattern | SamplePattern | None = None,
        makespan: Number | None = None,
        bound: Number | None = None,
        scope: str | None = None,
        message: str = "",
    ) -> None:
        """Hand over a better list of steps, a better bound, or merely a sign of life.

        Parameters
        ----------
        steps : Steps, optional
            Better than all that were reported before.
        pattern : Pattern or SamplePattern, optional
            Of a stream, instead of steps.
        makespan : int or float, optional
            Theirs; of a pattern the time per sample.
        bound : int or float, optional
            A lower bound on the makespan.
        scope : str, optional
            The class of schedules for which the bound holds, as the proposal will name it; whoever has a bound says
            it. Only a bound over all schedules is one that anybody compares with.
        message : str

        Raises
        ------
        ValueError
            If there is a bound without a scope.
        """
        if bound is not None and scope is None:
            raise ValueError(f"bound {bound!r} is reported without the scope for which it holds")
        before = self.best_makespan, self.best_bound
        known = self.best_makespan
        found = steps is not None or pattern is not None
        better = found and (known is None or makespan is None or makespan <= known)
        if better:
            self.best_steps, self.best_pattern, self.best_makespan = steps, pattern, makespan
        if bound is not None and scope == ALL_SCHEDULES and self.speaks_for_all and math.isfinite(bound):
            self.best_bound = bound if self.best_bound is None else max(bound, self.best_bound)
        now = time.monotonic()
        progress = Progress(now - self.started, self.best_makespan, self.best_bound, message, self.source)
        if before != (self.best_makespan, self.best_bound):
            self.changed = now
            self.history.append(progress)
        if self.listener is not None and self.listener(replace(progress, steps=steps) if better else progress) is False:
            self.interrupted = True


class _Aside(Context):
    """A context that stops with another one, and reports to nobody."""

    def __init__(
        self, outer: Context, deadline: float | None, threads: int | None, over: Callable[[], bool] | None
    ) -> None:
        self._outer, self._over, self._own = outer, over, False
        threads = outer.threads if threads is None else threads
        super().__init__(deadline=deadline, limit_given=outer.limit_given, seed=outer.seed, threads=threads)
        self.cancel = outer.cancel

    @property
    def interrupted(self) -> bool:
        """Whether the other one is, or something besides says so."""
        return self._own or self._outer.interrupted or (self._over is not None and self._over())

    @interrupted.setter
    def interrupted(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._own = value

    @property
    def near(self) -> bool:
        """Whether this one's schedule is good enough, or the other one's."""
        return super().near or self._outer.near

    @property
    def stopped(self) -> bool:
        """Whether this one is over, or the other one."""
        return super().stopped or self._outer.stopped


class _Part(_Aside):
    """A context that hands what is better on to another one."""

    def __init__(
        self, outer: Context, deadline: float | None, source: str, admits: Callable[[Steps], bool] | None, share: float
    ) -> None:
        super().__init__(outer, deadline, None, None)
        self._admits, self._begun = admits, time.monotonic()
        self.source, self.started, self.forms = source, outer.started, outer.forms
        if outer.patience is not None:
            # Before there is a schedule nobody is impatient: the clock starts with the first one.
            idle = self._begun - outer.changed if outer.has_schedule else 0.0
            self.patience = share * max(0.0, outer.patience - idle)

    @property
    def stopped(self) -> bool:
        """Whether this one is over, or the other one for good."""
        return Context.stopped.__get__(self) or self._outer.ended

    def _impatient(self, now: float) -> bool:
        """Whether neither this algorithm nor, before it, another one has found anything for as long as it may take."""
        known = self._outer.has_schedule
        return self.patience is not None and known and now - max(self._begun, self._outer.changed) > self.patience

    def report(
        self,
        steps: Steps | None = None,
        *,
        pattern: Pattern | SamplePattern | None = None,
        makespan: Number | None = None,
        bound: Number | None = None,
        scope: str | None = None,
        message: str = "",
    ) -> None:
        """Hand over what is new; what is better than all that the other one has is news there, too."""
        super().report(steps, pattern=pattern, makespan=makespan, bound=bound, scope=scope)
        outer, known = self._outer, self._outer.best_makespan
        found = steps is not None or pattern is not None
        better = found and makespan is not None and (known is None or makespan < known)
        better = better and (self._admits is None or steps is None or self._admits(steps))
        outer.source = self.source
        outer.report(
            steps if better else None,
            pattern=pattern if better else None,
            makespan=makespan if better else None,
            bound=bound if self.speaks_for_all else None,
            scope=scope,
            message=message,
        )


@contextmanager
def interruptible(context: Context) -> Iterator[None]:
    """Turn the first Ctrl-C, and `Context.cancel`, into `context.interrupted`; a second Ctrl-C interrupts at once.

    Only the main thread can take Ctrl-C; in others nothing is done about it.
    """
    import threading

    def stop() -> None:
        context.interrupted = True

    with context.cancel.calling(stop) if context.cancel is not None else nullcontext():
        if threading.current_thread() is threading.main_thread() and not context.takes_signals:
            yield from _taking_signals(context)
        else:
            yield


def _taking_signals(context: Context) -> Iterator[None]:
    """Take Ctrl-C for as long as the caller does not go on."""
    import signal

    previous = signal.getsignal(signal.SIGINT)

    def note(signum: int, frame: object) -> None:
        if context.interrupted:
            raise KeyboardInterrupt
        context.interrupted = True

    try:
        signal.signal(signal.SIGINT, note)
        context.takes_signals = True
        yield
    finally:
        context.takes_signals = False
        signal.signal(signal.SIGINT, previous if previous is not None else signal.SIG_DFL)
