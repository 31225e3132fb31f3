"""`rotor` for many budgets, one after the other: fronts without a limit contain all their answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from remat.plugin import Context, Problem, Proposal, Termination
from remat_algorithms.chain.minimum_memory import LeastMemory
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting, solve_in
from remat_algorithms.chain.rotor.search import MANY_FROM, MANY_WORK, Found
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Over, Work

LEAST_WORK = 500_000
"""Points for which filling fronts is worth a try."""


def prepare(problem: Problem, options: RotorOptions) -> Callable[[Problem, Context], Proposal]:
    """Return a function with the answers of `solve` for problems that differ only in capacities.

    Notes
    -----
    The fronts of all segments are filled without a time limit if this takes no more work than all previous searches, or
    at most `MANY_WORK` for chains of up to `MANY_FROM` stages. Later budgets are looked up, and each schedule is read
    off once. Prepared budgets therefore never take much more work than single solves.
    """
    return Fronts(problem, options).solve


class Fronts:
    """The fronts of a chain, and the answers that have been read off them.

    Attributes
    ----------
    setting : Setting
    """

    def __init__(self, problem: Problem, options: RotorOptions) -> None:
        self.setting, self.options = Setting(problem, Context()), options
        self._reader: Reader | None = None
        self._tried = 0
        self._read: dict[int, Proposal] = {}

    def solve(self, problem: Problem, context: Context) -> Proposal:
        """Answer one budget."""
        setting = self.setting
        setting.asked(problem, context)
        room = math.inf if problem.budget is None else problem.budget - setting.resident
        if setting.whole.need <= room:
            if -1 not in self._read:
                self._read[-1] = setting.nothing_recomputed()
            return self._read[-1]
        reader = self._fronts()
        if reader is None:
            return solve_in(setting, self.options)
        need, excess = reader.table.whole
        place = int(need.searchsorted(room, side="right")) - 1
        if place < 0:
            return setting.too_small(_least_of(reader.table) if len(need) else None)
        if place in self._read:
            return self._read[place]
        own = int(excess[place])
        found = Found(setting.costs, own, own, lambda: reader.runs(int(need[place])))
        if found.uses_capped:
            return solve_in(setting, self.options)
        proposal = setting.propose(found)
        if proposal.termination is Termination.COMPLETED:
            self._read[place] = proposal
        return proposal

    def _fronts(self) -> Reader | None:
        """Return the fronts; None while they need more work than the previous searches."""
        setting = self.setting
        most = max(MANY_WORK if setting.segments.length <= MANY_FROM else 0, setting.work)
        if self._reader is None and most >= max(LEAST_WORK, 2 * self._tried):
            work = Work(most, lambda: setting.context.stopped)
            setting.check_size()
            try:
                allowed = Allowed.all(setting.segments, setting.whole.need - 1)
                table = Cells.of(setting.segments, setting.costs, allowed, work)
                # Looked for together, all points take no more time than a dozen of them one by one.
                self._reader = Reader(table, table.whole[0].tolist())
            except Over:
                self._tried = most if work.done > most else self._tried
        return self._reader


def _least_of(table: Cells) -> LeastMemory:
    """Return the minimum memory of each segment, which is the first point of its front; times are left out.

    A segment without points needs more than the others leave it.
    """
    filled = table.begin < table.end
    need = np.where(filled, table.pool.need[np.where(filled, table.begin, 0)], 2**62)
    return LeastMemory(table.segments, need, np.zeros_like(need))
