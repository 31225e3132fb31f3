"""Schedules read from the fronts: the option that reaches a point is recomputed on demand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat.plugin import BoolArray, IntArray
from remat_algorithms.chain.rotor.front import ranges
from remat_algorithms.chain.rotor.front_table import Cells

FEW = 8
"""Minimum number of points that are looked up together instead of one by one."""


class Step(NamedTuple):
    """The origin of a point of a front.

    Attributes
    ----------
    split : int
        Stage at which the segment is split; -1 if its first stage is saved, or is the whole segment.
    way : int
        Variant for saving, or for the stage alone; -1 for a split.
    left, right : int
        Points of the parts (state, split-1) and (split, last); `right` may also be that of the inner segment; -1 for
        none.
    """

    split: int
    way: int
    left: int
    right: int


class Places(NamedTuple):
    """Points of the pool, with their cells: (points,) int64 each."""

    state: IntArray
    last: IntArray
    point: IntArray


class Reader:
    """Reads schedules from the fronts; shared parts are computed once.

    Parameters
    ----------
    table : Cells
    rooms : list of int
        Memory sizes whose schedules will be requested, if known; they are computed together.
    """

    def __init__(self, table: Cells, rooms: list[int] | None = None) -> None:
        self.table = table
        self.rooms = [] if rooms is None else rooms
        self._known: dict[int, Step] = {}
        self._read: dict[int, list[int]] = {}
        states = table.segments.states
        self._forward, self._backward = states.forward_task.tolist(), states.backward_task.tolist()
        self._stage, self._free, self._inner = states.stage.tolist(), states.free.tolist(), states.inner.tolist()

    def runs(self, room: int) -> list[int]:
        """Return the runs (task indices) of a fastest schedule of the whole chain within a feasible memory size."""
        length = self.table.segments.length
        if self.rooms:
            self._together([self.table.point(0, length, other) for other in self.rooms])
            self.rooms.clear()
        point = self.table.point(0, length, room)
        if point not in self._read:
            self._read[point] = self.segment(0, length, room)
        return self._read[point]

    def segment(self, first: int, last: int, room: int) -> list[int]:
        """Return the runs of a segment with a free input."""
        table, runs, state = self.table, list[int](), self._free[first]
        stack = [(state, last, table.point(state, last, room), -1)]
        while stack:
            state, last, point, finished = stack.pop()
            if finished >= 0:
                runs.append(self._backward[finished])
                continue
            step = self._known.get(point)
            if step is None:
                step = self._known[point] = self._step(state, last, point)
            first, way = self._stage[state], step.way
            if step.split >= 0:
                runs.extend(range(first, step.split))
                stack.append((state, step.split - 1, step.left, -1))
                stack.append((self._free[step.split], last, step.right, -1))
            elif first == last:
                if table.segments.states.leaf_forward[way]:
                    runs.append(self._forward[way])
                runs.append(self._backward[way])
            else:
                runs.append(self._forward[way])
                stack.append((state, last, -1, way))
                stack.append((self._inner[way], last, step.right, -1))
        return runs

    def swept(self, first: int, room: int) -> list[tuple[int, ...]]:
        """Return the stages that run forwards without saving from a stage to the end, sweep by sweep.

        They belong to a fastest schedule from there within a feasible memory size, with a free input.
        """
        table, last = self.table, self.table.segments.length
        state, found = self._free[first], list[tuple[int, ...]]()
        point = table.point(state, last, room)
        while self._stage[state] < last:
            stage, step = self._stage[state], self._step(state, last, point)
            if step.split >= 0:
                found.append(tuple(range(stage, step.split)))
                state, point = self._free[step.split], step.right
            else:
                state, point = self._inner[step.way], step.right
        return found

    def _together(self, wholes: list[int]) -> None:
        """Find how points of the whole chain's front are reached, and then their parts, level by level."""
        length, seen = self.table.segments.length, np.zeros(self.table.pool.size, dtype=bool)
        point = np.array(wholes, dtype=np.int64)
        ahead = Places(np.zeros_like(point), np.full_like(point, length), point)
        free, inner = self.table.segments.states.free, self.table.segments.states.inner
        while True:
            new = ~seen[ahead.point]
            _, once = np.unique(ahead.point[new], return_index=True)
            level = Places(*(column[new][once] for column in ahead))
            if len(level.point) < FEW:
                return
            seen[level.point] = True
            split, way, left, right = self._steps(level)
            found = zip(split.tolist(), way.tolist(), left.tolist(), right.tolist(), strict=True)
            self._known.update(zip(level.point.tolist(), map(Step._make, found), strict=True))
            cut, on = split >= 0, right >= 0
            ahead = Places(
                np.concatenate((level.state[cut], np.where(cut, free[split], inner[way])[on])),
                np.concatenate((split[cut] - 1, level.last[on])),
                np.concatenate((left[cut], right[on])),
            )

    def _steps(self, places: Places) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Find the results of `_step` for many points at once, as columns."""
        table, states, pool = self.table, self.table.segments.states, self.table.pool
        segments, costs = table.segments, table.costs
        state, last, point = places
        first, live = states.stage[state], segments.gradient[last + 1]
        need, excess = pool.need[point], pool.excess[point]
        split, way, left, right = np.full((4, len(point)), -1, dtype=np.int64)

        count = np.diff(states.start)[state]
        tried, cell = ranges(states.start[state], count), np.arange(len(point)).repeat(count)
        alone = (first == last)[cell]
        own = (states.inner[tried], last[cell])
        begin = table.begin[own]
        inside = pool.beyond(begin, table.end[own], need[cell] - states.kept[tried]) - 1
        floor = np.maximum(states.save_need[tried] + live[cell], states.backward_need[tried])
        good = np.where(
            alone,
            (states.leaf_need[tried] <= need[cell]) & (costs.leaf[tried] == excess[cell]),
            (floor <= need[cell]) & (inside >= begin) & (pool.excess[inside] + costs.way[tried] == excess[cell]),
        )
        of, at = _firsts(cell, good)
        way[of], right[of] = tried[at], np.where(alone[at], -1, inside[at])

        rest = np.flatnonzero(way < 0)
        count = (last - first)[rest]
        tried, cell = ranges(first[rest] + 1, count), rest.repeat(count)
        swept = [
            segments.sweep_need(begin)[:many] for begin, many in zip(first[rest].tolist(), count.tolist(), strict=True)
        ]
        own = (np.append(states.free[tried], state[cell]), np.append(last[cell], tried - 1))
        begin = table.begin[own]
        found = pool.beyond(begin, table.end[own], np.append(need[cell] - segments.activation[tried], need[cell])) - 1
        of_right, of_left = found.reshape(2, -1)
        good = (found >= begin).reshape(2, -1).all(axis=0)
        good &= np.concatenate((need[:0], *swept)) + live[cell] <= need[cell]
        cost = costs.swept[tried] - costs.swept[first[cell]] - costs.spared[tried - 1]
        of, at = _firsts(cell, good & (pool.excess[of_right] + pool.excess[of_left] + cost == excess[cell]))
        split[of], left[of], right[of] = tried[at], of_left[at], of_right[at]
        return split, way, left, right

    def _step(self, state: int, last: int, point: int) -> Step:
        """Find an option that reaches a point, preferably saving."""
        table, states, pool = self.table, self.table.segments.states, self.table.pool
        segments, costs = table.segments, table.costs
        first, live = self._stage[state], int(segments.gradient[last + 1])
        need, excess = int(pool.need[point]), int(pool.excess[point])
        for way in states.ways(state):
            if first == last:
                if states.leaf_need[way] <= need and costs.leaf[way] == excess:
                    return Step(-1, way, -1, -1)
                continue
            if max(int(states.save_need[way]) + live, int(states.backward_need[way])) <= need:
                inside = table.point(self._inner[way], last, need - int(states.kept[way]))
                if inside >= 0 and pool.excess[inside] + costs.way[way] == excess:
                    return Step(-1, way, -1, inside)
        split = np.arange(first + 1, last + 1)
        right, left = states.free[split], split - 1
        begin = np.concatenate((table.begin[right, last], table.begin[state, left]))
        end = np.concatenate((table.end[right, last], table.end[state, left]))
        rooms = np.concatenate((need - segments.activation[split], np.full(len(split), need)))
        found = pool.beyond(begin, end, rooms) - 1
        fits = (found >= begin).reshape(2, -1).all(axis=0) & (segments.sweep_need(first)[: len(split)] + live <= need)
        of_right, of_left = found.reshape(2, -1)
        cost = costs.swept[split] - costs.swept[first] - costs.spared[split - 1]
        reached = np.flatnonzero(fits & (pool.excess[of_right] + pool.excess[of_left] + cost == excess))
        at = int(reached[0])
        return Step(int(split[at]), -1, int(of_left[at]), int(of_right[at]))


def _firsts(cell: IntArray, good: BoolArray) -> tuple[IntArray, IntArray]:
    """Return the cells with a good entry, and the first such entry of each."""
    places = np.flatnonzero(good)
    of, at = np.unique(cell[places], return_index=True)
    return of, places[at]
