"""A local search over pipeline orders: its records, and the compiled functions that work on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.local_search.arrays import LARGEST, state_of
from remat_algorithms.parallel.pipeline.local_search.moves import BUILD, DRIFT, TAKE, WALK
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
        self._act: Callable[[int, int, float, float], float] = kernel.ACT.bind(facts, state)

    def build(self, keys: Any, patience: float, option: Any = 0) -> float:
        """Build a schedule from keys and options; return its objective value, infinite if it fails."""
        self.state.key[:], self.state.option[:] = keys, option
        return self._act(BUILD, 0, patience, 0.0)

    def take(self, value: float) -> None:
        """Accept the last schedule as the current one, and as the best one if it is better."""
        self._act(TAKE, 0, value, 0.0)

    def drift(self, moves: int, spread: float, bound: float) -> None:
        """Look for regular schedules, without a host (`moves.drift`)."""
        self._act(DRIFT, moves, spread, bound)

    def walk(self, moves: int, heat: float, bound: float) -> None:
        """Change the current schedule (`moves.walk`)."""
        self._act(WALK, moves, heat, bound)

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
