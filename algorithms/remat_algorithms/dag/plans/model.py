"""The problem that `dag-auto` solves: tasks in a reference order, as flat tables for interpreter and compiler.

A schedule is a set R of pairs (t, i). Stage t ends with the first run of the order's t-th task. Before that, it reruns
item i for each (t, i) in R, in index order. A last stage, without a first run, may recompute values that must be
resident at the end. Each read takes the latest copy, and each copy is freed at its last use. Every such set is
therefore valid if the reruns are allowed, and only its peak can make it infeasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from remat.plugin import (
    IntArray,
    Machine,
    Number,
    Problem,
    TaskGraph,
    reference_order,
    total_time,
    unread_tasks,
    useful_runs,
)

Row = Any
"""A list in interpreted functions, an array in compiled ones."""

SAFE_BYTES = 2**61
"""Maximum sum of bytes that cannot overflow in a kernel."""


class Tables(NamedTuple):
    """The graph as flat rows; items are the tasks of the order, and others that may serve in reruns.

    Attributes
    ----------
    first : (stages,)
        The item that each stage ends with; increasing.
    read_start, read_value, write_start, write_value : rows of item i, ``start[i]:start[i+1]``
    spared : as `write_value`
        1 if the item's light twin omits the value.
    size : (values,)
    workspace, in_place, repeat, written : (items,)
        `repeat`: may be rerun; `written`: bytes that it writes.
    time : (items,) float
        The unit makes the mean of the order's tasks 1000; 0 for repeatable tasks whose outputs no task reads.
    maker : (values,)
        The item that recomputes a value, or -1.
    initial, pinned, stays : (values,)
        Resident at the start; never freed; resident at the end.
    light : (items,)
        2: a twin that writes less may replace any run, 1: reruns only, 0: it has none.
    light_time, light_workspace, light_spared : (items,)
        The twin's time and workspace, and the bytes it omits.
    static : (1,)
        Bytes resident throughout.
    lent : (stages + 1,)
        Bytes available in addition to the budget during the runs of each stage, and of the last one.
    """

    first: Row
    read_start: Row
    read_value: Row
    write_start: Row
    write_value: Row
    spared: Row
    size: Row
    workspace: Row
    in_place: Row
    repeat: Row
    written: Row
    time: Row
    maker: Row
    initial: Row
    pinned: Row
    stays: Row
    light: Row
    light_time: Row
    light_workspace: Row
    light_spared: Row
    static: Row
    lent: Row


@dataclass(frozen=True)
class StageModel:
    """The tables of a problem, and the mapping back to its tasks.

    Attributes
    ----------
    graph : TaskGraph
    machine : Machine
    tables : Tables
        Tables of lists.
    task : list of int
        The graph's task of each item.
    twin : list of int
        The graph's task that is each item's light twin, or -1.
    simple : bool
        Whether each value has one origin and no task has alternatives, as the bounds require.
    time_unit : float
        Time in the instance's unit that is 1.0 in the tables.
    own : int
        Index of the processor's memory.
    """

    graph: TaskGraph
    machine: Machine
    tables: Tables
    task: list[int]
    twin: list[int]
    simple: bool
    time_unit: float
    own: int

    @property
    def stages(self) -> int:
        """Number of tasks in the order."""
        return len(self.tables.first)

    @cached_property
    def once_time(self) -> float:
        """Time of the order, in the tables' unit."""
        return float(sum(self.tables.time[item] for item in self.tables.first))

    @cached_property
    def whole_step(self) -> int | None:
        """The greatest common divisor of all times of the instance; None if they are not integers, or all 0."""
        times = self.graph.time[self.task]
        if not np.issubdtype(times.dtype, np.integer) or not times.any():
            return None
        return int(np.gcd.reduce(times))

    @cached_property
    def time_step(self) -> float | None:
        """The greatest common divisor of all times of the tables, or None."""
        return None if self.whole_step is None else self.whole_step / self.time_unit

    @cached_property
    def free_time(self) -> float:
        """Time of the order's tasks that cost nothing in the tables, in the tables' unit."""
        return float(self.once_makespan) / self.time_unit - self.once_time

    @cached_property
    def once_makespan(self) -> Number:
        """Time of the order, in the instance's unit."""
        return self.makespan([self.task[item] for item in self.tables.first])

    @cached_property
    def fits_kernel(self) -> bool:
        """Whether no sum of bytes can overflow 64 bits."""
        tables = self.tables
        return bool(
            2 * sum(tables.size) + max(tables.workspace, default=0) + tables.static[0] + max(tables.lent) < SAFE_BYTES
        )

    def lent(self, room: Sequence[int]) -> StageModel:
        """Return the model with additional memory in each stage of the order."""
        return replace(self, tables=self.tables._replace(lent=[*room, 0]), simple=False)

    def tasks_of(self, items: Row, full: Row) -> list[int]:
        """Return the graph's tasks that a sequence of items runs; `full` is 0 where the twin replaces the item."""
        return [
            self.task[item] if whole else self.twin[item] for item, whole in zip(list(items), list(full), strict=True)
        ]

    def runs_of(self, items: Row, full: Row) -> list[int]:
        """Return the graph's tasks that a sequence of items runs, without tasks whose outputs remain unused."""
        return useful_runs(self.graph, self.tasks_of(items, full))

    def makespan(self, tasks: list[int]) -> Number:
        """Return the time of a sequence of tasks, exactly if times are integers."""
        return total_time(self.graph.time[np.array(tasks, dtype=np.int64)])


