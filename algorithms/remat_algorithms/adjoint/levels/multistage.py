"""`multistage`: Revolve's schedule with its stack of checkpoints spread over storage levels.

Stumm & Walther 2009, "MultiStage approaches for optimal offline checkpointing". The schedule is Revolve's with the
total number of slots of all levels, and its number of advances is minimal for them. The stack positions that are
written and read most go to the first level, the next ones to the second, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remat.plugin import Bound, Context, Entry, Number, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.binomial.revolve import if_built
from remat_algorithms.adjoint.levels.uniform import TimeLoop
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import READ, READ_LAST, WRITE, Split, Splits, reversal
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import advances, beta, repetition

MOST_SLOTS = 10_000_000
"""Maximum slots of a schedule that is streamed."""


@within_room("multistage")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on all its storage levels.

    Takes instances of kind `adjoint`. Gives the minimum number of advances for that many slots, and a bound that
    neglects transfers.

    Raises
    ------
    remat.OptionError
        For unequal forward times or states, or asynchronous levels.

    Notes
    -----
    O(steps of the schedule) time.
    """
    loop = TimeLoop.of(problem, "multistage")
    total = min(loop.steps, sum(level.slots for level in loop.levels))
    scope = f"checkpointing schedules with {total} slots"
    refused = loop.infeasible(scope)
    if refused is not None:
        return refused if total else if_built(problem, refused)
    least = advances(loop.steps, max(total, 1))
    check_length(least + loop.steps, f"multistage with {total} slots", context.limit)
    levels, split = allocate(loop, max(total, 1))
    plan = Plan()
    plan.extend(_entries(loop, levels, split))
    makespan, work = loop.cost(plan), loop.forward * least + loop.backward
    bound = Bound(work, scope, "multistage")
    within = scope if makespan == work else None
    return Proposal(steps=plan.steps(problem), makespan=makespan, bounds=(bound,), optimal_within=within)


def stream(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve` one by one; steps and levels as for `solve`.

    Raises
    ------
    remat.OptionError
        As `solve`, and for more slots than are held.

    Notes
    -----
    O(slots) memory. How often each slot is used is counted first, in two passes over the operations.
    """
    loop = TimeLoop.of(problem, "multistage")
    total = max(1, min(loop.steps, sum(level.slots for level in loop.levels)))
    refused = loop.infeasible(f"checkpointing schedules with {total} slots") or Facts.of(problem).too_large(problem)
    if refused is not None:
        return refused
    if total > MOST_SLOTS:
        raise OptionError(
            f"multistage streams at most {MOST_SLOTS:,} slots, and {total:,} fit; use revolve", argument="algorithm"
        )
    return _entries(loop, *allocate(loop, total))


def _entries(loop: TimeLoop, levels: Sequence[int], split: Split) -> Iterator[Entry]:
    # x0 may stay in its level only if its own position of the stack is in that level.
    kept = loop.given if loop.given is not None and loop.levels[loop.given].memory == levels[0] else None
    yield from loop.without_given(but=kept)
    yield from reversal(0, loop.steps, levels, given=kept is not None, split=split)


def allocate(loop: TimeLoop, slots: int) -> tuple[list[int], Split]:
    """Return the memory of each position of the stack, and the rule of the splits.

    Both rules take the same number of advances. The function chooses the rule with the shorter transfers; ties prefer
    fewer writes, then fewer reads, outside the first level.
    """
    room = [level for level in loop.levels for _ in range(min(level.slots, slots))] or [loop.levels[0]]
    best: tuple[tuple[Number, int, int], list[int], Split] | None = None
    for split in (Splits(loop.steps), middle_split):
        use = _use(loop.steps, slots, split)
        levels = [0] * slots
        time, writes, reads = loop.forward * 0, 0, 0
        for position, level in zip(sorted(range(slots), key=lambda p: -sum(use[p])), room, strict=False):
            levels[position] = level.memory
            time += level.write * use[position][0] + level.read * use[position][1]
            if level is not loop.levels[0]:
                writes += use[position][0]
                reads += use[position][1]
        if best is None or (time, writes, reads) < best[0]:
            best = (time, writes, reads), levels, split
    assert best is not None
    return best[1], best[2]


def _use(steps: int, slots: int, split: Split) -> list[tuple[int, int]]:
    """Return how often each position of the stack is written, and read."""
    writes, reads = [0] * slots, [0] * slots
    # Positions stand in for memories here.
    for operation, _, position in reversal(0, steps, range(slots), split=split):
        if operation == WRITE:
            writes[position] += 1
        elif operation in (READ, READ_LAST):
            reads[position] += 1
    return list(zip(writes, reads, strict=True))


def middle_split(steps: int, slots: int) -> int:
    """Return the split of Algorithm 799 itself (Griewank & Walther 2000, p. 34), for steps >= 2 and slots >= 2.

    It stores fewer checkpoints than the least optimal split, and uses the upper positions of the stack more.
    """
    slots = min(slots, steps - 1)
    if slots == 1 or slots == steps - 1:
        return steps - 1 if slots == 1 else 1
    r = repetition(steps, slots)
    one, two = beta(slots - 1, r - 1), beta(slots - 2, r - 1)
    if steps <= beta(slots, r - 1) + two:
        return beta(slots, r - 2)
    return min(steps - one - two, beta(slots, r - 1))
