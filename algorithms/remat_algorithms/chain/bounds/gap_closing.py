"""Closing the gap between a schedule of a chain and its bound: programs over more and more moments.

The first moment is the one that says most by itself. A solution is taken for a schedule: where that overflows most,
there are more moments in the next round. What fits, and takes no more than the bound, is optimal.
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
"""Moments that a round adds, and how many backwards there are between them at the least."""

SHARE, LEAST_WORK = 0.3, 0.1
"""Share of the work that is left which a round may take, and what it may take in any case, in CP-SAT's units."""


@dataclass
class Closed:
    """What is known in the end.

    Attributes
    ----------
    bound : int
        Ticks that every schedule recomputes at the least, or those of the best schedule known.
    runs : (L+1, L) bool, optional
        A better schedule.
    most : int
        Its ticks, or those of the one that was known.
    rounds : int
        Programs that were solved.
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
        What each moment by itself says (`remat_algorithms.chain.bounds.one_moment`).
    most : int
        Ticks that a known schedule recomputes.
    context : Context
    room : int
        Bytes without the static ones.
    work : float
        In CP-SAT's units, a second or so each.
    told : callable
        Receives better bounds.
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
    """Return the bytes while each backward of a matrix runs (the loss, last), and the peak."""
    tasks = phases.tasks(runs)
    during = np.array(phases.during(tasks), dtype=np.int64)
    backwards = during[np.array(tasks) >= phases.loss]
    return backwards[::-1], int(during.max())


def _added(moments: Moments, chosen: tuple[int, ...], over: NDArray[np.int64] | None) -> tuple[int, ...]:
    """Return moments and some more: where a solution overflows most, or, without one, where bytes are many."""
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
