"""How much has been done, and when to stop: counted in points of fronts, and asked now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Over(Exception):
    """The work is over before its end."""


@dataclass
class Work:
    """Counts the points that are merged.

    Attributes
    ----------
    most : float
        The work is over when there have been more.
    stopped : callable
        Whether it is over for other reasons.
    """

    most: float = float("inf")
    stopped: Callable[[], bool] = lambda: False
    done: int = 0

    def look(self) -> None:
        """Raise `Over` if the work is over."""
        if self.done > self.most or self.stopped():
            raise Over
