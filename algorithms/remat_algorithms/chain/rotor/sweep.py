"""`rotor` at many budgets: fronts are curves, and one search answers all budgets.

If budgets are given, each has its limit, and fronts contain the points that any of them needs. For all breakpoints, the
fronts of a chain of moderate length are filled without a limit; the front of the whole chain is the curve. On longer
chains, evenly spaced budgets are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from remat.plugin import Context, Problem, Proposal, Steps, TaskGraph
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting
from remat_algorithms.chain.rotor.search import Found
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Over, Work

WHOLE_WORK = 60_000_000
"""Maximum number of merged points (a few seconds) before the fronts of all budgets are abandoned."""

POINTS = 50
"""Number of budgets if the complete curve is not known."""


def sweep(problem: Problem, options: RotorOptions, context: Context, budgets: Sequence[int] = ()) -> Iterator[Proposal]:
    """Answer many budgets of the device memory.

    Parameters
    ----------
    problem : Problem
        A problem of kind `chain` (or an `adjoint` without storage); its own budget is not used.
    options : RotorOptions
    context : Context
        If stopped before the fronts are complete, the schedule of minimum memory is used instead.
    budgets : sequence of int
        Total bytes, descending. Empty: the breakpoints of the time-memory curve.

    Yields
    ------
    Proposal
        One for each budget, within it. Or one for each breakpoint with its peak, from the no-recompute schedule down to
        that of minimum memory, and then the infeasible answer with the minimum budget.
    """
    setting = Setting(problem, context)
    setting.check_size()
    if budgets:
        yield from _at_budgets(setting, options, [budget - setting.resident for budget in budgets])
    else:
        yield from _curve(setting, options)


def _at_budgets(setting: Setting, options: RotorOptions, rooms: Sequence[int]) -> Iterator[Proposal]:
    between = [room for room in rooms if room < setting.whole.need]
    found = setting.search(between, options).found if between else {}
    whole = setting.nothing_recomputed()
    for room in rooms:
        if room not in found:
            yield whole
        elif found[room].excess is None:
            yield setting.too_small()
        else:
            yield setting.propose(found[room])


def _curve(setting: Setting, options: RotorOptions) -> Iterator[Proposal]:
    """Yield the breakpoints from fast to slow, skipping schedules without lower memory."""
    lowest: int | None = None
    for proposal in _candidates(setting, options):
        if proposal.steps is None:
            yield proposal
            continue
        peak = peak_in_order(setting.problem.graph, proposal.steps)
        if lowest is None or peak < lowest:
            lowest = peak
            yield replace(proposal, peak=peak)


def _candidates(setting: Setting, options: RotorOptions) -> Iterator[Proposal]:
    room = setting.whole.need - 1
    table = _whole_table(setting, room)
    # Other variants may be as fast and need less memory.
    if table is None or not (table.whole[1] == 0).any():
        yield setting.nothing_recomputed()
    if table is not None:
        need = table.whole[0].tolist()
        reader = Reader(table, list(need))
        for at, excess in reversed(list(enumerate(table.whole[1].tolist()))):
            yield setting.propose(Found(setting.costs, excess, excess, partial(reader.runs, need[at])))
    elif setting.least.least <= room:
        least = setting.least.least
        rooms = sorted({least + (room - least) * k // (POINTS - 1) for k in range(POINTS)}, reverse=True)
        yield from _at_budgets(setting, options, rooms)
    yield setting.too_small()


def _whole_table(setting: Setting, room: int) -> Cells | None:
    """Return the fronts without a limit; None if they take too long."""
    work = Work(WHOLE_WORK, lambda: setting.context.stopped)
    try:
        return Cells.of(setting.segments, setting.costs, Allowed.all(setting.segments, room), work)
    except Over:
        return None


def peak_in_order(graph: TaskGraph, steps: Steps) -> int:
    """Return the peak of sequential runs in one memory, with each value freed by a run (array operations)."""
    order, size, values = steps.item, graph.size, len(graph.size)
    reads, writes, drops = graph.reads.gather(order), graph.writes.gather(order), steps.drop
    own = np.isin(drops.rows * values + drops.items, reads.rows * values + reads.items)
    made, freed, given = (np.zeros(len(order), dtype=np.int64) for _ in range(3))
    np.add.at(made, writes.rows, size[writes.items])
    np.add.at(freed, drops.rows, size[drops.items])
    np.add.at(given, drops.rows[own], size[drops.items[own]])
    resident = graph.static_memory + int(sum(size[place.value] for place in graph.inputs))
    before = resident + np.concatenate(([0], np.cumsum(made - freed)[:-1]))
    during = before + np.where(graph.in_place[order], np.maximum(0, made - given), made) + graph.workspace[order]
    return int(during.max(initial=resident))
