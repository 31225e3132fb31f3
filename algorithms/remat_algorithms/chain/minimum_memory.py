"""Minimum memory of a persistent schedule, exactly, and a schedule that attains it.

P(i, l), the minimum bytes beyond x_i for segment (i, l), is the minimum of

    max(save_need(i, v) + y_{l+1}, kept(i, v) + P(i+1, l), backward_need(i, v))        (saved with variant v)
    min over j of max(sweep_need(i, j) + y_{l+1}, x_j + P(j, l), P(i, j-1))            (split at j)

for each state of x_i (see `states`). The inner segment of a save begins with x_{i+1} held if variant v reads it; that
of a split begins with x_j free. Bytes are exact integers, without slots. A second table holds the minimum time of the
options that attain P, with their parts also at minimum memory. O(L^3) time, compiled for long chains, O(L^2) memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray, NumberArray
from remat_algorithms.chain.segments import COMPILED_FROM, RunList, Segments
from remat_algorithms.chain.states import unfold

UNINTERRUPTED = 1000
"""Number of columns that take less than a second in total, and are filled without checks for a stop."""


@dataclass(frozen=True)
class LeastMemory:
    """Tables of P, and of the minimum time of schedules that attain it.

    Attributes
    ----------
    need, time : (states, L+1) arrays
        By the initial state of a segment, and its last stage.
    exact : bool
        False if the filling was stopped. Needs are then upper bounds, and schedules still respect them.
    """

    segments: Segments
    need: IntArray
    time: NumberArray
    exact: bool = True

    @staticmethod
    def of(segments: Segments, *, stopped: Callable[[], bool] = lambda: False) -> LeastMemory:
        """Fill the tables by columns; after a stop, the rest of a long chain is filled without splits (O(L) each)."""
        states = segments.states
        shape = (len(states.stage), segments.length + 1)
        table = LeastMemory(segments, np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=states.time.dtype))
        fill_column: Callable[..., None] = table.fill_column
        if segments.length > COMPILED_FROM:
            from remat_algorithms.chain import minimum_memory_kernel

            fill_column = minimum_memory_kernel.filler(segments, table.need, table.time)
        splits = True
        for last in range(segments.length + 1):
            splits = splits and (last < UNINTERRUPTED or not stopped())
            fill_column(last, splits)
        return table if splits else LeastMemory(segments, table.need, table.time, exact=False)

    def fill_column(self, last: int, splits: bool = True) -> None:
        """Fill the segments that end with a stage (the kernel's plain twin)."""
        states = self.segments.states
        top = int(np.searchsorted(states.stage, last, side="right"))
        for state in range(top - 1, -1, -1):
            needs, costs = self._choices(state, last, splits)
            least = needs.min()
            self.need[state, last] = least
            self.time[state, last] = costs[needs == least].min()

    def _choices(self, state: int, last: int, splits: bool = True) -> tuple[IntArray, NumberArray]:
        """Return needs and times of a segment's options: its variants, then the splits at first+1..last."""
        seg, states, need, time = self.segments, self.segments.states, self.need, self.time
        first, ways = int(states.stage[state]), slice(*states.start[state : state + 2].tolist())
        if first == last:
            return states.leaf_need[ways], states.leaf_time[ways]
        live, inner = int(seg.gradient[last + 1]), states.inner[ways]
        through = np.maximum(states.save_need[ways] + live, states.backward_need[ways])
        through = np.maximum(through, states.kept[ways] + need[inner, last])
        through_time = states.time[ways] + time[inner, last]
        if not splits:
            return through, through_time
        right, after = states.free[first + 1 : last + 1], slice(first + 1, last + 1)
        sweep, swept = seg.sweep_need(first)[: last - first], seg.sweep_time(first)[: last - first]
        apart = np.maximum(sweep + live, need[right, last] + seg.activation[after])
        apart = np.maximum(apart, need[state, first:last])
        return (
            np.concatenate((through, apart)),
            np.concatenate((through_time, swept + time[right, last] + time[state, first:last])),
        )

    @property
    def least(self) -> int:
        """Minimum bytes beyond x_0 for the whole chain."""
        return int(self.need[0, -1])

    def runs(self) -> list[int]:
        """Return the runs of a schedule that needs at most `least` bytes beyond x_0.

        Only the tightest part of the chain needs all of these bytes. Each segment takes the fastest option that fits,
        assuming minimum memory for its parts.
        """
        states, activation = self.segments.states, self.segments.activation

        def choose(state: int, last: int, room: int) -> tuple[int, int, int]:
            needs, costs = self._choices(state, last, self.exact)
            fitting = np.flatnonzero(needs <= room)
            choice = int(fitting[np.argmin(costs[fitting])])
            way = int(states.start[state]) + choice
            beyond = way - int(states.start[state + 1])
            if beyond < 0:
                return -1, way, room - int(states.kept[way])
            split = int(states.stage[state]) + 1 + beyond
            return split, -1, room - int(activation[split])

        return unfold(states, self.least, choose)

    def schedule(self, runs: RunList) -> None:
        """Append the runs of `runs`."""
        runs.tasks.extend(self.runs())

    def binding_task(self, *, has_saving: bool = True) -> int:
        """Return the task (index in the task graph) that determines the minimum memory."""
        seg, states = self.segments, self.segments.states
        state, last, target = int(states.free[0]), seg.length, self.least
        while True:
            first, live = int(states.stage[state]), int(seg.gradient[last + 1])
            needs, _ = self._choices(state, last, self.exact)
            choice = int(np.argmin(needs))
            way = int(states.start[state]) + choice
            beyond = way - int(states.start[state + 1])
            if beyond < 0:
                leaf = first == last
                if int(states.backward_need[way]) == target:
                    return int(states.backward_task[way])
                if leaf or int(states.save_need[way]) + live == target:
                    forward = int(states.forward_task[way])
                    return forward if forward >= 0 and target > 0 else int(states.backward_task[way])
                state, target = int(states.inner[way]), target - int(states.kept[way])
                continue
            split = first + 1 + beyond
            sweep = seg.sweep_need(first)[: split - first]
            if int(sweep[-1]) + live == target:
                own = seg.next_need[first:split].copy()
                own[0] = seg.first_need[first]
                return first + int(np.argmax(own))
            right = int(states.free[split])
            if int(self.need[right, last]) + int(seg.activation[split]) == target:
                state, target = right, target - int(seg.activation[split])
            else:
                last = split - 1
