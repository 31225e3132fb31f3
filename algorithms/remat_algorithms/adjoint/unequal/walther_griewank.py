"""`walther-griewank`: optimal checkpointing of steps of different times, with a number of slots.

Walther & Griewank 2008, "Advantages of binomial checkpointing for memory-reduced adjoint calculations". Let
U(i, j) be the time from x_i to x_j. With x_i live and in one of c slots, the steps i..k are reversed in

    P(i, k, c) = min over i < j <= k of U(i, j) + O(j, k, c-1) + r_i + P(i, j-1, c),    P(i, i, c) = 0,
    O(j, k, c) = w_j + P(j, k, c) for j < k,    O(k, k, c) = 0,    O(j, k, 0) = infinity for j < k:

advance to x_j, store it (unless it is the last step's), reverse the steps after it, read x_i again, reverse the
rest. The paper has w = r = 0; times to write and read a checkpoint enter as shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from remat.plugin import Bound, Context, NumberArray, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.slots import Slots, forget_elsewhere, initially_in, slot_notes
from remat_algorithms.adjoint.transfer_times import state_transfer_times

MOST_BYTES = 2 * 10**9
MOST_WORK = 6 * 10**10
"""Maximum sums of two table entries: about two minutes."""

COMPILED_FROM = 3 * 10**8
"""Number of such sums from which the compiled kernel pays for its compilation."""

MOST_EXACT = 10**7
"""Maximum sums with Python's integers, which take fifty times as long: a second."""

_INFINITE = 2**60

Known: TypeAlias = "dict[int, dict[str, list[NumberArray]]]"
"""The filled levels of a table, by storage level and type of number."""