def stage_model(problem: Problem, order: IntArray | None = None, *, alternatives: bool = True) -> StageModel:
    """Build the model of a problem; O(size of the graph).

    Parameters
    ----------
    problem : Problem
    order : (needed tasks,) int64, optional
        Another topological order of the tasks in `problem.needed.once`.
    alternatives : bool
        Whether reruns may run other tasks instead.
    """
    graph, machine = problem.graph, problem.machine
    own = machine.processors[0].memory
    first, memory = machine.memories[0].name, machine.memories[own].name
    here = {place.value for place in graph.inputs if (place.memory or first) == memory}
    stays = {place.value for place in graph.outputs if (place.memory or first) == memory}
    if order is None:
        order = reference_order(graph, problem.needed.once)
    reads = [list(dict.fromkeys(row)) for row in graph.reads.to_lists()]
    writes = [list(dict.fromkeys(row)) for row in graph.writes.to_lists()]
    chosen = order.tolist()
    repeatable = (graph.recomputable & ~graph.once).tolist()
    items, twins = chosen, [-1] * len(chosen)
    if alternatives:
        items, twins = _items(graph, chosen, reads, writes, here, repeatable)
    size: list[int] = graph.size.tolist()
    unit = _time_unit(graph, chosen)
    # Reruns without readers cost nothing: `runs_of` then omits the previous run.
    free = (unread_tasks(graph) & np.array(repeatable, dtype=bool)).tolist()
    time = [0.0 if free[task] else float(graph.time[task].item()) / unit for task in items]
    all_time, all_space = graph.time.tolist(), graph.workspace.tolist()
    is_first = set(chosen)
    values = range(len(size))
    pinned = set(graph.pinned) & here
    must_run_whole = (graph.required | graph.once).tolist()
    kept = [set(writes[twin]) if twin >= 0 else set(writes[task]) for task, twin in zip(items, twins, strict=True)]
    written = [sum(size[value] for value in writes[task]) for task in items]
    repeat = [int(repeatable[task]) for task in items]
    tables = Tables(
        first=[index for index, task in enumerate(items) if task in is_first],
        read_start=_starts([reads[task] for task in items]),
        read_value=[value for task in items for value in reads[task]],
        write_start=_starts([writes[task] for task in items]),
        write_value=[value for task in items for value in writes[task]],
        spared=[int(value not in kept[index]) for index, task in enumerate(items) for value in writes[task]],
        size=size,
        workspace=[all_space[task] for task in items],
        in_place=[int(value) for value in graph.in_place[np.array(items, dtype=np.int64)].tolist()],
        repeat=repeat,
        written=written,
        time=time,
        maker=_makers(items, reads, writes, repeat, time, written, pinned, len(size)),
        initial=[int(value in here) for value in values],
        pinned=[int(value in pinned) for value in values],
        stays=[int(value in stays) for value in values],
        light=[
            0 if twin < 0 else 1 if task in is_first and must_run_whole[task] else 2
            for task, twin in zip(items, twins, strict=True)
        ],
        light_time=[float(all_time[twin]) / unit if twin >= 0 and not free[twin] else 0.0 for twin in twins],
        light_workspace=[all_space[twin] if twin >= 0 else 0 for twin in twins],
        light_spared=[
            sum(size[value] for value in writes[task]) - sum(size[value] for value in kept[index])
            for index, task in enumerate(items)
        ],
        static=[graph.static_memory if own == 0 else 0],
        lent=[0] * (len(chosen) + 1),
    )
    origins = [0] * len(size)
    for value in (*(v for row in (writes if alternatives else map(writes.__getitem__, items)) for v in row), *here):
        origins[value] += 1
    simple = len(items) == len(chosen) and all(count <= 1 for count in origins)
    return StageModel(graph, machine, tables, items, twins, simple, unit, own)


