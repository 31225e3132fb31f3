"""Additional memory from offloading that the search for reruns assumes.

Of the bytes across a run, at most those can be in other memories that the links could transfer out since the start, and
could transfer back by the end. Runs that need more than the budget plus these bytes are impossible without waits. Other
runs may be possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_algorithms.dag.plans.model import StageModel


@dataclass(frozen=True)
class Rates:
    """Bytes per unit of the tables' time that the links transfer out and back; infinite if that costs nothing."""

    out: float
    back: float


def room_of(model: StageModel, rates: Rates) -> list[int]:
    """Return the bytes that may be in other memories during each first run: sent since the start and able to return.

    Parameters
    ----------
    model : StageModel
    rates : Rates
        Smaller rates allow for the losses of a real order of transfers.
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
