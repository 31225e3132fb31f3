"""Pruning by a time limit: the maximum excess that a segment's front must represent.

In a schedule within the limit, a segment may spend at most the limit minus the minimum excess of its surroundings. That
minimum is computed before any front, on a relaxed chain. There, every split-off part is saved completely, as if it
always fitted:

- `after`: the minimum excess of finishing the chain from a state, Q, as a front.
- `before`: the minimum excess of entering a state, as a front over the bytes taken from the largest memory.
- For a segment (s, l) that ends before the chain does, the minimum excess of its surroundings, E, for every memory that
  it may get. Two cases exist. The segment was split off from a longer segment of the same state, followed by Q in the
  chain's last segment, or by another sweep deeper inside. Or it is part of such a segment, which saves or splits up to
  it.

The memory sizes of E are divided into bins of equal width, the last one unbounded. Each value is a lower bound for all
sizes in its bin. A front therefore keeps only points whose need and excess are within the limit. No part of a schedule
within the limit is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.chain.rotor.front import NEVER, NO_FRONT, Front
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.rotor.work_counter import Work
from remat_algorithms.chain.segments import Segments

BINS = 256
"""Number of bins of memory sizes."""

UNLIMITED = NEVER // 4
"""An excess larger than that of any schedule."""

MOST_POINTS = 16384
"""Maximum number of points in a front of the relaxed chain; longer fronts are rounded down."""

KEPT_POINTS = 2048
"""Maximum number of points kept once their neighbours are computed. On long chains, all would take gigabytes."""


@dataclass(frozen=True)
class Relaxed:
    """The chain with every split-off part saved completely.

    Attributes
    ----------
    room : int
        Largest requested memory, in bytes beyond x_0.
    after : list of Front
        By state.
    """

    segments: Segments
    costs: Costs
    room: int
    after: list[Front]

    @staticmethod
    def of(segments: Segments, costs: Costs, room: int, work: Work) -> Relaxed:
        """Compute the fronts from the loss to the first stage (O(L) merges).

        Raises
        ------
        Over
        """
        states, length = segments.states, segments.length
        most = most_rooms(segments, room).tolist()
        kept, floor = states.kept.tolist(), np.maximum(states.save_need, states.backward_need).tolist()
        after = [NO_FRONT] * len(states.stage)
        for state in range(int(states.free[length]), len(states.stage)):
            alone = [Front(states.leaf_need[way : way + 1], costs.leaf[way : way + 1]) for way in states.ways(state)]
            after[state] = Front.best(*alone, within=most[state])
        # A sweep that has reached a stage: its forwards, and the parts that it splits off, to the end.
        going = NO_FRONT
        for stage in range(length - 1, -1, -1):
            work.look()
            following = int(states.free[stage + 1])
            ended = after[following].shifted(int(segments.activation[stage + 1]), -int(costs.spared[stage]))
            own = range(int(states.free[stage]), int(states.held[stage]) + 1)
            within = max(most[: own.stop])
            going = Front.best(going, ended, within=within).shifted(0, int(costs.forward[stage])).below(MOST_POINTS)
            for state in own:
                ways = [
                    after[states.inner[way]].shifted(kept[way], int(costs.way[way])).from_need(floor[way])
                    for way in states.ways(state)
                ]
                sweep = going.from_need(int(segments.first_need[stage]))
                after[state] = Front.best(sweep, *ways, within=most[state]).below(MOST_POINTS)
            going = going.from_need(int(segments.next_need[stage]))
            for state in range(following, int(states.held[stage + 1]) + 1):
                after[state] = after[state].below(KEPT_POINTS)
        return Relaxed(segments, costs, room, after)

    def least(self, room: int) -> int:
        """Return a lower bound on the excess within `room` bytes; `NEVER` if nothing fits."""
        return int(self.after[0].at(np.array([room]))[0])

    def before(self, slack: Mapping[int, int], work: Work) -> list[Front]:
        """Return for each state the minimum excess of entering it, over the bytes taken from `room`.

        Excesses start at the difference between the largest slack and that of each memory size. States that cannot
        finish within the slack are omitted.
        """
        segments, costs, states = self.segments, self.costs, self.segments.states
        largest = max(slack.values())
        begin = Front.best(
            *(Front(np.array([self.room - room]), np.array([largest - own])) for room, own in slack.items())
        )
        found: list[list[Front]] = [[] for _ in states.stage]
        found[0].append(begin)
        before = [NO_FRONT] * len(states.stage)
        sweeping = NO_FRONT
        for stage in range(segments.length + 1):
            work.look()
            for state in range(int(states.free[stage]), int(states.held[stage]) + 1):
                if not found[state]:
                    continue
                entered = Front.best(*found[state])
                alive = entered.excess + self.after[state].at(self.room - entered.need) <= largest
                entered = Front.best(Front(entered.need[alive], entered.excess[alive]))
                before[state] = entered.below(KEPT_POINTS)
                found[state] = []
                if stage == segments.length or not len(entered.need):
                    continue
                # Long fronts are rounded down.
                entered = entered.below(MOST_POINTS)
                sweeping = Front.best(sweeping, entered)
                for way in states.ways(state):
                    through = entered.shifted(int(states.kept[way]), int(costs.way[way]))
                    found[int(states.inner[way])].append(through)
            if stage < segments.length:
                sweeping = sweeping.shifted(0, int(costs.forward[stage])).below(MOST_POINTS)
                split = sweeping.shifted(int(segments.activation[stage + 1]), -int(costs.spared[stage]))
                found[int(states.free[stage + 1])].append(split)
        return before


def most_rooms(segments: Segments, room: int) -> IntArray:
    """Return for each state the maximum number of bytes beyond x_i available on entry."""
    states = segments.states
    most = [-1] * len(states.stage)
    most[0] = room
    widest = -1
    for stage in range(segments.length):
        for state in range(int(states.free[stage]), int(states.held[stage]) + 1):
            widest = max(widest, most[state])
            for way in states.ways(state):
                inner = int(states.inner[way])
                most[inner] = max(most[inner], most[state] - int(states.kept[way]))
        split = int(states.free[stage + 1])
        most[split] = max(most[split], widest - int(segments.activation[stage + 1]))
    return np.array(most, dtype=np.int64)


@dataclass(frozen=True)
class Allowed:
    """Remaining excess of each segment.

    Attributes
    ----------
    most : (states,) int64
        Maximum number of available bytes beyond x_i.
    shift : int
        A need is in bin ``need >> shift``.
    row : (states, L+1) int32
        Row of `excess` of each segment; -1 if no schedule within the limit contains it.
    excess : (rows, bins) float32
        Maximum excess of a point in each bin, or slightly more; negative if none is allowed. For long chains, this is
        most of the memory.
    """

    most: IntArray
    shift: int
    row: NDArray[Any]
    excess: NDArray[Any]

    @staticmethod
    def all(segments: Segments, room: int) -> Allowed:
        """Allow everything that fits into `room` bytes."""
        return Allowed.anywhere(segments, most_rooms(segments, room))

    @staticmethod
    def anywhere(segments: Segments, most: IntArray) -> Allowed:
        """Allow everything that fits into `most` bytes beyond x_i, by state."""
        row = np.arange(len(most), dtype=np.int32)[:, None].repeat(segments.length + 1, axis=1)
        excess = _no_less(np.where(most >= 0, UNLIMITED, -1)[:, None])
        return Allowed(most, int(most.max(initial=0)).bit_length(), row, excess)

    @staticmethod
    def within(relaxed: Relaxed, slack: Mapping[int, int], work: Work, *, deep: bool = True) -> Allowed:
        """Allow the parts of schedules within the slack of any of the memory sizes.

        Parameters
        ----------
        relaxed, work
        slack : mapping of int to int
            Largest excess of interest for the whole chain, for each memory size.
        deep : bool
            Whether segments that end before the chain does are needed.

        Raises
        ------
        Over
        """
        return _Surroundings(relaxed, slack, work).allowed(deep=deep)


def _no_less(excess: IntArray) -> NDArray[Any]:
    """Round up to single precision; negative values stay negative."""
    rounded = np.nextafter(excess.astype(np.float32), np.float32(np.inf))
    return np.where(excess < 0, np.float32(-1), rounded)


class _Surroundings:
    """Computes E by state, for all last stages at once."""

    def __init__(self, relaxed: Relaxed, slack: Mapping[int, int], work: Work) -> None:
        self.relaxed, self.segments, self.costs = relaxed, relaxed.segments, relaxed.costs
        self.slack = max(slack.values())
        self.before, self.work = relaxed.before(slack, work), work
        self.room = relaxed.room
        least = min((int(front.need[0]) for front in self.before if len(front.need)), default=0)
        largest = self.room - least
        self.shift = max(0, largest.bit_length() - BINS.bit_length() + 1)
        self.bins = (largest >> self.shift) + 1
        self.edges = np.arange(self.bins, dtype=np.int64) << self.shift

    def allowed(self, *, deep: bool) -> Allowed:
        """Process the states from the first stage to the last."""
        states, length = self.segments.states, self.segments.length
        row = np.full((len(states.stage), length + 1), -1, dtype=np.int32)
        rows: list[NDArray[Any]] = []
        count = 0

        def allow(state: int, last: IntArray, around: IntArray) -> None:
            nonlocal count
            row[state, last] = count + np.arange(len(last))
            rows.append(_no_less(self.slack - np.minimum.accumulate(around[:, ::-1], axis=1)[:, ::-1]))
            count += len(last)

        following = self._following() if deep else None
        entered: dict[int, IntArray] = {}
        sweeping = np.full((length, self.bins) if deep else (0, 0), NEVER, dtype=np.int64)
        for stage in range(length + 1):
            self.work.look()
            for state in range(int(states.free[stage]), int(states.held[stage]) + 1):
                # The memory sizes of a bin begin at its edge: entering with that much, or more.
                top = self.before[state].at(self.room - self.edges)
                if (top <= self.slack).any():
                    allow(state, np.array([length]), top[None])
                if stage < length and following is not None:
                    around = self._around(stage, top, following, entered.pop(state, None))
                    live = np.flatnonzero((around <= self.slack).any(axis=1))
                    allow(state, stage + live, around[live])
                    self._enter(state, around, entered)
                    here = sweeping[stage : stage + len(around)]
                    np.minimum(here, around, out=here)
            if stage < length and deep:
                self._sweep(stage, sweeping, entered)
        most = most_rooms(self.segments, self.room)
        excess = np.empty((count, self.bins), dtype=np.float32)
        end = count
        while rows:  # each part is freed once it is copied
            part = rows.pop()
            excess[end - len(part) : end] = part
            end -= len(part)
        return Allowed(most, self.shift, row, excess)

    def _following(self) -> IntArray:
        """Return for each l the excess of finishing from stage l+1 along with x_{l+1}, at the upper end of each bin."""
        relaxed, states, x = self.relaxed, self.segments.states, self.segments.activation
        upper = self.edges + ((1 << self.shift) - 1)
        upper[-1] = NEVER
        found = [relaxed.after[states.free[last + 1]].at(upper - x[last + 1]) for last in range(self.segments.length)]
        return np.array(found, dtype=np.int64).reshape(-1, self.bins)

    def _around(self, stage: int, top: IntArray, following: IntArray, inside: IntArray | None) -> IntArray:
        """Return E of the state's segments, by l, given the excess of entering them from others of the same end.

        The first row is that of l = `stage`. Rows after the last one within the slack are omitted.
        """
        costs = self.costs
        cost = costs.swept[stage + 1 :] - costs.swept[stage] - costs.spared[stage:-1]
        within = np.flatnonzero(cost <= self.slack)
        reach = int(within[-1]) + 1 if len(within) else 0
        cost = cost[:reach, None]
        around: IntArray = np.minimum(top + following[stage : stage + reach], NEVER) + cost
        if inside is not None:
            inside = inside[:reach]
            np.minimum(around[: len(inside)], inside, out=around[: len(inside)])
        # Repeated splits: one additional step is enough, because further ones only cost more.
        longer = np.minimum.accumulate(around[::-1], axis=0)[::-1]
        around[:-1] = np.minimum(around[:-1], longer[1:] + cost[:-1])
        live = np.flatnonzero((around <= self.slack).any(axis=1))
        around = around[: int(live[-1]) + 1 if len(live) else 0]
        np.minimum(around, NEVER, out=around)
        return around

    def _enter(self, state: int, around: IntArray, entered: dict[int, IntArray]) -> None:
        """Save the state's stage in each of its segments except the first, (i, i)."""
        states = self.segments.states
        for way in states.ways(state):
            moved = self._moved(around[1:], int(states.kept[way])) + int(self.costs.way[way])
            self._note(int(states.inner[way]), moved, entered)

    def _sweep(self, stage: int, sweeping: IntArray, entered: dict[int, IntArray]) -> None:
        """Continue the sweep through a stage, and split there."""
        live = sweeping[stage + 1 :]
        reached = np.flatnonzero((live < NEVER).any(axis=1))
        if not len(reached):
            return
        live = live[: int(reached[-1]) + 1]
        np.minimum(live + int(self.costs.forward[stage]), NEVER, out=live)
        moved = self._moved(live, int(self.segments.activation[stage + 1])) - int(self.costs.spared[stage])
        self._note(int(self.segments.states.free[stage + 1]), moved, entered)

    def _note(self, state: int, moved: IntArray, entered: dict[int, IntArray]) -> None:
        longer, shorter = entered.get(state, moved), moved
        if len(longer) < len(shorter):
            longer, shorter = shorter, longer
        np.minimum(longer[: len(shorter)], shorter, out=longer[: len(shorter)])
        entered[state] = longer

    def _moved(self, around: IntArray, taken: int) -> IntArray:
        """Return E by the memory left after `taken` bytes, from two adjacent bins."""
        bins, low = self.bins, taken >> self.shift
        moved = np.full((len(around), bins), NEVER, dtype=np.int64)
        for by in {low, low + (taken != low << self.shift)}:
            begin, end = max(0, -by), min(bins, bins - by)
            if begin < end:
                np.minimum(moved[:, begin:end], around[:, begin + by : end + by], out=moved[:, begin:end])
        # The last bin is unbounded: it maps to all higher bins, and everything beyond maps to it.
        begin = min(bins - 1, max(0, bins - 1 - low - 1))
        np.minimum(moved[:, begin:], around[:, -1:], out=moved[:, begin:])
        if low < 0 and len(around):
            beyond = around[:, max(0, bins + low) :].min(axis=1, initial=NEVER)
            np.minimum(moved[:, -1], beyond, out=moved[:, -1])
        return moved
