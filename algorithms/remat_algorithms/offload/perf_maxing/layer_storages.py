"""The view of a training graph in `auto-perf-maxing`: storages by layer, and peaks of the remaining values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat.plugin import Number
from remat_algorithms.dag.layering import OUTSIDE, Layering
from remat_algorithms.dag.literature.retention_phases import Training


@dataclass(frozen=True, slots=True)
class Node:
    """A forward task of a layer, with those of its values that the backward reads and that need not stay.

    Attributes
    ----------
    stage : int
        Its forward stage.
    values : tuple of int
    size : int
        Bytes of these.
    time : number
        Time of the task alone. The policy does not count recomputation of its inputs.
    alone : bool
        Whether the task writes one value; only such values are offloaded.
    """

    stage: int
    values: tuple[int, ...]
    size: int
    time: Number
    alone: bool


@dataclass(frozen=True)
class Storages:
    """The policy's view of a training graph.

    Attributes
    ----------
    training : Training
    layering : Layering
    """

    training: Training
    layering: Layering

    def is_activation(self, value: int) -> bool:
        """Whether the forward produces a value and its last reader is in the backward; outputs stay anyway."""
        maker = self.training.stages.maker[value]
        if not 0 <= maker < self.training.forward or value in self.training.stages.ends:
            return False
        return bool(self.training.backward_uses[value])

    def stays(self, value: int) -> bool:
        """Whether an activation always stays: it cannot be recomputed, or other layers' forwards read it."""
        stages, layer = self.training.stages, self.layering.layer
        mine = layer[stages.maker[value]]
        return bool(stages.fixed[value]) or any(layer[use] != mine for use in self.training.forward_uses[value])

    @cached_property
    def nodes(self) -> list[list[Node]]:
        """The nodes of each layer, in the order of the forward."""
        return [[node for stage in stages if (node := self._node(stage)).values] for stages in self._forward]

    @cached_property
    def _forward(self) -> list[list[int]]:
        return self.layering.stages_of(self.training)

    def _node(self, stage: int) -> Node:
        stages = self.training.stages
        values = tuple(value for value in stages.writes[stage] if self.is_activation(value) and not self.stays(value))
        size = sum(stages.size[value] for value in values)
        return Node(stage, values, size, stages.time[stage], len(stages.writes[stage]) == 1)

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes that each layer saves."""
        free = (sum(node.size for node in nodes) for nodes in self.nodes)
        return [size + stay for size, stay in zip(free, self.staying, strict=True)]

    @cached_property
    def staying(self) -> list[int]:
        """Bytes of these that always stay."""
        stages = self.training.stages
        found = []
        for layer in self._forward:
            written = [value for stage in layer for value in stages.writes[stage]]
            found.append(sum(stages.size[v] for v in written if self.is_activation(v) and self.stays(v)))
        return found

    @cached_property
    def forward_time(self) -> float:
        """Time of a layer's forward, on average."""
        return self._mean(stage for stages in self._forward for stage in stages)

    @cached_property
    def backward_time(self) -> float:
        """Time of a layer's backward, on average."""
        layer, forward = self.layering.layer, self.training.forward
        return self._mean(stage for stage in range(forward, len(layer)) if layer[stage] != OUTSIDE)

    def _mean(self, stages: Iterable[int]) -> float:
        return float(sum(self.training.stages.time[stage] for stage in stages)) / max(1, self.layering.count)

    @cached_property
    def behind(self) -> int:
        """The first forward stage after the last layer: head and loss begin there."""
        return max((stages[-1] + 1 for stages in self._forward if stages), default=self.training.forward)

    @cached_property
    def backward_waters(self) -> list[int]:
        """Maximum bytes of values produced by the backward that are resident while each layer's backward runs."""
        forward = self.training.forward
        made = [value for value, maker in enumerate(self.training.stages.maker) if maker >= forward]
        water, found = self._live(made), [0] * self.layering.count
        for stage in range(forward, len(self.layering.layer)):
            layer = self.layering.layer[stage]
            if layer != OUTSIDE:
                found[layer] = max(found[layer], int(water[stage]))
        return found

    @cached_property
    def head_water(self) -> int:
        """Maximum bytes of values from head and loss, including those of the backward before the last layer's."""
        layer, forward = self.layering.layer, self.training.forward
        last = next((s for s in range(forward, len(layer)) if layer[s] == self.layering.count - 1), len(layer))
        made = [value for value, maker in enumerate(self.training.stages.maker) if self.behind <= maker < last]
        return int(self._live(made)[:last].max(initial=0))

    def _live(self, values: Sequence[int]) -> np.ndarray:
        """Bytes of some values during each stage, from production to last use."""
        stages = self.training.stages
        change = np.zeros(len(stages) + 1, dtype=np.int64)
        for value in values:
            maker = stages.maker[value]
            last = len(stages) - 1 if value in stages.ends else max(stages.readers[value], default=maker)
            change[maker] += stages.size[value]
            change[max(last, maker) + 1] -= stages.size[value]
        water: np.ndarray = np.cumsum(change)[:-1]
        return water

    def signature(self, layer: int) -> tuple[tuple[int, Number, bool], ...]:
        """Return the key that equal layers share."""
        return tuple((node.size, node.time, node.alone) for node in self.nodes[layer])
