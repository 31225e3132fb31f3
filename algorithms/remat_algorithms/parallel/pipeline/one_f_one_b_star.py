"""1F1B*: of all patterns of a period, one that keeps the fewest micro-batches, on every stage at once.

Stages lie one a device. Say that a stage runs the backward of a micro-batch so long after its forward that `gap` lies
between the two. The stage before it cannot have less than ``gap + forward + backward``, and the transfers between, in
its own gap; and a gap is possible within a period T only where forward and backward do not meet modulo T: its remainder
must be at most ``T - forward - backward``, else the gap goes on to the next multiple of T. Least gaps from the last
stage on are therefore least for all stages at once, and a stage with a gap keeps ``gap // T + 1`` micro-batches.

This is 1F1B* (Beaumont, Eyraud-Dubois and Shilova 2021): whenever the gap goes on to a multiple of T, a group begins.
There a link carries both directions one at a time; here a link with a channel for each direction is none that could be
met twice, and its transfers only take their time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from remat.plugin import Number

MOST_UNITS = 200
"""Stages and links up to which all sums of consecutive ones are tried as periods of times that are no whole numbers."""

HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Hop:
    """A link between two stages: times in which a transfer occupies it, and that pass until it has arrived.

    Attributes
    ----------
    forward, backward : int or float
        Time in which it is occupied.
    later : (int or float, int or float)
        Time from then on until the data has arrived, forwards and backwards.
    is_shared : bool
        Whether both directions share one channel.
    """

    forward: Number = 0
    backward: Number = 0
    later: tuple[Number, Number] = (0, 0)
    is_shared: bool = False

    @property
    def load(self) -> Number:
        """The busier channel's time in each period."""
        return self.forward + self.backward if self.is_shared else max(self.forward, self.backward)


@dataclass(frozen=True)
class Row:
    """Stages in a row, one a device, with the links between them.

    Attributes
    ----------
    forward, backward : (stages,) tuples of int or float
        Times of each stage for one micro-batch.
    hops : (stages - 1,) tuple of Hop
    """

    forward: tuple[Number, ...]
    backward: tuple[Number, ...]
    hops: tuple[Hop, ...]

    @property
    def least_period(self) -> Number:
        """Time in which the busiest of stages and links is done with a micro-batch; no period is less."""
        stages = (f + b for f, b in zip(self.forward, self.backward, strict=True))
        return max(*stages, 0, *(hop.load for hop in self.hops))

    @property
    def time(self) -> Number:
        """Time in which one micro-batch goes through all stages and back: with that, one is kept at a time."""
        there = sum(self.forward) + sum(self.backward)
        return there + sum(hop.forward + hop.backward + sum(hop.later) for hop in self.hops)


@dataclass(frozen=True)
class Star:
    """A pattern.

    Attributes
    ----------
    period : int or float
    kept : (stages,) tuple of int
        Micro-batches between the start of their forward and the end of their backward.
    forward, backward : (stages,) tuples of int or float
        Starts of micro-batch 0.
    sent, returned : (stages - 1,) tuples of int or float
        Starts of the transfers to the next stage, and back.
    """

    period: Number
    kept: tuple[int, ...]
    forward: tuple[Number, ...]
    backward: tuple[Number, ...]
    sent: tuple[Number, ...]
    returned: tuple[Number, ...]


def star(row: Row, period: Number) -> Star:
    """Return the pattern of a period, which is at least `Row.least_period` (O(stages))."""
    last = len(row.forward) - 1
    # Times of micro-batch 0, from the end of the last stage's forward on.
    ahead: Number = 0
    behind: Number = 0
    forward: list[Number] = []
    backward: list[Number] = []
    sent: list[Number] = []
    returned: list[Number] = []
    kept: list[int] = []
    for stage in range(last, -1, -1):
        if stage < last:
            hop = row.hops[stage]
            ahead -= hop.later[0]
            if hop.is_shared:
                ahead -= more_gap(behind - ahead, period, hop.load)
            ahead -= hop.forward
            sent.append(ahead)
            returned.append(behind)
            behind += hop.backward + hop.later[1]
        load = row.forward[stage] + row.backward[stage]
        ahead -= more_gap(behind - ahead, period, load)
        kept.append(max(1, whole_periods(behind - ahead + load, period)))
        ahead -= row.forward[stage]
        forward.append(ahead)
        backward.append(behind)
        behind += row.backward[stage]
    return Star(
        period,
        tuple(kept[::-1]),
        tuple(time - ahead for time in reversed(forward)),
        tuple(time - ahead for time in reversed(backward)),
        tuple(time - ahead for time in reversed(sent)),
        tuple(time - ahead for time in reversed(returned)),
    )


def whole_periods(time: Number, period: Number) -> int:
    """Return how many periods a time takes, the last one in part."""
    if isinstance(time, int) and isinstance(period, int):
        return -(-time // period)
    return math.ceil(time / period - 1e-12)


def more_gap(gap: Number, period: Number, load: Number) -> Number:
    """Return what a gap lacks to be a possible one."""
    rest = gap % period
    slack = 0 if isinstance(period, int) and isinstance(gap, int) else 1e-12 * period
    return 0 if rest <= period - load + slack else period - rest


def least_period(row: Row, fits: Callable[[Star], bool]) -> Star | None:
    """Return the pattern of the least period that fits; None if not even one micro-batch at a time does.

    Notes
    -----
    A longer period never keeps more. Where all times are whole, the period is a whole number, by bisection. Else it is
    a sum of the times of consecutive stages and links, where these are few and no transfer takes its time beside them.
    """
    low: Number = row.least_period or 1
    high: Number = row.time or 1
    best = star(row, low)
    if fits(best):
        return best
    best = star(row, high)
    if not fits(best):
        return None
    is_whole = isinstance(low, int) and isinstance(high, int)
    sums = [] if is_whole else _sums(row, low, high)
    for _ in range(HALVINGS):
        if (is_whole and high - low <= 1) or (not is_whole and not sums and _has_few_sums(row)):
            break
        middle: Number = (low + high) // 2 if is_whole else (low + high) / 2
        if sums:
            middle = sums[len(sums) // 2]
        found = star(row, middle)
        if fits(found):
            best, high = found, middle
        else:
            low = middle
        sums = [one for one in sums if low < one < high]
    return best


def _has_few_sums(row: Row) -> bool:
    """Whether the least period is among the sums of consecutive stages and links, and these can all be tried."""
    return 2 * len(row.hops) + 1 <= MOST_UNITS and not any(any(hop.later) for hop in row.hops)


def _sums(row: Row, low: Number, high: Number) -> list[Number]:
    """Return the sums of consecutive stages and links between two periods, where they are few."""
    units: list[Number] = []
    for stage, hop in enumerate([*row.hops, None]):
        units.append(row.forward[stage] + row.backward[stage])
        if hop is not None:
            units.append(hop.forward + hop.backward + sum(hop.later))
    if len(units) > MOST_UNITS:
        return []
    found = {one for first in range(len(units)) for one in accumulate(units[first:])}
    ordered = sorted(found)
    return ordered[bisect_left(ordered, low) : bisect_left(ordered, high)]
