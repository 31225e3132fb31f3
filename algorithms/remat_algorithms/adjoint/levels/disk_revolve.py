"""`disk-revolve` and `periodic-disk-revolve`: a few slots in memory and an unbounded disk.

Aupy, Herrmann, Hovland, Robert 2016, "Optimal multistage algorithm for adjoint computation". With Opt_0(l) the
least time for l advances on the c slots of the first level, w and r the disk's write and read times, and the
backwards left out:

    Opt_1(l)   = min(Opt_0(l), min_{1<=j<=l} j*uf + Opt_0(l-j) + r + Opt_1(j-1)),             x0 lies on disk
    Opt_inf(l) = min(Opt_0(l), min_{1<=j<=l} w + j*uf + Opt_inf(l-j) + r + Opt_1(j-1))

With one read for each disk checkpoint, Opt_0(j-1) stands in place of Opt_1(j-1); that costs 16 % more where
n = 300, c = 1, w = 10, r = 1 (1844 against 1589).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from pydantic import Field

from remat.plugin import ALL_SCHEDULES, Bound, Context, Entry, OptionError, Options, Problem, Proposal
from remat_algorithms.adjoint.facts import Facts
from remat_algorithms.adjoint.levels.h_revolve import MOST_WORK, tables
from remat_algorithms.adjoint.levels.level_rows import Stopped, emit, fill
from remat_algorithms.adjoint.levels.uniform import Level, TimeLoop, finish
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.ranges import ADVANCE, DISCARD, READ_LAST, WRITE, Alike, Splits, reversal
from remat_algorithms.kit.binomial import beta

PERIODIC = "periodic-disk-revolve"


class DiskRevolveOptions(Options):
    """Options of `disk-revolve`."""

    one_read: bool = Field(False, description="read each disk checkpoint once only, as public packages do")


def solve(problem: Problem, options: DiskRevolveOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on its first level and an unbounded second one.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used. A time limit ends the tables
    without an answer. Finds the least makespan among schedules that write to disk in the first sweep only. Claims no
    optimum where x0 lies in another level than the disk.

    Raises
    ------
    remat.OptionError
        For unequal steps, asynchronous levels, or a disk that is too small to count as unbounded.

    Notes
    -----
    O(n^2 c) time, in O(n c) array operations; O(n c) memory.
    """
    loop = TimeLoop.of(problem, "disk-revolve", least_levels=2)
    disk, advances = loop.levels[1], loop.steps - 1
    once = " that read disk checkpoints once" if options.one_read else ""
    scope = f"disk-revolve schedules with {loop.levels[0].slots} slots in the first level{once}"
    if disk.slots < advances:
        raise OptionError(
            f"disk-revolve needs a level {disk.name!r} without bound, and it holds {disk.slots} states; use h-revolve",
            argument="algorithm",
        )
    refused = loop.infeasible(scope, loop.levels[:2])
    if refused is not None:
        return refused
    if advances * advances * (loop.levels[0].slots + 2) // 2 > MOST_WORK:
        raise OptionError("disk-revolve needs fewer steps here; use periodic-disk-revolve", argument="algorithm")
    lowest = TimeLoop(loop.steps, loop.forward, loop.backward, loop.levels[:1], None, loop.least)
    plan = Plan()
    given = loop.discard_given(plan, but=1)

    def stopped() -> bool:
        return context.stopped

    try:
        memory = tables(lowest, stopped=stopped)[-1]
        if options.one_read:
            top = fill(disk, loop.forward, memory, left=memory, left_stored=False, stopped=stopped)
        else:
            once_on_disk = fill(disk, loop.forward, memory, right=memory, stopped=stopped)
            top = fill(disk, loop.forward, memory, left=once_on_disk, stopped=stopped)
    except Stopped:
        return Proposal(termination=context.termination)
    emit(plan, top, advances, stored=given)
    finish(problem, plan, "disk-revolve")
    makespan = loop.cost(plan)
    if loop.given not in (None, 1):
        return Proposal(steps=plan.steps(problem), makespan=makespan)
    bound = Bound(makespan, scope, "disk-revolve")
    return Proposal(steps=plan.steps(problem), makespan=makespan, bounds=(bound,), optimal_within=scope)


