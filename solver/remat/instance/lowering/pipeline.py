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
    from remat.instance.pipeline import Layer, PipelineInstance

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
        count = len(self.layers)
        self.x = [self._of_layer("x", k, layer.output_size) for k, layer in enumerate(self.layers)]
        # What the second half of a backward keeps is a part of what the forward saved, and is not there twice.
        self.s = [
            self._of_layer("s", k, layer.saved_size - min(layer.saved_size, layer.weight_saved_size))
            for k, layer in enumerate(self.layers)
        ]
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
                np.full(self.batches, self.layers[k].gradient_bytes, dtype=np.int64),
            )
            for k, readers in enumerate(self.readers)
            for reader in readers
        }
        split = [k for k in range(count) if self.layers[k].is_split]
        self.v = {
            k: self._of_layer("v", k, min(self.layers[k].saved_size, self.layers[k].weight_saved_size)) for k in split
        }
        self.e = {
            k: self._of_layer("e", k, max(0, self.layers[k].weight_saved_size - self.layers[k].saved_size))
            for k in split
        }
        self.parameters = {
            name: {
                k: self.values.add(name, k + 1, [sizes[part]])
                for k, sizes in enumerate(self._parameters())
                if sizes[part]
            }
            for part, name in enumerate("wgo")
        }

    def _parameters(self) -> list[tuple[int, int, int]]:
        return [layer.of_parameters for layer in self.layers]

    def _of_layer(self, name: str, layer: int, size: int) -> int:
        return self.values.add(f"{name}{layer + 1}.", 0, np.full(self.batches, size, dtype=np.int64))

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
        workspace = [layer.forward_workspace for layer in layers] + [layer.backward_workspace for layer in layers]
        workspace += [layers[k].backward_workspace for k in split]
        return TaskGraph(
            tasks=NumberedNames(names),
            values=NumberedNames(self.values.runs),
            time=time,
            size=np.concatenate(self.values.sizes),
            reads=_joined(reads, batches),
            writes=_joined(writes, batches),
            workspace=np.repeat(np.array(workspace, dtype=np.int64), batches),
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
        """Return which tasks are forwards and (first halves of) backwards, and what two of them at once spare."""
        every = types or tuple(dict.fromkeys(self.instance.cluster.types))[:1]
        count, own = len(self.layers), [[layer.spared_on(name) for layer in self.layers] for name in every]
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

    def _times(self, split: list[int]) -> tuple[NumberArray, tuple[str, ...], NumberArray | None]:
        """Return the least time of each task, the types, and the times on each."""
        tasks: list[tuple[Layer, str]] = [(layer, "forward_time") for layer in self.layers]
        tasks += [(layer, "backward_time") for layer in self.layers]
        tasks += [(self.layers[k], "weight_time") for k in split]
        types = tuple(dict.fromkeys(self.instance.cluster.types))
        able = {
            (id(layer), name)
            for layer in self.instance.layers
            for name in types
            if all(layer.time_on(phase, name) is not None for phase in ("forward_time", "backward_time", "weight_time"))
        }
        table = [
            [layer.time_on(phase, name) if (id(layer), name) in able else None for layer, phase in tasks]
            for name in types
        ]
        least = [min(time for time in column if time is not None) for column in zip(*table, strict=True)]
        time = np.repeat(number_array(least), self.batches)
        spared = [[layer.spared_on(name) for layer in self.instance.layers] for name in types]
        if all(row == least for row in table) and all(row == spared[0] for row in spared):
            return time, (), None
        rows = [number_array(CANNOT if one is None else one for one in row) for row in table]
        return time, types, np.repeat(np.array(rows), self.batches, axis=1)


def _joined(groups: list[tuple[IntArray, int]], batches: int) -> Ragged:
    """Put groups of rows, all of one length in a group, one after the other."""
    counts = np.repeat(np.array([width for _, width in groups], dtype=np.int64), batches)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return Ragged(start, np.concatenate([items for items, _ in groups]))
