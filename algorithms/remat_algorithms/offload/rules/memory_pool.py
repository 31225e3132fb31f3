"""Memory pools of swapping rules: addresses of a dispatched plan by best fit, and plans whose addresses fit.

The lifetimes follow from the dispatched steps: a value occupies its address from the start of the run or transfer that
brings it until the end of the step that frees it, and a workspace during its run. Steps that end at an instant come
before those that start then. An output in place takes the address of the largest input that its run frees and that
holds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from remat.plugin import Buffers, IntArray, Number, Problem, StepKind, arena_of
from remat_algorithms.layout.best_fit import Gaps
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.program import run_time
from remat_algorithms.offload.swaps.routes import device_of

MOST_TIGHTER = 8
"""Smaller amounts of bytes that are tried until the addresses fit."""

WORKSPACE = -1

_START = 0
"""Position of initially resident values; events count from 1."""


@dataclass(frozen=True)
class Lives:
    """Buffers in the first processor's memory, and the value of each (`WORKSPACE`: a workspace)."""

    buffers: Buffers
    value: IntArray

    def arena(self, key: NDArray[np.float64] | None = None) -> int:
        """Return the arena of best fit, by size or by a key of each value, the largest first; fixed bytes included.

        Parameters
        ----------
        key : (values,) float64, optional
            Added to the binary logarithm of the size.
        """
        fixed = max((high for _, high in self.buffers.reserved), default=0)
        if not len(self.buffers):
            return fixed
        gaps = Gaps(self.buffers)
        if key is None:
            offset = gaps.place("size")
        else:
            rank = np.zeros(int(gaps.group.max()) + 1)
            np.maximum.at(rank, gaps.group, np.log2(self.buffers.size) + np.where(self.value < 0, 0.0, key[self.value]))
            offset = gaps.place_in(np.lexsort((gaps.arrays["start"], -rank)))
        return max(arena_of(self.buffers, offset), fixed)


def lives_of(plan: Plan, problem: Problem) -> Lives:
    """Return the buffers of a dispatched plan (O(steps log steps))."""
    machine = problem.machine
    memory = device_of(machine)
    found = _Collector(plan, problem, memory)
    found.walk()
    rows = np.array(found.rows, dtype=np.int64).reshape(-1, 4)
    kept = np.flatnonzero((rows[:, 3] > 0) & (rows[:, 2] > rows[:, 1]))
    kept = kept[np.lexsort((rows[kept, 0], rows[kept, 2], rows[kept, 1]))]
    group = np.array(found.group, dtype=np.int64)[kept] if found.shares else None
    static = problem.graph.static_bytes(machine, memory)
    buffers = Buffers(
        rows[kept, 1],
        rows[kept, 2],
        rows[kept, 3],
        reserved=((0, static),) if static else (),
        group=group,
        shift=None if group is None else np.zeros(len(kept), dtype=np.int64),
    )
    return Lives(buffers, rows[kept, 0])


