"""The least budget at which an algorithm meets a limit on the makespan, by bisection on verified answers."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin.proposal import ALL_SCHEDULES
from remat.solving.questions.prober import Answered, Prober
from remat.units import Number

TIME_TOLERANCE = 1e-9
"""Times within this share of each other are one instant (section 4 of the schedule format)."""

NARROW = 0.001
"""Share of the budget to which a gap between what a sweep found and what is proved is closed."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest admissible makespan; None admits every schedule."""

    makespan: Fraction | None = None

    def admits(self, makespan: Number) -> bool:
        """Whether a makespan is within the limit: exactly for integers, else within `TIME_TOLERANCE`."""
        if self.makespan is None:
            return True
        slack = 0 if isinstance(makespan, int) else self.makespan * Fraction(TIME_TOLERANCE)
        return makespan <= self.makespan + slack

    def met_by(self, answer: Answered) -> bool:
        """Whether there is a schedule, within the limit."""
        makespan = answer.result.makespan
        return answer.solved and makespan is not None and self.admits(makespan)

    def refuted_by(self, answer: Answered) -> str | None:
        """Return the class of schedules that an answer proves to contain none within the limit, or None."""
        result = answer.result
        if result.makespan is None and result.scope is not None:
            return result.scope
        scopes = {bound.scope for bound in result.bounds if not self.admits(bound.value)}
        if result.makespan is not None and result.optimal_within and not self.admits(result.makespan):
            scopes.add(result.optimal_within)
        return ALL_SCHEDULES if ALL_SCHEDULES in scopes else min(scopes, default=None)


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search has found.

    Attributes
    ----------
    best : Answered or None
        The answer at the least budget that meets the limit, as far as is known; None if there is none.
    refusal : Answered
        The answer at the largest budget that does not meet it; None if there is none.
    refuted : int
        No schedule of `scope` meets the limit at this budget, or below.
    scope : str
    complete : bool
        Whether `best` is proved to be the least within `scope`.
    """

    best: Answered | None
    refusal: Answered | None
    refuted: int
    scope: str
    complete: bool


class Bisection:
    """The state of a search: between `failed`, which does not do, and the peak of `best`, which does."""

    def __init__(self, prober: Prober, limit: Limit) -> None:
        self.prober, self.limit = prober, limit
        self.failed = self.refuted = prober.floor
        self.scope = ALL_SCHEDULES
        self.best: Answered | None = None
        self.refusal: Answered | None = None
        self.next: int | None = None

    def note(self, answer: Answered) -> bool:
        """Take an answer in; return whether it meets the limit."""
        if self.limit.met_by(answer):
            answer = answer.at_peak()
            if self.best is None or (answer.peak or 0) < (self.best.peak or 0):
                self.best = answer
            return True
        self.refusal = answer
        budget = answer.budget
        failed = math.inf if budget is None else budget
        refuted = [(failed, self.limit.refuted_by(answer))]
        least = answer.result.least_budget
        if least is not None and least.memory == answer.memory and least.size > failed:
            # `sufficient` says that one unit less is not enough, too; otherwise it is a lower bound anyway.
            failed = least.size - 1
            refuted.append((failed, least.scope))
            if least.sufficient and self.limit.makespan is None:
                self.next = least.size
        for limit, scope in refuted:
            if math.isinf(limit):
                self.scope = scope or self.scope
            elif scope is not None and (limit > self.refuted or (limit == self.refuted and scope == ALL_SCHEDULES)):
                self.refuted, self.scope = int(limit), scope
        if not math.isinf(failed):
            self.failed = max(self.failed, int(failed))
        return False

    def candidate(self, resolution: float) -> int | None:
        """Return the next budget to ask about; None where the search has ended."""
        assert self.best is not None
        top, (wanted, self.next) = self.best.peak or 0, (self.next, None)
        if wanted is not None and self.failed < wanted < top:
            return wanted
        if top - self.failed <= resolution * top:
            return None
        if self.failed == self.prober.floor and self.limit.makespan is None:
            return first if (first := self.prober.grid.above(self.failed)) < top else None
        return self.prober.grid.between(self.failed, top)

    def run(self, resolution: float) -> None:
        """Close the gap, down to a share of the budget (0: completely)."""
        while not self.prober.effort.stopped:
            budget = self.candidate(resolution)
            if budget is None:
                return
            self.note(self.prober.at(budget, self.left(resolution)))

    def left(self, resolution: float) -> int:
        """Return about how many solves there will be."""
        assert self.best is not None
        top = self.best.peak or 0
        gap = max(1.0, (top - self.failed) / max(self.prober.grid.step, resolution * top))
        return 1 + math.ceil(math.log2(gap))

    def result(self) -> Search:
        """Return what is known now."""
        top = None if self.best is None else self.best.peak
        complete = top is not None and self.prober.grid.above(self.refuted) >= top
        return Search(best=self.best, refusal=self.refusal, refuted=self.refuted, scope=self.scope, complete=complete)


def search_least(prober: Prober, limit: Limit, *, top: Answered | None = None, resolution: float = 0.0) -> Search:
    """Find the least budget at which the algorithm's schedule is within the limit.

    Parameters
    ----------
    prober : Prober
    limit : Limit
    top : Answered, optional
        The answer without a budget, where it is known already.
    resolution : float
        For algorithms that are not exact: stop at this share of the budget.

    Returns
    -------
    Search
        Proved least where the answer one grid step below is a proof.

    Notes
    -----
    An algorithm with a sweep is asked for its breakpoints from the no-recompute schedule down to the first that is too
    slow, then once more at the budget below. Otherwise, bisection on the budget grid, O(log(largest peak / step))
    solves: each verified peak becomes the upper end, each least budget that is named the lower end. A strategy
    has but one schedule.
    """
    bisection = Bisection(prober, limit)
    try:
        _fill(bisection, prober, top, resolution)
    except KeyboardInterrupt:  # the second Ctrl-C: what there is must do
        prober.effort.outer.interrupted = True
    return bisection.result()


def _fill(bisection: Bisection, prober: Prober, top: Answered | None, resolution: float) -> None:
    hook = prober.solver.sweep and bisection.limit.makespan is not None
    if hook:
        with closing(prober.many(())) as answers:  # type: ignore[type-var]
            for answer in answers:
                if not bisection.note(answer) or prober.effort.stopped:
                    break
    elif not bisection.note(prober.at(None, 10) if top is None else top):
        return
    best = bisection.best
    if best is None:
        return
    if best.solver.guarantee == "strategy" and prober.effort.algorithm != "auto":
        # Its one schedule needs its peak; below that there is none in its class.
        bisection.failed = bisection.refuted = (best.peak or 0) - 1
        bisection.scope = best.solver.within or f"the {best.solver.name} schedule"
        return
    if hook:
        # A solve of its own proves that less will not do, or finds what rounded sizes have hidden.
        below = prober.grid.below(best.peak or 0)
        if below > bisection.refuted and not prober.effort.stopped:
            bisection.note(prober.at(below, 2))
        # What no proof covers yet is searched once more, to a thousandth: tables of their own round less.
        bisection.failed = bisection.refuted
        bisection.run(NARROW)
        return
    bisection.run(0.0 if prober.solver.guarantee in ("exact", "strategy") else resolution)