@within_room("walther-griewank")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint with the slots of its fastest storage level, or of its one memory.

    Takes instances of kind `adjoint`. Slots hold the largest state; without storage there are floor((budget - state -
    adjoint) / state) of them. A stop before the table is full gives no schedule. Finds the minimum makespan for the
    slots, writes and reads included, if they occupy the processor; otherwise the schedule of minimum forward time.

    Raises
    ------
    remat.OptionError
        If the table would be too large.

    Notes
    -----
    O(n^3 c) time in O(n c) array operations, O(n^2 c) memory; O(n^2 c) time for integral times if reads and writes take
    no time.
    """
    return propose(problem, context, {})


def prepare(problem: Problem, options: None) -> Callable[[Problem, Context], Proposal]:
    """Return a function that answers as `solve` does, and fills each level of the table once for all budgets."""
    known: Known = {}

    @within_room("walther-griewank")
    def answer(problem: Problem, options: None, context: Context) -> Proposal:
        return propose(problem, context, known)

    return lambda problem, context: answer(problem, options, context)


def propose(problem: Problem, context: Context, known: Known) -> Proposal:
    """Return the result of `solve` with the counted slots, without the check by placement.

    `known` has the levels of earlier answers for the same loop, and those of this one are added.
    """
    chain = problem.chain
    steps = chain.length if chain.saves else chain.length + 1
    slots = Slots.of(problem)
    scope = f"checkpointing schedules with {slots.count} slots"
    if slots.count < 1 and steps > 1:
        return Proposal(infeasible_within=scope, least=slots.least)
    level = slots.level
    given = initially_in(problem, level)
    costs = state_transfer_times(problem, level)
    write, read = (None, None) if costs is None else costs
    filled = known.setdefault(level, {})
    forward = chain.forward_time[: steps - 1]
    table = Splits.of(forward, slots.count, write=write, read=read, context=context, known=filled)
    if table is None:
        return Proposal(termination=context.termination)
    plan = Plan()
    if steps > 1 and not given:
        plan.write(0, level)
    plan_range(plan, table, 0, steps - 1, table.slots, level)
    if steps == 1 and given:
        plan.discard(0, level)
    forget_elsewhere(problem, plan, level)
    check_length(plan.advances + steps, f"walther-griewank with {slots.count} slots", context.limit)
    backward = problem_backward_time(problem)
    work, bound = table.value + backward, table.lower_bound + backward
    if costs is None:
        bounds = (Bound(bound, scope, "walther-griewank"),)
        return Proposal(steps=plan.steps(problem), bounds=bounds, notes=slot_notes(problem, level))
    if steps > 1 and not given:
        work += costs[0][0].item()
        bound += costs[0][0].item()
    # The argument that a stored state stays until its range is reversed needs equal transfer times.
    equal = all(len(times) == 0 or times.min() == times.max() for times in costs)
    return Proposal(
        steps=plan.steps(problem),
        makespan=work,
        bounds=(Bound(bound, scope, "walther-griewank"),) if equal else (),
        optimal_within=scope if equal and not table.rounded else None,
        notes=slot_notes(problem, level),
    )


def plan_range(plan: Plan, table: Splits, first: int, last: int, slots: int, level: int) -> None:
    """Add the schedule of the steps first..last; x_first is live and stored."""
    stack = [(first, last, slots, False)]
    while stack:
        i, k, free, stored_only = stack.pop()
        if stored_only:
            plan.read(i, level, last=i == k)
        if i == k:
            plan.back(i)
            continue
        j = table.split(i, k, free)
        plan.advance(i, j)
        if j < k:
            plan.write(j, level)
        stack.append((i, j - 1, free, True))
        stack.append((j, k, free - 1, False))


@dataclass(frozen=True)
class Splits:
    """The table of P(i, k, c), by level c and then by i and k - i; level 1 and the answer's own need no table.

    Attributes
    ----------
    ends : (n,) numbers
        Time from x_0 to x_i.
    write, read : (n,) numbers
    levels : list of (n, n) arrays
        ``levels[c - 1][i, k - i]`` for c = 1 .. slots - 1. With more slots than are of use, one level for all c,
        or none where every state is stored.
    top : (n,) numbers
        P(0, k, slots).
    slots : int
    rounded : bool
        Whether whole times were added up as floats, since int64 does not hold the sums, and Python's integers would
        take too long.
    """

    ends: NumberArray
    write: NumberArray
    read: NumberArray
    levels: list[NumberArray]
    top: NumberArray
    slots: int
    rounded: bool = False

    @property
    def value(self) -> int | float:
        """P(0, n-1, slots)."""
        return plain(self.top[-1])

    @property
    def lower_bound(self) -> int | float:
        """Lower bound on P(0, n-1, slots): the value itself, or rounded down if it is rounded."""
        return self.lowered(self.value)

    def lowered(self, value: int | float) -> int | float:
        """Return a value of the table as a bound: an integer below it, by all that its sums may have rounded."""
        if not self.rounded:
            return value
        return max(0, math.floor(Fraction(value) * (1 - Fraction(8 * len(self.ends), 2**52))))

    @staticmethod
    def of(
        forward: NumberArray,
        slots: int,
        *,
        write: NumberArray | None = None,
        read: NumberArray | None = None,
        context: Context | None = None,
        all_levels: bool = False,
        name: str = "walther-griewank",
        known: dict[str, list[NumberArray]] | None = None,
    ) -> Splits | None:
        """Fill the table for n = len(forward) + 1 steps; None if the context stops it.

        Parameters
        ----------
        forward : (n-1,) numbers
            Forward times of all steps but the last.
        slots : int
        write, read : (n,) numbers, optional
            Times to store and to bring back x_i; default 0.
        context : Context, optional
        all_levels : bool
            Whether ranges that do not begin at x_0 are asked for with all slots, too.
        name : str
            The algorithm that a refusal names.
        known : dict, optional
            By type of number, the first levels for the same times; the levels filled here are added.

        Raises
        ------
        remat.OptionError
        """
        n = len(forward) + 1
        slots = max(1, min(slots, n - 1))
        full = slots if all_levels else slots - 1
        given = (forward, write, read)
        ends, write, read = _numbers(*given, small=n**2 * (full + 1) + table_work(n, full + 1) <= MOST_EXACT)
        whole = all(times is None or times.dtype == np.int64 for times in given)
        rounded = whole and ends.dtype == np.float64
        if slots == n - 1 and not all_levels:
            if not (write.any() or read.any()):
                # Every state is stored: nothing to decide.
                return Splits(ends, write, read, [], ends, n, rounded)
            # Slots do not run out: P(., ., c) = P(., ., c-1), one level that leans on itself.
            _check_work(n, 2, name)
            only = _level(None, ends, write, read, context)
            return None if only is None else Splits(ends, write, read, [only], only[0], n, rounded)
        _check_work(n, full, name)
        levels = [] if known is None else known.setdefault(str(ends.dtype), [])
        previous = levels[-1] if levels else None
        monotone = ends.dtype == np.int64 and not (write.any() or read.any())
        compiled = monotone and table_work(n, full) >= COMPILED_FROM
        for _ in range(len(levels), full):
            if previous is None:
                level: NumberArray | None = _first_level(ends, read)
            elif compiled:
                from remat_algorithms.adjoint.unequal.splits_kernel import monotone_level

                level = monotone_level(previous, ends, context)
            else:
                level = _level(previous, ends, write, read, context)
            if level is None:
                return None
            levels.append(level)
            previous = level
        levels = levels[:full]
        return Splits(ends, write, read, levels, _top(levels, slots, ends, write, read), slots, rounded)

    def range_value(self, i: int, k: int, slots: int) -> int | float:
        """Return P(i, k, slots), for a table of all levels."""
        return plain(self.levels[min(slots, len(self.levels)) - 1][i, k - i]) if k > i else 0

    def split(self, i: int, k: int, slots: int) -> int:
        """Return the least optimal j of P(i, k, slots); O(k - i)."""
        behind = np.arange(i + 1, k + 1)
        if self.slots > len(self.ends) - 1:
            if not self.levels:
                return i + 1
            lower, row = self.levels[0], self.levels[0][i, : k - i]
        elif slots == 1:
            return k
        else:
            lower = self.levels[slots - 2]
            asks_top = i == 0 and slots == self.slots
            row = self.top[: k - i] if asks_top else self.levels[slots - 1][i, : k - i]
        cost = lower[behind, k - behind] + np.where(behind < k, self.write[behind], 0) + self.ends[behind] + row
        return i + 1 + int(np.argmin(cost))


def plain(number: Any) -> int | float:
    """Return an entry of an array of any type as a Python number."""
    return number.item() if isinstance(number, np.generic) else number  # type: ignore[no-any-return]


def _numbers(
    forward: NumberArray, write: NumberArray | None, read: NumberArray | None, *, small: bool
) -> tuple[NumberArray, NumberArray, NumberArray]:
    """Return times from x_0, writes and reads, of one type in which their sums are exact, if there is one.

    That is int64 where the sums fit, or Python's integers where the table is `small`; float64 otherwise.
    """
    n = len(forward) + 1
    zero = np.zeros(n, dtype=np.int64)
    write, read = zero if write is None else write[:n], zero if read is None else read[:n]
    exact = all(times.dtype == np.int64 for times in (forward, write, read))
    largest = sum(float(times.max(initial=0)) for times in (forward, write, read))
    kind: Any = np.float64
    if exact:
        kind = np.int64 if largest * n * (n + 1) < _INFINITE else object if small else np.float64
    ends = np.concatenate((np.zeros(1, dtype=kind), np.cumsum(forward.astype(kind))))
    return ends, write.astype(kind), read.astype(kind)


def table_work(steps: int, levels: int) -> int:
    """Return the sums of two entries that a table of so many levels takes; 10^9 are a few seconds.

    There is one level less than slots, and two where the slots do not run out.
    """
    return max(0, levels - 1) * steps**3 // 6


def _check_work(n: int, levels: int, name: str) -> None:
    bytes_needed = 8 * n * n * (levels + 2)
    work = table_work(n, levels)
    if bytes_needed > MOST_BYTES or work > MOST_WORK:
        raise OptionError(
            f"{name} needs a table of {bytes_needed / 1e9:.1f} GB and {work:.1e} operations for "
            f"{n:,} steps and {levels + 1} slots; it takes at most {MOST_BYTES / 1e9:.0f} GB and {MOST_WORK:.0e}: give "
            "fewer slots or steps, or equal times",
            argument="algorithm",
        )


def _first_level(ends: NumberArray, read: NumberArray) -> NumberArray:
    """Return P(i, k, 1): from x_i afresh for every step."""
    n = len(ends)
    table = np.zeros((n, n), dtype=ends.dtype)
    for i in range(n):
        table[i, 1 : n - i] = np.cumsum(ends[i + 1 :] - ends[i] + read[i])
    return table


def _level(
    lower: NumberArray | None, ends: NumberArray, write: NumberArray, read: NumberArray, context: Context | None
) -> NumberArray | None:
    """Return P(., ., c) from P(., ., c-1), or from itself, one length of the range after the other."""
    n = len(ends)
    table = np.zeros((n, n), dtype=ends.dtype)
    # ahead[i, m] = P(i, i+m, c) + U(i, i+m+1) + r_i; behind[k, n-1-e] = O(k-e, k, c-1), so that both run alike.
    ahead = np.zeros((n, n), dtype=ends.dtype)
    behind = np.zeros((n, n), dtype=ends.dtype)
    if lower is not None:
        for j in range(n):
            k = np.arange(j + 1, n)
            behind[k, n - 1 - (k - j)] = lower[j, 1 : n - j] + write[j]
    ahead[:-1, 0] = ends[1:] - ends[:-1] + read[:-1]
    scratch = np.empty(n * n // 4 + n, dtype=ends.dtype)
    for length in range(1, n):
        if context is not None and context.stopped:
            return None
        rows = n - length
        sums = scratch[: rows * length].reshape(rows, length)
        np.add(ahead[:rows, :length], behind[length:, n - length :], out=sums)
        best = sums.min(axis=1)
        table[:rows, length] = best
        if lower is None:
            behind[length:, n - 1 - length] = best + write[:rows]
        if rows > 1:
            start = slice(0, rows - 1)
            ahead[start, length] = best[:-1] + ends[length + 1 :] - ends[start] + read[start]
    return table


def _top(
    levels: list[NumberArray], slots: int, ends: NumberArray, write: NumberArray, read: NumberArray
) -> NumberArray:
    """Return P(0, k, slots) for all k."""
    n = len(ends)
    top = np.zeros(n, dtype=ends.dtype)
    if n == 1:
        return top
    if slots == 1:
        top[1:] = np.cumsum(ends[1:] + read[0])
        return top
    lower = levels[slots - 2]
    for k in range(1, n):
        j = np.arange(1, k + 1)
        cost = lower[j, k - j] + ends[j] + top[:k] + read[0]
        cost[:-1] += write[1:k]
        top[k] = cost.min()
    return top
