"""Offloading as room: what can be elsewhere at each run, the search for reruns takes for granted.

Of the bytes across a run, at most those can be elsewhere that have left since the start, and that can come back by the
end. So runs that need no more than the budget and that, each of them, may be possible without waiting for links, and
those that need more are not. The search that makes values again (`dag.plans`) knows one budget for all. It is given
the largest, and *ballast*: values that nobody can free, which leave as much room as there is at each run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.dag.plans.model import StageModel, Tables

STAIRS = 64
"""Steps in which the room grows, and in which it shrinks."""


@dataclass(frozen=True)
class Rates:
    """Bytes that leave and come back in a unit of the tables' time; infinite where that costs nothing."""

    out: float
    back: float


def ballasted(model: StageModel, budget: int, rates: Rates) -> tuple[StageModel, int]:
    """Return a model with ballast, and the budget for it.

    Parameters
    ----------
    model : StageModel
    budget : int
        Of the processor's memory.
    rates : Rates
        Smaller ones leave time for what a real order of transfers loses.

    Returns
    -------
    StageModel
        Its tables have more values, read or written by the order's tasks; items are the same.
    int
        O(size of the tables).
    """
    tables = model.tables
    room = _room(tables, rates)
    top = int(room.argmax())
    missing = int(room[top]) - room
    grown = _Grown(tables)
    # Before the top, ballast goes with the runs up to it; behind, it comes and stays.
    for low, high in pairwise(_stairs(0, top)):
        grown.leaves(int(missing[low] - missing[high]), high - 1)
    for low, high in pairwise(_stairs(top, len(room) - 1)):
        grown.comes(int(missing[high] - missing[low]), tables.first[high])
    return replace(model, tables=grown.tables(), simple=False), budget + int(room[top])


def _room(tables: Tables, rates: Rates) -> IntArray:
    """Return the bytes that may be elsewhere during each first run; whole ones, at least 0."""
    times = np.array([tables.time[item] for item in tables.first], dtype=np.float64)
    ends = np.cumsum(times)
    everything = float(sum(tables.size))
    room = np.full(len(times), everything)
    if math.isfinite(rates.out):
        room = np.minimum(room, (ends - times) * rates.out)
    if math.isfinite(rates.back):
        room = np.minimum(room, (ends[-1] - ends) * rates.back)
    found: IntArray = np.maximum(room, 0).astype(np.int64)
    return found


def _stairs(low: int, high: int) -> list[int]:
    """Return places from one to another, both included, of which each begins a step."""
    places: list[int] = np.unique(np.linspace(low, high, STAIRS + 1).astype(np.int64)).tolist()
    return places


class _Grown:
    """Tables with more values."""

    def __init__(self, tables: Tables) -> None:
        self.old = tables
        self.size, self.initial, self.stays = list(tables.size), list(tables.initial), list(tables.stays)
        self.reads = _rows(tables.read_start, tables.read_value)
        self.writes = _rows(tables.write_start, tables.write_value)
        self.spared = _rows(tables.write_start, tables.spared)

    def leaves(self, size: int, place: int) -> None:
        """Add a value that is there at the start, and goes with a first run.

        It is no run in place, which would write over it.
        """
        behind = self.old.first[place:]
        item = next((item for item in behind if not self.old.in_place[item]), behind[0])
        if size > 0:
            self.reads[item].append(self._value(size, initial=1, stays=0))

    def comes(self, size: int, item: int) -> None:
        """Add a value that comes with a run of an item, and stays."""
        if size > 0:
            self.writes[item].append(self._value(size, initial=0, stays=1))
            self.spared[item].append(0)

    def _value(self, size: int, *, initial: int, stays: int) -> int:
        self.size.append(size)
        self.initial.append(initial)
        self.stays.append(stays)
        return len(self.size) - 1

    def tables(self) -> Tables:
        """Return the tables; nothing makes the new values again."""
        more = len(self.size) - len(self.old.size)
        return self.old._replace(
            size=self.size,
            initial=self.initial,
            stays=self.stays,
            pinned=[*self.old.pinned, *[0] * more],
            maker=[*self.old.maker, *[-1] * more],
            read_start=_starts(self.reads),
            read_value=[value for row in self.reads for value in row],
            write_start=_starts(self.writes),
            write_value=[value for row in self.writes for value in row],
            spared=[flag for row in self.spared for flag in row],
        )


def _rows(starts: Sequence[int], items: Sequence[int]) -> list[list[int]]:
    return [list(items[low:high]) for low, high in pairwise(starts)]


def _starts(rows: Sequence[Sequence[int]]) -> list[int]:
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    return starts
