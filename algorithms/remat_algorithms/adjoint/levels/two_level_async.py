"""`two-level-async`: two-level checkpointing with asynchronous disk I/O.

Schanen, Marin, Anitescu, Zhang 2016, "Asynchronous two-level checkpointing scheme for large-scale adjoints in the
spectral-element solver Nek5000". On the first sweep, a state goes to disk every few steps, overlapped with computation.
Revolve then reverses the blocks in memory, the last one first. During a block, the first state of the block before it
is prefetched. Every disk checkpoint is written and read once. With B blocks of b_1, .., b_B steps and s slots, the
advances are n - b_B + sum of t(b_i, s). That is the whole cost if a block takes at least as long as its transfers.

States in flight occupy the working memory, since levels are linked only to it:

- on the first sweep no adjoint exists yet, and the state in transfer takes its place;
- a prefetched state needs memory for one more state in addition to the working state and the adjoint. The machine that
  is built from `storage` lacks it; a budget for ``working``, or an explicit machine, provides it. Without it, only the
  writes overlap, and each read waits until the block before it is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from remat.plugin import (
    Context,
    LeastBudget,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    StepBuilder,
    StepKind,
    Steps,
    check_length,
)
from remat_algorithms.adjoint.levels.uniform import reverse_block
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.slots import initially_in
from remat_algorithms.kit.binomial import advances

_MEMORY, _DISK = 1, 2


class TwoLevelAsyncOptions(Options):
    """Options of `two-level-async`."""

    period: int | None = Field(
        None,
        ge=1,
        description="steps between disk checkpoints (default: the one that takes least time by estimate)",
    )


@dataclass(frozen=True)
class _Setting:
    """Equal steps; `slots` of the first level, states that the disk holds, and whether one may come back early."""

    steps: int
    forward: Number
    backward: Number
    slots: int
    on_disk: int
    write: Number
    read: Number
    early: bool
    given: int | None


@within_room("two-level-async")
def solve(problem: Problem, options: TwoLevelAsyncOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on its first level and an asynchronous second one.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used. The second one has a separate
    channel; otherwise nothing overlaps, and the schedule is still valid. Gives one schedule; placement decides the
    overlap.

    Raises
    ------
    remat.OptionError
        For unequal steps or states, tapes, fewer than two levels, or a period that needs more disk than available.

    Notes
    -----
    O(steps of the schedule) time.
    """
    loop = _setting(problem)
    n = loop.steps
    period = _period(loop, options.period, max(loop.slots, 1))
    if n > 1 and loop.slots < 1:
        least = LeastBudget(int(problem.chain.activation_size.max()), None, True, _MEMORY)
        return Proposal(infeasible_within="two-level schedules with 0 slots in the first level", least=least)
    starts = list(range(0, n, period))
    last = n - starts[-1]
    runs = n - last + advances(period, max(loop.slots, 1)) * (len(starts) - 1) + advances(last, max(loop.slots, 1))
    check_length(runs + n, f"two-level-async with blocks of {period}", context.limit)
    note = "the working memory has no room for a state that comes back early: reads do not overlap"
    notes = (note,) if len(starts) > 1 and not loop.early else ()
    return Proposal(steps=_steps(problem, loop, starts, period), notes=notes)


def _steps(problem: Problem, loop: _Setting, starts: list[int], period: int) -> Steps:
    """List the schedule; a transfer precedes the runs that it should overlap with."""
    builder = StepBuilder()
    if loop.given is not None and (loop.given != _DISK or len(starts) == 1):
        builder.drop([0], loop.given)
    in_flight: int | None = None
    for start in starts[:-1]:
        if in_flight is not None:
            # Waits for the end of the write; placed here, it delays no step before its memory is needed.
            builder.drop([in_flight], 0)
        stays = loop.early and start == starts[-2]
        lies_there = start == 0 and loop.given == _DISK
        if lies_there and stays:
            builder.drop([0], _DISK)
        elif not lies_there and not stays:
            builder.copy(start, 0, _DISK)
        in_flight = None if lies_there and not stays else start
        for step in range(start, start + period):
            builder.run(step, drop=() if step == in_flight else (step,))
    slots = [_MEMORY] * max(loop.slots, 1)
    for index in range(len(starts) - 1, -1, -1):
        start = starts[index]
        end = starts[index + 1] if index + 1 < len(starts) else loop.steps
        final = index == len(starts) - 1
        if not final and not loop.early:
            builder.copy(start, _DISK, 0, drop=True)
        if loop.early and index > 0 and not final:
            builder.copy(starts[index - 1], _DISK, 0, drop=True)
        plan = Plan()
        reverse_block(plan, start, end - start, slots)
        leaves = in_flight if final and not loop.early else None
        _append(builder, plan.steps(problem), problem.chain.length, leaves)
    return builder.build()


