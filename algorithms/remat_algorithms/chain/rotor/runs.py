"""Reading schedules off the fronts: which way reaches a point is found again where it is asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_algorithms.chain.rotor.cells import Cells


class Step(NamedTuple):
    """How a point of a front is reached.

    Attributes
    ----------
    split : int
        The stage at which the segment is split; -1 if its first stage is saved through, or is all of it.
    way : int
        Of saving through, or of the stage alone; -1 for a split.
    left, right : int
        Points of the parts: of (state, split-1) and (split, last), or, as `right`, of the segment inside; -1 for none.
    """

    split: int
    way: int
    left: int
    right: int


class Reader:
    """Reads schedules off the fronts; what several of them share is looked for once."""

    def __init__(self, table: Cells) -> None:
        self.table = table
        self._known: dict[int, Step] = {}
        self._read: dict[int, list[int]] = {}
        states = table.segments.states
        self._forward, self._backward = states.forward_task.tolist(), states.backward_task.tolist()
        self._stage, self._free, self._inner = states.stage.tolist(), states.free.tolist(), states.inner.tolist()

    def runs(self, room: int) -> list[int]:
        """Return the runs (task indices) of a quickest schedule of the whole chain within a room in which one fits."""
        length = self.table.segments.length
        point = self.table.point(0, length, room)
        if point not in self._read:
            self._read[point] = self.segment(0, length, room)
        return self._read[point]

    def segment(self, first: int, last: int, room: int) -> list[int]:
        """Return the runs of a segment, its input free to go."""
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
        """Return the stages that run forwards without saving on the way from a stage to the end, stretch by stretch.

        They are those of a quickest schedule from there on within a room in which one fits, the input free to go.
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

    def _step(self, state: int, last: int, point: int) -> Step:
        """Find a way to reach a point; saving through is preferred."""
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
