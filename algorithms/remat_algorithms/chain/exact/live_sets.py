"""Shortest path over the live sets of a chain: every sequential schedule in one memory, for tiny chains only.

A state is the next backward p (L: the loss) and the set of live activations and saved values. The gradient y_{p+1} is
also live. The backwards run in a single order, B_L, .., B_0, so the only transitions are forwards and B_p.

Values are dropped as late as possible. A run that does not fit is tried with every *minimal* set of live values whose
removal makes it fit. This loses no schedule: the late dropper holds everything that a given schedule holds, and can
always free memory by dropping values that the schedule does not hold.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from remat.plugin import Chain, Number

TRIES_PER_STATE = 100


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a search.

    Attributes
    ----------
    tasks : list of int or None
        Runs (as in the task graph) of the shortest schedule below the limit; None if none was found.
    bound : int, float
        No schedule takes less than the smaller of this and the limit; infinite if all states were examined.
    finished : bool
        Whether the search finished: the schedule is the shortest, or none is below the limit.
    states : int
        Number of states expanded.
    """

    tasks: list[int] | None
    bound: Number
    finished: bool
    states: int


class _OutOfTime(Exception):
    """The search was stopped within a state."""


class LiveSets:
    """The states of a chain, and the transitions between them.

    Parameters
    ----------
    chain : Chain
    budget : int
        Total capacity, including static memory.

    Notes
    -----
    Bit k of a set is x_k, bit L+1+k is s_k.
    """

    def __init__(self, chain: Chain, budget: int) -> None:
        length = self.length = chain.length
        self._saves = chain.saves
        self._in_place = chain.in_place
        self._room = budget - chain.static_memory
        x, y, s = chain.activation_size.tolist(), chain.gradient_size.tolist(), chain.saved_size.tolist()
        self._sizes: list[int] = x + s
        self._gradient: list[int] = [*y, 0]
        self._forward = list(zip(chain.forward_time.tolist(), chain.forward_workspace.tolist(), strict=True))
        self._saving = list(zip(chain.saving_forward_time.tolist(), chain.saving_workspace.tolist(), strict=True))
        self._backward = [
            *zip(chain.backward_time.tolist(), chain.backward_workspace.tolist(), strict=True),
            (chain.loss_time, chain.loss_workspace),
        ]
        wants_x, wants_y, wants_s = (
            mask.tolist() for mask in (chain.reads_input, chain.reads_output, chain.reads_saved & chain.saves)
        )
        self._reads_input, self._reads_output, self._reads_saved = wants_x, wants_y, wants_s
        self._needs = [
            *(
                (1 << k if wants_x[k] else 0)
                | (1 << (k + 1) if wants_y[k] else 0)
                | (1 << (length + 1 + k) if wants_s[k] else 0)
                for k in range(length)
            ),
            1 << length,
        ]
        saved = [1 << (length + 1 + k) if wants_s[k] else 0 for k in range(length)]
        # Values that later steps can still read after B_{p+1}.
        self._useful = [
            (2 << p) - 1 | (self._needs[p] & ~((1 << (length + 1)) - 1)) | self._needs[p] | sum(saved[: p + 1])
            for p in range(length + 1)
        ]
        rest = np.cumsum(chain.backward_time).tolist()
        self._backward_to_go = [*rest, (rest[-1] if rest else 0) + chain.loss_time]
        self._bytes_of: dict[int, int] = {}
        self._work = 0

    def shortest(
        self,
        limit: Number = math.inf,
        *,
        states: int,
        stopped: Callable[[], bool],
        told: Callable[[Number], None] = lambda bound: None,
        timed: bool = True,
    ) -> Outcome:
        """Search for the shortest schedule that takes less than `limit` (A*, with a consistent bound).

        Parameters
        ----------
        limit : int or float
        states : int
            Maximum number of states to expand; `TRIES_PER_STATE` examined sets of values to drop count as one.
        stopped : callable
        told : callable
            Receives the bound regularly.
        timed : bool
            If False, times do not matter: any schedule is accepted, and states near the end come first.
        """
        start = (self.length, 1)
        cost: dict[tuple[int, int], Number] = {start: 0}
        came: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
        queue: list[tuple[Number, int, tuple[int, int]]] = []
        settled: set[tuple[int, int]] = set()
        if self._bytes(1) <= self._room and (not timed or self.time_to_go(*start) < limit):
            queue.append((self.time_to_go(*start) if timed else 0, 0, start))
        ticket = 0
        most = self._work + TRIES_PER_STATE * states
        while queue:
            bound, _, state = heapq.heappop(queue)
            if state in settled:
                continue
            if state[0] < 0:
                return Outcome(self._trace(came, state), bound, True, len(settled))
            if len(settled) >= states or (len(settled) % 256 == 0 and stopped()):
                return Outcome(None, bound if timed else 0, False, len(settled))
            if timed and len(settled) % 4096 == 4095:
                told(bound)
            settled.add(state)
            base = cost[state]
            try:
                for task, time, after in self._moves(*state, limit - base if timed else math.inf, most, stopped):
                    then = base + time if timed else 0
                    if after in settled or then >= cost.get(after, math.inf):
                        continue
                    whole = then + self.time_to_go(*after) if timed else after[0]
                    if timed and whole >= limit:
                        continue
                    cost[after] = then
                    came[after] = (state, task)
                    ticket -= 1
                    heapq.heappush(queue, (whole, ticket, after))
            except _OutOfTime:
                return Outcome(None, bound if timed else 0, False, len(settled))
        return Outcome(None, math.inf, True, len(settled))

    def time_to_go(self, phase: int, live: int) -> Number:
        """Return the minimum time from a state to the end: each missing value once, and the remaining backwards."""
        if phase < 0:
            return 0
        length = self.length
        total: Number = self._backward_to_go[phase]
        wanted = self._needs[phase] >> (phase + 1) & 1 if phase < length else 0
        if phase == length:
            wanted = 1
            phase -= 1
        for k in range(phase, -1, -1):
            absent = wanted and not live >> (k + 1) & 1
            if self._reads_saved[k] and not live >> (length + 1 + k) & 1:
                total += self._saving[k][0]
                absent = True
            elif absent:
                total += min(self._forward[k][0], self._saving[k][0]) if self._saves else self._forward[k][0]
            wanted = absent or self._reads_input[k] or (k > 0 and self._reads_output[k - 1])
        return total

    def _moves(
        self, phase: int, live: int, slack: Number, most: int, stopped: Callable[[], bool]
    ) -> Iterator[tuple[int, Number, tuple[int, int]]]:
        """Yield (task, time, next state), except moves that cannot finish within `slack`."""

        def worth(left: int) -> bool:
            self._work += 1
            if self._work % 4096 == 0 and (self._work > most or stopped()):
                raise _OutOfTime
            return slack == math.inf or self.time_to_go(phase, left) < slack

        length, useful = self.length, self._useful[phase]
        gradient = self._gradient[phase + 1]
        needs = self._needs[phase]
        if live & needs == needs:
            time, workspace = self._backward[phase]
            task = length * (2 if self._saves else 1) + (0 if phase == length else 1 + phase)
            later = self._useful[phase - 1] if phase else 0
            # The output y_p; values without later readers are freed at the end.
            spent = gradient + self._bytes(live & needs & ~later) if self._in_place else 0
            optional = live & needs & later
            for left in self._rooms(worth, live, needs, optional, gradient, self._gradient[phase], workspace, spent):
                yield task, time, (phase - 1, left & later)
        for k in range(min(phase + 1, length)):
            if not live >> k & 1:
                continue
            output, saved = 1 << (k + 1), 1 << (length + 1 + k)
            if output & useful and not live & output:
                time, workspace = self._forward[k]
                for left in self._rooms(worth, live, 1 << k, 1 << k, gradient, self._sizes[k + 1], workspace, 0):
                    yield k, time, (phase, left | output)
            if (self._saves and not live & output & useful) or (saved & useful and not live & saved):
                time, workspace = self._saving[k]
                written = self._sizes[k + 1] + self._sizes[length + 1 + k]
                # Both are overwritten, so older copies only waste memory.
                rest = live & ~(output | saved)
                for left in self._rooms(worth, rest, 1 << k, 1 << k, gradient, written, workspace, 0):
                    yield length + k, time, (phase, (left | output | saved) & useful)

    def _rooms(
        self,
        worth: Callable[[int], bool],
        live: int,
        reads: int,
        optional: int,
        gradient: int,
        written: int,
        workspace: int,
        spent: int,
    ) -> Iterator[int]:
        """Yield the largest subsets of the live set that leave enough memory for a run.

        `optional` are inputs that may be dropped at the end. In place, the outputs then reuse their bytes (`spent` are
        the bytes of inputs that are dropped anyway).
        """
        held = self._bytes(live) + gradient + workspace - self._room
        excess = held + (max(0, written - spent) if self._in_place else written)
        if excess <= 0:
            yield live
            return
        for gone in self._minimal(live & ~reads, excess, lambda gone: worth(live & ~gone)):
            yield live & ~gone
        if self._in_place and optional:
            reused = max(0, written - spent - self._bytes(optional))
            if held + reused < excess:
                rest = live & ~optional
                # The optional inputs stay until the run ends.
                for gone in self._minimal(live & ~reads, held + reused, lambda gone: worth(live & ~gone)):
                    yield rest & ~gone

    def _minimal(self, values: int, excess: int, worth: Callable[[int], bool]) -> Iterator[int]:
        """Yield the minimal sets of values with at least `excess` bytes.

        Sets for which `worth` is false are skipped, together with all their supersets.
        """
        if excess <= 0:
            yield 0
            return
        sizes = sorted(((self._sizes[k], k) for k in _bits(values) if self._sizes[k]), reverse=True)
        behind = [0]
        for size, _ in reversed(sizes):
            behind.append(behind[-1] + size)
        behind.reverse()
        # Sizes descend, so a set is minimal if it is too small without its last, smallest value.
        stack = [(0, 0, 0)]
        while stack:
            at, chosen, total = stack.pop()
            if at == len(sizes) or total + behind[at] < excess:
                continue
            size, k = sizes[at]
            stack.append((at + 1, chosen, total))
            more = chosen | 1 << k
            if worth(more):
                if total + size >= excess:
                    yield more
                else:
                    stack.append((at + 1, more, total + size))

    def _bytes(self, values: int) -> int:
        known = self._bytes_of.get(values)
        if known is None:
            known = self._bytes_of[values] = sum(self._sizes[k] for k in _bits(values))
        return known

    @staticmethod
    def _trace(came: dict[tuple[int, int], tuple[tuple[int, int], int]], state: tuple[int, int]) -> list[int]:
        tasks = []
        while state in came:
            state, task = came[state]
            tasks.append(task)
        return tasks[::-1]


def _bits(values: int) -> Iterator[int]:
    while values:
        low = values & -values
        yield low.bit_length() - 1
        values ^= low
