"""The improving side: the greedy in its variants, then ruin and recreate, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search

SMALLER = (0.97, 0.94, 0.9)
"""Shares of the budget that the greedy is tried with, too: it is not monotone in the budget."""

STALE = 200
"""Rounds without a better plan after which to go on from another one, built with noise."""

AGAIN = 12
"""As long as nothing fits, each attempt of this number begins from the order alone, with noise."""

ROUNDS = 4
"""Rounds of ruin and recreate between two looks at what the other side has found."""


@contextmanager
def attended(work: Callable[[], object], over: Callable[[], bool], stop: Callable[[], None]) -> Iterator[None]:
    """Let something work in a thread of its own; wait for its end, and stop it once `over` says so."""
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
    """Let the improving side work in a thread of its own, so that this one can bound, report, and stop it in time."""
    with attended(work, race.watch, search.stop):
        try:
            yield
        except BaseException:
            race.halted = True
            raise
    race.watch()


def aside(race: Race, search: Search, work: Callable[[], object]) -> None:
    """Let the improving side work, and only watch it."""
    if not race.over():
        with beside(race, search, work):
            pass


def first_plans(race: Race, search: Search, shares: Sequence[float] = (1.0, *SMALLER)) -> None:
    """Try the greedy in all its variants, for shares of the budget."""
    found = True
    for share in shares:
        search.budget = int(race.budget * share) if share < 1 else race.budget
        for alpha in ALPHAS:
            # Where it fails, it fails slowly: then for smaller budgets there is nothing to be had.
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
        Plans from elsewhere to go on from, even if they are not the best.
    """

    race: Race
    search: Search
    seeds: list[Plan] = field(default_factory=list)
    _best: Plan | None = None
    _attempts: int = 0
    _stale: int = 0

    def step(self, rounds: int) -> int:
        """Make some rounds; without any plan, build one with noise. Return the rounds made."""
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
        """Go on from a plan that nearly fits."""
        self._attempts += 1
        return self.search.repair(1)

    def _noisy(self) -> Plan | None:
        """Build a plan with the greedy and noise."""
        self._attempts += 1
        return self.search.construct(ALPHAS[self._attempts % len(ALPHAS)], 0.2 + self._attempts % 7 * 0.3)

    def rounds(self, count: int) -> int:
        """Make so many rounds, unless the race is over; return how many were made."""
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
