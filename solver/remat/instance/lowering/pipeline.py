"""Pipelines: tasks are layers times micro-batches; which device runs what is left to the schedule.

Tasks are ``Fe{l}.{m}`` (layer l from 1, micro-batch m from 0), then ``B{l}.{m}``, then ``W{l}.{m}`` of the layers whose
backward is in two halves; each group layer by layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remat.graph.names import NameRun, NumberedNames
from remat.graph.taskgraph import IntArray, NumberArray, PairTimes, Placeable, Ragged, TaskGraph, number_array
from remat.instance.lowering.chain import with_stage_names

if TYPE_CHECKING:
    from remat.instance.pipeline import PipelineInstance

CANNOT = -1
"""Time of a task on a type of device that cannot run it."""


def lower_pipeline(instance: PipelineInstance) -> TaskGraph:
    """Lower a pipeline whose parameters change between steps only (O(layers x micro-batches))."""
    return with_stage_names(_Lowering(instance).graph(), [instance.layers])


class _Values:
    """Values in groups: one a layer and micro-batch, or one a layer."""

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
    def __init__(self, instance: PipelineInstance) -> None:
        self.instance = instance
        self.layers = instance.each_layer()
        self.batches = instance.micro_batches
        self.values = _Values()
        # What a layer takes and makes for micro-batch m is works[layer][m % slices]: slices of a sequence differ.
        self.works = instance.works()
        self.slices = instance.slices
        self.x = [self._of_layer("x", k, [work.output_size for work in works]) for k, works in enumerate(self.works)]
        # What the second half of a backward keeps is a part of what the forward saved, and is not there twice.
        self.s = [
            self._of_layer("s", k, [work.saved_size - min(work.saved_size, work.weight_saved_size) for work in works])
            for k, works in enumerate(self.works)
        ]
        count = len(self.layers)
        self.sources = instance.sources()
        self.readers: list[list[int]] = [[] for _ in self.layers]
        for reader, read in enumerate(self.sources):
            for k in read:
                self.readers[k].append(reader)
        # Each reader of an output gives back a gradient of its own.
        self.y = {
            (k, reader): self.values.add(
                f"y{k + 1}." if reader == k + 1 else f"y{k + 1}.{reader + 1}.",
                0,
                self._of_batches([work.gradient_bytes for work in self.works[k]]),
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
                k: self.values.add(name, k + 1, [sizes[part]])
                for k, sizes in enumerate(self._parameters())
                if sizes[part]
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

    def _parameters(self) -> list[tuple[int, int, int]]:
        return [layer.of_parameters for layer in self.layers]

    def _of_layer(self, name: str, layer: int, sizes: list[int]) -> int:
        return self.values.add(f"{name}{layer + 1}.", 0, self._of_batches(sizes))

    def _of_batches(self, sizes: list[int]) -> IntArray:
        """Return sizes of all micro-batches, of which the first are given."""
        return np.tile(np.array(sizes, dtype=np.int64), self.batches // len(sizes))

    def graph(self) -> TaskGraph:
        """Return the task graph."""
        count, batches, layers = len(self.layers), self.batches, self.layers
        split = [k for k in range(count) if layers[k].is_split]
        reads = [self._reads_of_forward(k) for k in range(count)]
        reads += [self._reads_of_backward(k) for k in range(count)]
        reads += [self._per_batch([self.v[k], self.e[k]], [self.parameters["g"].get(k)]) for k in split]
        writes = [self._per_batch([self.x[k], self.s[k], *self._if(self.v, k)], []) for k in range(count)]
        for k in range(count):
            gradients = [self.y[source, k] for source in self.sources[k]]
            writes.append(self._per_batch([*gradients, *self._if(self.e, k)], []))
        writes += [self._per_batch([], []) for _ in split]
        names: list[NameRun] = [(f"Fe{k + 1}.", 0, batches) for k in range(count)]
        names += [(f"B{k + 1}.", 0, batches) for k in range(count)]
        names += [(f"W{k + 1}.", 0, batches) for k in split]
        time, types, times = self._times(split)
        total = len(names) * batches
        once = np.arange(total) >= count * batches  # gradients are added up: a second time would be wrong
        workspace = [[work.forward_workspace for work in works] for works in self.works]
        workspace += [[work.backward_workspace for work in works] for works in self.works]
        workspace += [workspace[count + k] for k in split]
        return TaskGraph(
            tasks=NumberedNames(names),
            values=NumberedNames(self.values.runs),
            time=time,
            size=np.concatenate(self.values.sizes),
            reads=_with(_joined(reads, batches), self._reads_of_slices()),
            writes=_with(_joined(writes, batches), self._writes_of_slices()),
            workspace=np.concatenate([self._of_batches(sizes) for sizes in workspace]),
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
            pairs=self._pairs(types),
            units=self.instance.units.build(),
        )

    def _pairs(self, types: tuple[str, ...]) -> PairTimes:
        """Return which tasks are forwards and (first halves of) backwards, and what two of them at once spare.

        Slices of sequences give no time for that, and spare nothing.
        """
        every = types or tuple(dict.fromkeys(self.instance.cluster.types))[:1]
        count, own = len(self.layers), [[works[0].spared_on(name) for works in self.works] for name in every]
        weights = sum(layer.is_split for layer in self.layers)
        spared = number_array(time for row in own for time in [*row, *row, *[0] * weights])
        side = np.repeat(np.array([1] * count + [2] * count + [0] * weights, dtype=np.int8), self.batches)
        return PairTimes(side, np.repeat(spared.reshape(len(own), -1), self.batches, axis=1))

    @staticmethod
    def _if(where: dict[int, int], layer: int) -> list[int]:
        return [where[layer]] if layer in where else []

    def _reads_of_forward(self, layer: int) -> tuple[IntArray, int]:
        return self._per_batch([self.x[source] for source in self.sources[layer]], [self.parameters["w"].get(layer)])

    def _reads_of_backward(self, layer: int) -> tuple[IntArray, int]:
        own = self.layers[layer].backward_reads
        wanted = self.instance.backward_reads if own is None else own
        # Whatever it reads of them, its forward comes first: the saved value, which may have no size, says so.
        gradients = [self.y[layer, reader] for reader in self.readers[layer]]
        per_batch = [self.s[layer], *gradients, *self._if(self.v, layer)]
        if "input" in wanted:
            per_batch += [self.x[source] for source in self.sources[layer]]
        if "output" in wanted:
            per_batch.append(self.x[layer])
        gradient = None if layer in self.v else self.parameters["g"].get(layer)
        return self._per_batch(per_batch, [self.parameters["w"].get(layer), gradient])

    def _per_batch(self, values: list[int], shared: list[int | None]) -> tuple[IntArray, int]:
        """Return a row for each micro-batch, flattened, and how long one is: its own values, and those of the layer."""
        fixed = [value for value in shared if value is not None]
        rows = np.empty((self.batches, len(values) + len(fixed)), dtype=np.int64)
        for column, first in enumerate(values):
            rows[:, column] = first + np.arange(self.batches)
        rows[:, len(values) :] = fixed
        return rows.ravel(), rows.shape[1]

    def _reads_of_slices(self) -> list[tuple[IntArray, IntArray]]:
        """Return what slices read of others of their sequence, as (tasks, values).

        Forwards and backwards read what the layer keeps of all slices before. The gradients of the keys and values of
        all slices but the last are there from the last one's backward on; each backward adds to those before its own,
        and waits (`q`) for that of the next slice.
        """
        if self.slices == 1:
            return []
        later, earlier = np.tril_indices(self.slices, -1)
        adding, up_to = np.tril_indices(self.slices - 1)
        ahead = np.arange(self.slices - 1)
        found: list[tuple[IntArray, IntArray]] = []
        for k in range(len(self.layers)):
            forward, backward = k * self.batches, (len(self.layers) + k) * self.batches
            found.append((self._tasks(forward + later), self._tasks(self.s[k] + earlier)))
            found.append((self._tasks(backward + later), self._tasks(self.s[k] + earlier)))
            found.append((self._tasks(backward + adding), self._others(self.c[k] + up_to)))
            found.append((self._tasks(backward + ahead), self._others(self.q[k] + ahead)))
        return found

    def _writes_of_slices(self) -> list[tuple[IntArray, IntArray]]:
        """Return what backwards of slices write for others of their sequence, as (tasks, values)."""
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

    def _times(self, split: list[int]) -> tuple[NumberArray, tuple[str, ...], NumberArray | None]:
        """Return the least time of each task, the types, and the times on each."""
        tasks = [(works, "forward_time") for works in self.works]
        tasks += [(works, "backward_time") for works in self.works]
        tasks += [(self.works[k], "weight_time") for k in split]
        types = tuple(dict.fromkeys(self.instance.cluster.types))
        able = {
            (id(work), name): work.work_on(name) is not None for works in self.works for work in works for name in types
        }
        table = [
            [work.time_on(phase, name) if able[id(work), name] else None for works, phase in tasks for work in works]
            for name in types
        ]
        least = [min(time for time in column if time is not None) for column in zip(*table, strict=True)]
        time = self._of_tasks(number_array(least))
        spared = [[works[0].spared_on(name) for works in self.works] for name in types]
        if all(row == least for row in table) and all(row == spared[0] for row in spared):
            return time, (), None
        rows = [number_array(CANNOT if one is None else one for one in row) for row in table]
        return time, types, np.array([self._of_tasks(row) for row in rows])

    def _of_tasks(self, listed: NumberArray) -> NumberArray:
        """Return figures of all tasks, of which those of each group's first micro-batches are given."""
        rows = listed.reshape(-1, self.slices)
        return np.tile(rows, (1, self.batches // self.slices)).ravel()


def _with(rows: Ragged, more: list[tuple[IntArray, IntArray]]) -> Ragged:
    """Add items at the ends of rows."""
    if not more:
        return rows
    where = np.concatenate((rows.rows, *(added for added, _ in more)))
    items = np.concatenate((rows.items, *(added for _, added in more)))
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(where, minlength=len(rows)))))
    return Ragged(start, items[np.argsort(where, kind="stable")])


def _joined(groups: list[tuple[IntArray, int]], batches: int) -> Ragged:
    """Put groups of rows, all of one length in a group, one after the other."""
    counts = np.repeat(np.array([width for _, width in groups], dtype=np.int64), batches)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return Ragged(start, np.concatenate([items for items, _ in groups]))
