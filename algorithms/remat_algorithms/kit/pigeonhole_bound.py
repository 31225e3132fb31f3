"""Lower bound on the load of the fullest bin for indivisible items, by the pigeonhole principle.

Take any N items. A bin that holds j of them has at least its initial load plus the sum of the j shortest items. For
each pair of a bin and a j, compute this load. If T is the load of the fullest bin, at least N of these loads are at
most T, because the bins hold N items. The N-th smallest load is therefore a bound.

The module tries several N, each with the N longest items, and takes the best bound. For N = m bins + 1 and equal bins,
the bound is that of m + 1 items in one bin (Coffman, Garey and Johnson 1978). Size thresholds are implied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from remat_algorithms.kit.subsample import spread_out

MOST = 64
"""Maximum number of N tried, in addition to as many just above a multiple of the number of bins."""

CELLS = 50_000_000
"""Maximum number of pairs of bins and items, over all N tried."""


class Bins(NamedTuple):
    """Bins in which each item has the same length.

    Attributes
    ----------
    starts : sequence of number
        Initial load of each bin.
    items : sequence of number
        Length of each item in these bins; infinite if the item must not be there.
    """

    starts: Sequence[float]
    items: Sequence[float]


def fullest(kinds: Sequence[Bins]) -> float:
    """Return a bound on the load of the fullest bin, for kinds of bins that list the same items; 0 without items.

    Notes
    -----
    O(N x bins) for each N tried.
    """
    import numpy as np

    lengths: Any = np.array([kind.items for kind in kinds], dtype=np.float64)
    bins, count = sum(len(kind.starts) for kind in kinds), lengths.shape[1]
    if not count or not bins:
        return 0.0
    longest = np.argsort(-lengths.min(axis=0), kind="stable")
    above = spread_out(range(bins + 1, count + 1, bins), MOST)
    tried = sorted({*above, *spread_out(range(1, count + 1), MOST)}, reverse=True)
    best, cells = 0.0, 0
    for number in tried:
        cells += number * bins
        if cells > CELLS and best:
            break
        fillings = []
        for kind, row in zip(kinds, lengths, strict=True):
            own = np.sort(row[longest[:number]])
            sums = np.cumsum(own[np.isfinite(own)])
            fillings.append(np.add.outer(np.asarray(kind.starts, dtype=np.float64), sums).ravel())
        every = np.concatenate(fillings)
        if len(every) >= number:
            best = max(best, float(np.partition(every, number - 1)[number - 1]))
    return best if math.isfinite(best) else 0.0
