"""The best schedule so far, with the runs to go on from, and all bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from remat.plugin import ALL_SCHEDULES, Bound, Context, Number, Proposal, Steps
from remat_algorithms.joint.dag_offload_best.setting import Runs, Setting
from remat_algorithms.kit.incumbent import Incumbent
from remat_algorithms.offload.swaps.choice import Choice, Plan, quicker
from remat_algorithms.offload.swaps.fluid import volume_bound

IDLE = 1e-9
"""Share of a makespan below which waiting is rounding."""


@dataclass(frozen=True)
class Found:
    """A schedule, and its runs in order."""

    steps: Steps
    runs: Runs


class Best(Incumbent[Found]):
    """What the search has come to.

    Attributes
    ----------
    bounds_by_scope : dict of str to Bound
        The best bound of each class of schedules.
    start : Runs or None
        Of the best schedule that the search made itself.
    """

    def __init__(self, setting: Setting, context: Context) -> None:
        super().__init__(context, lambda found: found.steps, better=quicker)
        self.setting = setting
        self.bounds_by_scope: dict[str, Bound] = {}
        self.start: Runs | None = None

    @property
    def proved(self) -> bool:
        """Whether no schedule at all is quicker."""
        bound = self.bounds_by_scope.get(ALL_SCHEDULES)
        least = self.setting.problem.least_makespan if bound is None else bound.value
        return self.best is not None and not quicker(least, self.makespan)

    @property
    def done(self) -> bool:
        """Whether nothing better can be found, or the time is over."""
        return self.context.stopped or self.proved

    def hopeless(self, choice: Choice, factor: float = 1.0) -> bool:
        """Whether no plan of an order of runs can take less than `factor` times the best."""
        return self.best is not None and volume_bound(choice) >= self.makespan * factor

    def consider(self, plan: Plan | None, runs: Runs, message: str = "") -> bool:
        """Take a plan over if it is quicker; return whether it is."""
        if plan is None or not self.take(Found(plan.outcome.steps, runs), plan.makespan, message=message):
            return False
        self.start = runs
        return True

    def consider_runs(self, runs: Runs, message: str = "") -> float:
        """Take the quickest plan of some runs, with each ranking of what leaves.

        Returns
        -------
        float
            The share of its makespan in which the processor waits; 1 where nothing fits, or nothing can be better.
        """
        choice = self.setting.choice(runs)
        if choice is None or self.hopeless(choice):
            return 1.0
        work, waits = float(choice.order.start_times[-1]), 1.0
        for plan in self.setting.plans(choice):
            self.consider(plan, runs, message)
            if plan is not None:
                waits = min(waits, 1 - work / float(plan.makespan) if plan.makespan else 0.0)
            if waits < IDLE or self.context.stopped:
                break
        return waits

    def claim(self, value: Number, scope: str, source: str) -> None:
        """Take a bound over if it says more than the one of its class."""
        known = self.bounds_by_scope.get(scope)
        if known is None or value > known.value:
            self.bounds_by_scope[scope] = Bound(value, scope, source)
            self.context.report(bound=value, scope=scope)

    def proposal(self) -> Proposal:
        """Return the answer; a bound of a class that does not hold the schedule says no more than that."""
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
