"""The incumbent of `dag-offload-best`, with its runs as a start for the search, and all bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from remat.plugin import ALL_SCHEDULES, Bound, Context, Number, Proposal, Steps
from remat_algorithms.joint.dag_offload_best.model import RANKINGS, Attempt, Runs, Setting
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.offload.swaps.fluid_bound import volume_bound
from remat_algorithms.offload.swaps.gap_choice_facts import Gaps
from remat_algorithms.offload.swaps.gap_selection import quicker

IDLE = 1e-9
"""Share of a makespan below which waiting counts as rounding."""

FEW = 3
"""Number of rankings that a quick evaluation tries."""


@dataclass(frozen=True)
class Found:
    """A schedule, and its runs in order."""

    steps: Steps
    runs: Runs


@dataclass(frozen=True)
class Tried:
    """The fastest plan of some runs with the required offloading, and the share of it in which the processor waits."""

    makespan: Number = math.inf
    waits: float = 1.0
    attempt: Attempt | None = None


class Best(Incumbent[Found]):
    """State of the search.

    Attributes
    ----------
    bounds_by_scope : dict of str to Bound
        The best bound of each class of schedules.
    start : Runs or None
        The runs of the best schedule that the search itself found.
    attempt : Attempt or None
        The same as an attempt.
    considered : set of Runs
        Runs that were tried with all rankings.
    wins : list of int
        How often each ranking was the best one of some runs.
    """

    def __init__(self, setting: Setting, context: Context) -> None:
        super().__init__(context, lambda found: found.steps, better=quicker)
        self.setting = setting
        self.bounds_by_scope: dict[str, Bound] = {}
        self.start: Runs | None = None
        self.attempt: Attempt | None = None
        self.wins = [0] * RANKINGS
        self.considered: set[Runs] = set()

    @property
    def proved(self) -> bool:
        """Whether the best schedule is proved optimal among all."""
        bound = self.bounds_by_scope.get(ALL_SCHEDULES)
        least = self.setting.problem.least_makespan if bound is None else bound.value
        return self.best is not None and not quicker(least, self.makespan)

    @property
    def helped(self) -> frozenset[int]:
        """Tasks that the helper runs in the best schedule that the search itself found."""
        return frozenset() if self.start is None else self.start.helped

    @property
    def done(self) -> bool:
        """Whether the best schedule is proved optimal, or the time is over."""
        return self.context.stopped or self.proved

    def hopeless(self, choice: Gaps, factor: float = 1.0) -> bool:
        """Whether a bound shows that no plan for an order takes less than `factor` times the search's best."""
        return self.attempt is not None and volume_bound(choice) >= self.attempt.makespan * factor

    def consider(self, attempt: Attempt | None, runs: Runs, message: str = "") -> bool:
        """Take over a plan if it is faster; return whether it is.

        A plan that is only faster than all plans of the search itself becomes its new start.
        """
        if attempt is None:
            return False
        if self.attempt is None or quicker(attempt.makespan, self.attempt.makespan):
            self.start, self.attempt = Runs(attempt.tasks, runs.helped), attempt
        if self.best is not None and not quicker(attempt.makespan, self.makespan):
            return False
        plan = attempt.plan()
        if plan is None:
            return False
        steps = self.setting.tidied(plan.outcome.steps, plan.makespan)
        return self.take(Found(steps, runs), plan.makespan, message=message)

    def consider_runs(self, runs: Runs, message: str = "", *, few: bool = False) -> Tried:
        """Take over the fastest plan of some runs over all rankings for offloading; `few`: only the best rankings."""
        if not few:
            self.considered.add(runs)
        choice = self.setting.choice(runs)
        if choice is None or self.hopeless(choice):
            return Tried()
        work, tried, best = float(choice.start_times[-1]), Tried(), -1
        order = sorted(range(RANKINGS), key=lambda number: (-self.wins[number], number))[: FEW if few else RANKINGS]
        for number, attempt in self.setting.plans(choice, order):
            if attempt is None:
                continue
            self.consider(attempt, runs, message)
            if attempt.makespan < tried.makespan:
                waits = 1 - work / float(attempt.makespan) if attempt.makespan else 0.0
                tried, best = Tried(attempt.makespan, waits, attempt), number
            if tried.waits < IDLE or self.context.stopped:
                break
        if best >= 0:
            self.wins[best] += 1
        return tried

    def claim(self, value: Number, scope: str, source: str) -> None:
        """Take over a bound if it improves the one of its class."""
        known = self.bounds_by_scope.get(scope)
        if known is None or value > known.value:
            self.bounds_by_scope[scope] = Bound(value, scope, source)
            self.context.report(bound=value, scope=scope)

    def proposal(self) -> Proposal:
        """Return the answer; each bound is capped at the makespan."""
        bounds = tuple(self.bounds_by_scope.values())
        if self.best is None:
            return Proposal(bounds=bounds, termination=self.context.termination)
        within = [bound.scope for bound in bounds if not quicker(bound.value, self.makespan)]
        return Proposal(
            steps=self.best.steps,
            makespan=None if math.isinf(self.makespan) else self.makespan,
            bounds=tuple(Bound(min(b.value, self.makespan), b.scope, b.source) for b in bounds),
            optimal_within=min(within, key=lambda scope: scope != ALL_SCHEDULES, default=None),
            termination=self.context.termination,
        )
