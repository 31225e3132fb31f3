"""`disk-revolve` and `periodic-disk-revolve`: a few slots in memory and an unbounded disk.

Aupy, Herrmann, Hovland, Robert 2016, "Optimal multistage algorithm for adjoint computation". Opt_0(l) is the
minimum time for l advances on the c slots of the first level; w and r are the disk's write and read times. Backwards
are left out:

    Opt_1(l)   = min(Opt_0(l), min_{1<=j<=l} j*uf + Opt_0(l-j) + r + Opt_1(j-1)),             x0 is on disk
    Opt_inf(l) = min(Opt_0(l), min_{1<=j<=l} w + j*uf + Opt_inf(l-j) + r + Opt_1(j-1))

With one read for each disk checkpoint, Opt_0(j-1) replaces Opt_1(j-1). This costs 16 % more for n = 300, c = 1, w = 10,
r = 1 (1844 against 1589).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from pydantic import Field

from remat.plugin import Bound, Context, Entry, LeastBudget, OptionError, Options, Problem, Proposal
from remat_algorithms.adjoint.levels.h_revolve import MOST_WORK, tables
from remat_algorithms.adjoint.levels.level_rows import Stopped, emit, fill
from remat_algorithms.adjoint.levels.uniform import Level, TimeLoop, finish
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import ADVANCE, DISCARD, READ_LAST, WRITE, Alike, Splits, reversal
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import beta

PERIODIC, SCOPE = "periodic-disk-revolve", "schedules with periodic disk checkpoints"


class DiskRevolveOptions(Options):
    """Options of `disk-revolve`."""

    one_read: bool = Field(False, description="read each disk checkpoint only once, as public packages do")


@within_room("disk-revolve")
def solve(problem: Problem, options: DiskRevolveOptions, context: Context) -> Proposal:
    """Solve an adjoint of equal steps on its first level and an unbounded second one.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used. A time limit ends the tables
    without an answer. Finds the minimum makespan among schedules that write to disk only in the first sweep. Claims no
    optimum if x0 is in another level than the disk.

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
    finish(problem, plan, "disk-revolve", context)
    makespan = loop.cost(plan)
    if loop.given not in (None, 1):
        return Proposal(steps=plan.steps(problem), makespan=makespan)
    bound = Bound(makespan, scope, "disk-revolve")
    return Proposal(steps=plan.steps(problem), makespan=makespan, bounds=(bound,), optimal_within=scope)


@within_room("periodic-disk-revolve")
def solve_periodic(problem: Problem, options: None, context: Context) -> Proposal:
    """Store a disk checkpoint every m steps, each read once; m in closed form.

    Aupy & Herrmann 2017, "Periodicity in optimal hierarchical checkpointing schemes for adjoint computations":
    m = beta(c, t), t the smallest number with beta(c+1, t) > (w + r)/uf, minimises (w + r + Opt_0(m-1))/m. For
    l = n-1 advances there are k = ceil(l/m) - 1 disk checkpoints, and the time is
    k (w + m uf + r + Opt_0(m-1)) + Opt_0(l - k m), plus the backwards.

    Takes instances of kind `adjoint`, with two storage levels; further ones are not used.

    If the disk is too small for its checkpoints, the answer names the size that suffices.

    Raises
    ------
    remat.OptionError
        For unequal steps or asynchronous levels.

    Notes
    -----
    O(steps of the schedule) time.
    """
    blocks = _blocks(problem)
    if isinstance(blocks, Proposal):
        return blocks
    plan = Plan()
    plan.extend(blocks.entries())
    finish(problem, plan, PERIODIC, context)
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
    if loop.steps > 1 and memory.slots < 1:
        return Proposal(infeasible_within=SCOPE, least=_least_in_memory(loop))
    count = _on_disk(loop, memory.slots)
    # x0 occupies its level from the start, even if it is only dropped.
    needed = max(count, 1 if loop.given == 1 else 0)
    if needed > disk.slots:
        least = LeastBudget(needed * loop.least.size, None, True, disk.memory)
        return Proposal(infeasible_within=SCOPE, least=least)
    refused = loop.infeasible(SCOPE, (memory,))
    if refused is not None:
        return refused
    return _Blocks(loop, period(memory.slots, loop.forward, disk, loop.steps - 1), count)


def _on_disk(loop: TimeLoop, slots: int) -> int:
    """Return the number of checkpoints on disk, for a number of slots in the first level."""
    advances = loop.steps - 1
    return max(0, -(-advances // period(slots, loop.forward, loop.levels[1], advances)) - 1)


def _least_in_memory(loop: TimeLoop) -> LeastBudget:
    """Name the smallest number of memory slots with which the checkpoints on disk fit, too."""
    memory, disk = loop.levels[:2]
    given = [] if loop.given is None else [loop.levels[loop.given]]
    if all(level.slots or level is memory for level in given):
        for slots in range(1, loop.steps + 1):
            if _on_disk(loop, slots) <= disk.slots:
                return LeastBudget(slots * loop.least.size, None, True, memory.memory)
    return LeastBudget(loop.least.size, None, False, memory.memory)


def period(slots: int, forward: float, disk: Level, most: int) -> int:
    """Return the period m in closed form, at most `most` (and at least 1)."""
    # If advances are free, no disk checkpoint pays; with one slot or more, beta grows without bound in t.
    ratio = (disk.write + disk.read) / forward if forward else inf
    t = 0
    while beta(slots + 1, t) <= ratio and beta(slots, t) < most:
        t += 1
    return max(1, min(most, beta(slots, t)))