def _starts(rows: list[list[int]]) -> list[int]:
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    return starts


def _time_unit(graph: TaskGraph, chosen: list[int]) -> float:
    """Return the time that is 1.0 in the tables: the mean task takes 1000, whatever the instance's units."""
    mean = float(graph.time[np.array(chosen, dtype=np.int64)].mean()) if chosen else 0.0
    return mean / 1000 if mean > 0 else 1.0


def _items(
    graph: TaskGraph,
    chosen: list[int],
    reads: list[list[int]],
    writes: list[list[int]],
    here: set[int],
    repeatable: list[bool],
) -> tuple[list[int], list[int]]:
    """Return the tasks of the order with optional ones between them, and the light twin of each (or -1).

    An optional task takes the earliest position at which the order has computed all its inputs.
    """
    made = dict.fromkeys(here, 0)
    for place, task in enumerate(chosen, start=1):
        for value in writes[task]:
            made.setdefault(value, place)
    is_chosen = set(chosen)
    optional = [
        task
        for task in range(len(reads))
        if task not in is_chosen and repeatable[task] and all(value in made for value in (*reads[task], *writes[task]))
    ]
    ready: dict[int, list[int]] = {}
    for task in optional:
        ready.setdefault(max((made[value] for value in reads[task]), default=0), []).append(task)
    items = list(ready.get(0, ()))
    for place, task in enumerate(chosen, start=1):
        items += [task, *ready.get(place, ())]
    by_value: dict[int, list[int]] = {}
    for task in optional:
        for value in writes[task]:
            by_value.setdefault(value, []).append(task)
    time, in_place = graph.time.tolist(), graph.in_place.tolist()
    twins = []
    for task in items:
        own_reads, own_writes = set(reads[task]), set(writes[task])
        fit = [
            other
            for other in dict.fromkeys(o for value in writes[task] for o in by_value.get(value, ()))
            if own_writes > set(writes[other])
            and own_reads >= set(reads[other])
            and time[other] <= time[task]
            and in_place[other] == in_place[task]
        ]
        twins.append(min(fit, key=lambda other: (time[other], other), default=-1))
    return items, twins


def _makers(
    items: list[int],
    reads: list[list[int]],
    writes: list[list[int]],
    repeat: list[int],
    time: list[float],
    written: list[int],
    pinned: set[int],
    values: int,
) -> list[int]:
    """Return for each value the cheapest item that can recompute it before all its readers, or -1."""
    earliest = [len(items)] * values
    for index in range(len(items) - 1, -1, -1):
        for value in reads[items[index]]:
            earliest[value] = index
    maker = [-1] * values
    for index, task in enumerate(items):
        for value in writes[task]:
            usable = repeat[index] and index < earliest[value] and value not in pinned
            if usable and (
                maker[value] < 0 or (time[index], written[index]) < (time[maker[value]], written[maker[value]])
            ):
                maker[value] = index
    return maker
