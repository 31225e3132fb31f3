"""`offload-greedy`: offload values in the order of several rankings until the budget holds; keep the fastest plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from pydantic import Field

from remat.plugin import Context, IntArray, Options, Problem, Proposal
from remat_algorithms.offload.swaps.fluid_bound import fluid_bound
from remat_algorithms.offload.swaps.gap_choice_facts import Gaps
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import required_routes
from remat_algorithms.offload.swaps.swaps import Order


class OffloadOptions(Options):
    """Options of the algorithms that only offload."""

    bound: bool = Field(True, description="also solve the fluid relaxation, for a lower bound and a gap")


def solve(problem: Problem, options: OffloadOptions, context: Context) -> Proposal:
    """Offload whole values of the reference order.

    Takes instances of any kind, on a machine with links out of the processor's memory and back. Finds a schedule
    whenever the budget holds each single run and the other memories hold the rest. The bound holds for schedules that
    run the same tasks in the same order.

    Raises
    ------
    remat.OptionError
        If the machine has no link out of the processor's memory, or none back.

    Notes
    -----
    O(rankings * (gaps + runs) * runs), and the linear program of the bound.
    """
    choice = Choice(problem, Order.of(problem), required_routes(problem, "offload-greedy"))
    plan = greedy_plan(choice, lambda: context.stopped)
    if plan is None:
        return nothing_fits(choice, "offload-greedy")
    context.report(plan.outcome.steps, makespan=plan.makespan)
    bound = fluid_bound(choice, context) if options.bound else None
    return proposal_of(plan, context, bound=bound, source="fluid relaxation")


def greedy_plan(choice: Choice, stopped: Callable[[], bool]) -> Plan | None:
    """Return the fastest of `greedy_plans`."""
    return best_of(greedy_plans(choice, stopped))


def greedy_plans(choice: Choice, stopped: Callable[[], bool]) -> Iterator[Plan | None]:
    """Yield the plans of the rankings (None if one does not fit); the first one even if stopped."""
    if choice.fits:
        yield choice.plan([])
        return
    some = False
    for ranking in rankings(choice):
        if some and stopped():
            return
        plan = choice.plan(choice.select(ranking))
        some = some or plan is not None
        yield plan


def rankings(choice: Gaps) -> list[np.ndarray]:
    """Orders in which gaps are taken.

    By length, idle time, size, and products of these, largest first. Two more rank gaps by slack: for leaving before
    its bytes are needed, and for returning afterwards.
    """
    gaps = choice.candidates
    size, length = choice.size[gaps].astype(np.float64), choice.length[gaps].astype(np.float64)
    idle = length - choice.round_trip[gaps]
    spans = (choice.before[gaps] - choice.after[gaps]).astype(np.float64)
    scores = [length, spans, idle, size, size * length, size * np.maximum(idle, 0), idle / np.maximum(size, 1)]
    spare = _spare_time(choice, gaps)
    scores += [spare, size * np.maximum(spare, 0)]
    return [gaps[np.argsort(-score, kind="stable")] for score in scores]


def _spare_time(choice: Gaps, gaps: IntArray) -> np.ndarray:
    """Return the slack of each gap: the smaller of the possible delays of its value's transfers out and back.

    The value must be away from the first to the last of the runs inside the gap that exceed the budget.
    """
    if choice.budget is None or not len(gaps):
        return np.zeros(len(gaps))
    times = choice.start_times.astype(np.float64)
    over = np.flatnonzero(choice.profile > choice.budget)
    after, before = choice.after[gaps], choice.before[gaps]
    low, high = np.searchsorted(over, after, side="right"), np.searchsorted(over, before) - 1
    ends = np.append(over, len(times) - 2)
    out, back = choice.transfer_times
    leaves = times[ends[low]] - times[after + 1] - out[gaps]
    returns = times[before] - times[ends[np.maximum(high, 0)] + 1] - back[gaps]
    return np.where(low <= high, np.minimum(leaves, returns), -np.inf)
