"""Orders that need little memory: few micro-batches at a time, with the recomputation that takes the fewest bytes.

They depend on the instance alone, never on the budget. Therefore a budget that suffices for one of them also suffices
when it grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray, Layer, Orders, PipelineInstance, Stage
from remat_algorithms.joint.pipe_plan.encoding import Outline
from remat_algorithms.joint.pipe_plan.recompute_options import Level
from remat_algorithms.parallel.pipeline.model import in_groups, one_by_one

MOST_CELLS = 4_000_000
"""Maximum number of devices times layers squared for which layers are cut by their bytes."""


def small_orders(outlines: Sequence[Outline]) -> Iterator[Orders]:
    """Yield orders of all outlines for each choice of what is recomputed, the most frugal choice first."""
    tried: set[tuple[int, tuple[int, ...]]] = set()
    for choice in (_whole_backward, _forward_too, _held, _nothing):
        for number, outline in enumerate(outlines):
            chosen = tuple(min(range(len(levels)), key=lambda k: (choice(levels[k]), k)) for levels in outline.levels)
            if (number, chosen) in tried:
                continue
            tried.add((number, chosen))
            level: IntArray = np.repeat(np.array(chosen, dtype=np.int64)[:, None], outline.model.batches, axis=1)
            yield outline.orders(one_by_one(outline.model), level, np.zeros_like(level))


def grouped_orders(outlines: Sequence[Outline], size: int) -> Iterator[Orders]:
    """Yield orders that run groups of micro-batches after each other.

    In a group, all micro-batches recompute alike, or the first one recomputes nothing, since its backward is the first.
    """

    def in_all(level: Level) -> int:
        return (size - 1) * level.held + _forward_too(level)

    for outline in outlines:
        frugal = [min(range(len(levels)), key=lambda k: (in_all(levels[k]), k)) for levels in outline.levels]
        lists = in_groups(outline.model, size)
        for keeping in (True, False):
            level: IntArray = np.repeat(np.array(frugal, dtype=np.int64)[:, None], outline.model.batches, axis=1)
            if keeping:
                level[:, ::size] = 0
            yield outline.orders(lists, level, np.zeros_like(level))


def _whole_backward(level: Level) -> int:
    return level.held + level.backward


def _forward_too(level: Level) -> int:
    return max(level.forward, level.held + level.backward)


def _held(level: Level) -> int:
    return level.held


def _nothing(level: Level) -> int:
    return len(level.segments)


def cut_by_bytes(instance: PipelineInstance) -> tuple[Stage, ...] | None:
    """Return one stage for each device, so that the largest need of a device is the smallest possible.

    Returns
    -------
    tuple of Stage or None
        None if there are too few layers, too many for the table, or no cut in which all devices can run their layers.

    Notes
    -----
    A stage needs its parameters, gradients and states, its inputs, and the bytes of its largest layer: the others are
    recomputed. A table over devices and layers, O(devices * layers^2).
    """
    layers, types = instance.each_layer(), instance.device_types
    count, devices = len(layers), len(types)
    if count < devices or devices * count**2 > MOST_CELLS:
        return None
    static = np.cumsum([0, *(float(sum(layer.of_parameters)) for layer in layers)])
    large = np.array([_bytes_of(layer) for layer in layers], dtype=np.float64)
    held = np.cumsum([0, *(float(layer.output_size) for layer in layers)])
    # The need of a stage from each layer (row) to each end (column).
    need = np.full((count, count + 1), np.inf)
    for first in range(count):
        most = np.maximum.accumulate(large[first:])
        need[first, first + 1 :] = static[first + 1 :] - static[first] + held[first + 1 :] - held[first] + most
    best, came = np.full(count + 1, np.inf), list[IntArray]()
    best[0] = 0.0
    for name in types:
        able = _able(layers, name)
        trial = np.where(able, np.maximum(best[:-1, None], need), np.inf)
        came.append(np.argmin(trial, axis=0))
        best = trial.min(axis=0)
    if not np.isfinite(best[count]):
        return None
    ends = [count]
    for before in reversed(came):
        ends.append(int(before[ends[-1]]))
    return tuple(
        Stage(tuple(range(first, end)), device)
        for device, (first, end) in enumerate(zip(ends[::-1], ends[-2::-1], strict=False))
    )


def _bytes_of(layer: Layer) -> int:
    workspace = max(layer.forward_workspace, layer.backward_workspace)
    return layer.saved_size + max(0, layer.weight_saved_size) + layer.output_size + layer.gradient_bytes + workspace


def _able(layers: Sequence[Layer], name: str) -> NDArray[np.bool_]:
    """Return whether a type of device can run the layers from each one (row) to each end (column)."""
    count = len(layers)
    stop = np.full(count + 1, count)
    for index in range(count - 1, -1, -1):
        stop[index] = index if layers[index].work_on(name) is None else stop[index + 1]
    return np.arange(count + 1)[None, :] <= stop[:count, None]
