"""A lower bound on how full the fullest bin is, of items that are whole: by counting them (the pigeonhole principle).

Of any N items, a bin that holds j of them is filled to its start and the sum of the j shortest at least. So of all
pairs of a bin and a j as many have a filling of at most T as the bins hold items: at least N of them if T is the
fullest. The N-th smallest of these fillings is a bound; the best N, each with the N longest items, is taken. With N = m
bins + 1 equal bins it is that of m + 1 items in one of them (Coffman, Garey and Johnson 1978); thresholds of sizes are
implied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from remat_algorithms.kit.subsample import spread_out

MOST = 64
"""Numbers of items that are tried beside those just above a multiple of the bins, at most."""

CELLS = 50_000_000
"""Pairs of bins and items, over all numbers that are tried, at most."""


class Bins(NamedTuple):
    """Bins in which an item is as long.

    Attributes
    ----------
    starts : sequence of number
        How full each is before it holds anything.
    items : sequence of number
        The length of each item there; infinite: it cannot be there.
    """

    starts: Sequence[float]
    items: Sequence[float]


def fullest(kinds: Sequence[Bins]) -> float:
    """Return a bound on the filling of the fullest bin, of kinds that list the same items; 0 without items.

    Notes
    -----
    O(N x bins) for each N that is tried.
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
