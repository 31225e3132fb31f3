"""`mixed`: checkpoints that are states or tapes, whichever is better (Maddison 2024).

Maddison 2024, "Step-based checkpointing with high-level algorithmic differentiation": a unit of storage holds a
state to restart from, or the tape of one step. The minimum number of forward steps for n steps and s units, including
those that make a tape (every step makes its tape exactly once), is

    m(n, s) = n if n <= s + 1,
    m(n, s) = min(1 + m(n-1, s-1), min over 2 <= i < n of i + m(i, s) + m(n-i, s-1)), m(n, 0) = infinity for n > 1:

store the first step's tape, or store the state before it, advance i steps, reverse the n-i later steps, restart.
"""

from __future__ import annotations

import numpy as np

from remat.plugin import Bound, Context, IntArray, LeastBudget, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.slots import forget_elsewhere, slot_notes
from remat_algorithms.adjoint.tapes.tapes import TapePlan, TapeRoom

MOST_WORK = 2 * 10**10
"""Maximum number of sums of two table entries: about half a minute."""

_INFINITE = 2**60


@within_room("mixed")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint with a `tape_size` and equal forward times.

    Takes instances of kind `adjoint`. A unit has the size of the larger of state and tape. Finds the minimum number of
    advances, and also the minimum makespan if copies take no time.

    Raises
    ------
    remat.OptionError
        Without tapes, for unequal forward times, and if the table would be too large.

    Notes
    -----
    O(n^2 s) time in O(n s) array operations, O(n s) memory.
    """
    room = TapeRoom.of(problem, "mixed")
    n = problem.chain.length
    unit = max(room.state, room.tape)
    units = room.units(unit, n - 1)
    scope = f"schedules with {max(units, 0)} units for states or tapes"
    if units < min(1, n - 1):
        least = LeastBudget(room.fixed + min(1, n - 1) * unit, None, True, room.memory)
        return Proposal(infeasible_within=scope, least=least)
    table = forward_steps(n, units, context)
    if table is None:
        return Proposal(termination=context.termination)
    total = int(table[units, n])
    check_length(2 * total + n, f"mixed with {units} units", context.limit)
    plan = TapePlan(n, room.level)
    plan_mixed(plan, table, units, given=room.given)
    forget_elsewhere(problem, plan, room.level)
    work = (total - n) * problem.chain.forward_time[0].item() + problem_backward_time(problem)
    return Proposal(
        steps=plan.steps(problem),
        makespan=work if room.free else None,
        bounds=(Bound(work, scope, "mixed"),),
        optimal_within=scope if room.free else None,
        notes=slot_notes(problem, room.level),
    )


def forward_steps(n: int, units: int, context: Context | None = None) -> IntArray | None:
    """Return m(k, s) for s = 0 .. units and k = 0 .. n, as an array [s, k]; None if the context stops it.

    Raises
    ------
    remat.OptionError
    """
    if n * n // 2 * units > MOST_WORK and units < n - 1:
        raise OptionError(
            f"mixed needs {n * n // 2 * units:.1e} operations for {n:,} steps and {units} units; it takes "
            f"at most {MOST_WORK:.0e}: give fewer steps or units",
            argument="algorithm",
        )
    if units == n - 1 and units > 0:
        # Every tape is stored: nothing to decide, and no table to fill.
        return np.broadcast_to(np.arange(n + 1), (units + 1, n + 1))
    table = np.full((units + 1, n + 1), _INFINITE, dtype=np.int64)
    table[:, 0], table[:, 1] = 0, 1
    index = np.arange(n + 1)
    for s in range(1, units + 1):
        if context is not None and context.stopped:
            return None
        table[s, : s + 2] = index[: s + 2][: n + 1]
        lower, onward = table[s - 1], table[s] + index
        for k in range(s + 2, n + 1):
            best = min(1 + int(lower[k - 1]), int((onward[2:k] + lower[k - 2 : 0 : -1]).min()))
            table[s, k] = best
            onward[k] = best + k
    return table


def plan_mixed(plan: TapePlan, table: IntArray, units: int, *, given: bool = False) -> None:
    """Add the schedule of all steps.

    Parameters
    ----------
    plan : TapePlan
    table : (units + 1, n + 1) ints
        The table of `forward_steps`.
    units : int
    given : bool
        Whether x_0 already lies in storage.
    """
    # A range (first, count, units) has x_first live and not stored; a negative count is a stored tape's backward.
    stack = [(0, plan.n, units, False)]
    while stack:
        first, count, free, stored = stack.pop()
        if count < 0:
            plan.fetch_tape(first)
            plan.back(first)
            continue
        if stored:
            plan.fetch_state(first, last=True)
        here = given and first == 0 and count == plan.n
        split = _split(table, count, free)
        if split == 0:
            if here:
                plan.discard_state(0)
            if count == 1:
                plan.tape_and_back(first)
                continue
            plan.tape(first, keep=True)
            plan.store_tape(first)
            stack.append((first, -1, 0, False))
            stack.append((first + 1, count - 1, free - 1, False))
            continue
        if not here:
            plan.store_state(first)
        plan.advance(first, first + split)
        stack.append((first, split, free, True))
        stack.append((first + split, count - split, free - 1, False))


def _split(table: IntArray, count: int, units: int) -> int:
    """Return the number of steps to advance from a stored state; 0 to write the first step's tape instead."""
    if count <= units + 1:
        return 0
    lower = table[units - 1]
    place = np.arange(2, count)
    cost = place + table[units, 2:count] + lower[count - 2 : 0 : -1]
    best = int(np.argmin(cost))
    return 0 if 1 + lower[count - 1] <= cost[best] else best + 2
