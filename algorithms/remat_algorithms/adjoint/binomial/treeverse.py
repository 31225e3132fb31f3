"""`treeverse`: divide-and-conquer checkpointing with s slots, by bisection or by Griewank's binomial split.

Siskind & Pearlmutter 2018, "Divide-and-conquer checkpointing for arbitrary programs with no user annotation": run
a range of n steps up to a split point, store the state there, reverse the right part, then the left part. With one
more checkpoint for the right part, and r the most often that a step may be advanced,

    bisection:  floor(n/2), and with one slot left n - 1 (every state afresh from there);
    binomial:   ceil(r n / (r + s)), at most n - 1; s - 1 slots and r to the right, s slots and r - 1 to the left
                (Griewank 1992, "Achieving logarithmic growth ..."), r least with n <= C(s+r, s).

For n = 2^k and at least k slots, bisection takes k 2^(k-1) advances; for n = C(s+r, s) the binomial split is
Revolve's, and it never advances a step more than r times. The papers tape the last, indivisible ranges whole; here
a range is divided down to single steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Entry, Options, Problem, Proposal, check_length
from remat_algorithms.adjoint.binomial.revolve import if_built
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import ADVANCE, BACK, DISCARD, READ, READ_LAST, WRITE
from remat_algorithms.adjoint.slots import Slots, forget_elsewhere, forgotten, initially_in, slot_notes
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import repetition

Split = Literal["binomial", "bisection"]
NO_SLOTS = "checkpointing schedules with 0 slots"


class TreeverseOptions(Options):
    """Options of `treeverse`."""

    split: Split = Field(
        default="binomial",
        description="where to divide a range of steps: at the binomial point, or in the middle (bisection)",
    )


@within_room("treeverse")
def solve(problem: Problem, options: TreeverseOptions, context: Context) -> Proposal:
    """Solve an adjoint with the slots of its fastest storage level, or of its one memory.

    Takes instances of kind `adjoint`. Times are ignored. Without storage, slots = floor((budget - state - adjoint) /
    state). Gives one schedule, without a guarantee on its makespan.

    Notes
    -----
    O(steps of the schedule) time.
    """
    steps = Facts.of(problem).steps
    slots = Slots.of(problem)
    if slots.count < 1 and steps > 1:
        return if_built(problem, Proposal(infeasible_within=NO_SLOTS, least=slots.least))
    level = slots.level
    given = initially_in(problem, level)
    plan = plan_treeverse(steps, max(slots.count, 1), level, options.split, given=given)
    forget_elsewhere(problem, plan, level)
    check_length(plan.advances + steps, f"treeverse with {slots.count} slots", context.limit)
    return Proposal(steps=plan.steps(problem), notes=slot_notes(problem, level))


def stream(problem: Problem, options: TreeverseOptions, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve` one by one, in O(slots + log steps) memory."""
    facts, slots = Facts.of(problem), Slots.of(problem)
    if slots.count < 1 and facts.steps > 1:
        return Proposal(infeasible_within=NO_SLOTS, least=slots.least)
    given = initially_in(problem, slots.level)
    entries = treeverse(facts.steps, max(slots.count, 1), slots.level, options.split, given=given)
    return facts.too_large(problem) or chain(entries, forgotten(problem, slots.level))


def plan_treeverse(steps: int, slots: int, level: int, split: Split, *, given: bool = False) -> Plan:
    """Return what `treeverse` yields as a plan."""
    plan = Plan()
    plan.extend(treeverse(steps, slots, level, split, given=given))
    return plan


def treeverse(steps: int, slots: int, level: int, split: Split, *, given: bool = False) -> Iterator[Entry]:
    """Yield the operations that reverse all steps.

    Parameters
    ----------
    steps, slots : int
        Slots count x_0's.
    level : int
        Storage level (memory index) of the checkpoints.
    split : str
    given : bool
        Whether x_0 already lies there.
    """
    if steps == 1:
        yield (BACK, 0, 0)
        if given:
            yield (DISCARD, 0, level)
        return
    if not given:
        yield (WRITE, 0, level)
    # A range (first, count, slots, repeats) has x_first live and stored.
    stack = [(0, steps, slots, repetition(steps, slots), False)]
    while stack:
        first, count, free, repeats, stored_only = stack.pop()
        if stored_only:
            yield (READ_LAST if count == 1 else READ, first, level)
        if count == 1:
            yield (BACK, first, 0)
            continue
        ahead = count // 2 if split == "bisection" and free > 1 else count - 1
        if split == "binomial":
            ahead = min(count - 1, -(-repeats * count // (repeats + free)))
        yield (ADVANCE, first, first + ahead)
        if count - ahead > 1:
            yield (WRITE, first + ahead, level)
        stack.append((first, ahead, free, repeats - 1, True))
        stack.append((first + ahead, count - ahead, free - 1, repeats, False))
