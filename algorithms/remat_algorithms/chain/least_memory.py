"""The least memory in which a persistent schedule exists, exactly, and a schedule that needs no more.

P(i, l), the least bytes beyond x_i for segment (i, l), is the lesser of

    max(save_need(i) + y_{l+1}, kept(i) + P(i+1, l), backward_need(i))                    (saved through)
    min over j of max(sweep_need(i, j) + y_{l+1}, x_j + P(j, l), P(i, j-1))               (split at j)

Bytes are exact integers: no slots. Beside P stands the least time of the ways that reach it, their parts at their
least memory too. O(L^3) time, compiled for long chains, O(L^2) memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.taskgraph import IntArray, NumberArray
from remat_algorithms.chain.segments import COMPILED_FROM, RunList, Segments, follow


@dataclass(frozen=True)
class LeastMemory:
    """The table P and, per segment, the least time among the schedules that reach P."""

    segments: Segments
    need: IntArray
    time: NumberArray

    @staticmethod
    def of(segments: Segments) -> LeastMemory:
        """Fill the table, column by column."""
        count = segments.length + 1
        need = np.zeros((count, count), dtype=np.int64)
        time = np.zeros((count, count), dtype=segments.backward_time.dtype)
        leaf_need, leaf_time = segments.leaf_need, segments.leaf_time
        table = LeastMemory(segments, need, time)
        if segments.length > COMPILED_FROM:
            from remat_algorithms.chain import least_memory_kernel

            least_memory_kernel.fill(
                need,
                time,
                leaf_need,
                leaf_time,
                *(segments.save_need, segments.kept, segments.backward_need, segments.gradient),
                *(segments.first_need, segments.next_need, segments.activation),
                segments.save_time + segments.backward_time[:-1],
                segments.forward_time,
            )
            return table
        sweeps = [segments.sweep_need(i) for i in range(count)]
        times = [segments.sweep_time(i) for i in range(count)]
        for last in range(count):
            need[last, last], time[last, last] = leaf_need[last], leaf_time[last]
            for first in range(last - 1, -1, -1):
                needs, costs = table._choices(first, last, sweeps[first], times[first])
                least = needs.min()
                need[first, last] = least
                time[first, last] = costs[needs == least].min()
        return table

    def _choices(self, first: int, last: int, sweep: IntArray, sweep_time: NumberArray) -> tuple[IntArray, NumberArray]:
        """Needs and times of all ways to process a segment: saved through, then split at first+1..last."""
        seg, need, time = self.segments, self.need, self.time
        live = int(seg.gradient[last + 1])
        size = last - first
        needs = np.empty(size + 1, dtype=np.int64)
        costs = np.empty(size + 1, dtype=time.dtype)
        needs[0] = max(
            int(seg.save_need[first]) + live,
            int(seg.kept[first]) + int(need[first + 1, last]),
            int(seg.backward_need[first]),
        )
        costs[0] = seg.save_time[first] + seg.backward_time[first] + time[first + 1, last]
        right = need[first + 1 : last + 1, last] + seg.activation[first + 1 : last + 1]
        np.maximum(np.maximum(sweep[:size] + live, right), need[first, first:last], out=needs[1:])
        costs[1:] = sweep_time[:size] + time[first + 1 : last + 1, last] + time[first, first:last]
        return needs, costs

    @property
    def least(self) -> int:
        """Least bytes beyond x_0 for the whole chain."""
        return int(self.need[0, -1])

    def schedule(self, runs: RunList) -> None:
        """Append a schedule that needs at most `least` bytes beyond x_0.

        Only the tightest part of the chain needs all of them: each segment takes, of the ways that fit into
        the room it has, the one that is quickest with its parts at their least memory.
        """
        seg = self.segments

        def choose(first: int, last: int, room: int) -> tuple[int, int]:
            needs, costs = self._choices(first, last, seg.sweep_need(first), seg.sweep_time(first))
            fitting = np.flatnonzero(needs <= room)
            choice = int(fitting[np.argmin(costs[fitting])])
            taken = seg.kept[first] if choice == 0 else seg.activation[first + choice]
            return first + choice, room - int(taken)

        follow(runs, seg.length, self.least, choose)

    def binding_task(self, *, has_saving: bool) -> int:
        """Return the task (index in the task graph) that sets the least memory."""
        seg = self.segments
        length = seg.length
        loss = length + (seg.ways if has_saving else 0)
        first, last, target = 0, length, self.least
        while True:
            live = int(seg.gradient[last + 1])
            backward = loss if first == length else loss + 1 + int(seg.default_way[first])
            if first == last:
                if int(seg.backward_need[first]) == target:
                    return backward
                return length + int(seg.default_way[first]) if seg.saves[first] else first
            needs, _ = self._choices(first, last, seg.sweep_need(first), seg.sweep_time(first))
            choice = int(np.argmin(needs))
            if choice == 0:
                if int(seg.backward_need[first]) == target:
                    return backward
                if int(seg.save_need[first]) + live == target:
                    return length + int(seg.default_way[first]) if seg.saves[first] else first
                first, target = first + 1, target - int(seg.kept[first])
                continue
            split = first + choice
            sweep = seg.sweep_need(first)[:choice]
            if int(sweep[-1]) + live == target:
                own = seg.next_need[first:split].copy()
                own[0] = seg.first_need[first]
                return first + int(np.argmax(own))
            if int(self.need[split, last]) + int(seg.activation[split]) == target:
                first, target = split, target - int(seg.activation[split])
            else:
                last = split - 1