@dataclass
class _Collector:
    """Walks through the events of a plan; a row is (value, first position, last position, bytes)."""

    plan: Plan
    problem: Problem
    memory: int
    rows: list[list[int]] = field(default_factory=list[list[int]])
    group: list[int] = field(default_factory=list[int])
    shares: bool = False
    now: int = 0
    held: dict[int, int] = field(default_factory=dict[int, int])
    """The row of each resident value."""

    opened: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """The rows of the outputs of each run that has not ended."""

    works: dict[int, int] = field(default_factory=dict[int, int])

    def walk(self) -> None:
        graph, machine, steps = self.problem.graph, self.problem.machine, self.plan.outcome.steps
        assert steps.start is not None
        for place in graph.inputs:
            if (machine.memory_index[place.memory] if place.memory else 0) == self.memory:
                self.held[place.value] = self._open(place.value, int(graph.size[place.value]), _START)
        ends: list[tuple[Number, int]] = []
        for step, start in enumerate(steps.start.tolist()):
            while ends and ends[0][0] <= start:
                self._end(heapq.heappop(ends)[1])
            self._start(step)
            heapq.heappush(ends, (start + self._length(step), step))
        while ends:
            self._end(heapq.heappop(ends)[1])
        for resident in self.held.values():
            self.rows[resident][2] = self.now + 1

    def _length(self, step: int) -> Number:
        steps, machine, graph = self.plan.outcome.steps, self.problem.machine, self.problem.graph
        kind, item = steps.kind[step], int(steps.item[step])
        if kind == StepKind.RUN:
            time: Number = graph.time[item].item()
            return time if item in graph.parts else run_time(machine.processors[self._processor(step)], time)
        if kind == StepKind.COPY:
            link = machine.link_index[int(steps.source[step]), int(steps.target[step])]
            return graph.link_for(machine.links[link], item).time(int(graph.size[item]))
        return 0

    def _processor(self, step: int) -> int:
        on = self.plan.outcome.steps.on
        return int(on[step][0]) if on is not None and len(on[step]) else 0

    def _here(self, step: int) -> bool:
        return self.problem.machine.processors[self._processor(step)].memory == self.memory

    def _open(self, value: int, size: int, position: int) -> int:
        self.rows.append([value, position, position, size])
        self.group.append(len(self.group))
        return len(self.rows) - 1

    def _start(self, step: int) -> None:
        steps, graph = self.plan.outcome.steps, self.problem.graph
        kind, item = steps.kind[step], int(steps.item[step])
        self.now += 1
        if kind == StepKind.COPY and int(steps.target[step]) == self.memory:
            self.held[item] = self._open(item, int(graph.size[item]), self.now)
        elif kind == StepKind.RUN and self._here(step):
            size = graph.size
            values = graph.writes[item].tolist()
            self.opened[step] = [self._open(value, int(size[value]), self.now) for value in values]
            self.works[step] = self._open(WORKSPACE, int(graph.workspace[item]), self.now)

    def _end(self, step: int) -> None:
        steps = self.plan.outcome.steps
        kind, item = steps.kind[step], int(steps.item[step])
        self.now += 1
        if kind == StepKind.RUN:
            if self._here(step):
                self._end_run(step, item)
        elif int(steps.source[step]) == self.memory:
            self._close(steps.drop[step].tolist())

    def _end_run(self, step: int, task: int) -> None:
        dropped = self.plan.outcome.steps.drop[step].tolist()
        outputs = self.opened.pop(step)
        self.rows[self.works.pop(step)][2] = self.now
        if self.problem.graph.in_place[task]:
            self._share(task, dropped, outputs)
        for row in outputs:
            value = self.rows[row][0]
            self._close([value])  # an older copy
            self.held[value] = row
        self._close(dropped)

    def _share(self, task: int, dropped: list[int], outputs: list[int]) -> None:
        """Let each output take the address of an input that the run frees; it then lives from the end of the run."""
        reads = set(self.problem.graph.reads[task].tolist())
        hosts = [self.held[value] for value in dropped if value in reads and value in self.held]
        hosts.sort(key=lambda row: -self.rows[row][3])
        for row in sorted(outputs, key=lambda row: -self.rows[row][3]):
            if hosts and self.rows[hosts[0]][3] >= self.rows[row][3]:
                self.group[row] = self.group[hosts.pop(0)]
                self.rows[row][1] = self.now
                self.shares = True

    def _close(self, values: list[int]) -> None:
        for value in values:
            row = self.held.pop(value, None)
            if row is not None:
                self.rows[row][2] = self.now


def pooled(choice: Choice, planned: Callable[[Choice], Plan | None], arena: Callable[[Plan], int]) -> Plan | None:
    """Plan for smaller and smaller amounts of bytes until the addresses fit the budget.

    Parameters
    ----------
    choice : Choice
    planned : callable
        Returns a plan whose bytes fit the budget of a choice; None if there is none.
    arena : callable
        Returns the bytes that the addresses of a plan take.

    Returns
    -------
    Plan or None
        None if no amount tried has a plan whose addresses fit.
    """
    budget = choice.budget
    if budget is None:
        return planned(choice)
    problem = choice.problem
    name = problem.machine.memories[device_of(problem.machine)].name
    tighter, limit, low, high = choice, budget, -1, budget
    for _ in range(MOST_TIGHTER):
        plan = planned(tighter)
        if plan is None:
            low = limit  # between what has no plan, and what has no addresses
            limit = (low + high) // 2
        else:
            excess = arena(plan) - budget
            if excess <= 0:
                return plan
            high = limit
            limit = limit - excess if limit - excess > low else (low + high) // 2
        if not low < limit < high:
            return None
        tighter = Choice(problem.with_capacities({name: limit}), choice.order, choice.routes)
    return None
