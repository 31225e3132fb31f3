"""`bptt-hsm`, `bptt-ism`, `bptt-msm`: memory-efficient backpropagation through time.

Gruslys et al. 2016, "Memory-Efficient Backpropagation Through Time", keep hidden states, internal states or both of a
sequence of t steps, by dynamic programming. A hidden state is a state x of h bytes. An internal state is a step's tape
and its output x, of a = h + tape bytes. C is the minimum number of forward steps, including those that write a tape,
with m bytes in addition to those of the first state:

    C(0, m) = 0, C(t, m) = min(t + C(t-1, m),
                               min over 1 <= y < t of y + C(t-y, m-h) + C(y, m),       [HSM, MSM]
                               min over 1 <= y < t of y + C(t-y, m-a) + C(y-1, m)):    [ISM, MSM]

The options are: use the last step's tape immediately; keep x_y; keep x_y and the tape that leads to it. In the paper,
the first hidden state and the working internal state may occupy slots of the memory. Here, the first state has separate
h bytes, and the tape that is used immediately is the working one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import Bound, Context, IntArray, LeastBudget, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.binomial import revolve
from remat_algorithms.adjoint.binomial.revolve import problem_backward_time
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.slots import forget_elsewhere, slot_notes
from remat_algorithms.adjoint.tapes.tapes import TapePlan, TapeRoom

MOST_WORK = 2 * 10**10
"""Maximum sums of two table entries: about half a minute."""

_INFINITE = 2**60


@within_room("bptt-hsm")
def solve_hsm(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint by keeping hidden states only: C is Revolve's t(n, s) + n, in closed form.

    Takes instances of kind `adjoint`, with or without tapes; equal forward times.

    Raises
    ------
    remat.OptionError
        For unequal forward times.
    """
    forward = problem.chain.forward_time
    if len(forward) and forward.min() != forward.max():
        raise OptionError("bptt-hsm needs steps of equal forward time; use walther-griewank", argument="algorithm")
    proposal = revolve.propose(problem, context)
    return replace(proposal, bounds=tuple(replace(bound, source="bptt-hsm") for bound in proposal.bounds))


