"""`two-level-async`: two-level checkpointing with asynchronous disk I/O.

Schanen, Marin, Anitescu, Zhang 2016, "Asynchronous two-level checkpointing scheme for large-scale adjoints in the
spectral-element solver Nek5000". On the first sweep, a state goes to disk every few steps, overlapped with computation.
Revolve then reverses the blocks in memory, the last one first. During a block, the first state of the block before it
is prefetched. Every disk checkpoint is written and read once. With B blocks of b_1, .., b_B steps and s slots, the
advances are n - b_B + sum of t(b_i, s). That is the whole cost if a block takes at least as long as its transfers.

`async-multistage` is Kukreja, Hückelheim, Gorman 2018, "Backpropagation for long sequences: beyond memory constraints
with constant overheads". It takes the smallest blocks that hide a write of w: ceil(w / f) steps of f. The time of each
block then does not depend on the number of blocks.

States in flight occupy the working memory, since levels are linked only to it:

- On the first sweep no adjoint exists yet, and the state in transfer takes its place.
- A prefetched state needs memory for one more state in addition to the working state and the adjoint. A budget for
  ``working``, or an explicit machine, provides it.
- The machine that is built from `storage` lacks it. There, the adjoint waits in the first level during the first
  advances of a block, and the prefetched state takes its place in the working memory. Then the prefetched state moves
  to the first level, and the adjoint returns. This overlaps a read with these advances, and takes two slots in addition
  to those of Revolve. Without a prefetch, each read waits until the block before it is done. The quicker schedule by
  estimate is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

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

Move = tuple[int, int, int]
"""A value, and the memories from which and to which it moves."""


class TwoLevelAsyncOptions(Options):
    """Options of `two-level-async`."""

    period: int | None = Field(
        None,
        ge=1,
        description="number of steps between disk checkpoints; default: the number with the shortest estimated time",
    )


class AsyncMultistageOptions(Options):
    """Options of `async-multistage`."""

    interval: int | None = Field(
        None,
        ge=1,
        description="number of steps between disk checkpoints; default: the smallest number that takes at least as "
        "long as a write",
    )


class _Mode(Enum):
    """Return of a block's first state: prefetched to free memory, in place of the adjoint, or not prefetched."""

    FREE = 0
    ASIDE = 1
    LATE = 2


@dataclass(frozen=True)
class _Setting:
    """Equal steps; `slots` of the first level, and states that the disk holds.

    `swap` is the time to store and fetch a prefetched state and a waiting adjoint in the first level, and `aside` the
    number of slots for both; None if the adjoint cannot wait. `free` means that a prefetched state fits in addition to
    state and adjoint.
    """

    steps: int
    forward: Number
    backward: Number
    slots: int
    on_disk: int
    write: Number
    read: Number
    free: bool
    aside: int | None
    swap: Number
    given: int | None

    @property
    def modes(self) -> tuple[_Mode, ...]:
        """The modes that the memories allow."""
        if self.free:
            return (_Mode.FREE,)
        aside = self.aside is not None and self.slots > self.aside
        return (_Mode.LATE, _Mode.ASIDE) if aside else (_Mode.LATE,)

    def most_blocks(self, mode: _Mode) -> int:
        """Return the number of blocks whose checkpoints the disk holds.

        The last block needs none. Neither does the one before it, unless its first state is read late: the state waits
        in a faster memory.
        """
        return self.on_disk + (1 if mode is _Mode.LATE else 2)


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
    loop = _setting(problem, "two-level-async")
    return _proposal(problem, loop, _candidates(loop, options.period, "period"), context, "two-level-async")


