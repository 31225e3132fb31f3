"""Typical manual splits: units in order, cut in proportion to memories or to speeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from remat_algorithms.parallel.placement.model import Model


def shares(model: Model) -> Iterator[list[int]]:
    """Yield a split by memory, if all are limited, and one by speed; omit splits with units that cannot run.

    O(units + processors) each.
    """
    rooms = [model.room[memory] for memory in model.memory_of]
    if all(room is not None for room in rooms):
        yield from _cut(model, [float(max(0, room or 0)) for room in rooms])
    least = model.time.min(axis=0)
    work = float(least.sum())
    yield from _cut(model, [work / total if 0 < (total := float(own.sum())) < math.inf else 0.0 for own in model.time])


def _cut(model: Model, weights: Sequence[float]) -> Iterator[list[int]]:
    total = sum(weights)
    if not 0 < total < math.inf:
        return
    ends = [sum(weights[: processor + 1]) / total for processor in range(len(weights))]
    placed = [
        next(processor for processor, end in enumerate(ends) if (unit + 0.5) / model.units <= end + 1e-12)
        for unit in range(model.units)
    ]
    if all(math.isfinite(model.time[processor, unit]) for unit, processor in enumerate(placed)):
        yield placed
