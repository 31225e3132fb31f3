"""The improving side of `dag-auto`: all variants of the greedy, then ruin and recreate, in a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search

SMALLER = (0.97, 0.94, 0.9)
"""Shares of the budget that the greedy also tries, because it is not monotone in the budget."""

STALE = 200
"""Rounds without a better plan after which the search restarts from a plan of the randomized greedy."""

AGAIN = 12
"""While no plan fits, every attempt of this period starts from the order alone, with noise."""

ROUNDS = 4
"""Rounds of ruin and recreate between two checks of the other side's results."""


@contextmanager
def attended(work: Callable[[], object], over: Callable[[], bool], stop: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a separate thread and wait for its end; call `stop` once `over` returns true."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(0.001)
        while thread.is_alive():
            if over():
                stop()
            thread.join(0.02)


@contextmanager
def beside(race: Race, search: Search, work: Callable[[], object]) -> Iterator[None]:
    """Run the improving side in a separate thread, so that this one can bound, report, and stop it in time."""
    with attended(work, race.watch, search.stop):
        try:
            yield
        except BaseException:
            race.halted = True
            raise
    race.watch()


def aside(race: Race, search: Search, work: Callable[[], object]) -> None:
    """Run the improving side in a separate thread, and only watch it."""
    if not race.over():
        with beside(race, search, work):
            pass


def first_plans(race: Race, search: Search, shares: Sequence[float] = (1.0, *SMALLER)) -> None:
    """Try all variants of the greedy, for each share of the budget."""
    found = True
    for share in shares:
        search.budget = int(race.budget * share) if share < 1 else race.budget
        for alpha in ALPHAS:
            # A greedy that fails is slow, and smaller budgets do not help it.
            if race.over() or not found:
                break
            plan = search.construct(alpha)
            found = plan is not None
            race.offer(plan)
    search.budget = race.budget


@dataclass
class Improver:
    """Ruin and recreate on a race.

    Attributes
    ----------
    race, search
    seeds : list of Plan
        External plans to continue from, even if they are not the best.
    """

    race: Race
    search: Search
    seeds: list[Plan] = field(default_factory=list)
    _best: Plan | None = None
    _attempts: int = 0
    _stale: int = 0

    def step(self, rounds: int) -> int:
        """Make up to `rounds` rounds, or build a plan with noise if there is none; return the number of rounds made."""
        race, search = self.race, self.search
        best = race.best
        if best is None:
            race.offer(self._noisy() if self._attempts % AGAIN == AGAIN - 1 else self._repaired())
            return 1
        if self._best is None or best.time < self._best.time:
            search.start(best)
            self._best = best
        elif self.seeds:
            search.from_here(self.seeds.pop())
        elif self._stale > STALE:
            self._stale = 0
            other = self._noisy()
            if other is not None:
                search.from_here(other)
        made, better = search.improve(rounds)
        self._stale += made
        if better is not None:
            self._stale = 0
            self._best = better
            race.offer(better)
        return made

    def _repaired(self) -> Plan | None:
        """Continue from a plan that nearly fits."""
        self._attempts += 1
        return self.search.repair(1)

    def _noisy(self) -> Plan | None:
        """Build a plan by the greedy with noise."""
        self._attempts += 1
        return self.search.construct(ALPHAS[self._attempts % len(ALPHAS)], 0.2 + self._attempts % 7 * 0.3)

    def rounds(self, count: int) -> int:
        """Make `count` rounds, unless the race ends earlier; return the number of rounds made."""
        done = 0
        while done < count and not self.race.over():
            done += self.step(min(ROUNDS, count - done))
        return done

    def until(self, end: float) -> None:
        """Make rounds until a time of `time.monotonic()`."""
        while time.monotonic() < end and not self.race.over():
            self.step(ROUNDS)

    def work(self) -> None:
        """Improve until the race is over."""
        while not self.race.over():
            self.step(ROUNDS)
