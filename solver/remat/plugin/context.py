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
    from remat.schedule.orders import Orders
    from remat.schedule.patterns import PeriodicSchedule


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress message of a running solver.

    Attributes
    ----------
    seconds : float
        Time since the beginning.
    makespan : int, float or None
        Makespan of the best schedule so far, as the algorithm claims it.
    bound : int, float or None
        Best lower bound on the makespan of every schedule so far.
    message : str
    source : str
        The running algorithm.
    steps : Steps or None
        The better schedule, for the listener; the history does not keep it.
    author : str
        The algorithm whose schedule has this makespan; empty if none was named.
    """

    seconds: float
    makespan: Number | None
    bound: Number | None
    message: str
    source: str = ""
    steps: Steps | None = field(default=None, repr=False, compare=False)
    author: str = field(default="", compare=False)

    @property
    def gap(self) -> float | None:
        """Gap between makespan and bound, as a share of the makespan, as in a result."""
        if self.makespan is None or self.bound is None:
            return None
        return max(0.0, (self.makespan - self.bound) / self.makespan) if self.makespan else 0.0


@dataclass
class Context:
    """The environment of a running algorithm.

    An anytime algorithm calls `report` with each better list of steps and checks `stopped` regularly. If `stopped` is
    true, it returns its best schedule.

    Attributes
    ----------
    deadline : float or None
        Value of `time.monotonic()` after which to stop.
    gap : float or None
        Stop at this gap between the best makespan and the best bound over all schedules, as a share of the makespan;
        None if the user set no gap.
    patience : float or None
        Stop after this many seconds without a better schedule or bound, once there is a schedule.
    seed : int
    threads : int
    listener : callable or None
        Receives `Progress`; a listener that returns False stops the solve.
    source : str
        Name of the running algorithm.
    limit_given : bool
        Whether the user set the deadline. Otherwise it only guards against long runs, and work limits decide.
    enough : int, float, Fraction or None
        Stop at this makespan, whatever the bound; infinity stops at any schedule. None if every better schedule is
        wanted.
    speaks_for_all : bool
        Whether the algorithm's bounds over all schedules also hold on this machine (`remat.solving.scopes`).
    history : list of Progress
        Each better schedule and each better bound.
    forms : Forms or None
        Prepared forms of algorithms, if an instance is solved for many budgets.
    cancel : Cancel or None
        Switch with which another thread may stop the solve; it sets `interrupted`.
    takes_signals : bool
        Whether Ctrl-C already sets `interrupted`.
    neighbours : tuple of Orders
        Orders of a pipeline that are known for other budgets. They may need more memory than there is.
    continues : bool
        Whether the algorithm of a part has read `known_steps` or `known_orders`: it continues from there if it runs
        again.
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
    best_pattern: PeriodicSchedule | None = None
    best_orders: Orders | None = None
    best_makespan: Number | None = None
    best_source: str = ""
    best_bound: Number | None = None
    history: list[Progress] = field(default_factory=list[Progress])
    changed: float = field(default_factory=time.monotonic)
    forms: Forms | None = None
    cancel: Cancel | None = None
    takes_signals: bool = False
    continues: bool = False
    neighbours: tuple[Orders, ...] = ()

    @property
    def default_limit(self) -> float | None:
        """The seconds of the default time limit; None if the user gave one, or there is none."""
        return None if self.limit_given or self.deadline is None else round(self.deadline - self.started, 3)

    @property
    def stopped(self) -> bool:
        """Whether the deadline has passed, the user has interrupted, or the answer is good enough to stop."""
        return self.ended or self._impatient(time.monotonic())

    @property
    def ended(self) -> bool:
        """Whether all algorithms must or may stop: like `stopped`, but without the patience."""
        return self.interrupted or self.near or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def near(self) -> bool:
        """Whether the best schedule is within `gap` of the best bound, or its makespan is at most `enough`."""
        if self.satisfied:
            return True
        if not self.gap or self.best_makespan is None or self.best_bound is None:
            return False
        return self.best_makespan - self.best_bound <= self.gap * self.best_makespan

    @property
    def satisfied(self) -> bool:
        """Whether the makespan of the best schedule is at most `enough`."""
        return self.enough is not None and self.best_makespan is not None and self.best_makespan <= self.enough

    def _impatient(self, now: float) -> bool:
        return self.patience is not None and self.has_schedule and now - self.changed > self.patience

    @property
    def has_schedule(self) -> bool:
        """Whether a schedule has been reported."""
        return self.best_steps is not None or self.best_pattern is not None

    @property
    def known_steps(self) -> Steps | None:
        """The best schedule known so far, a warm start included; None for steps that follow from a pipeline's orders.

        Read it before the first report to start from it. In a part of another context, it is the best schedule of all
        algorithms.
        """
        return self.best_steps if self.best_orders is None else None

    @property
    def known_orders(self) -> tuple[Orders, ...]:
        """The orders of the best pipeline schedule known so far, if it has orders, and those for other budgets.

        As with `known_steps`, read them before the first report. Orders for other budgets may not fit.
        """
        return self.neighbours if self.best_orders is None else (self.best_orders, *self.neighbours)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def termination(self) -> Termination:
        """The reason why a solver stopped when `stopped` became true."""
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
        """Return a context within this one whose incumbents are not reported here; it ends no later than this one.

        For an algorithm that calls another one on another machine or for a start: the result of that one is no answer.

        Parameters
        ----------
        share : float
            Share of the remaining time; without a deadline it has no effect.
        seconds : float, optional
            Maximum time.
        threads : int, optional
            Default: the threads of this context.
        over : callable, optional
            Further condition on which to stop; it counts as an interruption.
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
        """Return a context within this one for an algorithm that contributes answers: improvements are reported here.

        It ends no later than this one. It also has its share of the remaining patience: a series of parts without any
        improvement takes no longer than the patience of this context.

        Parameters
        ----------
        source : str
            Name of the algorithm.
        share : float
            Share of the remaining time and of the patience.
        admits : callable, optional
            Whether a schedule is also valid for this context; default: every schedule is.
        speaks_for_all : bool
            Whether the bounds of this algorithm over all schedules hold on this machine.
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
        pattern: PeriodicSchedule | None = None,
        orders: Orders | None = None,
        makespan: Number | None = None,
        bound: Number | None = None,
        scope: str | None = None,
        message: str = "",
    ) -> None:
        """Report a better list of steps, a better bound, or only progress.

        Parameters
        ----------
        steps : Steps, optional
            Better than all steps reported before.
        pattern : Pattern or ModuloSchedule, optional
            The pattern of a stream, instead of steps.
        orders : Orders, optional
            The orders of a pipeline of which these are the steps. Steps alone do not say what ends a training step.
        makespan : int or float, optional
            Makespan of the steps; for a pattern, the time per sample.
        bound : int or float, optional
            A lower bound on the makespan.
        scope : str, optional
            The class of schedules for which the bound holds, as the proposal will name it; required with a bound. Only
            a bound over all schedules is compared with makespans.
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
            if known is None or makespan is None or makespan < known:
                self.best_source = self.source
            self.best_steps, self.best_pattern, self.best_makespan = steps, pattern, makespan
            self.best_orders = orders
        if bound is not None and scope == ALL_SCHEDULES and self.speaks_for_all and math.isfinite(bound):
            self.best_bound = bound if self.best_bound is None else max(bound, self.best_bound)
        now = time.monotonic()
        progress = Progress(
            now - self.started, self.best_makespan, self.best_bound, message, self.source, author=self.best_source
        )
        if before != (self.best_makespan, self.best_bound):
            self.changed = now
            self.history.append(progress)
        if self.listener is not None and self.listener(replace(progress, steps=steps) if better else progress) is False:
            self.interrupted = True


class _Aside(Context):
    """A context that stops with another one, and reports to no other context."""

    def __init__(
        self, outer: Context, deadline: float | None, threads: int | None, over: Callable[[], bool] | None
    ) -> None:
        self._outer, self._over, self._own = outer, over, False
        threads = outer.threads if threads is None else threads
        super().__init__(deadline=deadline, limit_given=outer.limit_given, seed=outer.seed, threads=threads)
        self.cancel = outer.cancel

    @property
    def interrupted(self) -> bool:
        """Whether the outer context is interrupted, or the further condition holds."""
        return self._own or self._outer.interrupted or (self._over is not None and self._over())

    @interrupted.setter
    def interrupted(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._own = value

    @property
    def near(self) -> bool:
        """Whether the schedule of this context or of the outer one is good enough."""
        return super().near or self._outer.near

    @property
    def stopped(self) -> bool:
        """Whether this context or the outer one has ended."""
        return super().stopped or self._outer.stopped


class _Part(_Aside):
    """A context that forwards improvements to another one."""

    def __init__(
        self, outer: Context, deadline: float | None, source: str, admits: Callable[[Steps], bool] | None, share: float
    ) -> None:
        super().__init__(outer, deadline, None, None)
        self._admits, self._begun = admits, time.monotonic()
        self.source, self.started, self.forms = source, outer.started, outer.forms
        if outer.patience is not None:
            # Patience does not apply before the first schedule: the clock starts with it.
            idle = self._begun - outer.changed if outer.has_schedule else 0.0
            self.patience = share * max(0.0, outer.patience - idle)

    @property
    def stopped(self) -> bool:
        """Whether this context has stopped, or the outer one has ended for all its algorithms."""
        return Context.stopped.__get__(self) or self._outer.ended

    @property
    def known_steps(self) -> Steps | None:
        """The best schedule of the outer context: it also has this one's."""
        self.continues = True
        return self._outer.known_steps

    @property
    def known_orders(self) -> tuple[Orders, ...]:
        """The orders of the outer context, which also has this one's."""
        self.continues = True
        return self._outer.known_orders

    def _impatient(self, now: float) -> bool:
        """Whether this algorithm and those before it have found nothing for longer than the patience."""
        known = self._outer.has_schedule
        return self.patience is not None and known and now - max(self._begun, self._outer.changed) > self.patience

    def report(
        self,
        steps: Steps | None = None,
        *,
        pattern: PeriodicSchedule | None = None,
        orders: Orders | None = None,
        makespan: Number | None = None,
        bound: Number | None = None,
        scope: str | None = None,
        message: str = "",
    ) -> None:
        """Report an improvement here; forward it if it also improves on the outer context."""
        super().report(steps, pattern=pattern, orders=orders, makespan=makespan, bound=bound, scope=scope)
        outer, known = self._outer, self._outer.best_makespan
        found = steps is not None or pattern is not None
        better = found and makespan is not None and (known is None or makespan < known)
        better = better and (self._admits is None or steps is None or self._admits(steps))
        outer.source = self.source
        outer.report(
            steps if better else None,
            pattern=pattern if better else None,
            orders=orders if better else None,
            makespan=makespan if better else None,
            bound=bound if self.speaks_for_all else None,
            scope=scope,
            message=message,
        )


@contextmanager
def interruptible(context: Context) -> Iterator[None]:
    """Turn the first Ctrl-C, and `Context.cancel`, into `context.interrupted`; a second Ctrl-C interrupts at once.

    Only the main thread can receive Ctrl-C; in other threads, Ctrl-C has no effect.
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
    """Handle Ctrl-C while the caller's block runs."""
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