@within_room("bptt-ism")
def solve_ism(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint by keeping internal states only; see `solve_msm`."""
    return _solve(problem, "bptt-ism", context, hidden=False)


@within_room("bptt-msm")
def solve_msm(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint by keeping hidden and internal states.

    Takes instances of kind `adjoint`, with tapes and equal forward times. Sizes are those of the largest state and
    tape. Finds the minimum number of advances, and also the minimum makespan if copies take no time.

    Raises
    ------
    remat.OptionError
        Without tapes, for unequal forward times, and if the table would be too large.

    Notes
    -----
    O(t^2 q) time in O(t q) array operations, O(t q) memory, for q possible amounts of remaining memory.
    """
    return _solve(problem, "bptt-msm", context, hidden=True)


def _solve(problem: Problem, name: str, context: Context, *, hidden: bool) -> Proposal:
    room = TapeRoom.of(problem, name)
    n = problem.chain.length
    internal = room.state + room.tape
    what = "hidden or internal states" if hidden else "internal states"
    first = room.state if n > 1 else 0
    if room.size is not None and room.size < first:
        scope = f"schedules that keep {what} in {max(room.size, 0)} bytes"
        return Proposal(infeasible_within=scope, least=LeastBudget(room.fixed + first, None, True, room.memory))
    most = (n - 1) * internal
    bytes_left = most if room.size is None else min(most, room.size - first)
    scope = f"schedules that keep {what} in {first + bytes_left} bytes"
    if not hidden and internal:
        bytes_left -= bytes_left % internal
    table = Table.of(n, bytes_left, room.state if hidden else None, internal, name=name, context=context)
    if table is None:
        return Proposal(termination=context.termination)
    total = table.value
    check_length(2 * total + n, name, context.limit)
    plan = TapePlan(n, room.level)
    plan_bptt(plan, table, given=room.given)
    forget_elsewhere(problem, plan, room.level)
    work = (total - n) * problem.chain.forward_time[0].item() + problem_backward_time(problem)
    return Proposal(
        steps=plan.steps(problem),
        makespan=work if room.free else None,
        bounds=(Bound(work, scope, name),),
        optimal_within=scope if room.free else None,
        notes=slot_notes(problem, room.level),
    )


@dataclass(frozen=True)
class Table:
    """C(t, m) for every amount of memory that can be left.

    Attributes
    ----------
    amounts : list of int
        Bytes, ascending.
    cost : (amounts, n + 1) ints
    hidden, internal : list of int
        For each amount, the row of what is left after keeping a hidden or an internal state; -1 if it does not fit.
    """

    amounts: list[int]
    cost: IntArray
    hidden: list[int]
    internal: list[int]

    @property
    def value(self) -> int:
        """C(n, m) of the whole problem."""
        return int(self.cost[-1, -1])

    @staticmethod
    def of(
        n: int, size: int, hidden: int | None, internal: int, *, name: str, context: Context | None = None
    ) -> Table | None:
        """Fill the table; None if the context stops it.

        Parameters
        ----------
        n : int
            Steps.
        size : int
            Bytes beside the first state's.
        hidden : int or None
            Bytes of a hidden state; None if none is kept.
        internal : int
            Bytes of an internal state.
        name : str
            The algorithm that a refusal names.
        context : Context, optional

        Raises
        ------
        remat.OptionError
        """
        if size >= (n - 1) * internal:
            # Every tape is kept: nothing to decide.
            return Table([size], np.arange(n + 1, dtype=np.int64)[None, :], [-1], [0])
        amounts = _amounts(n, size, hidden, internal)
        if len(amounts) * n * n // 2 > MOST_WORK:
            raise OptionError(
                f"{name} needs {len(amounts) * n * n // 2:.1e} operations for {n:,} steps and "
                f"{len(amounts)} different amounts of memory; it takes at most {MOST_WORK:.0e}: give fewer steps, less "
                "memory, or sizes that are multiples of each other",
                argument="algorithm",
            )
        row = {amount: index for index, amount in enumerate(amounts)}
        after_hidden = [-1 if hidden is None else row.get(amount - hidden, -1) for amount in amounts]
        after_internal = [row.get(amount - internal, -1) for amount in amounts]
        cost = np.full((len(amounts), n + 1), _INFINITE, dtype=np.int64)
        cost[:, 0] = 0
        index = np.arange(n + 1)
        for place in range(len(amounts)):
            if context is not None and context.stopped:
                return None
            own, onward = cost[place], cost[place] + index
            for t in range(1, n + 1):
                best = t + int(own[t - 1])
                for after, back in ((after_hidden[place], 0), (after_internal[place], 1)):
                    if after >= 0 and t > 1:
                        # y + C(y - back, m), the index included: onward[y - back] counts y - back steps.
                        best = min(best, back + int((onward[1 - back : t - back] + cost[after, t - 1 : 0 : -1]).min()))
                own[t] = best
                onward[t] = best + t
        return Table(amounts, cost, after_hidden, after_internal)

    def move(self, count: int, place: int) -> tuple[str, int]:
        """Return the least move of a range: "none", or "hidden" or "internal" and its y."""
        if place == 0 and len(self.amounts) == 1 and self.hidden[0] < 0 and self.internal[0] == 0:
            return ("internal", 1) if count > 1 else ("none", count)
        best = count + int(self.cost[place, count - 1])
        if best == int(self.cost[place, count]):
            return "none", count
        y = np.arange(1, count)
        for kind, after, back in (("internal", self.internal[place], 1), ("hidden", self.hidden[place], 0)):
            if after >= 0:
                sums = y + self.cost[place, y - back] + self.cost[after, count - y]
                least = int(np.argmin(sums))
                if int(sums[least]) == int(self.cost[place, count]):
                    return kind, least + 1
        raise AssertionError("no move has the cost of its range")


def _amounts(n: int, size: int, hidden: int | None, internal: int) -> list[int]:
    """Return every amount that keeping up to n - 1 states can leave of `size`, ascending."""
    found, level = {size}, {size}
    parts = [part for part in (hidden, internal) if part]
    for _ in range(n - 1):
        level = {amount - part for amount in level for part in parts if amount >= part} - found
        if not level or len(found) * n * n // 2 > MOST_WORK:
            break
        found |= level
    return sorted(found)


def plan_bptt(plan: TapePlan, table: Table, *, given: bool = False) -> None:
    """Add the schedule of all steps.

    Parameters
    ----------
    plan : TapePlan
    table : Table
    given : bool
        Whether x_0 already lies in storage.
    """
    # A range (first, count, row, stored, live); a negative count is a kept tape's backward.
    stack = [(0, plan.n, len(table.amounts) - 1, given, True)]
    while stack:
        first, count, place, stored, live = stack.pop()
        if count < 0:
            plan.fetch_tape(first)
            plan.back(first)
            continue
        kind, y = table.move(count, place)
        left = {"none": count - 1, "hidden": y, "internal": y - 1}[kind]
        if not live:
            plan.fetch_state(first, last=not left)
        elif left and not stored:
            plan.store_state(first)
        elif stored and not left:
            plan.discard_state(first)
        if left:
            stack.append((first, left, place, True, False))
        if kind == "none":
            plan.advance(first, first + count - 1)
            plan.tape_and_back(first + count - 1)
        elif kind == "hidden":
            plan.advance(first, first + y)
            stack.append((first + y, count - y, table.hidden[place], False, True))
        else:
            plan.advance(first, first + y - 1)
            plan.tape(first + y - 1, keep=True)
            plan.store_tape(first + y - 1)
            stack.append((first + y - 1, -1, 0, False, False))
            stack.append((first + y, count - y, table.internal[place], False, True))
