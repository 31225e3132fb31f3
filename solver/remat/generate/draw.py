"""Seeded draws that are identical on every platform and Python version.

The module uses only `random.Random.random` of the standard generator, whose sequence is fixed for a given seed.
`randrange`, `shuffle` and `choice` may change between versions of Python, and `math.log` between C libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


class Draw:
    """A reproducible stream of draws.

    Parameters
    ----------
    seed : int
        At least 0.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def integer(self, low: int, high: int) -> int:
        """Return an integer between `low` and `high`, both included.

        Uniform where the range is below 2^53; beyond, not every integer can come out.
        """
        return min(high, low + int(self._random() * (high - low + 1)))

    def share(self) -> float:
        """Return a number from 0 to below 1."""
        return self._random()

    def chance(self, probability: float) -> bool:
        """Return whether an event of this probability happens (never for 0, always for 1)."""
        return self._random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.integer(0, len(items) - 1)]

    def size(self, low: int, high: int, zero_probability: float = 0.0) -> int:
        """Return 0 with a probability, otherwise an integer between `low` and `high`."""
        if zero_probability and self._random() < zero_probability:
            return 0
        return min(high, low + int(self._random() * (high - low + 1)))
