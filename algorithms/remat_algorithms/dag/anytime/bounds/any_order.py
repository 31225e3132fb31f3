"""The bound over all orders: what must be resident at some moments, whatever runs first.

Moments 1, ..., q are the starts of the first runs of items w_1, ..., w_q, each an ancestor of the next, so that they
come in this order in every schedule; stretch j lies between moments j-1 and j, the last one after moment q. At
moment j the ancestors of w_j have run, w_j and its descendants have not; of others, the order decides:

    R_k,j = 1   item k has run before moment j
    S_v,j = 1   value v is resident at moment j
    X_k,j = 1   item k is run again in stretch j
    Z_k,j = 1   item k is run again after moment j

With n_k,j = R_k,j - R_k,j-1 + X_k,j, which is 0 only if item k does not run in stretch j,

    R_k,j-1 <= R_k,j;  R_k,j <= R_l,j                      k reads what l makes
    S_v,j <= S_v,j-1 + n_k,j                               k makes v
    X_k,j <= S_u,j-1 + n_l,j                               k reads u, l makes it; the same for R_k,j - R_k,j-1
    R_k,j - R_c,j <= S_v,j + Z_k,j                         k makes v, and c reads it after moment j
    Z_k,j <= S_u,j + Z_l,j + 1 - R_l,j                     k reads u, l makes it
    X_k,j <= R_k,j;  X_k,i <= Z_k,j for i > j;  Z_k,j <= sum of X_k,i over i > j
    sum of M_v S_v,j + what the first run of w_j itself needs <= budget.

The least sum of the times of all X is a bound for every schedule, of any order. The rows of Z follow from the others
where all is 0 or 1; in between they say far more: half a rerun in each of two stretches is not a rerun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remat_algorithms.dag.anytime.bounds.blocks import Pairs, placed
from remat_algorithms.dag.anytime.bounds.lineage import Lineage
from remat_algorithms.kit.programs.program import ProgramBuilder

Term = tuple[int, int]
"""A coefficient, and the number of a variable, or `NO` or `YES`."""

NO, YES = -2, -1
"""What is known, and needs no variable."""


@dataclass
class AnyOrder:
    """A program, and its variables by moment; moments are counted from 0.

    Attributes
    ----------
    lineage : Lineage
    budget : int
    moments : list of int
        Items, each an ancestor of the next.
    program : ProgramBuilder
    ran : list of {item: variable}
        R, for each moment, of the items whose place the order decides.
    resident : list of {value: variable or YES}
        S, for each moment.
    rerun : list of {item: variable}
        X, for the stretch after each moment, up to the next.
    again : list of {item: variable}
        Z, for each moment; at the last one X itself.
    """

    lineage: Lineage
    budget: int
    moments: list[int]
    program: ProgramBuilder = field(default_factory=ProgramBuilder)
    ran: list[dict[int, int]] = field(default_factory=list)
    resident: list[dict[int, int]] = field(default_factory=list)
    rerun: list[dict[int, int]] = field(default_factory=list)
    again: list[dict[int, int]] = field(default_factory=list)

    @staticmethod
    def build(
        lineage: Lineage, budget: int, moments: Sequence[int], stopped: Callable[[], bool] = lambda: False
    ) -> AnyOrder | None:
        """Build the program for some moments; None if `stopped`, which is asked for each of them, says so.

        O(moments * accesses), and moments^2 * items for the sums over X.
        """
        this = AnyOrder(lineage, budget, list(moments))
        for moment in range(len(moments)):
            this._variables(moment)
        for moment in range(len(moments)):
            if stopped():
                return None
            this._order(moment)
            this._residence(moment)
            if not this._is_last(moment):
                this._future(moment)
            this._memory(moment)
            this._stretch(moment)
        return this

    def _variables(self, moment: int) -> None:
        lineage, program, at = self.lineage, self.program, self.moments[moment]
        facts = lineage.facts
        tables, items = facts.model.tables, range(facts.model.stages)
        place = [lineage.has_run(item, at) for item in items]
        self.ran.append({item: program.add_column(integer=True) for item in items if place[item] is None})
        resident: dict[int, int] = {}
        for value, made in enumerate(facts.lives.made):
            if tables.pinned[value] or value in facts.reads[at]:
                resident[value] = YES
            elif made < 0 or place[made] is not False:
                resident[value] = program.add_column(integer=True)
        self.resident.append(resident)
        # What first runs after the moment need not run again before the next one.
        again = [item for item in items if tables.repeat[item] and place[item] is not False]
        rerun = {item: program.add_column(cost=tables.time[item], integer=True) for item in again}
        self.rerun.append(rerun)
        self.again.append(
            rerun if self._is_last(moment) else {item: program.add_column(integer=True) for item in again}
        )

    def _is_last(self, moment: int) -> bool:
        """Whether all that comes after a moment is one stretch: then what is said of both is said once."""
        return moment + 1 == len(self.moments)

    def reruns(self, values: Sequence[float]) -> Pairs:
        """Place the reruns of a solution in the order at hand: where that is not the solution's, they may not fit."""
        ends = [*self.moments[1:], self.lineage.facts.model.stages]
        return placed(self.lineage.facts, self.rerun, list(zip(self.moments, ends, strict=True)), values)

    def _ran(self, item: int, moment: int) -> int:
        """Return R: a variable, `NO`, or `YES`, also for what is resident at the start."""
        if item < 0 or moment == len(self.moments):
            return YES
        known = self.lineage.has_run(item, self.moments[moment])
        return self.ran[moment][item] if known is None else YES if known else NO

    def _resident(self, value: int, moment: int) -> int:
        return self.resident[moment].get(value, NO)

    def _again(self, item: int, moment: int) -> int:
        return self.again[moment].get(item, NO)

    def _row(self, terms: Sequence[Term], least: int = 0) -> None:
        """Add a row, unless it holds anyway."""
        row: dict[int, int] = {}
        for coefficient, variable in terms:
            if variable == YES:
                least -= coefficient
            elif variable >= 0:
                row[variable] = row.get(variable, 0) + coefficient
        if sum(min(0, coefficient) for coefficient in row.values()) < least:
            self.program.add_row(list(row.items()), lower=least)

    def _runs(self, item: int, moment: int) -> list[Term]:
        """Return the terms of n: what is positive where an item runs in the stretch after a moment."""
        if item < 0:
            return []
        return [
            (1, self._ran(item, moment + 1)),
            (-1, self._ran(item, moment)),
            (1, self.rerun[moment].get(item, NO)),
        ]

    def _order(self, moment: int) -> None:
        facts, producer = self.lineage.facts, self.lineage.producer
        for item in range(facts.model.stages):
            has_run = self._ran(item, moment)
            if moment:
                self._row([(1, has_run), (-1, self._ran(item, moment - 1))])
            for value in facts.reads[item] if has_run != NO else ():
                self._row([(1, self._ran(producer[value], moment)), (-1, has_run)])

    def _residence(self, moment: int) -> None:
        """Say where values that are resident at a moment come from, and why they are wanted."""
        facts, producer = self.lineage.facts, self.lineage.producer
        for value, here in self.resident[moment].items():
            maker = producer[value]
            has_run = self._ran(maker, moment)
            if moment:
                came = [(1, self._resident(value, moment - 1)), *self._runs(maker, moment - 1)]
                self._row([*came, (-1, here)])
            else:
                self._row([(1, has_run), (-1, here)])
            if facts.model.tables.stays[value]:
                self._row([(1, here), (1, self._again(maker, moment)), (-1, has_run)])
            if self._is_last(moment):
                continue
            supplied = [(1, here), (1, self._again(maker, moment)), (-1, has_run)]
            for user in facts.users[value]:
                self._row([*supplied, (1, self._ran(user, moment))])

    def _future(self, moment: int) -> None:
        """Say what reruns after a moment need, as a whole, and that they are the reruns of the stretches."""
        facts, producer = self.lineage.facts, self.lineage.producer
        for item, again in self.again[moment].items():
            for value in facts.reads[item]:
                maker = producer[value]
                kept = [(1, self._resident(value, moment)), (1, self._again(maker, moment))]
                self._row([*kept, (-1, self._ran(maker, moment)), (-1, again)], -1)
            stretches = [rerun[item] for rerun in self.rerun[moment:] if item in rerun]
            self._row([*((1, rerun) for rerun in stretches), (-1, again)])
            if moment and item in self.again[moment - 1]:
                self._row([(1, self.again[moment - 1][item]), (-1, again)])

    def _memory(self, moment: int) -> None:
        facts, at = self.lineage.facts, self.moments[moment]
        tables = facts.model.tables
        load = [(-tables.size[v], here) for v, here in self.resident[moment].items() if not tables.pinned[v]]
        self._row(load, self.lineage.own[at] - self.budget)

    def _stretch(self, moment: int) -> None:
        """Say what the runs of the stretch after a moment need."""
        facts, producer, then = self.lineage.facts, self.lineage.producer, moment + 1
        for item in range(facts.model.stages):
            runs: list[list[Term]] = []
            rerun = self.rerun[moment].get(item, NO)
            if rerun != NO:
                runs.append([(-1, rerun)])
                self._row([(1, self._ran(item, then)), (-1, rerun)])
                if item in self.again[moment]:
                    self._row([(1, self.again[moment][item]), (-1, rerun)])
            before, after = self._ran(item, moment), self._ran(item, then)
            if before != after:
                runs.append([(-1, after), (1, before)])
            for value in facts.reads[item] if runs else ():
                supply = [(1, self._resident(value, moment)), *self._runs(producer[value], moment)]
                for run in runs:
                    self._row([*supply, *run])
