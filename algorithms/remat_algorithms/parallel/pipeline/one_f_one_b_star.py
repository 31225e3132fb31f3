"""1F1B*: a pattern that keeps the fewest micro-batches of all patterns with its period, on every stage.

Each device holds one stage. The `gap` of a stage is the time between the forward and the backward of a micro-batch. The
gap of the previous stage is at least ``gap + forward + backward`` plus the transfers between the two. For a period T, a
gap is possible only if forward and backward do not overlap modulo T. Its remainder is then at most ``T - forward -
backward``; otherwise the gap grows to the next multiple of T. The smallest gaps, from the last stage backwards, are
therefore minimum for all stages at once. A stage with a gap keeps ``gap // T + 1`` micro-batches.

This is 1F1B* (Beaumont, Eyraud-Dubois and Shilova 2021): each time the gap grows to a multiple of T, a group begins. In
the paper, a link carries one direction at a time. Here, a link may have a channel for each direction. Its transfers
then cannot conflict, and only take time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from remat.plugin import Number

MOST_UNITS = 200
"""Maximum number of stages and links for which all consecutive sums are tried as periods, if times are not integers."""

HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Hop:
    """A link between two stages: the times for which a transfer occupies it, and the remaining delays until arrival.

    Attributes
    ----------
    forward, backward : int or float
        Time for which the link is occupied.
    later : (int or float, int or float)
        Time from then until the data arrives, forwards and backwards.
    is_shared : bool
        Whether both directions share one channel.
    """

    forward: Number = 0
    backward: Number = 0
    later: tuple[Number, Number] = (0, 0)
    is_shared: bool = False

    @property
    def load(self) -> Number:
        """Time per period of the busier channel."""
        return self.forward + self.backward if self.is_shared else max(self.forward, self.backward)


@dataclass(frozen=True)
class Row:
    """Stages in a row, one per device, with the links between them.

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
        """Time of the busiest stage or link per micro-batch, a lower bound on the period."""
        stages = (f + b for f, b in zip(self.forward, self.backward, strict=True))
        return max(*stages, 0, *(hop.load for hop in self.hops))

    @property
    def time(self) -> Number:
        """Time in which one micro-batch passes all stages and returns; with this period, one is kept at a time."""
        there = sum(self.forward) + sum(self.backward)
        return there + sum(hop.forward + hop.backward + sum(hop.later) for hop in self.hops)


@dataclass(frozen=True)
class Times:
    """Start times of micro-batch 0.

    Attributes
    ----------
    forward, backward : (stages,) tuples of int or float
    sent, returned : (stages - 1,) tuples of int or float
        Starts of the transfers to the next stage and back.
    """

    forward: tuple[Number, ...]
    backward: tuple[Number, ...]
    sent: tuple[Number, ...]
    returned: tuple[Number, ...]


@dataclass(frozen=True)
class Star(Times):
    """A 1F1B* pattern.

    Attributes
    ----------
    period : int or float
    kept : (stages,) tuple of int
        Micro-batches between the start of their forward and the end of their backward.
    """

    period: Number
    kept: tuple[int, ...]


def star(row: Row, period: Number) -> Star:
    """Return the pattern of a period, which is at least `Row.least_period` (O(stages))."""
    last = len(row.forward) - 1
    # Times of micro-batch 0, relative to the end of the last stage's forward.
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
        tuple(time - ahead for time in reversed(forward)),
        tuple(time - ahead for time in reversed(backward)),
        tuple(time - ahead for time in reversed(sent)),
        tuple(time - ahead for time in reversed(returned)),
        period,
        tuple(kept[::-1]),
    )


def whole_periods(time: Number, period: Number) -> int:
    """Return the number of periods that a time covers, rounded up."""
    if isinstance(time, int) and isinstance(period, int):
        return -(-time // period)
    return math.ceil(time / period - 1e-12)


def more_gap(gap: Number, period: Number, load: Number) -> Number:
    """Return the increase that makes a gap possible."""
    rest = gap % period
    slack = 0 if isinstance(period, int) and isinstance(gap, int) else 1e-12 * period
    return 0 if rest <= period - load + slack else period - rest


def least_period(
    row: Row, fits: Callable[[Star], bool], pattern: Callable[[Row, Number], Star | None] = star
) -> Star | None:
    """Return the pattern with the smallest period that fits; None if a single micro-batch at a time does not fit.

    Parameters
    ----------
    row : Row
    fits : callable
    pattern : callable
        Returns the pattern of a period, if it has one; that of `Row.time` always exists.

    Notes
    -----
    A longer period never keeps more. If all times are integers, the period is an integer found by bisection. Otherwise
    it is a sum of the times of consecutive stages and links, provided that these are few and no transfer has an extra
    delay.
    """
    low: Number = row.least_period or 1
    high: Number = row.time or 1
    best = pattern(row, low)
    if best is not None and fits(best):
        return best
    best = pattern(row, high)
    if best is None or not fits(best):
        return None
    is_whole = isinstance(low, int) and isinstance(high, int)
    sums = [] if is_whole else _sums(row, low, high)
    for _ in range(HALVINGS):
        if (is_whole and high - low <= 1) or (not is_whole and not sums and _has_few_sums(row)):
            break
        middle: Number = (low + high) // 2 if is_whole else (low + high) / 2
        if sums:
            middle = sums[len(sums) // 2]
        found = pattern(row, middle)
        if found is not None and fits(found):
            best, high = found, middle
        else:
            low = middle
        sums = [one for one in sums if low < one < high]
    return best


def _has_few_sums(row: Row) -> bool:
    """Whether the smallest period is a sum of consecutive stages and links, and all such sums can be tried."""
    return 2 * len(row.hops) + 1 <= MOST_UNITS and not any(any(hop.later) for hop in row.hops)


def _sums(row: Row, low: Number, high: Number) -> list[Number]:
    """Return the sums of consecutive stages and links between two periods, if they are few."""
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
