"""Layers of a training graph, found by the names of modules or tasks, or by narrow points of the forward.

Layer-by-layer rules need to know where a layer begins and ends, and a task graph does not contain this information.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from remat_algorithms.dag.literature.retention_phases import Training

OUTSIDE = -1
"""The layer of a stage that belongs to no layer."""

NUMBER = re.compile(r"(?:^|(?<=[._/]))\d+(?=[._/]|$)")

LEAST_MEAN = 6
"""Minimum mean number of forward tasks per layer for a division by a further number in the names."""

FEWEST = 1.5
"""Minimum mean number of forward tasks per layer; below it, the names carry no information about layers."""

NEARLY_ALL = 0.9
"""Minimum share of the names inside layers that have a further number, for a division by that number."""


@dataclass(frozen=True)
class Layering:
    """The layer of each task.

    Attributes
    ----------
    layer : tuple of int
        One for each stage (`Training.stages`), forward and backward; `OUTSIDE` for those that belong to no layer.
    count : int
        Number of layers, in the order of the forward.
    """

    layer: tuple[int, ...]
    count: int

    def stages_of(self, training: Training) -> list[list[int]]:
        """Return the forward stages of each layer."""
        found: list[list[int]] = [[] for _ in range(self.count)]
        for stage, layer in enumerate(self.layer[: training.forward]):
            if layer != OUTSIDE:
                found[layer].append(stage)
        return found


def layers_of(training: Training, how: str, count: int = 0) -> Layering:
    """Find the layers of a training graph.

    Parameters
    ----------
    training : Training
    how : {"names", "narrow"}
        "names": divide by names if these give at least two layers, else at narrow points. "narrow": at narrow points.
    count : int
        Number of layers between narrow points; 0: about the square root of the number of forward tasks.
    """
    if how == "names":
        found = by_names(training)
        if found.count > 1:
            return found
    return by_narrow_points(training, count or max(2, isqrt(training.forward)))


# --- names ------------------------------------------------------------------------------------------------------------


def by_names(training: Training) -> Layering:
    """Divide by numbers in names: ``transformer.h.3.mlp`` belongs to layer ``transformer.h.3``.

    The names are those of modules (`TaskGraph.modules`) if the graph has any, else those of tasks. A name may contain
    several numbers. They count from the left, while nearly all names have the next one and the layers keep at least
    `LEAST_MEAN` forward tasks on average. A layer ends where the tasks of another layer begin. If hardly any two tasks
    share a layer, the names are ignored. In a chain, each stage is a layer.
    """
    graph, stages = training.stages.graph, training.stages
    modules = graph.modules if graph.modules is not None and any(graph.modules) else None
    names = [graph.tasks[task] if modules is None else modules[task] for task in stages.tasks]
    if training.lean:
        return _numbered(training, [_stage_of_chain(graph.tasks[task]) for task in stages.tasks])
    numbers = [len(NUMBER.findall(name)) for name in names[: training.forward]]
    chosen = _numbered(training, _keys(names, 1))
    for level in range(2, 1 + max(numbers, default=0)):
        finer = _numbered(training, _keys(names, level))
        inside = sum(layer != OUTSIDE for layer in finer.layer[: training.forward])
        deep = sum(number >= level for number in numbers)
        if deep < NEARLY_ALL * inside or inside < LEAST_MEAN * finer.count:
            break
        chosen = finer
    inside = sum(layer != OUTSIDE for layer in chosen.layer[: training.forward])
    return chosen if inside >= FEWEST * chosen.count else Layering((OUTSIDE,) * len(stages), 0)


def _keys(names: Sequence[str], level: int) -> list[str | None]:
    """Return each name up to its number of a given level, or up to its last number; None if it has no number."""
    found: list[str | None] = []
    for name in names:
        ends = [match.end() for match in NUMBER.finditer(name)]
        found.append(name[: ends[min(level, len(ends)) - 1]] if ends else None)
    return found


def _stage_of_chain(name: str) -> str | None:
    """Return the number of the stage in F7, Fe7.2 or B7."""
    digits = name.lstrip("FeB").partition(".")[0]
    return digits if digits.isdecimal() else None


def _numbered(training: Training, keys: Sequence[str | None]) -> Layering:
    """Number the layers in the order of the forward; backward tasks without a key follow the values that they read."""
    layer: list[int] = []
    latest: dict[str, int] = {}
    last: str | None = None
    count = 0
    for key in keys[: training.forward]:
        if key is None:
            layer.append(OUTSIDE)
            continue
        if key != last:
            latest[key] = count
            count += 1
            last = key
        layer.append(latest[key])
    return Layering((*layer, *_backward(training, layer, [latest.get(k or "", OUTSIDE) for k in keys])), count)


# --- narrow points ----------------------------------------------------------------------------------------------------


def by_narrow_points(training: Training, count: int) -> Layering:
    """Cut the forward into layers of about equal time, at points that the smallest number of bytes crosses.

    The search for the i-th cut covers half a layer on either side of its position by time. O(count + accesses).
    """
    stages, forward = training.stages, training.forward
    if forward < 2:
        return Layering((OUTSIDE,) * len(stages), 0)
    crossing = np.zeros(forward + 1, dtype=np.int64)
    for value, maker in enumerate(stages.maker):
        uses = training.forward_uses[value]
        if 0 <= maker < forward and uses and uses[-1] > maker:
            crossing[maker] += stages.size[value]
            crossing[uses[-1]] -= stages.size[value]
    crossing = np.cumsum(crossing)[: forward - 1]  # after each stage except the last
    ends = np.cumsum(np.array(stages.time[:forward], dtype=np.float64))
    total = float(ends[-1]) or 1.0
    cuts: list[int] = []
    for index in range(1, count):
        low, high = (int(np.searchsorted(ends, total * (index + side) / count)) for side in (-0.5, 0.5))
        first = max(low, cuts[-1] + 1 if cuts else 0)
        window = crossing[first : max(first, high) + 1]
        if len(window):
            cuts.append(first + int(window.argmin()))
    layer = [0] * forward
    number = 0
    for stage in range(forward):
        layer[stage] = number
        number += number < len(cuts) and stage == cuts[number]
    return Layering((*layer, *_backward(training, layer, [OUTSIDE] * len(stages))), number + 1)


def _backward(training: Training, forward: Sequence[int], known: Sequence[int]) -> list[int]:
    """Return the layer of each backward stage: the one given by its name, else the last one whose values it reads.

    A stage that reads no value of a layer belongs to the layer of the stage before it.
    """
    stages, found = training.stages, list[int]()
    before = OUTSIDE
    for stage in range(training.forward, len(stages)):
        mine = known[stage]
        if mine == OUTSIDE:
            makers = [stages.maker[value] for value in stages.reads[stage]]
            mine = max((forward[maker] for maker in makers if 0 <= maker < training.forward), default=before)
        found.append(mine)
        before = mine
    return found
