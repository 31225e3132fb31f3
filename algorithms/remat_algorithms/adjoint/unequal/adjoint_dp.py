"""`adjoint-dp`: optimal adjoints where states and adjoints share one memory.

All states and adjoints have one size, the unit; a budget holds k of them. Before the last state's backward no
adjoint exists, so its unit is free for one more state in the first sweep, which a count of slots gives away.

Reversing d steps from x_i (it counts) to the adjoint behind them (it does not):

    R(d, k) = 0 if d <= 1 and k >= 1, infinity if k < 2, else min over 1 <= j < d of j + R(d-j, k-1) + R(j, k).

That is Revolve's t(d, k-1): the unit that is not a slot is the working state. The first sweep, before any adjoint:

    P(0, k) = 0, P(d, k) = infinity if k < 2, else min over 1 <= j <= d of j + P(d-j, k-1) + R(j, k-1).

For equal times P needs no table. g_m(j) = j + R(j, m) is convex in j (t is, Griewank & Walther 2000): its slopes
are 1 + r, C(m+r-2, r) times each (m >= 2), and 1 once for m = 1. P(., k) is the minimal sum of g_1 .. g_{k-1}, so it
takes the d least of all those slopes. For unequal times R is the table of `walther-griewank`, and P one more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    LeastBudget,
    Number,
    NumberArray,
    OptionError,
    Problem,
    Proposal,
    check_length,
)
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.unequal.walther_griewank import Splits, plain, plan_range
from remat_algorithms.kit.binomial import advances, beta, first_split


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint in one memory.

    Takes instances of kind `adjoint`, without storage, tapes or other memories; all states and adjoints of one size.
    Finds the minimum makespan over all schedules, or the minimum budget.

    Raises
    ------
    remat.OptionError
        If the recurrence does not cover the instance.

    Notes
    -----
    O(steps of the schedule) for equal times; else O(n^3 k) time in O(n k) array operations, and O(n^2 k) memory.
    """
    return propose(problem, context, Tables())


@dataclass
class Tables:
    """Data shared by the answers for several budgets of one loop of unequal times.

    Attributes
    ----------
    levels, sweeps : dict
        By type of number: the tables R(., ., c) for c = 1, 2, ..., and P(., k) for k = 0, 1, ...
    """

    levels: dict[str, list[NumberArray]] = field(default_factory=dict)
    sweeps: dict[str, list[NumberArray]] = field(default_factory=dict)


def prepare(problem: Problem, options: None) -> Callable[[Problem, Context], Proposal]:
    """Return a function that answers as `solve` does, and fills each table once for all budgets."""
    tables = Tables()
    return lambda problem, context: propose(problem, context, tables)