@within_room("async-multistage")
def solve_multistage(problem: Problem, options: AsyncMultistageOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps with blocks that just hide a write to the second level.

    As `two-level-async`, with an `interval` of ceil(write time / forward time) steps; more if the second level has
    fewer slots than that takes.

    Raises
    ------
    remat.OptionError
        As for `two-level-async`.
    """
    loop = _setting(problem, "async-multistage")
    hidden = loop.steps if loop.forward == 0 else math.ceil(loop.write / loop.forward)
    if options.interval is not None:
        periods = _candidates(loop, options.interval, "interval")
    else:
        periods = [min(loop.steps, max(1, hidden, _smallest(loop)))]
    return _proposal(problem, loop, periods, context, "async-multistage")


def _proposal(problem: Problem, loop: _Setting, periods: list[int], context: Context, name: str) -> Proposal:
    """Propose the schedule with the mode and period of the minimum time by estimate."""
    choices = [(mode, period) for period in periods for mode in loop.modes]
    mode, period = min(choices, key=lambda choice: _estimate(loop, *choice))
    n, slots = loop.steps, max(loop.slots, 1)
    if n > 1 and loop.slots < 1:
        least = LeastBudget(int(problem.chain.activation_size.max()), None, True, _MEMORY)
        return Proposal(infeasible_within="two-level schedules with 0 slots in the first level", least=least)
    starts = list(range(0, n, period))
    last = n - starts[-1]
    inner = slots if mode is not _Mode.ASIDE or len(starts) < 3 else slots - (loop.aside or 0)
    runs = n - last + advances(period, inner) * (len(starts) - 1) + advances(last, max(1, slots - 1))
    check_length(runs + n, f"{name} with blocks of {period}", context.limit)
    if mode is _Mode.ASIDE and len(starts) > 1:
        return Proposal(steps=_steps_aside(problem, loop, starts, period))
    note = "a prefetched state does not fit into the working memory: reads do not overlap"
    notes = (note,) if len(starts) > 1 and mode is _Mode.LATE else ()
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
        stays = loop.free and start == starts[-2]
        lies_there = start == 0 and loop.given == _DISK
        if lies_there and stays:
            builder.drop([0], _DISK)
        elif not lies_there and not stays:
            builder.copy(start, 0, _DISK)
        in_flight = None if lies_there and not stays else start
        for step in range(start, start + period):
            builder.run(step, drop=() if step == in_flight else (step,))
    for index in range(len(starts) - 1, -1, -1):
        start = starts[index]
        end = starts[index + 1] if index + 1 < len(starts) else loop.steps
        final = index == len(starts) - 1
        if not final and not loop.free:
            builder.copy(start, _DISK, 0, drop=True)
        if loop.free and index > 0 and not final:
            builder.copy(starts[index - 1], _DISK, 0, drop=True)
        leaves = in_flight if final and not loop.free else None
        _append(builder, problem, range(start, end), max(loop.slots, 1), leaves=leaves)
    return builder.build()


def _steps_aside(problem: Problem, loop: _Setting, starts: list[int], period: int) -> Steps:
    """List the schedule whose adjoint waits in the first level while a state is prefetched.

    The first state of the last block but one goes to the first level at once, and does not need the disk.
    """
    builder, near = StepBuilder(), starts[-2]
    lies_in = _MEMORY if near == 0 else _DISK
    if loop.given is not None and loop.given != lies_in:
        builder.drop([0], loop.given)
    in_flight: int | None = None
    for start in starts[:-1]:
        if in_flight is not None:
            builder.drop([in_flight], 0)
        in_flight = None
        if start or loop.given != lies_in:
            builder.copy(start, 0, _MEMORY if start == near else _DISK)
            in_flight = None if start == near else start
        for step in range(start, start + period):
            builder.run(step, drop=() if step == in_flight else (step,))
    _append(builder, problem, range(starts[-1], loop.steps), max(1, loop.slots - 1))
    assert loop.aside is not None
    for index in range(len(starts) - 2, -1, -1):
        start, end, slots = starts[index], starts[index + 1], loop.slots - (loop.aside if index else 0)
        adjoint = loop.steps + end
        early = [(adjoint, 0, _MEMORY), (starts[index - 1], _DISK, 0)] if index else []
        late = [(starts[index - 1], 0, _MEMORY), (adjoint, _MEMORY, 0)] if index else []
        _append(builder, problem, range(start, end), slots, stored=True, early=early, late=late)
    return builder.build()


def _append(
    builder: StepBuilder,
    problem: Problem,
    block: range,
    slots: int,
    *,
    stored: bool = False,
    leaves: int | None = None,
    early: Sequence[Move] = (),
    late: Sequence[Move] = (),
) -> None:
    """Append the reversal of a block with slots of the first level.

    `stored`: its first state is in one of them. `leaves`: the state whose write may be in progress is freed after
    the backward of the loop's last step. `early`, `late`: values that move after the first operation of the block, and
    before its first backward.
    """
    plan = Plan()
    reverse_block(plan, block.start, len(block), [_MEMORY] * slots, stored=stored)
    steps, last_backward = plan.steps(problem), problem.chain.length
    columns = (steps.kind, steps.item, steps.source, steps.target)
    for kind, item, source, target, drop in zip(*(c.tolist() for c in columns), steps.drop.to_lists(), strict=True):
        if kind == StepKind.RUN and item >= last_backward:
            for move in late:
                builder.copy(*move, drop=True)
            late = ()
        if kind == StepKind.RUN:
            builder.run(item, drop=drop)
            if item == last_backward and leaves is not None:
                builder.drop([leaves], 0)
        elif kind == StepKind.COPY:
            builder.copy(item, source, target, drop=bool(drop))
        else:
            builder.drop(drop, source)
        for move in early:
            builder.copy(*move, drop=True)
        early = ()


def _smallest(loop: _Setting) -> int:
    """Return the smallest period whose checkpoints the disk holds."""
    return max(1, -(-loop.steps // max(loop.most_blocks(mode) for mode in loop.modes)))


def _candidates(loop: _Setting, given: int | None, option: str) -> list[int]:
    """Return the periods to choose from: the given one, all of short loops, or periods in steps of a thousandth."""
    n, smallest = loop.steps, _smallest(loop)
    if given is not None:
        if min(given, n) < smallest:
            raise OptionError(
                f"blocks of {given} steps need more than {loop.on_disk} checkpoints on the second "
                f"level; the least {option} is {smallest}",
                option=option,
            )
        return [min(given, n)]
    candidates = [smallest]
    while candidates[-1] < n:
        candidates.append(min(n, max(candidates[-1] + 1, candidates[-1] * 1001 // 1000)))
    return candidates


def _estimate(loop: _Setting, mode: _Mode, period: int) -> Number | float:
    """Return the time of blocks of `period` steps, with each write and each early read overlapped with its block."""
    blocks, slots = -(-loop.steps // period), max(loop.slots, 1)
    last = loop.steps - (blocks - 1) * period
    if blocks > loop.most_blocks(mode):
        return math.inf
    sweep = max(loop.forward * period, loop.write)

    def block(steps: int, slots: int) -> Number:
        return loop.forward * advances(steps, slots) + loop.backward * steps

    if mode is not _Mode.ASIDE or blocks == 1:
        each = block(period, slots)
        back = max(each, loop.read) if mode is _Mode.FREE else each + loop.read
        return (blocks - 1) * (sweep + back) + block(last, slots)
    assert loop.aside is not None
    early = block(period, slots - loop.aside) + max(0, loop.read - loop.forward * (period - 1)) + loop.swap
    whole = (blocks - 2) * (sweep + early) + loop.forward * period + block(period, slots)
    return whole + block(last, slots - 1)


def _setting(problem: Problem, name: str) -> _Setting:
    chain, machine = problem.chain, problem.machine
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
    capacity, adjoint = machine.memories[0].capacity, int(chain.gradient_size.max())
    into, out = (machine.links[machine.link_index[ends]] for ends in ((0, _MEMORY), (_MEMORY, 0)))
    room = None if capacity is None else capacity - chain.static_memory
    backwards = [*chain.backward_time.tolist(), chain.loss_time]
    return _Setting(
        steps=n,
        forward=chain.forward_time[0].item() if chain.length else 0,
        backward=min(backwards),
        slots=_states(machine.memories[_MEMORY].capacity, state, n),
        on_disk=_states(machine.memories[_DISK].capacity, state, n),
        write=write,
        read=read,
        free=room is None or room >= 2 * state + adjoint,
        aside=None if state == 0 or (room is not None and room < 2 * state) else 1 - (-adjoint // state),
        swap=into.time(state) + into.time(adjoint) + out.time(state) + out.time(adjoint),
        given=next((k for k in range(1, len(machine.memories)) if initially_in(problem, k)), None),
    )


def _states(capacity: int | None, state: int, most: int) -> int:
    return most if capacity is None or state == 0 else min(most, capacity // state)
