"""Integers for a constraint solver: times and sizes in units, exact or rounded in one direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import Link, Number

MOST_UNITS = 2**31
"""Times are exact if all steps together take at most this many units."""

COARSE_UNITS = 2**22
"""Units of all steps together if times must be rounded."""

MOST_ENERGY = 2**59
"""Maximum product of ticks and bytes that the solver handles safely."""

MOST_DENOMINATOR = 10**6
"""A float time is read as a fraction of at most this denominator if it equals one up to its last bits."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Units of time and of memory, and their direction of rounding.

    Attributes
    ----------
    time_unit : Fraction
        In the instance's time unit.
    ticks : int
        Ticks per unit. A step of zero length takes one tick, which makes its place among the events of its instant a
        time like any other. A unit has more ticks than there are such steps.
    memory_unit : int
    exact : bool
        Whether nothing is rounded.
    up : bool
        Direction of rounding. True is the safe side: a schedule of the model is one of the instance. False gives
        bounds: a schedule of the instance is one of the model.
    """

    time_unit: Fraction
    ticks: int
    memory_unit: int
    exact: bool
    up: bool

    def length(self, duration: Fraction) -> int:
        """Return a duration in ticks, at least one."""
        quotient = duration / self.time_unit
        return max(1, (math.ceil(quotient) if self.up else math.floor(quotient)) * self.ticks)

    def size(self, size: int) -> int:
        """Return a size in units of memory."""
        return -(-size // self.memory_unit) if self.up else size // self.memory_unit

    def room(self, size: int) -> int:
        """Return a capacity in units of memory, rounded in the opposite direction."""
        return size // self.memory_unit if self.up or self.exact else -(-size // self.memory_unit)

    def time(self, tick: int) -> Fraction:
        """Return the instant to which a tick belongs."""
        return tick // self.ticks * self.time_unit


def rational(time: Number) -> Fraction:
    """Return a time as the simplest fraction that float64 cannot distinguish from it."""
    exact = Fraction(time)
    if isinstance(time, int):
        return exact
    plain = exact.limit_denominator(MOST_DENOMINATOR)
    return plain if abs(plain - exact) * 2**50 <= exact else exact


def transfer_time(link: Link, size: int) -> Fraction:
    """Return latency + size / bandwidth."""
    if link.bandwidth is None:
        return rational(link.latency)
    return rational(link.latency) + size / rational(link.bandwidth)


def scales(durations: Sequence[Fraction], sizes: Iterable[int]) -> tuple[Scale, ...]:
    """Choose units for steps of these durations and for these sizes.

    Returns
    -------
    tuple of Scale
        One exact scale; or two, one that rounds up and one that rounds down.
    """
    total = sum(durations, Fraction(0))
    denominator = math.lcm(1, *(duration.denominator for duration in durations))
    numerator = math.gcd(*(int(duration * denominator) for duration in durations)) or 1
    time_unit = Fraction(numerator, denominator)
    exact_time = total <= MOST_UNITS * time_unit
    if not exact_time:
        time_unit = total / COARSE_UNITS
    instant = sum(duration < time_unit for duration in durations)
    ticks = 1 if instant == 0 else instant + 2
    horizon = (math.ceil(total / time_unit) + len(durations)) * ticks
    known = list(sizes)
    finest = math.gcd(*known) or 1
    memory_unit = max(finest, -(-sum(known) * horizon // MOST_ENERGY))
    exact = exact_time and memory_unit == finest
    if exact:
        return (Scale(time_unit, ticks, memory_unit, True, True),)
    return tuple(Scale(time_unit, ticks, memory_unit, False, up) for up in (True, False))
