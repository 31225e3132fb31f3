"""`multistage`: Revolve's schedule with its stack of checkpoints spread over storage levels.

Stumm & Walther 2009, "MultiStage approaches for optimal offline checkpointing": the schedule is Revolve's with as
many slots as all levels have together, so the number of advances is the least for them; the positions of the stack
that are written and read most go to the first level, the next ones to the second, and so on.
"""

from __future__ import annotations

from collections.abc import Callable

from remat.context import Context
from remat.problem import Bound, Problem, Proposal
from remat.units import Number
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve import advances, beta, first_split, repetition
from remat_algorithms.adjoint.uniform import TimeLoop, reverse_block
from remat_algorithms.emit import check_length

Split = Callable[[int, int], int]


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on all its storage levels.

    Parameters
    ----------
    problem : Problem
        Of kind `adjoint`.
    options : None
    context : Context
        Not used.

    Returns
    -------
    Proposal
        With the least number of advances for that many slots, and a bound that leaves transfers out.

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
        return refused
    least = advances(loop.steps, max(total, 1))
    check_length(least + loop.steps, f"multistage with {total} slots")
    levels, split = allocate(loop, max(total, 1))
    plan = Plan()
    # x0 may stay where it lies only if its own position of the stack is in that level.
    kept = loop.given if loop.given is not None and loop.levels[loop.given].memory == levels[0] else None
    given = loop.discard_given(plan, but=kept)
    reverse_block(plan, 0, loop.steps, levels, given=given, split=split)
    makespan, work = loop.cost(plan), loop.forward * least + loop.backward
    bound = Bound(work, scope, "multistage")
    within = scope if makespan == work else None
    return Proposal(steps=plan.steps(problem), makespan=makespan, bounds=(bound,), optimal_within=within)


def allocate(loop: TimeLoop, slots: int) -> tuple[list[int], Split]:
    """Return the memory of each position of the stack, and the rule of the splits.

    Of the two rules, which take equally many advances, the one whose transfers take less time is chosen; on ties
    the one that writes, then reads, less outside the first level.
    """
    room = [level for level in loop.levels for _ in range(level.slots)] or [loop.levels[0]]
    best: tuple[tuple[Number, int, int], list[int], Split] | None = None
    for split in (first_split, middle_split):
        trial = Plan()
        # Positions stand in for memories here, so that the plan counts the writes and reads of each.
        reverse_block(trial, 0, loop.steps, range(slots), split=split)
        use = [(trial.writes.get(position, 0), trial.reads.get(position, 0)) for position in range(slots)]
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
