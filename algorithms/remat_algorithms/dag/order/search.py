"""The best order of some consecutive tasks of an order: best-first search over down-sets with safe moves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from remat_algorithms.dag.order.model import OrderModel

LOOK_AHEAD = 8
"""Maximum number of tasks in a safe move."""

CHECK_EVERY = 256
"""States between two checks whether to stop."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive tasks of an order, numbered by their position in it; all earlier tasks have run.

    Attributes
    ----------
    start : int
        Bytes resident when the block begins; the bytes resident at its end do not depend on its order.
    before, after : list
        Bit mask of each task's predecessors inside the block, and its successors inside it.
    written, net, hill : list of int
        Bytes that a task writes, leaves behind, and adds while it runs, if it frees no value that it shares with other
        tasks of the block.
    in_place : list of bool
    shared : list of list of (size, mask)
        Values that a task reads and that the last of the readers in the mask frees inside the block.
    """

    start: int
    before: list[int]
    after: list[list[int]]
    written: list[int]
    net: list[int]
    hill: list[int]
    in_place: list[bool]
    shared: list[list[tuple[int, int]]]

    def run(self, task: int, done: int) -> tuple[int, int]:
        """Return the bytes that a task adds while it runs, and those it leaves behind, if it runs after `done`."""
        net, hill = self.net[task], self.hill[task]
        done |= 1 << task
        freed = 0
        for size, mask in self.shared[task]:
            if not mask & ~done:
                freed += size
        if freed:
            net -= freed
            if self.in_place[task]:
                # `hill` already excludes bytes that the task frees alone; it cannot fall below the workspace.
                hill -= min(freed, self.written[task])
        return hill, net


def block_of(model: OrderModel, order: Sequence[int], first: int, last: int) -> Block:
    """Return the block ``order[first:last]`` of a topological order; O(its reads, and the readers of those)."""
    place = {task: index for index, task in enumerate(order[first:last])}
    done = set(order[:first])
    start = model.start + sum(model.written[t] - model.unread[t] for t in done)
    freed = {value for task in done for value in model.reads[task] if done.issuperset(model.readers[value])}
    start -= sum(model.size[value] for value in freed)
    written, net, hill, shared = [], [], [], []
    for task in order[first:last]:
        alone = 0
        others: list[tuple[int, int]] = []
        for value in model.reads[task]:
            remaining = [reader for reader in model.readers[value] if reader not in done]
            if all(reader in place for reader in remaining):
                if len(remaining) == 1:
                    alone += model.size[value]
                else:
                    others.append((model.size[value], sum(1 << place[reader] for reader in remaining)))
        bytes_written = model.written[task]
        added = max(0, bytes_written - alone) if model.in_place[task] else bytes_written
        written.append(added)
        hill.append(added + model.workspace[task])
        net.append(bytes_written - model.unread[task] - alone)
        shared.append(others)
    return Block(
        start=start,
        before=[sum(1 << place[o] for o in model.predecessors[t] if o in place) for t in order[first:last]],
        after=[[place[o] for o in model.successors[t] if o in place] for t in order[first:last]],
        written=written,
        net=net,
        hill=hill,
        in_place=[model.in_place[task] for task in order[first:last]],
        shared=shared,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search.

    Attributes
    ----------
    order : list of int or None
        Positions inside the block; None if no order below the ceiling was found.
    bound : int
        Lower bound on the peak of every order of the block (the ceiling, if no order is below it).
    states : int
        States that were expanded.
    complete : bool
        Whether `bound` is the optimum, or at least the ceiling.
    """

    order: list[int] | None
    bound: int
    states: int
    complete: bool


