"""Prefix sums of layers, devices and their connections for the planners, independent of instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray, Number
from remat_algorithms.parallel.pipeline.planners.simulation import Way

FloatArray = NDArray[Any]


@dataclass(frozen=True)
class Row:
    """Bytes of n layers in a row; entry k refers to the layers before layer k.

    Attributes
    ----------
    activation : (n + 1,) int64
        Cumulative bytes that layers hold of a micro-batch from its forward to its backward.
    entry : (n + 1,) int64
        Additional bytes of a stage that begins with layer k: its input.
    fixed : (n + 1,) int64
        Cumulative permanent bytes of layers: parameters, their gradients, the optimizer's state.
    """

    activation: IntArray
    entry: IntArray
    fixed: IntArray

    @property
    def length(self) -> int:
        """Number of layers."""
        return len(self.fixed) - 1

    @staticmethod
    def of(activation: Sequence[int], fixed: Sequence[int]) -> Row:
        """Sum the bytes of layers whose stages hold no additional bytes."""
        return Row(sums(activation, np.int64), np.zeros(len(fixed) + 1, dtype=np.int64), sums(fixed, np.int64))

    def held(self, first: int, end: int) -> int:
        """Return the bytes that a stage holds of a micro-batch."""
        return int(self.activation[end] - self.activation[first] + self.entry[first])

    def kept(self, first: int, end: int) -> int:
        """Return the bytes that a stage always keeps."""
        return int(self.fixed[end] - self.fixed[first])


@dataclass(frozen=True, eq=False)
class Hop:
    """The connection from one device to the next and back, at each cut k (after k layers); 0 at the ends of the row.

    Two hops are equal only if they are the same object.

    Attributes
    ----------
    there, back : (n + 1,) float64
        Time until an output, or its gradient, has arrived.
    busy_there, busy_back : (n + 1,) float64
        Time for which it occupies the channel.
    """

    there: FloatArray
    back: FloatArray
    busy_there: FloatArray
    busy_back: FloatArray

    @staticmethod
    def of(times: Sequence[Number]) -> Hop:
        """Return a hop with these times at the inner cuts, equal in both directions, that always occupy the channel."""
        whole = np.array([0, *times, 0], dtype=np.float64)
        return Hop(whole, whole, whole, whole)

    def at(self, cut: int) -> Way:
        """Return the hop at a cut for the simulation, with integers where times are integers."""
        times = (self.busy_there, self.there, self.busy_back, self.back)
        busy_there, there, busy_back, back = (_number(float(time[cut])) for time in times)
        return Way(busy_there, there - busy_there, busy_back, back - busy_back)

    @property
    def both(self) -> FloatArray:
        """Time until a result has arrived and its gradient has returned."""
        return self.there + self.back

    @property
    def busy(self) -> FloatArray:
        """Time for which both directions occupy the channel."""
        return self.busy_there + self.busy_back


@dataclass(frozen=True)
class Position:
    """A device at its place in the row.

    Attributes
    ----------
    work : (n + 1,) float64
        Cumulative time of forwards and backwards on it.
    stop : (n + 1,) int64
        For each layer, the first layer from it on that the device cannot run; n without any.
    room : int or None
        Memory in bytes; None means unlimited.
    flight : int or None
        Number of micro-batches that a stage on it holds. None means as in 1F1B: min(k, m) for the k-th stage from the
        end.
    """

    work: FloatArray
    stop: IntArray
    room: int | None = None
    flight: int | None = None

    @staticmethod
    def of(work: Sequence[Number], room: int | None = None) -> Position:
        """Return a device that runs all layers in these times."""
        return Position(sums(work, np.float64), np.full(len(work) + 1, len(work), dtype=np.int64), room)


@dataclass(frozen=True)
class Line:
    """Layers, and devices in the order in which micro-batches pass them.

    Attributes
    ----------
    row : Row
    positions : tuple of Position
    hops : tuple of Hop
        Connections between consecutive devices.
    batches : int
        Micro-batches of a step.
    alike : bool
        Whether all devices and all hops are identical, so that all parts of the line are equivalent.
    longest : float
        Stages with more work are excluded.
    """

    row: Row
    positions: tuple[Position, ...]
    hops: tuple[Hop, ...]
    batches: int
    alike: bool = False
    longest: float = float("inf")

    @staticmethod
    def of(row: Row, position: Position, hop: Hop, count: int, batches: int) -> Line:
        """Return a line of identical devices."""
        return Line(row, (position,) * count, (hop,) * (count - 1), batches, alike=True)

    def first(self, count: int) -> Line:
        """Return the line of the first devices."""
        return replace(self, positions=self.positions[:count], hops=self.hops[: count - 1])

    def after(self, place: int) -> Hop:
        """Return the hop after a device; for the last one, a zero hop."""
        return self.hops[place] if place < len(self.hops) else self.nothing

    def before(self, place: int) -> Hop:
        """Return the hop before a device; for the first one, a zero hop."""
        return self.hops[place - 1] if place else self.nothing

    @property
    def nothing(self) -> Hop:
        """A hop with zero times."""
        return Hop.of([0] * (self.row.length - 1))


def sums(values: Sequence[Number], dtype: Any) -> NDArray[Any]:
    """Return the prefix sums of the values, from 0 to the total."""
    return np.concatenate((np.zeros(1, dtype=dtype), np.cumsum(np.array(values, dtype=dtype), dtype=dtype)))


def _number(time: float) -> Number:
    return int(time) if time.is_integer() else time
