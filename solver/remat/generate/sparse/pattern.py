"""Patterns of sparse symmetric matrices: adjacency lists in compressed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Pattern:
    """A symmetric pattern; the diagonal counts as full and is not stored.

    Attributes
    ----------
    start : (n + 1,) int64
    neighbours : (2 entries below the diagonal,) int64
        Neighbours of i, rising: ``neighbours[start[i]:start[i+1]]``.
    """

    start: IntArray
    neighbours: IntArray

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def entries(self) -> int:
        """Entries on and below the diagonal."""
        return len(self) + len(self.neighbours) // 2

    def lists(self) -> list[list[int]]:
        """Return the neighbours of every index as plain lists."""
        bounds, items = self.start.tolist(), self.neighbours.tolist()
        return [items[a:b] for a, b in pairwise(bounds)]

    def permuted(self, order: Sequence[int]) -> Pattern:
        """Return the pattern of the matrix whose index i is index ``order[i]`` of this one."""
        place = np.empty(len(self), dtype=np.int64)
        place[np.asarray(order, dtype=np.int64)] = np.arange(len(self))
        rows = np.repeat(np.arange(len(self)), np.diff(self.start))
        return pattern_of(len(self), place[rows], place[self.neighbours])


def pattern_of(n: int, rows: ArrayLike, columns: ArrayLike) -> Pattern:
    """Return the pattern of A + A^T with its diagonal, from the entries of A (in any order, repeats allowed).

    Parameters
    ----------
    n : int
        Order of the matrix.
    rows, columns : (entries,) ints
        0-based.
    """
    i, j = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
    codes = np.unique(np.concatenate((i * n + j, j * n + i)))
    i, j = np.divmod(codes, max(n, 1))
    off = i != j
    counts = np.bincount(i[off], minlength=n)
    return Pattern(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), j[off])
