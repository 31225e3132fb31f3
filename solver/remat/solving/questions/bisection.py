"""Minimum budget at which an algorithm meets a makespan limit, by bisection on verified answers."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import registry
from remat.plugin.proposal import ALL_SCHEDULES
from remat.solving import auto, portfolio
from remat.solving.questions.pool import Answered
from remat.solving.questions.prober import Prober
from remat.units import Number

TIME_TOLERANCE = 1e-9
"""Times within this share of each other are one instant (section 4 of the schedule format)."""

QUICK_SHARE = 0.25
"""Share of the time in which quick algorithms run at all budgets."""

LATER_PART = 6
"""Part of the range below the best answer that later rounds search."""

LONGER = 2
"""Factor between the time of a solve and the next one at the same budget: in about the same time it finds the same."""

NARROW = 0.001
"""Share of the budget to which the gap between a sweep's result and the proof is closed."""


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
        """Whether there is a schedule within the limit."""
        makespan = answer.result.makespan
        return answer.solved and makespan is not None and self.admits(makespan)

    def refuted_by(self, answer: Answered) -> str | None:
        """Return the class of schedules for which an answer proves that none meets the limit, or None."""
        result = answer.result
        if result.makespan is None and result.scope is not None:
            return result.scope
        scopes = {bound.scope for bound in result.bounds if not self.admits(bound.value)}
        if result.makespan is not None and result.optimal_within and not self.admits(result.makespan):
            scopes.add(result.optimal_within)
        return ALL_SCHEDULES if ALL_SCHEDULES in scopes else min(scopes, default=None)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Result of a search.

    Attributes
    ----------
    best : Answered or None
        The answer at the smallest known budget that meets the limit; None if none is known.
    refusal : Answered
        The answer at the largest known budget that does not meet it; None if none is known.
    refuted : int
        No schedule of `scope` meets the limit at this budget or a smaller one.
    scope : str
    complete : bool
        Whether `best` is proved minimal within `scope`.
    """

    best: Answered | None
    refusal: Answered | None
    refuted: int
    scope: str
    complete: bool


class Bisection:
    """State of a search between `failed`, which is too small, and the peak of `best`, which is sufficient."""

    def __init__(self, prober: Prober, limit: Limit) -> None:
        self.prober, self.limit = prober, limit
        self.failed = self.refuted = max(prober.floor, int(prober.pool.refuted) if limit.makespan is None else -1)
        self.scope = ALL_SCHEDULES
        self.best: Answered | None = None
        self.refusal: Answered | None = None
        self.next: int | None = None
        self.classes: dict[str, int] = {}
        self.cut = self.asked_floor = False
        self.solves, self.fewer = 0, 1

    @property
    def enough(self) -> Fraction | float:
        """The makespan that meets the limit."""
        return math.inf if self.limit.makespan is None else self.limit.makespan

    def note(self, answer: Answered) -> bool:
        """Record an answer; return whether it meets the limit."""
        if self.limit.met_by(answer):
            answer = answer.at_peak()
            if self.best is None or (answer.peak or 0) < (self.best.peak or 0):
                self.best = answer
            return True
        self.refusal = answer
        self.cut |= answer.result.termination in portfolio.CUT
        if self.prober.effort.is_auto:
            self._note_of_portfolio(answer)
            return False
        budget = answer.budget
        failed = math.inf if budget is None else budget
        refuted = [(failed, self.limit.refuted_by(answer))]
        least = answer.least
        if least is not None and least.size > failed:
            # `sufficient` implies that one unit less is not enough; otherwise the figure is a lower bound.
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

    def _note_of_portfolio(self, answer: Answered) -> None:
        """Record an answer of the portfolio, which may find more with more time.

        A bound for one class does not restrict other members; only a proof over all schedules ends the search.
        """
        scope, size = self.limit.refuted_by(answer), answer.size
        if scope == ALL_SCHEDULES and not math.isinf(size):
            self.refuted = max(self.refuted, int(size))
        elif scope is not None and not math.isinf(size):
            self.classes[scope] = max(self.classes.get(scope, -1), int(size))
        elif scope is not None:
            self.scope = scope
        least = answer.least
        if least is not None:
            if least.scope == ALL_SCHEDULES:
                self.refuted = max(self.refuted, least.size - 1)
            if least.sufficient and self.limit.makespan is None:
                self.next = least.size
        self.failed = max(self.failed, self.refuted, -1 if math.isinf(size) else int(size))

    def candidate(self, resolution: float) -> int | None:
        """Return the next budget to probe; None if the search has ended."""
        assert self.best is not None
        top, (wanted, self.next) = self.best.peak or 0, (self.next, None)
        if wanted is not None and self.failed < wanted < top:
            return wanted
        if top - self.failed <= resolution * top:
            return None
        if self.failed == self.prober.floor and self.limit.makespan is None and not self.asked_floor:
            self.asked_floor = True
            return first if (first := self.prober.grid.above(self.failed)) < top else None
        return self.prober.grid.between(self.failed, top)

    def run(self, resolution: float, member: registry.Algorithm | None = None) -> None:
        """Close the gap, down to a share of the budget (0: completely), with a form of the portfolio."""
        while not self.prober.effort.stopped:
            budget = self.candidate(resolution)
            if budget is None:
                return
            left = max(1, self.left(resolution) // self.fewer)
            if member is None:
                self.note(self.prober.at(budget, left))
            else:
                self._ask(budget, left, member)

    def _ask(self, budget: int, left: int, member: registry.Algorithm) -> None:
        """Ask a form of the portfolio, unless it has failed at this budget with about as much time."""
        known, allowed = self.prober.pool.longest(budget, member), self.prober.effort.allowed(left)
        if known is None or allowed is None or self.limit.met_by(known) or allowed >= LONGER * (known.allowed or 0.0):
            self.solves += 1
            known = self.prober.at(budget, left, member=member, enough=self.enough)
        self.note(known)

    def run_portfolio(self, resolution: float, *, again: bool = False) -> None:
        """Close the gap with the quick members, then with all members, within the time limit.

        `again` means that an earlier search had less time. Then, and in later rounds, the search begins near the best
        answer, since most smaller budgets failed before. After a round without a gain, each solve of the next one has
        more of the time left. The search ends if no solve would have `LONGER` times the time of an earlier one.
        """
        effort = self.prober.effort
        if not again:
            with effort.within(QUICK_SHARE):
                self.run(resolution, auto.QUICK)
        while not effort.stopped:
            found, self.cut, self.solves = self.best, False, 0
            assert found is not None
            self.failed, top = self.refuted, found.peak or 0
            if again:
                self.failed = max(self.refuted, top - 1 - (top - self.refuted) // LATER_PART)
            self.run(resolution, auto.ALONE)
            self._confirm()
            # Without a limit all members had their time, and members that terminated would repeat their answer.
            if effort.deadline is None or (not self.cut and found is self.best):
                return
            if found is self.best:
                if not self.solves and self.fewer > self.left(resolution):
                    return
                self.fewer *= LONGER
            again = True

    def _confirm(self) -> None:
        """Probe one grid step below the best answer: only that can prove it minimal."""
        assert self.best is not None
        below = self.prober.grid.below(self.best.peak or 0)
        if below > max(self.failed, self.refuted) and not self.prober.effort.stopped:
            self._ask(below, 2, auto.ALONE)

    def left(self, resolution: float) -> int:
        """Return the estimated number of remaining solves."""
        assert self.best is not None
        top = self.best.peak or 0
        gap = max(1.0, (top - self.failed) / max(self.prober.grid.step, resolution * top))
        return 1 + math.ceil(math.log2(gap))

    def result(self) -> Search:
        """Return the current result."""
        top = None if self.best is None else self.best.peak
        complete = top is not None and self.prober.grid.above(self.refuted) >= top
        if self.prober.effort.is_auto and not complete and top is not None:
            # A proof for a class applies to a schedule that is optimal in that class.
            within = None if self.best is None else self.best.result.optimal_within
            if within is not None and self.prober.grid.above(self.classes.get(within, -1)) >= top:
                below = max(0, top - 1)
                return Search(best=self.best, refusal=self.refusal, refuted=below, scope=within, complete=True)
        return Search(best=self.best, refusal=self.refusal, refuted=self.refuted, scope=self.scope, complete=complete)


def search_least(
    prober: Prober, limit: Limit, *, top: Answered | None = None, resolution: float = 0.0, again: bool = False
) -> Search:
    """Find the minimum budget at which the algorithm's schedule is within the limit.

    Parameters
    ----------
    prober : Prober
    limit : Limit
    top : Answered, optional
        The answer without a budget, if already known.
    resolution : float
        For inexact algorithms: stop when the gap is this share of the budget.
    again : bool
        Whether the portfolio continues a search that had less time.

    Returns
    -------
    Search
        Proved minimal if the answer one grid step below is a proof.

    Notes
    -----
    An algorithm with a sweep gives its breakpoints from the schedule without recomputation down to the first that is
    too slow, and is then run at the budget below. Other algorithms need a bisection on the budget grid, with
    O(log(largest peak / step)) solves: each verified peak becomes the upper end, each reported minimum budget the lower
    end. A strategy has only one schedule.
    """
    bisection = Bisection(prober, limit)
    try:
        _fill(bisection, prober, top, resolution, again=again)
    except KeyboardInterrupt:  # the second Ctrl-C: end with the current results
        prober.effort.outer.interrupted = True
    return bisection.result()


def _fill(bisection: Bisection, prober: Prober, top: Answered | None, resolution: float, *, again: bool) -> None:
    if prober.effort.is_auto:
        _fill_with_portfolio(bisection, prober, top, resolution, again=again)
        return
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
    if best.solver.guarantee == "strategy" and not prober.effort.is_auto:
        # The strategy's only schedule needs its peak; its class has no schedule below that.
        bisection.failed = bisection.refuted = (best.peak or 0) - 1
        bisection.scope = best.solver.within or f"the {best.solver.name} schedule"
        return
    if hook:
        # A separate solve proves that less is infeasible, or finds a schedule that rounded sizes have hidden.
        below = prober.grid.below(best.peak or 0)
        if below > bisection.refuted and not prober.effort.stopped:
            bisection.note(prober.at(below, 2))
        # Search the unproved interval once more, to a thousandth: separate tables round less.
        bisection.failed = bisection.refuted
        bisection.run(NARROW)
        return
    bisection.run(0.0 if prober.solver.guarantee in ("exact", "strategy") else resolution)


def _fill_with_portfolio(
    bisection: Bisection, prober: Prober, top: Answered | None, resolution: float, *, again: bool
) -> None:
    effort, enough = prober.effort, bisection.enough
    met = bisection.note(prober.at(None, 10, member=auto.QUICK, enough=enough) if top is None else top)
    if not met and not effort.stopped:
        met = bisection.note(prober.at(None, 2, member=auto.ALONE, enough=enough))
    if not met:
        return
    if bisection.limit.makespan is not None and prober.many_at_once is not None and not effort.stopped:
        with effort.within(QUICK_SHARE), closing(prober.many(())) as answers:  # type: ignore[type-var]
            for answer in answers:
                if not bisection.note(answer) or effort.stopped:
                    break
    bisection.run_portfolio(resolution, again=again)
