"""Work limit counted in points of fronts, with regular checks for a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Over(Exception):
    """The work limit was reached, or a stop was requested."""


@dataclass
class Work:
    """Counter of merged points.

    Attributes
    ----------
    most : float
        Maximum number of points.
    stopped : callable
        Whether to stop for other reasons.
    """

    most: float = float("inf")
    stopped: Callable[[], bool] = lambda: False
    done: int = 0

    def look(self) -> None:
        """Raise `Over` if the limit is reached or a stop is requested."""
        if self.done > self.most or self.stopped():
            raise Over
