"""The curve of `auto`: many budgets, one pool of schedules, and an anytime best curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice

from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget, Status
from remat.solving import auto, portfolio
from remat.solving.lowered_budget import SMALL
from remat.solving.questions.bisection import Limit, Search, search_least
from remat.solving.questions.curves import Curve, Least, Point
from remat.solving.questions.pool import Answered
from remat.solving.questions.prober import Prober

POINTS = 20
"""Default number of budgets at which all members of the portfolio run."""

MINIMUM_SHARE, QUICK_SHARE = 0.35, 0.25
"""Shares of the time left for the minimum budget, and for those members that take little time at all budgets."""

FURTHER, PROGRESS = 3, 0.95
"""Maximum number of further searches for the minimum budget at once, and the share to which one has to lower it."""

AT_ONCE = 4
"""Number of budgets, coarse to fine, that share the time left: many short solves find less than a few longer ones."""

LEAST_WEIGHT = 0.02
"""Smallest weight of a budget in the division of the time; the weight of others is their gap."""

RESOLUTION = 0.005
"""Share of the budget to which the minimum budget is searched."""


class PortfolioCurve:
    """Computes a curve coarse to fine, first with the quick members, then with all.

    Parameters
    ----------
    prober : Prober
        The prober of `auto`.
    budgets : tuple of int, optional
        Descending; default: between the minimum budget and the peak of the fastest schedule.
    points : int, optional
        Number of budgets to choose.
    told : callable
        Called with each answer.
    """

    def __init__(
        self, prober: Prober, budgets: tuple[int, ...] | None, points: int | None, told: Callable[[Answered], None]
    ) -> None:
        self.prober, self.budgets, self.points, self.told = prober, budgets, points, told
        self.effort, self.pool = prober.effort, prober.pool
        self.search: Search | None = None

    def fill(self) -> None:
        """Probe budgets until the time limit, or until all are settled."""
        self._ask(None, auto.QUICK, 20)
        if self.pool.smallest is None and not self._over():
            self._ask(None, auto.ALONE, 2)
        if self.budgets is None:
            self._find_minimum()
            self._find_smaller()
        budgets = self._wanted()
        self._ask_quickly(budgets)
        if self.budgets is not None and budgets and self.pool.fastest(budgets[-1]) is None:
            self._find_minimum()
        self._deepen([*self._wanted(), *([] if self.pool.gap(None) == 0 else [None])])
        while self.budgets is None and self._has_time_for_minimum():
            known = self.pool.smallest
            self._find_minimum(share=1.0)
            if self.pool.smallest is known:
                return
            self._deepen(self._wanted())

    def _find_smaller(self) -> None:
        """Continue the search for the minimum budget as long as it makes progress within its share of the time.

        The first search makes progress if all members lower what the quick ones have found.
        """
        quick = [known.peak or 0 for known in self.pool.answers if known.solved and known.solver == auto.QUICK]
        before = min(quick, default=math.inf)
        for _ in range(FURTHER):
            smallest = self.pool.smallest
            if smallest is None or (smallest.peak or 0) > PROGRESS * before or not self._has_time_for_minimum():
                return
            before = smallest.peak or 0
            self._find_minimum()

    def _has_time_for_minimum(self) -> bool:
        least = self._least()
        open_ = least is not None and least.sufficient and least.proved_within != ALL_SCHEDULES
        return open_ and self.effort.deadline is not None and not self._over()

    def curve(self) -> Curve:
        """Return the best known curve."""
        answers = [Point.of(answer.result, answer.memory) for answer in self._answers()]
        return Curve(
            algorithm=self.effort.name,
            registered=self.effort.registered,
            options=dict(self.effort.options),
            answers=tuple(answers),
            least=self._least(),
            exhaustive=False,
            termination=self.effort.termination,
            default_limit=self.effort.default_limit,
        )

    def _over(self) -> bool:
        """Whether the time limit or a user interrupt has struck."""
        return self.effort.stopped

    # --- questions ------------------------------------------------------------------------------------------------

    def _ask(self, budget: int | None, member: object, left: float, enough: float | None = None) -> Answered:
        assert isinstance(member, type(auto.AUTO))
        answer = self.prober.at(budget, left, member=member, enough=enough)
        self.told(answer)
        return answer

    def _find_minimum(self, share: float = MINIMUM_SHARE) -> None:
        """Search for the smallest budget at which any member finds a schedule."""
        smallest = self.pool.smallest
        if smallest is None or self._over():
            return
        with self.effort.within(share):
            self.search = search_least(
                self.prober, Limit(), top=smallest, resolution=RESOLUTION, again=self.search is not None
            )

    def _wanted(self) -> tuple[int, ...]:
        """Return the budgets of the curve, descending."""
        if self.budgets is not None:
            return self.budgets
        if not self.pool.front:
            return ()
        low, high = self.pool.front[0].peak or 0, self.pool.front[-1].peak or 0
        return self.prober.grid.spread(low, high, self.points or POINTS)

    def _ask_quickly(self, budgets: tuple[int, ...]) -> None:
        """Solve all budgets with the quick members, coarse to fine."""
        with self.effort.within(QUICK_SHARE):
            if self.prober.many_at_once is not None and budgets and not self._over():
                every = self.points is None and self.budgets is None
                with closing(self.prober.many(() if every else budgets)) as answers:  # type: ignore[type-var]
                    for answer in answers:
                        self.told(answer)
                        if self._over():
                            break
            for budget in coarse_to_fine(budgets):
                if self._over():
                    return
                if not self._settled(budget):
                    self._ask(budget, auto.QUICK, 1)

    def _deepen(self, budgets: Sequence[int | None]) -> None:
        """Solve all budgets with all members, coarse to fine, and retry those that a limit has stopped.

        At first, each has as much time as if only the next few were left: coarse budgets have more than finer ones, and
        what a solve does not use passes on. Then each gets time in proportion to the gap that is left.
        """
        todo = self._solve_each(coarse_to_fine(budgets), lambda _: 1.0, at_once=AT_ONCE)
        while todo and not self._over() and self.effort.deadline is not None:
            todo = self._solve_each(todo, self._weight)

    def _solve_each(
        self, budgets: list[int | None], weight: Callable[[int | None], float], at_once: int | None = None
    ) -> list[int | None]:
        """Solve the budgets that are not settled; return those that a limit has stopped.

        `at_once` of them share the time left, all by default.
        """
        cut: list[int | None] = []
        for k, budget in enumerate(budgets):
            if self._over():
                return [*cut, *budgets[k:]]
            if self._settled(budget):
                continue
            sharing = budgets[k:]
            if at_once is not None:
                sharing = list(islice((one for one in sharing if not self._settled(one)), at_once))
            answer = self._ask(budget, auto.ALONE, sum(map(weight, sharing)) / weight(budget))
            if answer.result.termination in portfolio.CUT:
                cut.append(budget)
        return cut

    def _weight(self, budget: int | None) -> float:
        """Return the weight of a budget in the division of the time."""
        if self._settled(budget):
            return 0.0
        gap = self.pool.gap(budget)
        return 1.0 if gap is None else max(LEAST_WEIGHT, gap)

    def _settled(self, budget: int | None) -> bool:
        """Whether a budget needs no further search: proved too small, or within the requested gap."""
        if budget is not None and budget <= self.pool.refuted:
            return True
        gap = self.pool.gap(budget)
        large = len(self.prober.problem.graph.tasks) > SMALL
        wanted = self.effort.gap if self.effort.gap is not None else portfolio.GAP if large else 0.0
        return gap is not None and gap <= wanted

    # --- what is answered ---------------------------------------------------------------------------------------------

    def _answers(self) -> list[Answered]:
        """Return an answer at each budget, ascending; of budgets with the same schedule, only the smallest."""
        budgets = sorted(self._wanted())
        if self.budgets is None:
            if self.points is None and self.prober.many_at_once is not None:
                budgets = [known.peak or 0 for known in self.pool.front]
            budgets = sorted({*budgets, *(known.peak or 0 for known in self.pool.front[:1])})
        found: list[Answered] = []
        last: Answered | None = None
        refusal = self._refusal()
        if self.budgets is None and refusal is not None:
            found.append(refusal)
        for budget in budgets:
            known = self.pool.fastest(budget)
            if known is None:
                found += self._refused(budget)
            elif known is not last or self.budgets is not None:
                best = self.pool.best(budget)
                assert best is not None
                found.append(best)
            last = known
        return found

    def _refused(self, budget: int) -> list[Answered]:
        """Return the answer at a budget without a schedule: a proof for this or a larger budget holds for it."""
        own = [answer for answer in self.pool.answers if not answer.solved and answer.size == budget]
        proved = [answer for answer in own if answer.result.status is Status.INFEASIBLE]
        if proved or budget > max(self.pool.refuted, self.prober.floor):
            return (proved or own)[-1:]
        smallest = self.pool.smallest
        least = None if smallest is None else LeastBudget(smallest.peak or 0, None, True, self.prober.memory)
        return [self.prober.refused(budget, least)]

    def _refusal(self) -> Answered | None:
        """Return the answer at the largest budget without a schedule, below all that have one."""
        smallest = self.pool.smallest
        least = math.inf if smallest is None else smallest.peak or 0
        refused = [answer for answer in self.pool.answers if not answer.solved]
        below = [answer for answer in refused if answer.size < least or smallest is None]
        proved = max(below, key=lambda answer: (answer.size, answer.result.scope == ALL_SCHEDULES), default=None)
        return proved

    def _least(self) -> Least | None:
        """Return the smallest peak found, with its proofs."""
        smallest, refuted = self.pool.smallest, max(self.pool.refuted, self.prober.floor)
        if smallest is None:
            known = not math.isinf(refuted) and refuted >= 0
            return (
                Least(size=self.prober.grid.above(int(refuted)), sufficient=False, proved_within=ALL_SCHEDULES)
                if known
                else None
            )
        size = smallest.peak or 0
        if refuted >= size or self.prober.grid.above(int(refuted)) >= size:
            return Least(size=size, sufficient=True, proved_within=ALL_SCHEDULES)
        search = self.search
        same = search is not None and search.complete and search.best is not None and search.best.peak == size
        return Least(size=size, sufficient=True, proved_within=search.scope if same and search is not None else None)


def coarse_to_fine(budgets: Sequence[int | None]) -> list[int | None]:
    """Return budgets in the order of a bisection: both ends, the middle, the quarters, and so on."""
    listed, found = list(budgets), list[int | None]()
    step = 1
    while step < len(listed):
        step *= 2
    seen = set[int]()
    while step:
        for place in [*range(0, len(listed), step), len(listed) - 1]:
            if 0 <= place < len(listed) and place not in seen:
                seen.add(place)
                found.append(listed[place])
        step //= 2
    return found
