"""`h-revolve`: optimal hierarchical checkpointing of equal steps on any number of storage levels.

Herrmann & Pallez 2020, "H-Revolve: a framework for adjoint computation on synchronous hierarchical platforms".
Level k has c_k slots, write time w_k and read time r_k. P_k(l, m) is the minimum time for l advances with m free
slots in level k, if x0 is already in a slot of level k. O_k(l, m) is the same if x0 is only in the working memory.
The backwards cost every schedule the same and are left out (O_k(0, m) = P_k(0, m) = 0):

    O_{-1}(l, .) = inf for l >= 1,    O_k(l, 0) = O_{k-1}(l, c_{k-1})
    P_k(l, m) = min(O_{k-1}(l, c_{k-1}), min_{1<=j<=l} j*uf + O_k(l-j, m-1) + r_k + P_k(j-1, m))
    O_k(l, m) = min(O_{k-1}(l, c_{k-1}), w_k + P_k(l, m))

The answer is O_{K-1}(n-1, c_{K-1}). The split j = l, which returns to x0 for every step, matters: with it, the lowest
level needs no separate closed form.

A level of l slots or more never runs out, so its rows are all equal, and one row that refers to itself replaces
them. Equal rows for m and m+1 slots mean that more slots do not help either. If its transfers take no time, the lowest
level's rows are Revolve's closed form.

The schedules are optimal among hierarchical schedules, in which a part that is given to level k-1 never writes to level
k. In exhaustive searches this was the optimum of all schedules if w_k + r_k does not decrease with k.
"""

from __future__ import annotations

from collections.abc import Callable

from remat.plugin import Bound, Context, OptionError, Problem, Proposal
from remat_algorithms.adjoint.binomial.revolve import if_built
from remat_algorithms.adjoint.levels.level_rows import Row, Stopped, binomial_row, emit, fill, fill_slots, no_storage
from remat_algorithms.adjoint.levels.uniform import TimeLoop, finish
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan

MOST_WORK = 10**12
"""Maximum additions of the tables (more than ten minutes)."""


@within_room("h-revolve")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on all its storage levels, from fast to slow.

    Takes instances of kind `adjoint`. Without storage, its one memory is one level of free transfers. A time limit ends
    the tables without an answer. Finds the minimum makespan among hierarchical schedules. If x0 begins in another level
    than the last one, gives the better of two plans, without a claim: discard it, or use it and no level above.

    Raises
    ------
    remat.OptionError
        For unequal forward times or states, asynchronous levels, or tables above `MOST_WORK`.

    Notes
    -----
    O(n^2 sum of c_k) time, in O(n sum of c_k) array operations; O(n sum of c_k) memory.
    """
    loop = TimeLoop.of(problem, "h-revolve")
    slots = "+".join(str(level.slots) for level in loop.levels)
    scope = f"hierarchical checkpointing schedules with {slots} slots"
    refused = loop.infeasible(scope)
    if refused is not None:
        return refused if any(level.slots for level in loop.levels) else if_built(problem, refused)
    advances = loop.steps - 1
    work = advances * advances * sum(1 if c >= advances else c for c in (level.slots for level in loop.levels)) // 2
    if work > MOST_WORK:
        raise OptionError(
            f"h-revolve needs fewer steps or slots: its tables would take {work:.1e} additions", argument="algorithm"
        )
    try:
        tops = tables(loop, stopped=lambda: context.stopped)
    except Stopped:
        return Proposal(termination=context.termination)
    plan = Plan()
    best = tops[-1]
    usable = loop.given is not None and (
        loop.given == len(tops) - 1 or tops[loop.given].stored[advances] < best.live[advances]
    )
    if usable and loop.given is not None:
        best = tops[loop.given]
    else:
        loop.discard_given(plan)
    emit(plan, best, advances, stored=usable)
    finish(problem, plan, "h-revolve", context)
    makespan = loop.cost(plan)
    if loop.given not in (None, len(tops) - 1):
        return Proposal(steps=plan.steps(problem), makespan=makespan)
    bound = Bound(makespan, scope, "h-revolve")
    return Proposal(steps=plan.steps(problem), makespan=makespan, bounds=(bound,), optimal_within=scope)


def tables(loop: TimeLoop, *, stopped: Callable[[], bool] = lambda: False) -> list[Row]:
    """Compute the recurrences; return each level's row with all its slots.

    Parameters
    ----------
    loop : TimeLoop
    stopped : callable
        Called periodically.

    Raises
    ------
    level_rows.Stopped
    """
    advances = loop.steps - 1
    row = no_storage(advances, loop.forward)
    tops = []
    for level in loop.levels:
        below = row
        if level.slots >= advances > 0:  # never full
            row = fill(level, loop.forward, below, stopped=stopped)
        elif below.level is None and level.write == level.read == 0:
            for free in range(1, level.slots + 1):
                row = binomial_row(level, free, loop.forward, below if free == 1 else row)
        else:
            row = fill_slots(level, loop.forward, below, level.slots, stopped=stopped)
        tops.append(row)
    return tops


def value(loop: TimeLoop) -> float:
    """Return the minimum makespan alone, without a schedule (x0 live)."""
    return float(tables(loop)[-1].live[loop.steps - 1]) + loop.backward
