"""Base class of the searches for smaller arenas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from remat.plugin import Buffers, Context, IntArray, arena_of
from remat_algorithms.layout.live_bytes import loads


class LayoutSearch(ABC):
    """Runs of one kind of search for the same buffers.

    Attributes
    ----------
    share : float
        Its work as a share of that of the search over floors.
    work : int
        Units of work done, of about a nanosecond.

    Parameters
    ----------
    buffers : Buffers
        Without groups.
    context : Context
    """

    share: ClassVar[float]

    def __init__(self, buffers: Buffers, context: Context) -> None:
        self._buffers, self._context = buffers, context
        self._turn = 0
        self.work = 0

    def below(self, arenas: range, work: int, best: IntArray | None = None) -> IntArray | None:
        """Return a layout whose arena is at most the largest of `arenas`, or None.

        Parameters
        ----------
        arenas : range
            The sizes to choose from. No layout is smaller.
        work : int
            Units of work after which to stop.
        best : (buffers,) int64, optional
            The best known layout.
        """
        limit = self.work + work
        while self.work < limit and self._is_small and not self._context.stopped:
            found = self._run(arenas, limit - self.work, best)
            self._turn += 1
            if found is not None and arena_of(self._buffers, found) <= arenas[-1]:
                return found
        return None

    @property
    @abstractmethod
    def _is_small(self) -> bool:
        """Whether runs do not take too long."""

    @abstractmethod
    def _run(self, arenas: range, work: int, best: IntArray | None) -> IntArray | None:
        """Return a layout, or None, and count the work."""

    @cached_property
    def _pairs(self) -> int:
        """The number of ordered pairs of buffers that live in one section, summed over the sections."""
        return int((loads(self._buffers, np.ones_like(self._buffers.size)) ** 2).sum())
