"""A task graph that is run for one sample after the other: as many copies of it as needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from remat.graph.names import Names
from remat.graph.taskgraph import BoolArray, IntArray, Placeable, Ragged, Resident, TaskEnergy, TaskGraph


@dataclass(frozen=True)
class Samples:
    """A number of samples of a graph: the indices of the tasks and values of each sample.

    Values that are available from the start are shared by all samples and exist once. All others exist once per sample.

    Attributes
    ----------
    graph : TaskGraph
        Graph of one sample.
    count : int
    """

    graph: TaskGraph
    count: int

    @cached_property
    def shared(self) -> BoolArray:
        """Whether all samples share a value."""
        found = np.zeros(len(self.graph.values), dtype=bool)
        found[list(self.graph.available)] = True
        return found

    @cached_property
    def first(self) -> IntArray:
        """Indices of the values of the first sample, by the value's index in the graph of one sample."""
        each = np.where(self.shared, 1, self.count).astype(np.int64)
        before: IntArray = np.cumsum(each) - each
        return before

    def tasks(self, task: IntArray, sample: IntArray | int) -> IntArray:
        """Return the indices of tasks of samples."""
        return task * self.count + sample

    def values(self, value: IntArray, sample: IntArray | int) -> IntArray:
        """Return the indices of values of samples."""
        found: IntArray = self.first[value] + np.where(self.shared[value], 0, sample)
        return found

    def repeated(self) -> TaskGraph:
        """Return the graph of all samples: task t of sample m is named ``t.m``, and values likewise.

        Inputs keep their names. O(samples x size of the graph).
        """
        graph, count = self.graph, self.count
        tasks, values = len(graph.tasks), len(graph.values)
        alone = np.flatnonzero(~self.shared)
        names: list[str] = []
        for value in range(values):
            name = graph.values[value]
            names += [name] if self.shared[value] else [f"{name}.{m}" for m in range(count)]
        size = np.zeros(len(names), dtype=np.int64)
        size[self.first] = graph.size
        for m in range(1, count):
            size[self.first[alone] + m] = graph.size[alone]
        return replace(
            graph,
            tasks=Names(f"{graph.tasks[task]}.{m}" for task in range(tasks) for m in range(count)),
            values=Names(names),
            time=np.repeat(graph.time, count),
            size=size,
            reads=self._rows(graph.reads),
            writes=self._rows(graph.writes),
            workspace=np.repeat(graph.workspace, count),
            in_place=np.repeat(graph.in_place, count),
            required=np.repeat(graph.required, count),
            recomputable=np.repeat(graph.recomputable, count),
            once=np.repeat(graph.once, count),
            inputs=tuple(self._moved(graph.inputs)),
            outputs=tuple(self._moved(graph.outputs)),
            ratios={
                copy: ratio
                for value, ratio in graph.ratios.items()
                for copy in self.values(np.full(count, value), np.arange(count)).tolist()
            },
            pinned=frozenset(int(self.first[value]) for value in graph.pinned),
            placeable=tuple(Placeable(int(self.first[one.value]), one.copies) for one in graph.placeable),
            times=None if graph.times is None else np.repeat(graph.times, count, axis=1),
            energy=None if graph.energy is None else self._energy(graph.energy),
            tied={task * count + m: names for task, names in graph.tied.items() for m in range(count)},
            phase=None if graph.phase is None else tuple(phase for phase in graph.phase for _ in range(count)),
            modules=None if graph.modules is None else [module for module in graph.modules for _ in range(count)],
        )

    def _energy(self, energy: TaskEnergy) -> TaskEnergy:
        return replace(energy, of_type=np.repeat(energy.of_type, self.count, axis=1))

    def _moved(self, places: Sequence[Resident]) -> list[Resident]:
        return [Resident(int(self.first[place.value]), place.memory) for place in places]

    def _rows(self, rows: Ragged) -> Ragged:
        lists = rows.to_lists()
        found = [
            self.values(np.array(listed, dtype=np.int64), m).tolist() for listed in lists for m in range(self.count)
        ]
        return Ragged.from_lists(found)
