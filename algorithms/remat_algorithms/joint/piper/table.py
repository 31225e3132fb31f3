"""Piper's dynamic program over rows of layers: stages, tensor and data degrees, and recomputed layers.

After Tarnawski et al. 2021 ("Piper: multidimensional planner for DNN parallelization"), for layers in a row. A(i, k, s)
is the minimum over plans of the maximum load of a stage, for the layers from i on, on k devices, in stages whose data
degrees sum to s:

    A(i, k, s) = min over j > i, t, d of max(A(j, k - t d, s - d), load(i..j, t, d, y)),    y = ceil(s / d)

Here d copies of t devices each run the layers i .. j-1. Each copy holds y micro-batches: it starts that many before the
first one returns. A load is a d-th of a micro-batch's work and transfers, plus the copies' exchange. For each layer the
program chooses one option. The memory of a device must hold y times the bytes that the options hold per micro-batch,
plus the bytes that they hold throughout. Among the choices that fit, the program takes the fastest. The front of
(bytes, time) is exact unless it exceeds `MOST_POINTS`.

O(layers^2 x devices^2 x degrees) array operations for the table, plus layers^2 x degrees x devices fronts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MOST_POINTS = 512
"""Maximum number of points of a front; larger fronts keep evenly spaced points, and the one with minimum bytes."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Way:
    """An option to run a layer: time of a micro-batch, bytes for each in flight, and bytes throughout."""

    time: float
    held: float
    fixed: float


@dataclass(frozen=True)
class Rows:
    """Layers in a row, for each number of devices that run them together.

    Attributes
    ----------
    ways : mapping of tensor degree to a sequence of ways for each layer
    crossing : mapping of tensor degree to an (n + 1, n + 1) array
        Time of all transfers of a micro-batch into and out of the layers i .. j-1, in both directions.
    exchange : mapping of (tensor degree, data degree) to an (n + 1,) array
        Time in which copies of the layers before each one sum their gradients, per micro-batch of the step.
    devices : int
    room : float
        Bytes of each device.
    copies : sequence of int
        Possible data degrees, including 1.
    """

    ways: dict[int, Sequence[Sequence[Way]]]
    crossing: dict[int, Floats]
    exchange: dict[tuple[int, int], Floats]
    devices: int
    room: float
    copies: Sequence[int]

    @property
    def length(self) -> int:
        """Number of layers."""
        return len(next(iter(self.ways.values())))


@dataclass(frozen=True, slots=True)
class Part:
    """Layers first .. end - 1 on `copies` groups of `tensor` devices; the option of each layer."""

    first: int
    end: int
    tensor: int
    copies: int
    flight: int
    ways: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Parts, and their maximum load."""

    parts: tuple[Part, ...]
    load: float


@dataclass
class _Fronts:
    """For each tensor degree, micro-batches in flight and first layer: the minimum time of each interval that fits."""

    rows: Rows
    known: dict[tuple[int, int, int], Floats] = field(default_factory=dict[tuple[int, int, int], Floats])

    def times(self, tensor: int, flight: int, first: int) -> Floats:
        """Return the minimum time of the layers first .. j-1, for all j; infinite if they do not fit."""
        key = tensor, flight, first
        if key not in self.known:
            found = np.full(self.rows.length + 1, np.inf)
            for end, (_, time, _, _) in enumerate(self._walk(tensor, flight, first, self.rows.length), first + 1):
                found[end] = time.min()
            self.known[key] = found
        return self.known[key]

    def chosen(self, tensor: int, flight: int, first: int, end: int) -> tuple[int, ...]:
        """Return the option of each layer of an interval that fits."""
        walked = self._walk(tensor, flight, first, end)
        at = int(walked[-1][1].argmin())
        found: list[int] = []
        for _, _, came, way in reversed(walked):
            found.append(int(way[at]))
            at = int(came[at])
        return tuple(reversed(found))

    def _walk(self, tensor: int, flight: int, first: int, end: int) -> list[tuple[Floats, Floats, Ints, Ints]]:
        """Return the fronts after each layer: bytes (ascending), time (descending), predecessor, and last option."""
        bytes_, time = np.zeros(1), np.zeros(1)
        found: list[tuple[Floats, Floats, Ints, Ints]] = []
        for layer in range(first, end):
            ways = self.rows.ways[tensor][layer]
            more = np.array([(way.held * flight + way.fixed, way.time) for way in ways]).reshape(-1, 2)
            count = len(bytes_)
            bytes_ = (more[:, :1] + bytes_).ravel()
            time = (more[:, 1:] + time).ravel()
            order = np.lexsort((time, bytes_))
            order = order[bytes_[order] <= self.rows.room]
            if not len(order):
                break
            best = np.minimum.accumulate(time[order])
            order = order[np.concatenate(([True], best[1:] < best[:-1]))]
            if len(order) > MOST_POINTS:
                order = order[np.linspace(0, len(order) - 1, MOST_POINTS).astype(np.int64)]
            bytes_, time = bytes_[order], time[order]
            found.append((bytes_, time, order % count, order // count))
        return found


def best_split(rows: Rows) -> Split | None:
    """Return the split of minimum maximum load; None if no split fits."""
    count, devices = rows.length, rows.devices
    fronts = _Fronts(rows)
    ways = [
        (tensor, copies) for tensor in sorted(rows.ways) for copies in sorted(rows.copies) if tensor * copies <= devices
    ]
    table = np.full((count + 1, devices + 1, devices + 1), np.inf)
    table[count, :, 0] = 0
    choice: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for first in range(count - 1, -1, -1):
        for total in range(1, devices + 1):
            best = np.full(devices + 1, np.inf)
            of: list[tuple[int, int, int]] = [(0, 0, 0)] * (devices + 1)
            for tensor, copies in ways:
                used = tensor * copies
                if copies > total:
                    continue
                load = _loads(rows, fronts, first, (tensor, copies), -(-total // copies))
                rest = table[first + 1 :, : devices + 1 - used, total - copies]
                figures = np.maximum(load[:, None], rest)
                end = figures.argmin(axis=0)
                least = figures[end, np.arange(figures.shape[1])]
                for k in np.flatnonzero(least < best[used:]).tolist():
                    best[used + k] = least[k]
                    of[used + k] = first + 1 + int(end[k]), tensor, copies
            table[first, :, total] = best
            choice[first, total] = of
    total = int(table[0, devices].argmin())
    largest = float(table[0, devices, total])
    if largest == np.inf:
        return None
    parts: list[Part] = []
    first, left = 0, devices
    while first < count:
        end, tensor, copies = choice[first, total][left]
        flight = -(-total // copies)
        parts.append(Part(first, end, tensor, copies, flight, fronts.chosen(tensor, flight, first, end)))
        first, left, total = end, left - tensor * copies, total - copies
    return Split(tuple(parts), largest)


def _loads(rows: Rows, fronts: _Fronts, first: int, way: tuple[int, int], flight: int) -> Floats:
    """Return the load of a stage that begins with a layer, for each end after it."""
    tensor, copies = way
    times = fronts.times(tensor, flight, first)[first + 1 :]
    sums = rows.exchange[way]
    found: Floats = (times + rows.crossing[tensor][first, first + 1 :]) / copies + sums[first + 1 :] - sums[first]
    return found
