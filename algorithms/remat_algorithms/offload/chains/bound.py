"""Lower bounds for all schedules of a chain with offloading: one program per moment.

While the loss or a backward runs, each value that later backwards read is in the processor's memory, is elsewhere, or
is recomputed by its stage. `remat_algorithms.dag.moments` has the program,
`remat_algorithms.offload.chains.chain_moments` the chain's representation for it. The relaxations of the fullest
moments show which ones matter. These are then solved as integer programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import ALL_SCHEDULES, BoolArray, Bound, Context, Number, Problem, Proposal
from remat_algorithms.dag.moments.bounds import Setting
from remat_algorithms.dag.moments.plan_from_moment import runs_of
from remat_algorithms.dag.moments.precedence import listed_levels
from remat_algorithms.dag.moments.program_solution import Effort, Moment
from remat_algorithms.offload.chains.chain_moments import setting_of
from remat_algorithms.offload.swaps.gap_selection import quicker

MOMENTS, STAGES = 12, 2000
"""Maximum number of moments whose relaxation is solved (the fullest ones), and of their stages in total, for long
chains.
"""

WHOLE = 2
"""Maximum number of these that are solved as integer programs: those of the highest bounds."""

RELAXED_WORK, WORK = 5.0, 1.0
"""Maximum work on a relaxation, in GLOP's units, and on all integer programs, in CP-SAT's: about seconds."""

SOURCE = "moments of a chain"
"""Name of the bounds."""


@dataclass(frozen=True)
class Solution:
    """A solution of the program of a moment.

    Attributes
    ----------
    runs : (L+1, L) bool
        A matrix of `chain.phases`.
    away : frozenset of int
        Values that are elsewhere at the moment, at least in part.
    """

    runs: BoolArray
    away: frozenset[int]


class ChainBound:
    """The bound of a chain; it starts at zero.

    Parameters
    ----------
    problem : Problem
        A chain without variants and parameters.

    Attributes
    ----------
    value : int or float
        No schedule takes less time.
    impossible : bool
        Whether it is proved that no schedule exists.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.setting = problem, setting_of(problem)
        self.value: Number = problem.least_makespan
        self.impossible = False
        self._units: dict[int, float] = {}

    def relax(self, stopped: Callable[[], bool]) -> None:
        """Solve the relaxation of each of the fullest moments."""
        setting = self.setting
        if setting is None:
            return
        for moment in _fullest(setting, self.problem.chain.length):
            if stopped() or self.impossible:
                return
            answer = setting.ask([moment], Effort(relaxed_work=RELAXED_WORK, whole_work=0), stopped=stopped)
            self._units[moment] = answer.bound
            self._raise(answer.bound)

    def whole(self, work: float, context: Context, enough: Callable[[], bool]) -> list[Solution]:
        """Solve the moments with the highest bounds as integer programs, and return their solutions.

        Parameters
        ----------
        work : float
            In CP-SAT's units, for all of them.
        context : Context
        enough : callable
            Whether the bound need not be raised any more.
        """
        setting, found = self.setting, list[Solution]()
        ranked = sorted(self._units, key=lambda moment: -self._units[moment])[:WHOLE]
        for number, moment in enumerate(ranked):
            if setting is None or self.impossible or enough() or not self._units[moment] > 0 or work <= 0:
                break
            effort = Effort(
                relaxed_work=0,
                whole_work=work / (len(ranked) - number),
                known=self._units[moment],
                seed=context.seed,
            )
            answer = setting.ask([moment], effort, stopped=lambda: context.stopped)
            work -= work / (len(ranked) - number)
            self._raise(answer.bound)
            if answer.whole:
                runs = runs_of(setting.facts, moment, answer.whole[0])
                found.append(_solution(answer.whole[0], runs, self.problem.chain.length))
        return found

    def _raise(self, units: float) -> None:
        setting = self.setting
        assert setting is not None
        value = setting.makespan(units)
        if math.isinf(value):
            self.impossible = True
        else:
            self.value = max(self.value, value)


def bounded(proposal: Proposal, problem: Problem, context: Context, *, work: float = WORK) -> Proposal:
    """Return the proposal of a schedule with a bound for all schedules; it is optimal if it meets the bound."""
    makespan = proposal.makespan
    if makespan is None or context.stopped:
        return proposal
    bound = ChainBound(problem)

    def enough() -> bool:
        return context.stopped or not quicker(bound.value, makespan)

    bound.relax(enough)
    bound.whole(work, context, enough)
    value = min(bound.value, makespan)
    context.report(bound=value, scope=ALL_SCHEDULES)
    met = not quicker(value, makespan)
    return replace(
        proposal,
        bounds=(*proposal.bounds, Bound(value, ALL_SCHEDULES, SOURCE)),
        optimal_within=ALL_SCHEDULES if met else proposal.optimal_within,
    )


def _fullest(setting: Setting, length: int) -> list[int]:
    """Return the moments (the loss, and backwards) that need the most bytes and more than the capacity."""
    facts, levels = setting.facts, listed_levels(setting.facts)
    places = [
        place
        for place, task in enumerate(facts.order)
        if length <= task <= 2 * length and levels[place] > setting.budget
    ]
    count = max(1, min(MOMENTS, STAGES // length))
    return [facts.order[place] for place in sorted(places, key=lambda place: -levels[place])[:count]]


def _solution(moment: Moment, tasks: list[int], length: int) -> Solution:
    """Return the matrix of some runs of the forwards 0..L-1, the loss L and the backwards."""
    matrix, phase = np.zeros((length + 1, length), dtype=np.bool_), length
    for task in tasks:
        if task < length:
            matrix[phase, task] = True
        elif task <= 2 * length:
            phase -= 1
    return Solution(matrix, frozenset(value for value, shares in moment.away.items() if sum(shares.values()) > 0))
