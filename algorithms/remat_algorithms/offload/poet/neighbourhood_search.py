"""Large neighbourhood search on `poet`'s program: some values are decided again, the others stay fixed.

The neighbourhoods (Shaw 1998) are sets of a few values. Their residency, their paging and the recomputation by their
producers are free; all others are fixed. Each neighbourhood is a small program for CP-SAT.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from remat.plugin import BoolArray, Context, IntArray
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.offload.poet.cp_sat_program import Partial, SatProgram

FEWEST, MOST = 4, 24
"""Minimum and maximum number of values that are free at once."""

STEP_WORK = 0.02
"""Maximum work on one neighbourhood, in CP-SAT's units."""

FRUITLESS = 60
"""Number of neighbourhoods without improvement after which the search ends."""


class Descent:
    """The best known solution, and the remaining work.

    Parameters
    ----------
    program : SatProgram
    context : Context
    work : float or None
        In CP-SAT's units; None is no limit.
    found : callable
        Receives the columns of each better solution.
    """

    def __init__(
        self, program: SatProgram, context: Context, work: float | None, found: Callable[[IntArray], None]
    ) -> None:
        self.program, self.context, self.work, self.found = program, context, work, found
        self.best: IntArray | None = None
        self.random = Random(context.seed)
        self.changed = False  # by the latest program

    @property
    def over(self) -> bool:
        """Whether the time or the work is used up."""
        return self.context.stopped or (self.work is not None and self.work <= 0)

    def take(self, values: IntArray) -> bool:
        """Keep a solution if it is better."""
        if self.best is not None and self.program.total(values) >= self.program.total(self.best):
            return False
        self.best = values
        self.found(values)
        return True

    def complete(self, decided: BoolArray, values: IntArray) -> bool:
        """Complete a partially decided solution; return whether a completion exists."""
        return self._solve(~decided, values, STEP_WORK) in (Outcome.OPTIMAL, Outcome.FEASIBLE)

    def whole(self, share: float = 1.0) -> Outcome:
        """Solve the whole program from the best solution, with a share of the work."""
        return self._solve(None, self.best, None if self.work is None else share * self.work)

    def descend(self) -> None:
        """Repeatedly optimise over a few values."""
        form = self.program.form
        values = sorted(form.columns_of, key=lambda value: form.columns_of[value][0])
        many, fruitless = FEWEST, 0
        while not self.over and fruitless < FRUITLESS and self.best is not None and values:
            outcome = self._solve(self._free(self._some(values, many)), self.best, STEP_WORK)
            better = outcome is not Outcome.UNKNOWN and self.changed
            fruitless = 0 if better else fruitless + 1
            if outcome is Outcome.OPTIMAL and not better:
                many = min(MOST, many + 1)
            elif outcome is not Outcome.OPTIMAL:
                many = max(FEWEST, many - 1)

    def _some(self, values: list[int], many: int) -> list[int]:
        """Choose neighbours in order of production, or random values."""
        if self.random.random() < 0.5:
            return self.random.sample(values, min(many, len(values)))
        first = self.random.randrange(len(values))
        return values[first : first + many]

    def _free(self, values: list[int]) -> BoolArray:
        """Return the columns that decide about some values; lengths of stages are always free."""
        form = self.program.form
        front, free = form.front, np.zeros(self.program.columns, dtype=bool)
        free[form.taus] = True
        free[form.bytes_in_place] = True
        for value in values:
            free[form.columns_of[value]] = True
        makers = {position for value in values for position in front.makers[value]}
        free[[column for (_, position), column in form.runs.items() if position in makers]] = True
        # The values that the producers read and write are free, too.
        for position in makers:
            for value in (*front.reads[position], *front.writes[position]):
                free[form.columns_of.get(value, [])] = True
        return free

    def _solve(self, free: BoolArray | None, values: IntArray | None, work: float | None) -> Outcome:
        context = self.context
        partial = self.program.model(lambda: context.stopped, values, free)
        self.changed = False
        if partial is None:
            return Outcome.UNKNOWN
        return self._answer(partial, work)

    def _answer(self, partial: Partial, work: float | None) -> Outcome:
        context = self.context

        def told(values: IntArray) -> None:
            self.changed |= self.take(values)

        job = CpSatJob(
            partial.model,
            threads=context.threads,
            seed=context.seed,
            seconds=context.seconds_left,
            chosen=partial.read,
            found=told,
        )
        limits = [limit for limit in (work, self.work) if limit is not None]
        if limits:
            job.solver.parameters.max_deterministic_time = max(1e-6, min(limits))
        outcome = watched(job, lambda: context.interrupted, context.seconds_left).outcome
        assert not job.refusal, f"CP-SAT refuses the program: {job.refusal}"
        if self.work is not None:
            self.work -= job.work
        return outcome
