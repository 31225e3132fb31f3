"""Fixed partition of a row of positions into parts of limited length, with the smallest total of bytes at the cuts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Forward positions from `low` to below `high`; a leaf has no parts."""

    low: int
    high: int
    parts: tuple[Part, ...] = ()


def partition(cut_bytes: Sequence[int], leaf: int, width: int, top: int) -> Part:
    """Divide a row bottom to top, until at most `top` parts remain.

    At each level, neighbours are joined to parts whose length is between a third of `width` and `width` (for the
    lowest level, of `leaf`), such that the cuts have the minimum sum of bytes. O(length * width).

    Parameters
    ----------
    cut_bytes : (positions + 1,) ints
        Bytes that cross each cut.
    leaf, width, top : int
        Maximum number of positions of a leaf, of parts of a part, and of parts of the whole.
    """
    count = len(cut_bytes) - 1
    parts = [Part(low, high) for low, high in _cheapest(list(range(count + 1)), cut_bytes, leaf)]
    while len(parts) > top:
        cuts = [0, *(part.high for part in parts)]
        joined = []
        for low, high in _cheapest(cuts, cut_bytes, width):
            inside = tuple(part for part in parts if low <= part.low and part.high <= high)
            joined.append(inside[0] if len(inside) == 1 else Part(low, high, inside))
        if len(joined) == len(parts):
            break
        parts = joined
    return Part(0, count, tuple(parts))


def _cheapest(cuts: list[int], cut_bytes: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return the parts between the cheapest cuts, each over `most` intervals at most."""
    count, least = len(cuts) - 1, max(1, math.ceil(most / 3))
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for place in range(1, count + 1):
        own = cut_bytes[cuts[place]] if place < count else 0
        choices = []
        for before in range(max(0, place - most), place):
            if place - before >= least or before == 0 or place == count:
                bytes_so_far, number, _ = best[before]
                choices.append((bytes_so_far + own, number + 1, before))
        best.append(min(choices) if choices else (2**62, 0, place - 1))
    found, place = [], count
    while place > 0:
        before = best[place][2]
        found.append((cuts[before], cuts[place]))
        place = before
    return found[::-1]
