"""Shared draws of all strategies: sizes and times on one scale, and the head of a document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

SCALES = (1, 1, 1, 1, 3, 1000, 2**20 + 7, 2**40)
"""Sizes are small integers times one of these."""

LARGE = 10**12
"""Times around multiples of this differ by less than any tolerance for floats, and yet they differ."""

TIME_SCALES: tuple[int | float, ...] = (1, 1, 1, 1, 7, 1000, 0.5, 0.1, LARGE)


class Figures:
    """Draws sizes and times of one instance, on one scale."""

    def __init__(self, draw: st.DrawFn, *, exact: bool) -> None:
        self._draw = draw
        self._scale = 1 if exact else draw(st.sampled_from(SCALES))
        self._time_scale = 1 if exact else draw(st.sampled_from(TIME_SCALES))

    def size(self, least: int = 0, most: int = 6) -> int:
        """Draw a size."""
        return self._draw(st.integers(least, most)) * self._scale

    def time(self, least: int = 0, most: int = 6) -> int | float:
        """Draw a time."""
        time = self._draw(st.integers(least, most)) * self._time_scale
        return time + self._draw(st.integers(0, 3)) if self._time_scale == LARGE else time

    def seldom(self, document: Document, key: str, value: Callable[[], Any], odds: int = 4) -> None:
        """Set a key in one of `odds` documents; keep its default in the others."""
        if self._draw(st.integers(1, odds)) == odds:
            document[key] = value()


def head(draw: st.DrawFn, kind: str) -> Document:
    """Begin a document of a kind."""
    document: Document = {"schema": "remat.instance/1", "kind": kind}
    units = draw(st.sampled_from([None, None, {"time": "unit", "memory": "unit"}, {"time": "ms"}]))
    if units is not None:
        document["units"] = units
    return document


READS = st.lists(st.sampled_from(["input", "output", "saved"]), unique=True, max_size=3)
"""Values that a backward may read."""
