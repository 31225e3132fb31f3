"""Partition of layers into consecutive parts that minimises the time of the slowest part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from remat.plugin import Layer, Number, OptionError, PipelineInstance

MOST_EVENED = 3_000
"""Maximum number of parts times layers for which cuts are also balanced by their squares."""


@dataclass(frozen=True)
class Work:
    """Cumulative times of the layers on one type of device.

    Attributes
    ----------
    until : (layers + 1,) list
        Time of the forwards and backwards of the layers before each; layers that cannot run count 0.
    stop : (layers + 1,) list of int
        For each layer, the first layer from it on that cannot run.
    """

    until: list[Number]
    stop: list[int]

    @staticmethod
    def of(layers: Sequence[Layer], device: str) -> Work:
        """Sum the times on a type of device."""
        times: list[Number] = []
        stop = [len(layers)]
        for layer in layers:
            taken = layer.work_on(device)
            times.append(-1 if taken is None else taken)
        for index in range(len(layers) - 1, -1, -1):
            stop.append(index if times[index] < 0 else stop[-1])
        return Work([0, *accumulate(max(0, time) for time in times)], stop[::-1])

    def last(self, first: int, limit: Number) -> int:
        """Return the end of the longest part from `first` that can run there within the limit."""
        return min(bisect_right(self.until, self.until[first] + limit) - 1, self.stop[first])

    def time(self, first: int, end: int) -> Number:
        """Return the time of a part."""
        return self.until[end] - self.until[first]


def balanced_cuts(instance: PipelineInstance, homes: Sequence[Sequence[int]]) -> list[int]:
    """Cut the layers into one part for each entry of `homes`, the devices (by index) that hold it.

    Returns
    -------
    list of int
        Part i is layers cuts[i] .. cuts[i+1]-1. Of all cuts into nonempty parts, these minimise the time of the slowest
        part for one micro-batch, on the slowest of its devices. Of those, they minimise the sum of squares.

    Raises
    ------
    OptionError
        If there are more parts than layers, or the devices cannot run the layers in this order.

    Notes
    -----
    Bisection of that time, with O(parts x layers) per step for the possible ends of each part. Then a table with
    O(parts x layers^2) array operations (after Bellman 1961), which is skipped above `MOST_EVENED` entries.
    """
    layers, types = instance.each_layer(), instance.device_types
    if len(homes) > len(layers):
        raise OptionError(
            f"it cuts the layers into {len(homes)} stages of at least one layer each, but the instance has only "
            f"{len(layers)} layers; use fewer devices, or fewer chunks",
            argument="algorithm",
        )
    work = {name: Work.of(layers, name) for name in dict.fromkeys(types)}
    of_part = [[work[name] for name in dict.fromkeys(types[device] for device in devices)] for devices in homes]
    low: Number = 0
    best = _cut(of_part, len(layers), max(one.until[-1] for one in work.values()))
    if best is None:
        raise OptionError("these devices cannot run the layers in this order", argument="algorithm")
    while True:
        high = max(
            one.time(first, end)
            for first, end, works in zip(best[:-1], best[1:], of_part, strict=True)
            for one in works
        )
        middle = (low + high) // 2 if isinstance(high, int) and isinstance(low, int) else (low + high) / 2
        if not low < high or high - low <= 1e-12 * high:
            return _evened(of_part, len(layers), high) or best
        found = _cut(of_part, len(layers), middle)
        if found is not None:
            best = found
        elif isinstance(middle, int):
            low = middle + 1
        else:
            low = middle


def _cut(of_part: Sequence[Sequence[Work]], layers: int, limit: Number) -> list[int] | None:
    """Return cuts whose parts all stay within the limit; None without any."""
    came: list[list[int]] = []
    reached = [True] + [False] * layers
    for works in of_part:
        before = [-1] * (layers + 1)
        marked = 0
        for first in range(layers):
            if reached[first]:
                last = min(one.last(first, limit) for one in works)
                for index in range(max(marked, first) + 1, last + 1):
                    before[index] = first
                marked = max(marked, last)
        came.append(before)
        reached = [index >= 0 for index in before]
    if not reached[layers]:
        return None
    cuts = [layers]
    for before in reversed(came):
        cuts.append(before[cuts[-1]])
    return cuts[::-1]


def _evened(of_part: Sequence[Sequence[Work]], layers: int, limit: Number) -> list[int] | None:
    """Return the cuts with the smallest sum of squares among those whose parts all stay within the limit."""
    if len(of_part) * layers > MOST_EVENED:
        return None
    best = np.full(layers + 1, np.inf)
    best[0] = 0.0
    came: list[list[int]] = []
    for works in of_part:
        until = np.array([one.until for one in works], dtype=np.float64)
        reach = np.array([min(one.last(first, limit) for one in works) for first in range(layers)])
        following = np.full(layers + 1, np.inf)
        before = [-1] * (layers + 1)
        for end in range(1, layers + 1):
            loads = (until[:, end, None] - until[:, :end]).max(axis=0)
            costs = np.where(reach[:end] >= end, best[:end] + loads**2, np.inf)
            before[end] = int(np.argmin(costs))
            following[end] = costs[before[end]]
        came.append(before)
        best = following
    if not np.isfinite(best[layers]):
        return None
    cuts = [layers]
    for before in reversed(came):
        cuts.append(before[cuts[-1]])
    return cuts[::-1]