def solve_periodic(problem: Problem, options: None, context: Context) -> Proposal:
    """Store a disk checkpoint every m steps, each read once; m in closed form.

    Aupy & Herrmann 2017, "Periodicity in optimal hierarchical checkpointing schemes for adjoint computations":
    m = beta(c, t), t the least number with beta(c+1, t) > (w + r)/uf, minimises (w + r + Opt_0(m-1))/m. For
    l = n-1 advances there are k = ceil(l/m) - 1 disk checkpoints, and the time is
    k (w + m uf + r + Opt_0(m-1)) + Opt_0(l - k m), plus the backwards.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used.

    Raises
    ------
    remat.OptionError
        For unequal steps, asynchronous levels, or a disk that is too small.

    Notes
    -----
    O(steps of the schedule) time.
    """
    blocks = _blocks(problem)
    if isinstance(blocks, Proposal):
        return blocks
    plan = Plan()
    plan.extend(blocks.entries())
    finish(problem, plan, PERIODIC)
    return Proposal(steps=plan.steps(problem), makespan=blocks.loop.cost(plan))


def stream_periodic(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve_periodic` one by one, in O(slots) memory; refuses what it refuses."""
    blocks = _blocks(problem)
    if isinstance(blocks, Proposal):
        return blocks
    return Facts.of(problem).too_large(problem) or blocks.entries()


@dataclass(frozen=True, slots=True)
class _Blocks:
    loop: TimeLoop
    period: int
    count: int

    def entries(self) -> Iterator[Entry]:
        loop, m, count = self.loop, self.period, self.count
        memory, disk = loop.levels[:2]
        yield from loop.without_given(but=1)
        given = loop.given == 1
        if given and count == 0:
            yield (DISCARD, 0, disk.memory)
        for block in range(count):
            if block or not given:
                yield (WRITE, block * m, disk.memory)
            yield (ADVANCE, block * m, (block + 1) * m)
        slots = Alike(memory.memory, max(memory.slots, 1))
        # The last block may be longer than the others by one.
        rest, split = loop.steps - count * m, Splits(m + 1)
        yield from reversal(count * m, rest, slots, split=split)
        for block in reversed(range(count)):
            yield (READ_LAST, block * m, disk.memory)
            yield from reversal(block * m, m, slots, split=split)


def _blocks(problem: Problem) -> _Blocks | Proposal:
    loop = TimeLoop.of(problem, PERIODIC, least_levels=2)
    memory, disk = loop.levels[:2]
    advances = loop.steps - 1
    refused = loop.infeasible("schedules with periodic disk checkpoints", (memory,))
    if refused is not None:
        return _least_periodic(loop, refused)
    m = period(memory.slots, loop.forward, disk, advances)
    count = max(0, -(-advances // m) - 1)
    if count > disk.slots:
        raise OptionError(
            f"{PERIODIC} needs {count} checkpoints in {disk.name!r}, which holds {disk.slots}; use h-revolve",
            argument="algorithm",
        )
    return _Blocks(loop, m, count)


def _least_periodic(loop: TimeLoop, refused: Proposal) -> Proposal:
    """Name the least slots of memory with which the checkpoints on disk are few enough, too."""
    disk, advances, least = loop.levels[1], loop.steps - 1, refused.least
    if least is None or refused.infeasible_within == ALL_SCHEDULES:
        return refused
    for slots in range(1, loop.steps + 1):
        if -(-advances // period(slots, loop.forward, disk, advances)) - 1 <= disk.slots:
            return replace(refused, least=replace(least, size=slots * least.size))
    return replace(refused, least=None)


def period(slots: int, forward: float, disk: Level, most: int) -> int:
    """Return the period m in closed form, at most `most` (and at least 1)."""
    # Where advances are free, no disk checkpoint pays; with one slot or more, beta grows without bound in t.
    ratio = (disk.write + disk.read) / forward if forward else inf
    t = 0
    while beta(slots + 1, t) <= ratio and beta(slots, t) < most:
        t += 1
    return max(1, min(most, beta(slots, t)))
