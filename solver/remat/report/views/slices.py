"""Time slices of long schedules, for pictures of limited width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def without_dips(time: FloatArray, size: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Reduce each instant to the size after it, preceded by its highest point if that is larger than both sides.

    Between the end of one step and the start of the next, memory dips for zero time. A step of zero length causes a
    rise for zero time, which may be the peak.
    """
    first = np.flatnonzero(np.concatenate(([True], np.diff(time) > 0)))
    last = np.append(first[1:], len(time)) - 1
    highest, after = np.maximum.reduceat(size, first), size[last]
    before = np.concatenate((after[:1], after[:-1]))
    keep = np.column_stack((highest > np.maximum(before, after), np.ones(len(first), dtype=bool)))
    both = np.column_stack((highest, after))
    return np.repeat(time[first], 2)[keep.ravel()], both[keep]


def fullest_of_slices(
    time: FloatArray, size: NDArray[Any], span: float, slices: int
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the beginnings of equal slices of [0, `span`], and the index of the first highest that holds in each."""
    edges = np.linspace(0.0, span, slices + 1)
    first = np.maximum(np.searchsorted(time, edges[:-1], side="left") - 1, 0)
    stop = np.append(first[1:], len(time) - 1) + 1
    order = np.lexsort((-np.arange(len(size)), size))
    rank = np.empty(len(size) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(size)), -1
    return edges[:-1], order[np.maximum.reduceat(rank, np.column_stack((first, stop)).ravel())[::2]]


def slice_maxima(time: FloatArray, size: FloatArray, span: float, slices: int) -> tuple[FloatArray, FloatArray]:
    """Return the beginnings of equal slices of [0, `span`], and the highest of what holds in each.

    `size[i]` holds from `time[i]` on; `time[0]` is 0, and times do not decrease.
    """
    edges = np.linspace(0.0, span, slices + 1)
    # The value at the beginning of a slice counts in it, too.
    first = np.maximum(np.searchsorted(time, edges[:-1], side="left") - 1, 0)
    stop = np.append(first[1:], len(time) - 1) + 1
    highest = np.maximum.reduceat(np.append(size, 0.0), np.column_stack((first, stop)).ravel())[::2]
    return edges[:-1], highest


def busy_shares(start: NDArray[Any], end: NDArray[Any], span: float, slices: int) -> FloatArray:
    """Return the share of each of the equal slices of [0, `span`] that disjoint intervals cover."""
    edges = np.linspace(0.0, span, slices + 1)
    order = np.argsort(start, kind="stable")
    start, end = start[order].astype(np.float64), end[order].astype(np.float64)
    whole = np.concatenate(([0.0], np.cumsum(end - start)))
    begun = np.searchsorted(start, edges, side="right")
    last_end = np.concatenate(([0.0], end))[begun]
    until = whole[begun] - np.maximum(0.0, last_end - edges)
    return np.diff(until) * (slices / span)


def widest_places(
    time: FloatArray, low: FloatArray, high: FloatArray, least: float
) -> tuple[float, float, float, float]:
    """Return the place with most space for a name in a band: begin, end, lower and upper edge; begin = end if none.

    Parameters
    ----------
    time, low, high : (points,) float64
        From `time[i]` on the band is between `low[i]` and `high[i]`; the last point is only an end.
    least : float
        Height that a name takes.
    """
    best, first = (0.0, 0.0, 0.0, 0.0), 0
    bottom, top = -np.inf, np.inf
    for i in range(len(time)):
        last = i == len(time) - 1
        if last or min(top, high[i]) - max(bottom, low[i]) < least:
            if time[i] - time[first] > best[1] - best[0] and top - bottom >= least:
                best = float(time[first]), float(time[i]), float(bottom), float(top)
            first, bottom, top = i, -np.inf, np.inf
            if last or high[i] - low[i] < least:
                first = i + 1
                continue
        bottom, top = max(bottom, low[i]), min(top, high[i])
    return best


def coverage(
    across: tuple[NDArray[Any], NDArray[Any]],
    down: tuple[NDArray[Any], NDArray[Any]],
    shape: tuple[int, int],
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return how much of each pixel rectangles cover, each times its weight, added up (O(rectangles + pixels)).

    Parameters
    ----------
    across, down : (begins, ends)
        Sides of the rectangles, in pixels.
    shape : (rows, columns)
    weight : (rectangles,) float64, optional
        Default: 1 each.
    """
    rows, columns = shape
    # The second difference of a rectangle is at its corners, each shared by the pixels that it lies between.
    corners = np.zeros((rows + 2) * (columns + 2))
    scale = np.ones(len(across[0])) if weight is None else weight
    for down_sign, y in ((1.0, down[0]), (-1.0, down[1])):
        for across_sign, x in ((1.0, across[0]), (-1.0, across[1])):
            for row, row_share in _shared(y, rows):
                for column, column_share in _shared(x, columns):
                    share = down_sign * across_sign * row_share * column_share * scale
                    corners += np.bincount(row * (columns + 2) + column, share, len(corners))
    covered = corners.reshape(rows + 2, columns + 2).cumsum(0).cumsum(1)[:rows, :columns]
    covered[np.abs(covered) < 1e-9] = 0.0
    return covered


def _shared(edge: NDArray[Any], pixels: int) -> tuple[tuple[NDArray[np.int64], FloatArray], ...]:
    """Split edges between their pixel and the next one."""
    inside = np.clip(edge.astype(np.float64), 0.0, pixels)
    pixel = inside.astype(np.int64)
    rest = inside - pixel
    return (pixel, 1.0 - rest), (pixel + 1, rest)
