"""Shortest paths between situations of an adjoint: exact on tiny instances, and on windows of long schedules.

Three rules keep the search small and lose no schedule that moves whole states, one at a time:

- A state stays until its memory is needed. Then one of the inclusion-minimal sets that free enough memory leaves.
  Any schedule can be imitated by one that holds at least as much at any time.
- A state is written to a level only when it has to leave the working memory. Postponing a write until then costs
  the same, and leaves the level's memory free in the meantime.
- States that no backward needs any more are dropped.

A* with the bound of the remaining backwards, and for each state that they need the minimum time to bring it into the
working memory. That is one forward step if no memory holds it; otherwise the minimum of that and the cheapest read. For
whole loops, `remaining_time` has a better bound.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf

from remat.plugin import Number
from remat_algorithms.joint.adjoint_best.model import Kind, Model, Operation, Situation, cleared

_CHECKED_EVERY = 1024

Path = tuple[Operation, ...]


class Search:
    """One search; see `run`.

    Parameters
    ----------
    model : Model
    start : Situation
    goal : Situation or None
        Its states must be present at the end (more may be); None: all backwards are finished.
    remaining : callable, optional
        A further bound on the time from a situation to the end.
    """

    def __init__(
        self,
        model: Model,
        start: Situation,
        goal: Situation | None = None,
        remaining: Callable[[Situation], Number | float] | None = None,
    ) -> None:
        self.model = model
        self.remaining = remaining
        self.start = start
        self.goal = goal or Situation(-1, (0,) * len(model.capacity))
        self.memories = range(len(model.capacity))
        self.into = [[a for a in self.memories if (a, b) in model.copy] for b in self.memories]
        self.evicts_to = [a for a in self.memories if (0, a) in model.copy]
        self.read = [min((model.copy[a, 0][t] for a in self.into[0]), default=inf) for t in range(model.steps)]
        self.used = lru_cache(maxsize=100_000)(model.used)
        self.sets = lru_cache(maxsize=50_000)(self._minimal_sets)
        self.tried = 0
        self.ended = True

    def run(
        self, *, limit: int, below: Number | float = inf, stopped: Callable[[], bool] = lambda: False
    ) -> tuple[Number, list[Operation]] | None:
        """Return the minimum time and its operations; None if there is none below `below`, or a limit was hit.

        Afterwards `ended` is false if the limit (of moves tried) or `stopped` ended the search, which then proves
        nothing.
        """
        start = self.start
        first = self.bound(start)
        if first >= below:
            return None
        time: dict[Situation, Number] = {start: 0}
        came: dict[Situation, tuple[Situation, Path]] = {}
        queue: list[tuple[Number | float, int, Situation]] = [(first, 0, start)]
        ticket = 0
        closed: dict[Situation, Number] = {}
        richer: dict[tuple[int, int], list[tuple[Number, int]]] = {}
        while queue:
            _, _, here = heapq.heappop(queue)
            spent = time[here]
            # A bound that is not consistent may find a quicker path to a situation that has been expanded.
            if closed.get(here, inf) <= spent:
                continue
            if self.reached(here):
                return spent, self._trace(came, here)
            closed[here] = spent
            if self._dominated(here, spent, richer):
                continue
            for took, path, after in self.moves(here):
                self.tried += 1
                if self.tried > limit or (self.tried % _CHECKED_EVERY == 0 and stopped()):
                    self.ended = False
                    return None
                total = spent + took
                if after in time and time[after] <= total:
                    continue
                whole = total + self.bound(after)
                if whole < below and self.remaining is not None:
                    whole = max(whole, total + self.remaining(after))
                if whole < below:
                    ticket += 1
                    time[after] = total
                    came[after] = here, path
                    # Among equals the latest: it is the deepest.
                    heapq.heappush(queue, (whole, -ticket, after))
        return None

    def _dominated(
        self, here: Situation, spent: Number, richer: dict[tuple[int, int], list[tuple[Number, int]]]
    ) -> bool:
        """Whether a situation with the same working memory held at least as much in every level, no later."""
        packed = 0
        for held in here.held[1:]:
            packed = packed << self.model.steps | held
        known = richer.setdefault((here.back, here.held[0]), [])
        for earlier, more in known:
            if not packed & ~more and earlier <= spent:
                return True
        known.append((spent, packed))
        return False

    def reached(self, here: Situation) -> bool:
        """Whether all states of the goal are present."""
        goal = self.goal
        return here.back == goal.back and all(
            wanted & held == wanted for wanted, held in zip(goal.held, here.held, strict=True)
        )

    def bound(self, here: Situation) -> Number | float:
        """Return a lower bound on the time from here to the goal; infinite if a needed state cannot be recomputed."""
        model, goal = self.model, self.goal
        total: Number | float = 0
        working, everywhere = here.held[0], 0
        for held in here.held:
            everywhere |= held
        for t in range(goal.back + 1, here.back + 1):
            total += model.backward[t]
        wanted = (1 << here.back + 1) - (1 << goal.back + 1)
        kept = 0
        for held in goal.held:
            kept |= held
        needed = (wanted | kept) & ~working
        if needed and (needed & -needed) < (everywhere & -everywhere or needed + 1):
            return inf
        while needed:
            low = needed & -needed
            needed ^= low
            t = low.bit_length() - 1
            if not everywhere & low:
                total += model.forward[t - 1]
            elif (wanted | goal.held[0]) & low:
                again = model.forward[t - 1] if t else inf
                total += min(again, self.read[t])
        return total

    def moves(self, here: Situation) -> Iterator[tuple[Number, Path, Situation]]:
        """Yield time, operations and the next situation."""
        model, back = self.model, here.back
        working = here.held[0]
        bit = 1 << back
        if back > self.goal.back and working & bit:
            yield from self._run_back(here, bit)
        ahead = working & ~(working >> 1) & (bit - 1 if back >= 0 else 0)
        while ahead:
            low = ahead & -ahead
            ahead ^= low
            t = low.bit_length() - 1
            run = Operation(Kind.FORWARD, t)
            for took, path, after, consumed in self._room(here, model.state[t + 1], keep=0, in_place=low):
                held = list(after.held)
                held[0] |= low << 1
                if consumed:
                    held[0] &= ~low
                    path = (*path, run, Operation(Kind.DROP, t, 0))
                else:
                    path = (*path, run)
                yield took + model.forward[t], path, Situation(back, tuple(held))
        for (source, target), times in model.copy.items():
            if source == 0 and not self.goal.held[target] & working & ~here.held[target]:
                continue
            states = here.held[source] & ~here.held[target]
            if source == 0:
                states &= self.goal.held[target]
            while states:
                low = states & -states
                states ^= low
                t = low.bit_length() - 1
                for took, path, after in self._space(here, target, model.state[t], low if source == target else 0):
                    held = list(after.held)
                    if not held[source] & low:
                        continue
                    held[target] |= low
                    copied = (*path, Operation(Kind.COPY, t, source, target))
                    yield took + times[t], copied, Situation(back, tuple(held))

    def _run_back(self, here: Situation, bit: int) -> Iterator[tuple[Number, Path, Situation]]:
        model, back = self.model, here.back
        for took, path, after, _ in self._room(here, model.extra[back], keep=bit, in_place=0):
            held = tuple(states & ~bit for states in after.held)
            run = Operation(Kind.BACK, back)
            yield took + model.backward[back], (*path, run, *cleared(after, run)), Situation(back - 1, held)

    def _room(
        self, here: Situation, size: int, *, keep: int, in_place: int
    ) -> Iterator[tuple[Number, Path, Situation, bool]]:
        """Free bytes in the working memory; if the state `in_place` has to leave, the run itself consumes it."""
        model = self.model
        lack = self.used(here.held[0]) + model.adjoint[here.back + 1] + size - model.capacity[0]
        if lack <= 0:
            yield 0, (), here, False
            return
        for leaving in self.sets(here.held[0] & ~keep, lack):
            for took, path, after in self._evicted(here, leaving):
                consumed = bool(leaving & in_place)
                if consumed:
                    # The run includes its drop.
                    path = tuple(o for o in path if o != Operation(Kind.DROP, in_place.bit_length() - 1, 0))
                yield took, path, after, consumed

    def _space(self, here: Situation, memory: int, size: int, keep: int) -> Iterator[tuple[Number, Path, Situation]]:
        """Free bytes in a memory."""
        if memory == 0:
            for took, path, after, _ in self._room(here, size, keep=keep, in_place=0):
                yield took, path, after
            return
        lack = self.used(here.held[memory]) + size - self.model.capacity[memory]
        if lack <= 0:
            yield 0, (), here
            return
        for leaving in self.sets(here.held[memory] & ~keep, lack):
            held = list(here.held)
            held[memory] &= ~leaving
            drops = tuple(Operation(Kind.DROP, t, memory) for t in _bits(leaving))
            yield 0, drops, Situation(here.back, tuple(held))

    def _evicted(self, here: Situation, leaving: int) -> Iterator[tuple[Number, Path, Situation]]:
        """Remove states from the working memory; each is dropped, or first written to a level."""
        if not leaving:
            yield 0, (), here
            return
        low = leaving & -leaving
        t = low.bit_length() - 1
        drop = Operation(Kind.DROP, t, 0)
        for took, path, after in self._evicted(here, leaving ^ low):
            held = list(after.held)
            held[0] &= ~low
            yield took, (*path, drop), Situation(here.back, tuple(held))
            for level in self.evicts_to:
                if after.held[level] & low:
                    continue
                for more, made, then in self._space(after, level, self.model.state[t], 0):
                    held = list(then.held)
                    held[level] |= low
                    held[0] &= ~low
                    stored = (*path, *made, Operation(Kind.COPY, t, 0, level), drop)
                    yield took + more + self.model.copy[0, level][t], stored, Situation(here.back, tuple(held))

    def _minimal_sets(self, states: int, lack: int) -> tuple[int, ...]:
        """Return the inclusion-minimal sets of states that have at least `lack` bytes together."""
        sizes = [(1 << t, self.model.state[t]) for t in _bits(states)]
        sizes.sort(key=lambda pair: -pair[1])
        found: list[int] = []
        rest = [0] * (len(sizes) + 1)
        for index in range(len(sizes) - 1, -1, -1):
            rest[index] = rest[index + 1] + sizes[index][1]
        # Largest first: a set is minimal if it falls short without its smallest member, the last one taken.
        stack = [(0, 0, 0)]
        while stack:
            index, chosen, total = stack.pop()
            if total >= lack:
                found.append(chosen)
                continue
            if index == len(sizes) or total + rest[index] < lack:
                continue
            bit, size = sizes[index]
            stack.append((index + 1, chosen, total))
            stack.append((index + 1, chosen | bit, total + size))
        return tuple(found)

    def _trace(self, came: dict[Situation, tuple[Situation, Path]], here: Situation) -> list[Operation]:
        paths = []
        while here in came:
            here, path = came[here]
            paths.append(path)
        return [operation for path in reversed(paths) for operation in path]


def _bits(states: int) -> Iterator[int]:
    while states:
        low = states & -states
        yield low.bit_length() - 1
        states ^= low
