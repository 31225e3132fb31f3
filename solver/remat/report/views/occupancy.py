"""Values over time as rectangles: heights are sizes, widths are residencies; heights add up to the used memory."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.taskgraph import IntArray
from remat.report.views.lifetimes import Lives, lives_of
from remat.report.views.phases import Phase, step_phases
from remat.solving.result import Result

FloatArray = NDArray[np.float64]


class Stay(enum.IntEnum):
    """The origin of a value in the working memory, or its residency in another memory."""

    COMPUTED = 0
    RECOMPUTED = 1
    FETCHED = 2
    ELSEWHERE = 3
    INITIAL = 4
    FORWARD = 5
    SAVING = 6
    BACKWARD = 7

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        return _LABELS.get(self, self.name.lower())


_LABELS = {
    Stay.FETCHED: "copied back",
    Stay.ELSEWHERE: "in another memory",
    Stay.INITIAL: "from the start",
    Stay.SAVING: "saving forward",
}
_OF_PHASE = {
    Phase.FORWARD: Stay.FORWARD,
    Phase.SAVING: Stay.SAVING,
    Phase.RECOMPUTATION: Stay.RECOMPUTED,
    Phase.LOSS: Stay.BACKWARD,
    Phase.BACKWARD: Stay.BACKWARD,
    Phase.COPY: Stay.FETCHED,
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Stays of values as rectangles.

    Attributes
    ----------
    values : (values,) int64
        Values that are ever resident, by their first stay: the bands from the top.
    top : (values + 1,) float64
        Start of each band, as cumulative sizes. Empty if values have no bands.
    kind : (stays,) int64
        `Stay`.
    band : (stays,) int64
        Position in `values`.
    begin, end, low, high : (stays,) float64
        In time, and in bytes.
    height : float
        Total bytes.
    """

    values: IntArray
    top: FloatArray
    kind: IntArray
    band: IntArray
    begin: FloatArray
    end: FloatArray
    low: FloatArray
    high: FloatArray
    height: float


MOST_BANDS = 300
"""Values that have a band each; more are packed."""

MOST_PACKED = 20_000
"""Stays that are packed; of more each value has its band after all: packing takes their square."""


def occupancy_of(result: Result) -> Occupancy:
    """Return the residencies of all values; O(events log events), and O(residencies^2) if they are packed.

    A few values get one band each. Bands of many values would be mostly empty and too thin to see. Many values are
    therefore packed as if they had addresses, and stays in other memories are left out.

    Parameters
    ----------
    result : Result
        With a schedule.
    """
    assert result.columns is not None
    assert result.report is not None
    lives = lives_of(result.graph, result.machine, result.columns, result.report)
    working = lives.memory == result.machine.processors[0].memory
    if len(np.unique(lives.value)) > MOST_BANDS and int(working.sum()) <= MOST_PACKED:
        return _packed(result, lives.of(working))
    # Stays in other memories are drawn first: simultaneous stays in the working memory hide them.
    lives = lives.of(np.argsort(working, kind="stable"))
    earliest = np.full(len(result.graph.values), np.inf)
    np.minimum.at(earliest, lives.value, lives.begin.astype(np.float64))
    values = np.argsort(earliest, kind="stable")[: int(np.isfinite(earliest).sum())]
    top = np.concatenate(([0.0], np.cumsum(result.graph.size[values].astype(np.float64))))
    place = np.zeros(len(earliest), dtype=np.int64)
    place[values] = np.arange(len(values))
    band = place[lives.value]
    return Occupancy(
        values=values,
        top=top,
        kind=_kinds(result, lives),
        band=band,
        begin=lives.begin.astype(np.float64),
        end=lives.end.astype(np.float64),
        low=top[band],
        high=top[band + 1],
        height=float(top[-1]),
    )


def _kinds(result: Result, lives: Lives) -> IntArray:
    assert result.columns is not None
    assert result.report is not None
    phases = step_phases(result.graph, result.columns, result.report.start)
    made = np.array([_OF_PHASE.get(phase, Stay.COMPUTED) for phase in Phase], dtype=np.int64)
    kind = np.full(len(lives.value), Stay.INITIAL, dtype=np.int64)
    brought = lives.born >= 0
    kind[brought] = made[phases[lives.born[brought]]]
    kind[lives.memory != result.machine.processors[0].memory] = Stay.ELSEWHERE
    return kind


def _packed(result: Result, lives: Lives) -> Occupancy:
    """Give each residency the lowest bytes that are free during its whole time; the longest go first, to the bottom."""
    begin, end = lives.begin.astype(np.float64), lives.end.astype(np.float64)
    size = result.graph.size[lives.value].astype(np.float64)
    count = len(begin)
    low, high = np.zeros(count), np.zeros(count)
    order = np.lexsort((np.arange(count), begin, begin - end))
    placed = np.zeros(count, dtype=bool)
    for k in order.tolist():
        beside = np.flatnonzero(placed & (begin < end[k]) & (end > begin[k]))
        beside = beside[np.argsort(low[beside], kind="stable")]
        # The bytes between the highest end of lower boxes and the next begin are free.
        floor = np.maximum.accumulate(np.concatenate(([0.0], high[beside])))
        room = np.flatnonzero(np.append(low[beside], np.inf) - floor >= size[k])
        low[k] = floor[room[0]]
        high[k] = low[k] + size[k]
        placed[k] = size[k] > 0
    values = np.unique(lives.value)
    return Occupancy(
        values=values,
        top=np.zeros(0),
        kind=_kinds(result, lives),
        band=np.searchsorted(values, lives.value),
        begin=begin,
        end=end,
        low=low,
        high=high,
        height=float(high.max(initial=0.0)),
    )
