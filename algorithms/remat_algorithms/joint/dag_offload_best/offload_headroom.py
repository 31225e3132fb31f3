"""Offloading as room: what can be elsewhere at each run, the search for reruns takes for granted.

Of the bytes across a run, at most those can be elsewhere that have left since the start, and that can come back by the
end. So runs that need no more than the budget and that, each of them, may be possible without waiting for links, and
those that need more are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_algorithms.dag.plans.model import StageModel


@dataclass(frozen=True)
class Rates:
    """Bytes that leave and come back in a unit of the tables' time; infinite where that costs nothing."""

    out: float
    back: float


def room_of(model: StageModel, rates: Rates) -> list[int]:
    """Return the bytes that may be elsewhere during each first run: what has left since the start and can come back.

    Parameters
    ----------
    model : StageModel
    rates : Rates
        Smaller ones leave time for what a real order of transfers loses.
    """
    tables = model.tables
    times = np.array([tables.time[item] for item in tables.first], dtype=np.float64)
    ends = np.cumsum(times)
    room = np.full(len(times), float(sum(tables.size)))
    if math.isfinite(rates.out):
        room = np.minimum(room, (ends - times) * rates.out)
    if math.isfinite(rates.back):
        room = np.minimum(room, (ends[-1] - ends) * rates.back)
    found: list[int] = np.maximum(room, 0).astype(np.int64).tolist()
    return found
