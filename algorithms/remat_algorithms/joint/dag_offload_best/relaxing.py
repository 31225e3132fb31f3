"""Reruns for as much room as links can make, and what must leave then: for several rates, then better and better."""

from __future__ import annotations

import math
from collections.abc import Iterator

from remat.plugin import Context
from remat_algorithms.dag.plans.state import ALPHAS, Plan, Search
from remat_algorithms.joint.dag_offload_best.ballast import Rates, ballasted
from remat_algorithms.joint.dag_offload_best.best import IDLE, Best, Tried
from remat_algorithms.joint.dag_offload_best.setting import Runs, Setting

SHARES = (1.0, 0.9, 0.95, 0.8, 1.1, 1.05, 0.7, 0.5, 1.2, 0.25, 0.0)
"""Shares of the links' rates that are tried at first; more than there is lets the processor wait a little."""

ROUNDS, AT_FIRST = 60, 3
"""Rounds of ruin and recreate at a time; and so many times for each of the best first shares."""

PROMISING = 3
"""First shares that the search goes on from."""

UP, DOWN = 1.01, 0.985
"""Factors of the share where the processor did not wait, and where it did."""


class Relaxing:
    """Searches for reruns, one for each share of the rates.

    Parameters
    ----------
    setting : Setting
    best : Best
    rounds : int
        Of ruin and recreate at a time.
    """

    def __init__(self, setting: Setting, best: Best, rounds: int = ROUNDS) -> None:
        self.setting, self.best, self.rounds = setting, best, min(rounds, ROUNDS)
        self.context: Context = best.context
        self.rates = self._rates()
        self.seen: set[tuple[int, ...]] = set()
        self.share = 1.0

    def first(self) -> None:
        """Try the greedy's plan for each of the shares, and go on from the best ones."""
        found: list[tuple[float, int, float]] = []
        for number, share in enumerate(SHARES):
            for plan in self._plans(share, 0):
                tried = self._look(plan, share)
                if tried is not None:
                    found.append((float(tried.makespan), number, share))
        for _, _, share in sorted(found)[:PROMISING]:
            for plan in self._plans(share, AT_FIRST):
                self._look(plan, share, few=True)

    def further(self, rounds: int) -> Iterator[None]:
        """Go on around the best share, a search at a time."""
        share = self.share
        for number in range(rounds):
            waits = 1.0
            for plan in self._plans(share, 2 * AT_FIRST, seed=number + 1):
                tried = self._look(plan, share, few=True)
                waits = waits if tried is None else min(waits, tried.waits)
            share *= UP if waits < IDLE else DOWN
            if not 0.5 * self.share < share < 1.5 * self.share:
                share = self.share
            yield

    def _plans(self, share: float, times: int, seed: int = 0) -> Iterator[Plan]:
        """Yield better and better plans of reruns for a share of the rates."""
        setting, budget = self.setting, self.setting.problem.budget
        if budget is None or self.best.done:  # without one nothing is made again for want of room
            return
        model, whole = ballasted(setting.model, budget, Rates(self.rates.out * share, self.rates.back * share))
        search = Search(model, whole, self.context.seed + seed)
        plan = search.construct(ALPHAS[seed % len(ALPHAS)], noise=0.0 if seed < len(ALPHAS) else 1.0)
        if plan is None:
            return
        yield plan
        search.start(plan)
        while times and not self.best.done:
            times -= 1
            _, better = search.improve(self.rounds)
            if better is not None:
                yield better

    def _look(self, plan: Plan, share: float, *, few: bool = False) -> Tried | None:
        """See how long a plan takes with what must leave; None if it was seen before."""
        tasks = tuple(self.setting.model.tasks_of(plan.item, plan.full))
        if tasks in self.seen:
            return None
        self.seen.add(tasks)
        before = self.best.makespan
        tried = self.best.consider_runs(Runs(tasks), message=f"reruns for {share:.3g} of the links", few=few)
        if self.best.makespan < before:
            self.share = share
        return tried

    def _rates(self) -> Rates:
        """Return the rates of the nearest route; half of each where both ways share a channel."""
        machine, route = self.setting.machine, self.setting.ways[0]
        unit = self.setting.model.time_unit

        def rate(links: tuple[int, ...]) -> float:
            slowest = (machine.links[link].bandwidth for link in links)
            return min(math.inf if bandwidth is None else float(bandwidth) for bandwidth in slowest) * unit

        shared = {machine.resource_of_link[link] for link in route.out} & {
            machine.resource_of_link[link] for link in route.back
        }
        half = 0.5 if shared else 1.0
        return Rates(rate(route.out) * half, rate(route.back) * half)