def _append(builder: StepBuilder, steps: Steps, last_backward: int, leaves: int | None) -> None:
    """Append a block; `leaves`: the state whose write may be in progress is freed after the first backward."""
    columns = (steps.kind, steps.item, steps.source, steps.target)
    for kind, item, source, target, drop in zip(*(c.tolist() for c in columns), steps.drop.to_lists(), strict=True):
        if kind == StepKind.RUN:
            builder.run(item, drop=drop)
            if item == last_backward and leaves is not None:
                builder.drop([leaves], 0)
        elif kind == StepKind.COPY:
            builder.copy(item, source, target, drop=bool(drop))
        else:
            builder.drop(drop, source)


def _period(loop: _Setting, given: int | None, slots: int) -> int:
    """Return the steps of a block."""
    n = loop.steps
    # A last block needs no checkpoint on disk, and where one may stay in the working memory, the last but one neither.
    most_blocks = loop.on_disk + (2 if loop.early else 1)
    smallest = -(-n // most_blocks)
    if given is not None:
        if min(given, n) < smallest:
            raise OptionError(
                f"blocks of {given} steps need more than {loop.on_disk} checkpoints on the second "
                f"level; the least period is {smallest}",
                option="period",
            )
        return min(given, n)
    smallest = max(smallest, 1)
    # All periods of short loops; for long ones, periods in steps of a thousandth.
    candidates = [smallest]
    while candidates[-1] < n:
        candidates.append(min(n, max(candidates[-1] + 1, candidates[-1] * 1001 // 1000)))
    return min(candidates, key=lambda period: _estimate(loop, period, slots))


def _estimate(loop: _Setting, period: int, slots: int) -> Number:
    """Return the time of blocks of `period` steps, with each write and each early read overlapped with its block."""
    blocks = -(-loop.steps // period)
    last = loop.steps - (blocks - 1) * period
    block = loop.forward * advances(period, slots) + loop.backward * period
    final = loop.forward * advances(last, slots) + loop.backward * last
    sweep = max(loop.forward * period, loop.write)
    back = max(block, loop.read) if loop.early else block + loop.read
    return (blocks - 1) * (sweep + back) + final


def _setting(problem: Problem) -> _Setting:
    chain, machine = problem.chain, problem.machine
    name = "two-level-async"
    if chain.saves:
        raise OptionError(f"{name} needs an adjoint without tape_size", argument="algorithm")
    if len(machine.memories) < 3:
        raise OptionError(
            f"{name} needs 2 storage levels; the machine has {len(machine.memories) - 1}", argument="algorithm"
        )
    for ends in ((0, _MEMORY), (_MEMORY, 0), (0, _DISK), (_DISK, 0)):
        if ends not in machine.link_index:
            names = [machine.memories[memory].name for memory in ends]
            raise OptionError(f"{name} needs a link from {names[0]!r} to {names[1]!r}", argument="machine")
    state, n = int(chain.activation_size.max()), chain.length + 1
    if int(chain.activation_size.min()) != state:
        raise OptionError(f"{name} needs states of equal size; use adjoint-best", argument="algorithm")
    if chain.length and chain.forward_time.min() != chain.forward_time.max():
        raise OptionError(f"{name} needs steps of equal forward time; use adjoint-best", argument="algorithm")
    write, read = (machine.links[machine.link_index[ends]].time(state) for ends in ((0, _DISK), (_DISK, 0)))
    capacity = machine.memories[0].capacity
    need = chain.static_memory + 2 * state + int(chain.gradient_size.max())
    backwards = [*chain.backward_time.tolist(), chain.loss_time]
    return _Setting(
        steps=n,
        forward=chain.forward_time[0].item() if chain.length else 0,
        backward=min(backwards),
        slots=_states(machine.memories[_MEMORY].capacity, state, n),
        on_disk=_states(machine.memories[_DISK].capacity, state, n),
        write=write,
        read=read,
        early=capacity is None or capacity >= need,
        given=next((k for k in range(1, len(machine.memories)) if initially_in(problem, k)), None),
    )


def _states(capacity: int | None, state: int, most: int) -> int:
    return most if capacity is None or state == 0 else min(most, capacity // state)
