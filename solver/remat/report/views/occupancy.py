"""Values over time: each a band as high as its size, there where it is resident; so the bands add up to the memory."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.taskgraph import IntArray
from remat.report.views.lives import Origin, lives_of
from remat.solving.result import Result

FloatArray = NDArray[np.float64]


class Stay(enum.IntEnum):
    """Why a value lies in the working memory, or that it lies elsewhere."""

    COMPUTED = 0
    RECOMPUTED = 1
    FETCHED = 2
    ELSEWHERE = 3

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        return {Stay.FETCHED: "copied back", Stay.ELSEWHERE: "in another memory"}.get(self, self.name.lower())


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Stays of values as rectangles.

    Attributes
    ----------
    values : (values,) int64
        Those that lie anywhere at any time, by their first stay: the bands from above.
    top : (values + 1,) float64
        Where each band begins: sizes added up.
    kind : (stays,) int64
        `Stay`.
    band : (stays,) int64
        Position in `values`.
    begin, end : (stays,) float64
    """

    values: IntArray
    top: FloatArray
    kind: IntArray
    band: IntArray
    begin: FloatArray
    end: FloatArray


def occupancy_of(result: Result) -> Occupancy:
    """Return the stays of all values; O(events log events).

    Parameters
    ----------
    result : Result
        With a schedule.
    """
    assert result.columns is not None
    assert result.report is not None
    lives = lives_of(result.graph, result.machine, result.columns, result.report)
    # Stays in other memories below: what is in the working memory, too, hides them.
    order = np.argsort(lives.memory == result.machine.processors[0].memory, kind="stable")
    lives = lives.of(order)
    earliest = np.full(len(result.graph.values), np.inf)
    np.minimum.at(earliest, lives.value, lives.begin.astype(np.float64))
    values = np.argsort(earliest, kind="stable")[: int(np.isfinite(earliest).sum())]
    band = np.zeros(len(earliest), dtype=np.int64)
    band[values] = np.arange(len(values))
    kind = np.full(len(lives.value), Stay.COMPUTED, dtype=np.int64)
    kind[lives.origin == Origin.RECOMPUTED] = Stay.RECOMPUTED
    kind[lives.origin == Origin.COPIED] = Stay.FETCHED
    kind[lives.memory != result.machine.processors[0].memory] = Stay.ELSEWHERE
    return Occupancy(
        values=values,
        top=np.concatenate(([0.0], np.cumsum(result.graph.size[values].astype(np.float64)))),
        kind=kind,
        band=band[lives.value],
        begin=lives.begin.astype(np.float64),
        end=lives.end.astype(np.float64),
    )
