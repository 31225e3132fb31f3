"""A local search over pipeline orders: its records, and the compiled functions that work on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.local_search.arrays import LARGEST, state_of
from remat_algorithms.parallel.pipeline.local_search.records import Facts


class LocalSearch:
    """Kernel of one search; `left` counts the schedules that it may still build.

    Parameters
    ----------
    facts : Facts
    seed : int
    at_once : int
        Number of moves between two checks for a stop.
    left : int, optional
    """

    def __init__(self, facts: Facts, seed: int, at_once: int, left: int = LARGEST) -> None:
        # Imported here, so that nothing is compiled without a search.
        from remat_algorithms.parallel.pipeline.local_search import kernel

        self.facts, self.at_once, self.left = facts, max(1, at_once), left
        self.state = state = state_of(facts, seed)
        self.progress = state.progress
        self.schedule = kernel.SCHEDULE.bind(facts, state)
        self.figure = kernel.FIGURE.bind(facts, state)
        self.take = kernel.TAKE.bind(facts, state)
        self.walk = kernel.WALK.bind(facts, state)

    @cached_property
    def drift(self) -> Callable[..., Any]:
        """Search for regular schedules; compiled on first use, because not all searches look for them."""
        from remat_algorithms.parallel.pipeline.local_search import kernel

        return kernel.DRIFT.bind(self.facts, self.state)

    def build(self, keys: Any, patience: float, option: Any = 0) -> float:
        """Build a schedule from keys and options; return its objective value, infinite if it fails."""
        self.state.key[:], self.state.option[:] = keys, option
        return float(self.figure()) if self.schedule(patience) else math.inf

    @property
    def order(self) -> IntArray:
        """Classes and micro-batches of the last schedule."""
        found: IntArray = self.state.order[: self.progress.length]
        return found

    @property
    def best_order(self) -> IntArray:
        """Classes and micro-batches of the best schedule."""
        found: IntArray = self.state.best_order[: self.progress.best_length]
        return found

    def parts(self, moves: int, over: Callable[[], bool]) -> Iterator[int]:
        """Yield numbers of moves, `moves` in total unless the search is over; account for them afterwards."""
        while moves > 0 and not over():
            before = self.progress.moves
            yield min(moves, self.at_once, self.left)
            done = max(1, self.progress.moves - before)
            moves -= done
            self.left -= done