def propose(problem: Problem, context: Context, tables: Tables) -> Proposal:
    """Return the result of `solve`; `tables` has those of earlier answers, and this one's are added."""
    unit = _unit(problem)
    chain = problem.chain
    length = chain.length
    least_units = min(3, length + 1)
    if problem.budget is None or unit == 0:
        units = length + 1
        fits = problem.budget is None or problem.budget >= chain.static_memory
    else:
        units = min(length + 1, max(0, problem.budget - chain.static_memory) // unit)
        fits = units >= least_units
    if not fits:
        least = LeastBudget(chain.static_memory + least_units * unit, None, True, problem.machine.processors[0].memory)
        return Proposal(infeasible_within=ALL_SCHEDULES, least=least)
    plan = Plan()
    forward = chain.forward_time
    moved: Number
    least_moved: Number
    if length == 0 or forward.min() == forward.max():
        lengths = first_sweep(length, units)
        each = forward[0].item() if length else 0
        moved = least_moved = each * least_advances(lengths, units)
        check_length(least_advances(lengths, units) + length + 1, f"adjoint-dp with {units} units", context.limit)
        _plan_equal(plan, lengths, units)
    else:
        value = _plan_unequal(plan, forward, units, context, tables)
        if value is None:
            return Proposal(termination=context.termination)
        moved, least_moved = value
    backward = problem_backward_time(problem)
    makespan = moved + backward
    return Proposal(
        steps=plan.steps(problem),
        makespan=makespan,
        bounds=(Bound(least_moved + backward, ALL_SCHEDULES, "adjoint-dp"),),
        optimal_within=ALL_SCHEDULES if moved == least_moved else None,
    )


def _unit(problem: Problem) -> int:
    """Return the one size of all states and adjoints."""
    chain = problem.chain
    if len(problem.machine.memories) > 1:
        raise OptionError(
            "adjoint-dp needs everything in one memory, and this machine has "
            f"{len(problem.machine.memories)}; leave out the storage, or use walther-griewank",
            argument="algorithm",
        )
    if chain.saves:
        raise OptionError(
            "adjoint-dp needs an adjoint without tape_size; use revolve or mixed for tapes", argument="algorithm"
        )
    sizes = np.concatenate((chain.activation_size, chain.gradient_size))
    least, most = int(sizes.min()), int(sizes.max())
    if least < most:
        raise OptionError(
            f"adjoint-dp needs states and adjoints of one size, not from {least} to {most}; use "
            "walther-griewank, which counts slots of the largest state",
            argument="algorithm",
        )
    return least


# --- equal times ------------------------------------------------------------------------------------------------------


def first_sweep(length: int, units: int) -> list[int]:
    """Return how far the first sweep goes from each state that it keeps, for equal times.

    Parameters
    ----------
    length : int
        Advances to the last state.
    units : int
        At least 3, or length + 1.

    Returns
    -------
    list of int
        Positive; the sum is `length`. Entry p is reversed with units - 2 - p slots (0: a single step).
    """
    if length == 0:
        return []
    # r: the greatest slope (less one) that is taken; all smaller ones are.
    r, taken = 0, units - 1
    while taken < length:
        r += 1
        taken = sum(beta(slots, r) for slots in range(1, units - 1)) + 1
    lengths, left = [], length
    below = [beta(slots, r - 1) if slots else int(r > 0) for slots in range(units - 2, -1, -1)]
    room = [
        (beta(slots, r) if slots else 1) - less for slots, less in zip(range(units - 2, -1, -1), below, strict=True)
    ]
    left = length - sum(below)
    for less, more in zip(below, room, strict=True):
        extra = min(left, more)
        left -= extra
        lengths.append(less + extra)
    return [part for part in lengths if part]


def least_advances(lengths: list[int], units: int) -> int:
    """Return the advances of a first sweep and of the ranges that it leaves."""
    behind = sum(advances(part, max(1, units - 2 - place)) for place, part in enumerate(lengths) if part > 1)
    return sum(lengths) + behind


def _plan_equal(plan: Plan, lengths: list[int], units: int) -> None:
    first, starts = 0, []
    for part in lengths:
        plan.advance(first, first + part)
        starts.append(first)
        first += part
    plan.back(first)
    for place in range(len(lengths) - 1, -1, -1):
        _reverse(plan, starts[place], lengths[place], units - 2 - place)


def _reverse(plan: Plan, first: int, count: int, slots: int) -> None:
    """Add Revolve's schedule of a range whose first state is resident."""
    stack = [(first, count, slots)]
    while stack:
        start, steps, free = stack.pop()
        if steps == 1:
            plan.back(start)
        elif free == 1:
            for step in range(start + steps - 1, start - 1, -1):
                plan.advance(start, step)
                plan.back(step)
        else:
            split = first_split(steps, free)
            plan.advance(start, start + split)
            stack.append((start, split, free))
            stack.append((start + split, steps - split, free - 1))


# --- unequal times ----------------------------------------------------------------------------------------------------


def _plan_unequal(
    plan: Plan, forward: NumberArray, units: int, context: Context, tables: Tables
) -> tuple[Number, Number] | None:
    """Add the optimal schedule; return the time of its advances and a bound on it, or None if stopped."""
    length = len(forward)
    if units > length:
        plan.advance(0, length)
        for step in range(length, -1, -1):
            plan.back(step)
        everything = forward.sum().item()
        return everything, everything
    # R only reverses the steps before the last state's: x_length itself is the first sweep's.
    table = Splits.of(forward[:-1], units - 2, context=context, all_levels=True, name="adjoint-dp", known=tables.levels)
    if table is None:
        return None
    ends = np.concatenate((table.ends, table.ends[-1:] + forward[-1]))
    sweeps = _sweeps(table, ends, units, tables.sweeps.setdefault(str(ends.dtype), []))
    i, free, kept = 0, units, []
    while i < length:
        j = i + 1 + int(np.argmin(_onward(table, ends, sweeps[free - 1], i, free)))
        plan.advance(i, j)
        kept.append((i, j - 1, free - 2))
        i, free = j, free - 1
    plan.back(length)
    for first, last, slots in reversed(kept):
        plan_range(plan, table, first, last, slots, 0)
    value = plain(sweeps[units][0])
    return value, table.lowered(value)


def _sweeps(table: Splits, ends: NumberArray, units: int, sweeps: list[NumberArray]) -> list[NumberArray]:
    """Return P(i, k) by k = 0 .. units: least time from x_i, with k units, before any adjoint.

    `sweeps` has the first ones, and the others are added.
    """
    length = len(ends) - 1
    infinite = 2**60 if ends.dtype == np.int64 else np.inf
    none = np.full(length + 1, infinite, dtype=ends.dtype)
    last = none.copy()
    last[length] = 0
    sweeps += [none, last][len(sweeps) :]
    for free in range(len(sweeps), units + 1):
        row = last.copy()
        for i in range(length):
            row[i] = min(_onward(table, ends, sweeps[free - 1], i, free).min(), infinite)
        sweeps.append(row)
    return sweeps


def _onward(table: Splits, ends: NumberArray, after: NumberArray, i: int, units: int) -> NumberArray:
    """Return the cost of going on to each later state from x_i with so many units."""
    length = len(ends) - 1
    if units == 2:  # no slot: one step only, and only the last
        behind = np.full(length - i, 2**60 if ends.dtype == np.int64 else np.inf, dtype=ends.dtype)
        behind[0] = 0
    else:
        behind = table.levels[units - 3][i, : length - i]
    cost: NumberArray = ends[i + 1 :] - ends[i] + after[i + 1 :] + behind
    return cost
