"""`two-level`: a disk checkpoint every few steps on the first sweep, Revolve inside each block.

Pringle, Jones, Goswami, Narayanan, Goldberg 2016, "Providing the ARCHER community with adjoint modelling tools for
high-performance oceanographic and cryospheric computation". The first state of a block stays on disk until the block is
reversed. It counts as one of Revolve's slots there, in addition to the s slots of the first level. With blocks of
b_1, .., b_B steps, the advances are n - b_B + sum of t(b_i, s+1): the first sweep ends where the last block begins.

The authors choose the distance of the disk checkpoints by hand. By default, the distance of minimum time is taken: the
time of these advances, and of the transfers that Revolve makes in each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from remat.plugin import Context, Entry, Number, OptionError, Options, Problem, Proposal, check_length
from remat_algorithms.adjoint.levels.uniform import TimeLoop
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import ADVANCE, WRITE, Alike, Split, Splits, reversal
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import advances, repetition

Transfers = tuple[int, int, int]
"""Reads of the first state of a block, writes and reads of others."""

MOST_SLOTS, MOST_REPEATS = 400, 1000
"""Above these, transfers of the first level are left out of the estimate of a period."""


class TwoLevelOptions(Options):
    """Options of `two-level`."""

    period: int | None = Field(
        None,
        ge=1,
        description="number of steps between disk checkpoints; default: the fastest number whose checkpoints fit on "
        "the disk",
    )


@within_room("two-level")
def solve(problem: Problem, options: TwoLevelOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on its first two levels.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used.

    Raises
    ------
    remat.OptionError
        For unequal steps, asynchronous levels, or a period that needs more disk checkpoints than fit.

    Notes
    -----
    O(steps of the schedule) time.
    """
    blocks = _blocks(problem, options)
    if isinstance(blocks, Proposal):
        return blocks
    loop, n = blocks.loop, blocks.loop.steps
    slots = loop.levels[0].slots + 1
    starts = range(0, n, blocks.period)
    last = n - starts[-1]
    full = advances(blocks.period, slots)
    runs = n - last + full * (len(starts) - 1) + advances(last, slots)
    check_length(runs + n, f"two-level with blocks of {blocks.period}", context.limit)
    plan = Plan()
    plan.extend(blocks.entries())
    return Proposal(steps=plan.steps(problem), makespan=loop.cost(plan))


def stream(problem: Problem, options: TwoLevelOptions, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve` one by one, in O(slots) memory; refuses what `solve` refuses."""
    blocks = _blocks(problem, options)
    if isinstance(blocks, Proposal):
        return blocks
    return Facts.of(problem).too_large(problem) or blocks.entries()


@dataclass(frozen=True, slots=True)
class _Blocks:
    loop: TimeLoop
    period: int

    def entries(self) -> Iterator[Entry]:
        loop, period = self.loop, self.period
        memory, disk = loop.levels[:2]
        starts = range(0, loop.steps, period)
        levels = Alike(memory.memory, memory.slots + 1, first=disk.memory)
        split = Splits(period)
        yield from loop.without_given(but=1)
        given = loop.given == 1
        for start in starts[:-1]:
            if start or not given:
                yield (WRITE, start, disk.memory)
            yield (ADVANCE, start, start + period)
        last = starts[-1]
        yield from reversal(last, loop.steps - last, levels, given=given and last == 0, split=split)
        for start in reversed(starts[:-1]):
            yield from reversal(start, period, levels, stored=True, split=split)


def _blocks(problem: Problem, options: TwoLevelOptions) -> _Blocks | Proposal:
    loop = TimeLoop.of(problem, "two-level", least_levels=2)
    disk = loop.levels[1]
    n = loop.steps
    # A last block of one step needs no checkpoint: its state is live when the first sweep ends.
    smallest = max(1, -(-(n - 1) // max(disk.slots, 1)))
    period = _quickest(loop, smallest) if options.period is None else min(options.period, n)
    if period < smallest:
        raise OptionError(
            f"blocks of {period} steps need {-(-(n - 1) // period)} checkpoints in {disk.name!r}, "
            f"which holds {disk.slots}; the least period is {smallest}",
            option="period",
        )
    refused = loop.infeasible("schedules with periodic disk checkpoints", (disk,))
    return refused or _Blocks(loop, period)


def _quickest(loop: TimeLoop, smallest: int) -> int:
    """Return the period of minimum time, the longest of equals; for long loops about one in fifty is tried."""
    candidates = [min(smallest, loop.steps)]
    while candidates[-1] < loop.steps:
        candidates.append(min(loop.steps, max(candidates[-1] + 1, candidates[-1] * 51 // 50)))
    split = Splits(loop.steps)
    known: dict[tuple[int, int], Transfers] = {}
    return min(candidates, key=lambda period: (_time(loop, period, split, known), -period))


def _time(loop: TimeLoop, period: int, split: Split, known: dict[tuple[int, int], Transfers]) -> Number:
    """Return the time of a period, without the backwards."""
    memory, disk = loop.levels[:2]
    slots = memory.slots + 1
    blocks = -(-loop.steps // period)
    last = loop.steps - (blocks - 1) * period

    def reversal(steps: int) -> Number:
        own, writes, reads = _transfers(steps, slots, split, known)
        return loop.forward * advances(steps, slots) + own * disk.read + writes * memory.write + reads * memory.read

    stored = blocks - 1 + (last > 1) - (loop.given == 1 and (blocks > 1 or last > 1))
    sweep = loop.forward * (loop.steps - last) + stored * disk.write
    return sweep + reversal(last) + (blocks - 1) * (disk.read + reversal(period))


def _transfers(steps: int, slots: int, split: Split, known: dict[tuple[int, int], Transfers]) -> Transfers:
    """Return how often Revolve's reversal of some steps reads the first state, and writes and reads others."""
    if steps <= slots + 1:
        return (1, max(0, steps - 2), max(0, steps - 2)) if steps > 1 else (0, 0, 0)
    repeats = repetition(steps, slots)
    if slots == 1 or slots > MOST_SLOTS or repeats > MOST_REPEATS:
        return repeats, 0, 0
    found = known.get((steps, slots))
    if found is None:
        own = writes = reads = 0
        left = steps
        while left > 1:
            ahead = split(left, slots)
            first, inner_writes, inner_reads = _transfers(left - ahead, slots - 1, split, known)
            own += 1
            writes += inner_writes + (left - ahead > 1)
            reads += inner_reads + first
            left = ahead
        found = known[steps, slots] = own, writes, reads
    return found
