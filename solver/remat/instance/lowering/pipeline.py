"""Pipelines: tasks are layers times micro-batches; the schedule chooses the device of each task.

Tasks are ``Fe{l}.{m}`` (layer l from 1, micro-batch m from 0), then ``B{l}.{m}``, then ``W{l}.{m}`` for the layers with
a backward in two halves. Each group is sorted by layer. If r devices share each micro-batch of a layer, its tasks are
numbered by parts: r m + i for part i. Values are numbered in the same scheme. Their number of pieces depends on their
producers and readers, so that each byte is sent once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.graph.names import NameRun, NumberedNames
from remat.graph.taskgraph import (
    GRADIENTS,
    PARAMETERS,
    STATES,
    IntArray,
    NumberArray,
    PairTimes,
    Placeable,
    Ragged,
    TaskGraph,
    number_array,
)
from remat.instance.lowering.chain import with_stage_names

if TYPE_CHECKING:
    from remat.instance.pipeline import PipelineInstance
    from remat.instance.tensor import Degree

CANNOT = -1
"""Time of a task on a type of device that cannot run it."""


Group = tuple[int, int]
"""The first of a group of values, and the number of values per micro-batch."""


def lower_pipeline(instance: PipelineInstance, degrees: Sequence[Degree] = ()) -> TaskGraph:
    """Lower a pipeline whose parameters change between steps only (O(layers x micro-batches)).

    Parameters
    ----------
    instance : PipelineInstance
    degrees : sequence of Degree
        How devices share each micro-batch of each layer; empty if none does.
    """
    return with_stage_names(_Lowering(instance, degrees).graph(), [instance.layers])


class _Values:
    """Groups of values: one value per layer and micro-batch, or one per layer."""

    def __init__(self) -> None:
        self.runs: list[NameRun] = []
        self.sizes: list[IntArray] = []
        self.count = 0

    def add(self, prefix: str, first: int, sizes: Any) -> int:
        """Add numbered values; return the index of the first."""
        at = self.count
        self.runs.append((prefix, first, len(sizes)))
        self.sizes.append(np.asarray(sizes, dtype=np.int64))
        self.count += len(sizes)
        return at


class _Lowering:
    def __init__(self, instance: PipelineInstance, degrees: Sequence[Degree]) -> None:
        self.instance = instance
        self.layers = instance.each_layer(degrees)
        self.batches = instance.micro_batches
        self.values = _Values()
        count = len(self.layers)
        self.parts = [degree.parts for degree in degrees] or [1] * count
        # The work of a layer for micro-batch m is works[layer][m % slices]: slices of a sequence differ.
        self.works = instance.works(degrees)
        self.slices = instance.slices
        self.sources = instance.sources()
        self.readers: list[list[int]] = [[] for _ in self.layers]
        for reader, read in enumerate(self.sources):
            for k in read:
                self.readers[k].append(reader)
        self.x = [
            self._of_layer("x", k, [work.output_size for work in works], self._pieces(k, *self.readers[k]))
            for k, works in enumerate(self.works)
        ]
        # The bytes that the second half of a backward keeps are a part of the saved value and must not count twice.
        self.s = [
            self._of_layer("s", k, [work.saved_size - min(work.saved_size, work.weight_saved_size) for work in works])
            for k, works in enumerate(self.works)
        ]
        # Each reader of an output returns a separate gradient.
        self.y = {
            (k, reader): self._of_layer(
                f"y{k + 1}" if reader == k + 1 else f"y{k + 1}.{reader + 1}",
                k,
                [work.gradient_bytes for work in self.works[k]],
                self._pieces(k, reader),
                named=True,
            )
            for k, readers in enumerate(self.readers)
            for reader in readers
        }
        split = [k for k, layer in enumerate(self.layers) if layer.is_split]
        kept = {k: [(work.saved_size, work.weight_saved_size) for work in self.works[k]] for k in split}
        self.v = {k: self._of_layer("v", k, [min(sizes) for sizes in kept[k]]) for k in split}
        self.e = {k: self._of_layer("e", k, [max(0, later - saved) for saved, later in kept[k]]) for k in split}
        self.parameters = {
            name: {
                k: self.values.add(name, k + 1, [layer.of_parameters[part]])
                for k, (layer, whole) in enumerate(zip(self.layers, instance.whole_layers(), strict=True))
                if layer.of_parameters[part] or whole.of_parameters[part]
            }
            for part, name in enumerate("wgo")
        }
        between = self.slices - 1
        self.c = [
            self._between("c", k, 0, [getattr(work, "cache_gradient_size", 0) for work in works[:between]])
            for k, works in enumerate(self.works)
        ]
        self.q = [self._between("q", k, 1, [0] * between) for k in range(count)]

    def _between(self, name: str, layer: int, first: int, sizes: list[int]) -> int:
        """Add a layer's values of all slices of each sequence but one; the first of the others is given."""
        found = self.values.count
        for sequence in range(0, self.batches, self.slices) if sizes else ():
            self.values.add(f"{name}{layer + 1}.", sequence + first, sizes)
        return found

    def _pieces(self, layer: int, *others: int) -> int:
        """Return the pieces of what passes between a layer and others, for each micro-batch."""
        return lcm(self.parts[layer], *(self.parts[other] for other in others))

    def _of_layer(self, name: str, layer: int, sizes: list[int], pieces: int = 0, *, named: bool = False) -> Group:
        """Add a layer's values, of which those of the first parts of micro-batches are given; each in equal pieces."""
        each = pieces // self.parts[layer] if pieces else 1
        cut = [size // each + (k < size % each) for size in sizes for k in range(each)]
        first = self.values.add(f"{name}." if named else f"{name}{layer + 1}.", 0, self._of_batches(cut, layer, each))
        return first, each * self.parts[layer]

    def _of_batches(self, sizes: list[int], layer: int, each: int = 1) -> IntArray:
        """Return figures of all parts of a layer's micro-batches, of which the first are given, `each` of a part."""
        return np.tile(np.array(sizes, dtype=np.int64), self.batches * self.parts[layer] * each // len(sizes))

    def graph(self) -> TaskGraph:
        """Return the task graph."""
        count, layers = len(self.layers), self.layers
        split = [k for k in range(count) if layers[k].is_split]
        groups = [*range(count), *range(count), *split]
        reads = [self._reads_of_forward(k) for k in range(count)]
        reads += [self._reads_of_backward(k) for k in range(count)]
        reads += [self._rows(k, [self.v[k], self.e[k]], [self.parameters["g"].get(k)]) for k in split]
        writes = [self._rows(k, [self.x[k], self.s[k], *self._if(self.v, k)], []) for k in range(count)]
        for k in range(count):
            gradients = [self.y[source, k] for source in self.sources[k]]
            writes.append(self._rows(k, [*gradients, *self._if(self.e, k)], []))
        writes += [self._rows(k, [], []) for k in split]
        letters = ["Fe"] * count + ["B"] * count + ["W"] * len(split)
        names: list[NameRun] = [
            (f"{letter}{k + 1}.", 0, self.batches * self.parts[k]) for letter, k in zip(letters, groups, strict=True)
        ]
        time, types, times = self._times(groups)
        # Gradients are accumulated: a second run would be wrong.
        once = np.repeat([letter != "Fe" for letter in letters], [run[2] for run in names])
        total = len(once)
        workspace = [
            self._of_batches([work.forward_workspace if k < count else work.backward_workspace for work in works], own)
            for k, (own, works) in enumerate((own, self.works[own]) for own in groups)
        ]
        return TaskGraph(
            tasks=NumberedNames(names),
            values=NumberedNames(self.values.runs),
            time=time,
            size=np.concatenate(self.values.sizes),
            reads=_with(_joined(reads), self._reads_of_slices()),
            writes=_with(_joined(writes), self._writes_of_slices()),
            workspace=np.concatenate(workspace),
            in_place=np.zeros(total, dtype=bool),
            required=once.copy(),
            recomputable=~once,
            once=once,
            placeable=tuple(
                Placeable(value, self.instance.copies)
                for of_layer in self.parameters.values()
                for value in of_layer.values()
            ),
            types=types,
            times=times,
            pairs=self._pairs(types, groups),
            terms={"w": PARAMETERS, "g": GRADIENTS, "o": STATES} if self.instance.has_parameters else {},
            units=self.instance.units.build(),
        )

    def _pairs(self, types: tuple[str, ...], groups: list[int]) -> PairTimes:
        """Return which tasks are forwards and (first halves of) backwards, and the time that pairs of them save.

        Slices of sequences and parts of micro-batches have no paired times, and save nothing.
        """
        every = types or tuple(dict.fromkeys(self.instance.cluster.types))[:1]
        count, counts = len(self.layers), [self.batches * self.parts[k] for k in groups]
        own = [[works[0].spared_on(name) for works in self.works] for name in every]
        spared = number_array(time for row in own for time in [*row, *row, *[0] * (len(groups) - 2 * count)])
        side = np.array([1] * count + [2] * count + [0] * (len(groups) - 2 * count), dtype=np.int8)
        return PairTimes(np.repeat(side, counts), np.repeat(spared.reshape(len(own), -1), counts, axis=1))

    @staticmethod
    def _if(where: dict[int, Group], layer: int) -> list[Group]:
        return [where[layer]] if layer in where else []

    def _reads_of_forward(self, layer: int) -> IntArray:
        return self._rows(layer, [self.x[source] for source in self.sources[layer]], [self.parameters["w"].get(layer)])

    def _reads_of_backward(self, layer: int) -> IntArray:
        own = self.layers[layer].backward_reads
        wanted = self.instance.backward_reads if own is None else own
        # The forward must run first, for any reads of the backward: the saved value, perhaps of size 0, ensures this.
        gradients = [self.y[layer, reader] for reader in self.readers[layer]]
        per_batch = [self.s[layer], *gradients, *self._if(self.v, layer)]
        if "input" in wanted:
            per_batch += [self.x[source] for source in self.sources[layer]]
        if "output" in wanted:
            per_batch.append(self.x[layer])
        gradient = None if layer in self.v else self.parameters["g"].get(layer)
        return self._rows(layer, per_batch, [self.parameters["w"].get(layer), gradient])

    def _rows(self, layer: int, groups: list[Group], shared: list[int | None]) -> IntArray:
        """Return a row for each part of a layer's micro-batches: the pieces of values of that part, and shared ones."""
        rows = self.batches * self.parts[layer]
        fixed = np.array([value for value in shared if value is not None], dtype=np.int64)
        columns = [
            first + np.arange(self.batches * each).reshape(rows, each // self.parts[layer]) for first, each in groups
        ]
        return np.concatenate([*columns, np.broadcast_to(fixed, (rows, len(fixed)))], axis=1)

    def _reads_of_slices(self) -> list[tuple[IntArray, IntArray]]:
        """Return the values that slices read from other slices of their sequence, as (tasks, values).

        Forwards and backwards read the values that the layer keeps of all earlier slices. The gradients of the keys and
        values of all slices but the last exist from the last slice's backward on. Each backward adds to the gradients
        of earlier slices, and waits (`q`) for the backward of the next slice.
        """
        if self.slices == 1:
            return []
        later, earlier = np.tril_indices(self.slices, -1)
        adding, up_to = np.tril_indices(self.slices - 1)
        ahead = np.arange(self.slices - 1)
        found: list[tuple[IntArray, IntArray]] = []
        for k in range(len(self.layers)):
            forward, backward = k * self.batches, (len(self.layers) + k) * self.batches
            found.append((self._tasks(forward + later), self._tasks(self.s[k][0] + earlier)))
            found.append((self._tasks(backward + later), self._tasks(self.s[k][0] + earlier)))
            found.append((self._tasks(backward + adding), self._others(self.c[k] + up_to)))
            found.append((self._tasks(backward + ahead), self._others(self.q[k] + ahead)))
        return found

    def _writes_of_slices(self) -> list[tuple[IntArray, IntArray]]:
        """Return the values that backwards of slices write for other slices of their sequence, as (tasks, values)."""
        if self.slices == 1:
            return []
        others = np.arange(self.slices - 1)
        last = np.full(self.slices - 1, self.slices - 1)
        found: list[tuple[IntArray, IntArray]] = []
        for k in range(len(self.layers)):
            backward = (len(self.layers) + k) * self.batches
            found.append((self._tasks(backward + last), self._others(self.c[k] + others)))
            found.append((self._tasks(backward + 1 + others), self._others(self.q[k] + others)))
        return found

    def _tasks(self, first: IntArray) -> IntArray:
        """Return tasks (or values of which each slice has one) of the first sequence, and those of all others."""
        return (np.arange(0, self.batches, self.slices)[:, None] + first).ravel()

    def _others(self, first: IntArray) -> IntArray:
        """Return values, of which all slices but one have one, of the first sequence, and those of all others."""
        sequences = self.batches // self.slices
        return (np.arange(sequences)[:, None] * (self.slices - 1) + first).ravel()

    def _times(self, groups: list[int]) -> tuple[NumberArray, tuple[str, ...], NumberArray | None]:
        """Return the minimum time of each task, the types, and the times on each."""
        count = len(self.layers)
        phases = ["forward_time"] * count + ["backward_time"] * count + ["weight_time"] * (len(groups) - 2 * count)
        tasks = [(self.works[k], phase) for k, phase in zip(groups, phases, strict=True)]
        types = tuple(dict.fromkeys(self.instance.cluster.types))
        able = {
            (id(work), name): work.work_on(name) is not None for works in self.works for work in works for name in types
        }
        table = [
            [work.time_on(phase, name) if able[id(work), name] else None for works, phase in tasks for work in works]
            for name in types
        ]
        least = [min(time for time in column if time is not None) for column in zip(*table, strict=True)]
        time = self._of_tasks(number_array(least), groups)
        spared = [[works[0].spared_on(name) for works in self.works] for name in types]
        if all(row == least for row in table) and all(row == spared[0] for row in spared):
            return time, (), None
        rows = [number_array(CANNOT if one is None else one for one in row) for row in table]
        return time, types, np.array([self._of_tasks(row, groups) for row in rows])

    def _of_tasks(self, listed: NumberArray, groups: list[int]) -> NumberArray:
        """Return the figures of all tasks, given those of the first tasks of each group."""
        rows = listed.reshape(-1, self.slices)
        if max(self.parts) == 1:
            return np.tile(rows, (1, self.batches // self.slices)).ravel()
        return np.repeat(rows[:, 0], [self.batches * self.parts[k] for k in groups])


def _with(rows: Ragged, more: list[tuple[IntArray, IntArray]]) -> Ragged:
    """Append items to rows."""
    if not more:
        return rows
    where = np.concatenate((rows.rows, *(added for added, _ in more)))
    items = np.concatenate((rows.items, *(added for _, added in more)))
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(where, minlength=len(rows)))))
    return Ragged(start, items[np.argsort(where, kind="stable")])


def _joined(groups: list[IntArray]) -> Ragged:
    """Concatenate groups of rows; the rows of a group have equal lengths."""
    shapes = np.array([group.shape for group in groups], dtype=np.int64)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.repeat(shapes[:, 1], shapes[:, 0]))))
    return Ragged(start, np.concatenate([group.ravel() for group in groups]))
