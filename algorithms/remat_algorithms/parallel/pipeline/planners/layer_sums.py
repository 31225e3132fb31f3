"""What a planner knows of layers, devices and the ways between them: prefix sums, and nothing of instances."""

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
    """Bytes of n layers in a row; entry k is of the layers before layer k.

    Attributes
    ----------
    activation : (n + 1,) int64
        What layers hold of a micro-batch from its forward to its backward, added up.
    entry : (n + 1,) int64
        How much more a stage holds that begins with layer k: its input.
    fixed : (n + 1,) int64
        What layers keep all the time, added up: parameters, their gradients, the optimizer's state.
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
        """Add up the bytes of layers whose stages hold nothing more."""
        return Row(sums(activation, np.int64), np.zeros(len(fixed) + 1, dtype=np.int64), sums(fixed, np.int64))

    def held(self, first: int, end: int) -> int:
        """Return the bytes that a stage holds of a micro-batch."""
        return int(self.activation[end] - self.activation[first] + self.entry[first])

    def kept(self, first: int, end: int) -> int:
        """Return the bytes that a stage keeps all the time."""
        return int(self.fixed[end] - self.fixed[first])


@dataclass(frozen=True, eq=False)
class Hop:
    """The way from one device to the next, and back, at each cut k (after k layers); 0 at the ends of the row.

    Two of them are the same only if they are one.

    Attributes
    ----------
    there, back : (n + 1,) float64
        Time until an output, or the gradient of one, has arrived.
    busy_there, busy_back : (n + 1,) float64
        For how long it occupies its way.
    """

    there: FloatArray
    back: FloatArray
    busy_there: FloatArray
    busy_back: FloatArray

    @staticmethod
    def of(times: Sequence[Number]) -> Hop:
        """Return a hop of these times at the inner cuts, the same in both directions, that occupies its way wholly."""
        whole = np.array([0, *times, 0], dtype=np.float64)
        return Hop(whole, whole, whole, whole)

    def at(self, cut: int) -> Way:
        """Return the way at a cut, for the simulation; whole numbers where the times are."""
        times = (self.busy_there, self.there, self.busy_back, self.back)
        busy_there, there, busy_back, back = (_number(float(time[cut])) for time in times)
        return Way(busy_there, there - busy_there, busy_back, back - busy_back)

    @property
    def both(self) -> FloatArray:
        """Time until a result has arrived, and its gradient come back."""
        return self.there + self.back

    @property
    def busy(self) -> FloatArray:
        """For how long both occupy the way."""
        return self.busy_there + self.busy_back


@dataclass(frozen=True)
class Position:
    """A device at its place in the row.

    Attributes
    ----------
    work : (n + 1,) float64
        Time of forwards and backwards on it, added up.
    stop : (n + 1,) int64
        The first layer from each on that it cannot run; n if there is none.
    room : int or None
        Its bytes; None: without limit.
    flight : int or None
        How many micro-batches a stage on it holds; None: as under 1F1B, min(k, m) if it is the k-th from the end.
    """

    work: FloatArray
    stop: IntArray
    room: int | None = None
    flight: int | None = None

    @staticmethod
    def of(work: Sequence[Number], room: int | None = None) -> Position:
        """Return a device that runs all layers, in these times."""
        return Position(sums(work, np.float64), np.full(len(work) + 1, len(work), dtype=np.int64), room)


@dataclass(frozen=True)
class Line:
    """Layers, and devices in the order in which micro-batches pass them.

    Attributes
    ----------
    row : Row
    positions : tuple of Position
    hops : tuple of Hop
        Between two that follow each other.
    batches : int
        Micro-batches of a step.
    alike : bool
        Whether all devices, and all hops, are the same: then a part of the line is as good as any other.
    longest : float
        Stages of more work are left out.
    """

    row: Row
    positions: tuple[Position, ...]
    hops: tuple[Hop, ...]
    batches: int
    alike: bool = False
    longest: float = float("inf")

    @staticmethod
    def of(row: Row, position: Position, hop: Hop, count: int, batches: int) -> Line:
        """Return a line of equal devices."""
        return Line(row, (position,) * count, (hop,) * (count - 1), batches, alike=True)

    def first(self, count: int) -> Line:
        """Return the line of the first devices."""
        return replace(self, positions=self.positions[:count], hops=self.hops[: count - 1])

    def after(self, place: int) -> Hop:
        """Return the hop that follows a device; of the last one, one without times."""
        return self.hops[place] if place < len(self.hops) else self.nothing

    def before(self, place: int) -> Hop:
        """Return the hop before a device; of the first one, one without times."""
        return self.hops[place - 1] if place else self.nothing

    @property
    def nothing(self) -> Hop:
        """A hop without times."""
        return Hop.of([0] * (self.row.length - 1))


def sums(values: Sequence[Number], dtype: Any) -> NDArray[Any]:
    """Return the sums of the values before each, and of all."""
    return np.concatenate((np.zeros(1, dtype=dtype), np.cumsum(np.array(values, dtype=dtype), dtype=dtype)))


def _number(time: float) -> Number:
    return int(time) if time.is_integer() else time
