"""The state that the improving and the bounding side of a solve share: best plan, best bound, and stop flag."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field

from remat.plugin import ALL_SCHEDULES, Context, Number, Problem, Proposal, Steps
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.search_state import Plan
from remat_algorithms.dag.steps import steps_of
from remat_algorithms.kit.programs.cp_sat import LOWERED

EQUAL = 1e-9
"""Relative tolerance of the overhead for optimality, if times are not whole numbers or are too large for exactness."""

NEAR = 1e-6
"""Relative distance of the overhead from the bound below which the comparison is exact."""

EXACT = 2**49
"""Maximum makespan of the order, in time steps, at which a floating-point bound distinguishes adjacent steps."""


@dataclass
class Race:
    """The state of a solve.

    Attributes
    ----------
    problem, model, context
    budget : int
    best : Plan or None
    bound : float
        Lower bound on the time of the reruns, in the model's unit; infinite if no plan fits.
    overall : float
        The same for all schedules, in any order.
    any_order : bool
        Whether to continue until the best schedule meets `overall`, rather than the bound for plans.
    changed : float
        `time.monotonic()` of the last better plan or bound.
    patience : float
        Seconds without improvement of either after which to stop, if there is no time limit.
    halted : bool
        Set when all threads should stop.
    elsewhere : (Steps, makespan) or None
        The best schedule that is not a plan of the model, if it was better than all plans when found.
    claims : list of Proposal
        Proposals of other algorithms, if the solve asked them.
    """

    problem: Problem
    model: StageModel
    context: Context
    budget: int
    patience: float
    any_order: bool = False
    best: Plan | None = None
    bound: float = 0.0
    overall: float = 0.0
    changed: float = field(default_factory=time.monotonic)
    halted: bool = False
    reported: Plan | None = None
    told: float = 0.0
    elsewhere: tuple[Steps, Number] | None = None
    claims: list[Proposal] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, plan: Plan | None) -> bool:
        """Take a plan if it is better than the best one; from any thread."""
        if plan is None or plan.peak > self.budget:
            return False
        with self._lock:
            better = self.best is None or plan.time < self.best.time * (1.0 - 1e-12)
            if better:
                self.best = plan
                self.changed = time.monotonic()
            return better

    @property
    def least(self) -> Number | None:
        """The minimum known makespan."""
        found = None if self.elsewhere is None else self.elsewhere[1]
        if self.best is None:
            return found
        own = self.makespan(self.best)
        return own if found is None else min(own, found)

    @property
    def answer(self) -> tuple[Steps, Number] | tuple[None, None]:
        """The best known schedule, and its makespan."""
        least = self.least
        if least is None:
            return None, None
        if self.elsewhere is not None and self.elsewhere[1] == least:
            return self.elsewhere
        assert self.best is not None
        return self.steps(self.best), least

    def offer_steps(self, steps: Steps, makespan: Number) -> None:
        """Take a schedule that is not a plan, if it is better than all known ones; from the thread that solves."""
        least = self.least
        if least is None or makespan < least:
            self.elsewhere = steps, makespan
            self.changed = time.monotonic()
            self.context.report(steps, makespan=makespan)

    def raise_bound(self, bound: float) -> None:
        """Take a bound for plans if it is better; from any thread."""
        with self._lock:
            if bound > self.bound * (1.0 + 1e-9):
                self.bound = bound
                self.changed = time.monotonic()

    def raise_overall(self, bound: float) -> None:
        """Take a bound for all schedules if it is better; from any thread."""
        with self._lock:
            if bound > self.overall * (1.0 + 1e-9):
                self.overall = bound
                self.changed = time.monotonic()
        self.raise_bound(bound)

    @property
    def overhead(self) -> float:
        """Time of the best schedule beyond that of the order, in the model's unit."""
        times = [] if self.best is None else [self.best.time]
        if self.elsewhere is not None and self.model.simple:
            times.append(self.elsewhere[1] / self.model.time_unit - self.model.free_time)
        return max(0.0, min(times) - self.model.once_time) if times else math.inf

    @property
    def exact(self) -> bool:
        """Whether times are multiples of a step that is coarse enough for bounds to distinguish schedules."""
        step = self.model.whole_step
        return step is not None and self.model.once_makespan <= EXACT * step

    @property
    def settled(self) -> bool:
        """Whether the best plan is proved optimal in its class, or no plan fits."""
        return self._met(self.bound)

    @property
    def optimal(self) -> bool:
        """Whether the best schedule is proved optimal among all, or no schedule fits."""
        return self._met(self.overall)

    @property
    def proved(self) -> bool:
        """Whether the aim of the proof is reached."""
        return self.optimal if self.any_order else self.settled

    def _met(self, bound: float) -> bool:
        if bound == math.inf or self.overhead <= 0.0:
            return True
        # This property is read often: a cheap comparison first decides whether exact numbers are necessary.
        if self.overhead > bound * (1.0 + NEAR) + 1e-9:
            return False
        step, least = self.model.whole_step, self.least
        if not self.exact or step is None or least is None:
            return self.overhead <= bound * (1.0 + EQUAL) + 1e-9
        return least - self.model.once_makespan < bound * self.model.time_unit + step / 2

    def makespan_bound(self, bound: float, met: bool, makespan: Number | None) -> Number:
        """Return a bound in the instance's unit: an integer if times are integers, and never above the makespan."""
        if makespan is not None and met:
            return makespan
        once = self.model.once_makespan
        over = max(0.0, bound * (1.0 - LOWERED)) * self.model.time_unit
        if isinstance(once, int) and (makespan is None or isinstance(makespan, int)):
            over = math.ceil(over - 1e-6 * max(1.0, over))
        return once + over if makespan is None else min(makespan, once + over)

    def over(self) -> bool:
        """Return whether to stop; from any thread."""
        return self.halted or self.context.stopped or self.proved

    def watch(self) -> bool:
        """Report improvements, and return whether to stop; from the thread that solves."""
        best = self.best
        if best is not None and best is not self.reported:
            self.reported = best
            makespan = self.makespan(best)
            if self.elsewhere is None or makespan < self.elsewhere[1]:
                self.context.report(self.steps(best), makespan=makespan)
        overall = self.overall
        if self.model.simple and self.told < overall < math.inf:
            self.told = overall
            self.context.report(bound=self.makespan_bound(overall, self.optimal, self.least), scope=ALL_SCHEDULES)
        # A time limit replaces patience.
        if self.context.seconds_left is None and time.monotonic() - self.changed > self.patience:
            self.halted = True
        return self.over()

    def say(self, message: str) -> None:
        """Report progress as a message."""
        self.watch()
        self.context.report(message=message)

    def steps(self, plan: Plan) -> Steps:
        """Return the steps of a plan."""
        return steps_of(self.problem, self.model.runs_of(plan.item, plan.full))

    def makespan(self, plan: Plan) -> Number:
        """Return the makespan of a plan."""
        return self.model.makespan(self.model.runs_of(plan.item, plan.full))
