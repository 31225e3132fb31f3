"""The memory of an order of tasks that each run once in one memory: the model of all algorithms of this family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import BoolArray, OptionError, Problem, TaskGraph, reference_order

NO_RECOMPUTATION = "schedules without recomputation"


@dataclass(frozen=True)
class OrderModel:
    """The needed tasks of a problem, numbered 0..n-1 in reference order, so every read comes from an earlier task.

    Attributes
    ----------
    tasks : list of int
        Task indices in the graph.
    predecessors, successors : list of lists of int
        Direct precedence.
    written : list of int
        Bytes that each task writes.
    unread : list of int
        Part of them that no task reads and no output keeps: freed when the task ends.
    workspace : list of int
    in_place : list of bool
    reads : list of lists of int
        Values that a task reads and that may be freed at some time.
    size : list of int
        Bytes of every value of the graph.
    readers : list of lists of int
        Tasks that read each value; empty for values that are never freed.
    producer : list of int
        The task that writes each value; -1 for inputs and for values that no task needs.
    kept : list of int
        Bytes written by each task that stay to the end.
    start : int
        Bytes resident when the first task starts.
    unused : list of int
        Input values that no task needs: freed first.
    start_peak : int
        Bytes resident before they are freed.
    """

    tasks: list[int]
    predecessors: list[list[int]]
    successors: list[list[int]]
    written: list[int]
    unread: list[int]
    workspace: list[int]
    in_place: list[bool]
    reads: list[list[int]]
    size: list[int]
    readers: list[list[int]]
    producer: list[int]
    kept: list[int]
    start: int
    unused: list[int]
    start_peak: int

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def ancestors(self) -> list[int]:
        """For each task the bit mask of the tasks that must come before it; O(n edges / 64)."""
        masks: list[int] = []
        for before in self.predecessors:
            mask = 0
            for other in before:
                mask |= masks[other] | 1 << other
            masks.append(mask)
        return masks

    @cached_property
    def descendants(self) -> list[int]:
        """For each task the bit mask of the tasks that must come after it; same cost as `ancestors`."""
        masks = [0] * len(self)
        for task in range(len(self) - 1, -1, -1):
            for other in self.successors[task]:
                masks[task] |= masks[other] | 1 << other
        return masks

    def usage(self, order: Sequence[int]) -> list[int]:
        """Return the bytes held while each task of an order runs."""
        left = [len(readers) for readers in self.readers]
        resident = self.start
        during = []
        for task in order:
            freed = 0
            for value in self.reads[task]:
                left[value] -= 1
                if left[value] == 0:
                    freed += self.size[value]
            added = self.written[task]
            if self.in_place[task]:
                added = max(0, added - freed)
            during.append(resident + added + self.workspace[task])
            resident += self.written[task] - self.unread[task] - freed
        return during

    def peak(self, order: Sequence[int]) -> int:
        """Return the peak of an order."""
        return max(self.start_peak, max(self.usage(order), default=0))

    def setting_task(self, order: Sequence[int]) -> int | None:
        """Return the graph's task that sets the peak of an order; None if the start does."""
        usage = self.usage(order)
        if not usage or max(usage) < self.start_peak:
            return None
        return self.tasks[order[usage.index(max(usage))]]


def order_model(problem: Problem, name: str) -> OrderModel:
    """Build the model of a problem.

    Parameters
    ----------
    problem : Problem
        A problem of any kind. Among alternative producers it takes the cheapest.
    name : str
        The algorithm, for messages.

    Raises
    ------
    OptionError
        If a value would have several origins: two needed tasks write it, or one writes an input.
    """
    machine = problem.machine
    own = machine.processors[0].memory
    first, memory = machine.memories[0].name, machine.memories[own].name
    graph = problem.graph
    here = {place.value for place in graph.inputs if (place.memory or first) == memory}
    stays = {place.value for place in graph.outputs if (place.memory or first) == memory}
    return model_of_graph(graph, problem.needed.once, here, stays, graph.static_memory if own == 0 else 0, name)


def model_of_graph(
    graph: TaskGraph, chosen: BoolArray, here: set[int], stays: set[int], static: int, name: str
) -> OrderModel:
    """Build the model of the `chosen` tasks, with the values resident at the start and at the end.

    Raises
    ------
    OptionError
        As `order_model`; `name` is the caller.
    """
    tasks = reference_order(graph, chosen).tolist()
    for_ever = stays | (set(graph.pinned) & here)
    rows = np.array(tasks, dtype=np.int64)
    reads = [list(dict.fromkeys(row)) for row in graph.reads.gather(rows).to_lists()]
    writes = [list(dict.fromkeys(row)) for row in graph.writes.gather(rows).to_lists()]
    producer: dict[int, int] = dict.fromkeys((place.value for place in graph.inputs), -1)
    for index, row in enumerate(writes):
        for value in row:
            if value in producer:
                raise OptionError(
                    f"{name!r} orders tasks that run once, and value {graph.values[value]!r} has several "
                    "origins; use keep-all",
                    argument="algorithm",
                )
            producer[value] = index
    if len(tasks) != int(chosen.sum()):
        raise OptionError(f"the needed tasks cannot all run once, which {name!r} builds on", argument="algorithm")
    readers: list[list[int]] = [[] for _ in range(len(graph.values))]
    for index, row in enumerate(reads):
        for value in row:
            if value not in for_ever:
                readers[value].append(index)
    predecessors = [sorted({producer[value] for value in row} - {-1}) for row in reads]
    size = graph.size.tolist()

    def total(values: Iterable[int]) -> int:
        return sum(size[value] for value in values)

    unused = sorted(value for value in here - for_ever if not readers[value])
    resident = total(here) + static
    return OrderModel(
        tasks=tasks,
        predecessors=predecessors,
        successors=transposed(predecessors),
        written=[total(row) for row in writes],
        unread=[total(v for v in row if v not in for_ever and not readers[v]) for row in writes],
        workspace=graph.workspace[rows].tolist(),
        in_place=graph.in_place[rows].tolist(),
        reads=[[value for value in row if value not in for_ever] for row in reads],
        size=size,
        readers=readers,
        producer=[producer.get(value, -1) for value in range(len(size))],
        kept=[total(v for v in row if v in for_ever) for row in writes],
        start=resident - total(unused),
        unused=unused,
        start_peak=resident,
    )


def transposed(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the rows of the transposed relation, sorted."""
    columns: list[list[int]] = [[] for _ in rows]
    for row, items in enumerate(rows):
        for item in items:
            columns[item].append(row)
    return columns