def search(block: Block, *, floor: int, ceiling: int, limit: int, stopped: Callable[[], bool]) -> Found:
    """Find the order of minimum peak, if that is below a ceiling.

    Best-first search over the sets of finished tasks (down-sets), by the minimum peak that reaches each. When the
    search first reaches the whole block, its peak is the optimum. Only the same set dominates a set, since the bytes
    resident after a set do not depend on its order.

    From each set, safe moves come first. A safe move is a sequence of tasks, each made ready by the one before, that
    satisfies two conditions. It stays within the peak of the path. At its end, no more bytes are resident than at
    its start, and fewer than anywhere within it. Resident bytes are a submodular function of the set, so moving this
    sequence to the front of any completion raises no level.

    Parameters
    ----------
    block : Block
    floor : int
        Peaks up to this one count as equal to it.
    ceiling : int
        Only orders with a smaller peak count.
    limit : int
        Maximum number of states to expand.
    stopped : callable
        Returns whether to give up; called from time to time.

    Returns
    -------
    Found

    Notes
    -----
    Expands at most as many states as there are down-sets (up to 2^width n), each in O(ready tasks).
    """
    everything = (1 << len(block.before)) - 1
    ready = sum(1 << task for task, before in enumerate(block.before) if not before)
    level = max(floor, block.start)
    if level >= ceiling:
        return Found(None, level, 0, True)
    start = _settled(block, level, 0, ready, block.start)
    came: dict[int, tuple[int, tuple[int, ...]]] = {start[0]: (-1, start[3])}
    best = {start[0]: level}
    heap = [(level, 0, start[0], start[1], start[2])]
    closed: set[int] = set()
    while heap:
        level, _, done, ready, resident = heapq.heappop(heap)
        if done in closed:
            continue
        if done == everything:
            return Found(_trace(came, done), level, len(closed), True)
        if len(closed) >= limit or (len(closed) % CHECK_EVERY == 0 and stopped()):
            return Found(None, level, len(closed), False)
        closed.add(done)
        for task in _bits(ready):
            hill, net = block.run(task, done)
            reached = max(level, resident + hill)
            if reached >= ceiling:
                continue
            then, unlocked = _after(block, task, done)
            then, now_ready, held, moves = _settled(
                block, reached, then, ready & ~(1 << task) | unlocked, resident + net
            )
            if then in best and best[then] <= reached:
                continue
            best[then] = reached
            came[then] = (done, (task, *moves))
            # Among equals, prefer the larger set, then the one with fewer bytes.
            heapq.heappush(heap, (reached, -then.bit_count(), then, now_ready, held))
    return Found(None, ceiling, len(closed), True)


def _after(block: Block, task: int, done: int) -> tuple[int, int]:
    """Return the set with a task, and the tasks that become ready, as bit masks."""
    done |= 1 << task
    unlocked = 0
    for other in block.after[task]:
        if not block.before[other] & ~done:
            unlocked |= 1 << other
    return done, unlocked


def _settled(block: Block, level: int, done: int, ready: int, resident: int) -> tuple[int, int, int, tuple[int, ...]]:
    """Make safe moves until none is left; return finished and ready tasks, resident bytes, and the tasks run."""
    moves: list[int] = []
    again = True
    while again:
        again = False
        for task in _bits(ready):
            found = _safe_move(block, task, level, done, ready, resident)
            if found is not None:
                done, ready, resident, run = found
                moves += run
                again = True
                break
    return done, ready, resident, tuple(moves)


def _safe_move(
    block: Block, task: int, level: int, done: int, ready: int, resident: int
) -> tuple[int, int, int, list[int]] | None:
    held = resident
    run: list[int] = []
    chosen: int | None = task
    while chosen is not None and len(run) < LOOK_AHEAD:
        hill, net = block.run(chosen, done)
        if held + hill > level:
            return None
        held += net
        run.append(chosen)
        done, unlocked = _after(block, chosen, done)
        ready = ready & ~(1 << chosen) | unlocked
        if held <= resident:
            return done, ready, held, run
        # Each task of the sequence must need the one before it: then its only subsets are its prefixes.
        chosen = min(_bits(unlocked), key=lambda other: block.run(other, done)[1], default=None)
    return None


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _trace(came: dict[int, tuple[int, tuple[int, ...]]], done: int) -> list[int]:
    parts: list[tuple[int, ...]] = []
    while done >= 0:
        done, moves = came[done]
        parts.append(moves)
    return [task for moves in reversed(parts) for task in moves]
