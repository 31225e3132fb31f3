"""Iterative bound improvement for chains: programs over a growing set of moments.

The first moment is the one with the strongest individual bound. Each solution is interpreted as a schedule. The next
round adds moments where that schedule exceeds the memory most. A schedule that fits, with a time equal to the bound, is
optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.plugin import BoolArray, Context
from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.chain.bounds.moment_program import MomentProgram
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.kit.programs import cp_sat
from remat_algorithms.kit.programs.solver_status import Outcome

MORE, APART = 2, 2
"""Moments added per round, and the minimum number of backwards between them."""

SHARE, LEAST_WORK = 0.3, 0.1
"""Share of the remaining work that a round may use, and the minimum work of a round, in CP-SAT's units."""


@dataclass
class Closed:
    """Final state of the search.

    Attributes
    ----------
    bound : int
        Lower bound on the recomputation ticks of every schedule, at most those of the best schedule known.
    runs : (L+1, L) bool, optional
        A better schedule.
    most : int
        Its ticks, or those of the schedule known before.
    rounds : int
        Number of programs solved.
    """

    bound: int
    most: int
    runs: BoolArray | None = None
    rounds: int = 0


def close(
    moments: Moments,
    phases: Phases,
    least: list[int],
    most: int,
    context: Context,
    *,
    room: int,
    work: float,
    told: Callable[[int], None] = lambda bound: None,
) -> Closed:
    """Raise the bound, or find a schedule that meets it.

    Parameters
    ----------
    moments, phases
    least : list of int
        Bound of each individual moment (`remat_algorithms.chain.bounds.one_moment`).
    most : int
        Recomputation ticks of a known schedule.
    context : Context
    room : int
        Bytes without the static ones.
    work : float
        Limit in CP-SAT's units, about one second each.
    told : callable
        Receives improved bounds.
    """
    closed = Closed(min(max(least), most), most)
    chosen: tuple[int, ...] = (int(np.argmax(least)),)
    while closed.bound < closed.most and work > 0 and not context.stopped:
        program = MomentProgram.of(moments, chosen, closed.most)
        answer = cp_sat.solve(
            program.program,
            seconds=context.seconds_left,
            stopped=lambda: context.stopped,
            step=1,
            work=min(work, max(LEAST_WORK, SHARE * work)),
            seed=context.seed,
        )
        work -= max(answer.work, LEAST_WORK / 10)
        closed.rounds += 1
        assert answer.outcome is not Outcome.INFEASIBLE, "the known schedule is a solution"
        over = None
        if answer.solution is not None:
            runs = program.matrix(answer.solution)
            held, highest = _held(phases, runs)
            ticks = int((runs[:-1] * moments.forward).sum())
            if highest > room:
                over = held - room
            elif ticks < closed.most:
                closed.runs, closed.most = runs, ticks
        bound = min(program.excess(answer.bound), closed.most)
        if bound > closed.bound:
            closed.bound = bound
            told(bound)
        added = _added(moments, chosen, over)
        if added == chosen:
            break
        chosen = added
    return closed


def _held(phases: Phases, runs: BoolArray) -> tuple[NDArray[np.int64], int]:
    """Return the bytes held while each backward of a matrix runs (the loss last), and the peak."""
    tasks = phases.tasks(runs)
    during = np.array(phases.during(tasks), dtype=np.int64)
    backwards = during[np.array(tasks) >= phases.loss]
    return backwards[::-1], int(during.max())


def _added(moments: Moments, chosen: tuple[int, ...], over: NDArray[np.int64] | None) -> tuple[int, ...]:
    """Return the moments and additional ones: at the largest overflows, or where many bytes are held."""
    if over is None:
        total = np.append(0, (moments.activation + moments.saved)[: moments.length].cumsum())
        ends = np.array([*chosen, 0])
        gap = int(np.argmax(total[ends[:-1]] - total[ends[1:]]))
        between = range(ends[gap + 1] + 1, ends[gap])
        half = (total[ends[gap]] + total[ends[gap + 1]]) // 2
        return _with(chosen, [min(between, key=lambda p: abs(int(total[p]) - half))] if between else [])
    more: list[int] = []
    for p in np.argsort(-over, kind="stable").tolist():
        if over[p] <= 0 or len(more) == MORE:
            break
        if p not in chosen and all(abs(p - known) > APART for known in more):
            more.append(p)
    return _with(chosen, more)


def _with(chosen: tuple[int, ...], more: list[int]) -> tuple[int, ...]:
    return tuple(sorted({*chosen, *more}, reverse=True))
