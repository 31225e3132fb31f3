"""Reruns for the additional memory that links can provide, with the required offloading, for several link rates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from remat.plugin import Context, Number
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.plans.search_state import ALPHAS, Plan, Search
from remat_algorithms.joint.dag_offload_best.incumbent import IDLE, Best, Tried
from remat_algorithms.joint.dag_offload_best.local_search import Walk
from remat_algorithms.joint.dag_offload_best.model import Attempt, Runs, Setting
from remat_algorithms.joint.dag_offload_best.offload_headroom import Rates, room_of

SHARES = (1.0, 0.9, 0.95, 0.8, 1.1, 1.05, 0.7, 0.5, 1.2, 0.25, 0.0)
"""Shares of the links' rates to try first; a share above 1 lets the processor wait a little."""

ROUNDS, ROUNDS_WORK, EACH = 100, 20_000, 3
"""Limits on the rounds of ruin and recreate at a time: in total, for large graphs, and per task of small ones."""

FULL = 2
"""Number of first shares that are tried with all rankings for offloading."""

PROMISING, AT_FIRST = 3, 3
"""Number of first shares that the search continues from, and number of times at once."""

TIMES, STALE = 4, 8
"""Steps of a search before the next search's turn, and turns without improvement after which it restarts."""

AROUND = 3
"""Number of searches for better reruns around one plan."""

UP, DOWN = 1.01, 0.985
"""Factors of the share if the processor did not wait, and if it did."""


@dataclass
class _Search:
    """A continuing search for reruns, for a share of the rates.

    Attributes
    ----------
    share : float
    search : Search
    makespan : int or float
        Makespan of its best plan with the required offloading.
    waits : float
        The share of that in which the processor waits.
    stale : int
        Turns since the latest improvement.
    """

    share: float
    search: Search
    makespan: Number = math.inf
    waits: float = 1.0
    stale: int = 0


class Relaxing:
    """Searches for reruns, one for each share of the rates.

    Parameters
    ----------
    setting : Setting
    best : Best
    walk : Walk
        Continues from plans that wait.
    rounds : int
        Rounds of ruin and recreate at a time.
    """

    def __init__(self, setting: Setting, best: Best, walk: Walk, rounds: int = ROUNDS) -> None:
        self.setting, self.best, self.walk = setting, best, walk
        count = max(1, len(setting.listed))
        self.rounds = max(1, min(rounds, ROUNDS, ROUNDS_WORK // count, EACH * count))
        self.context: Context = best.context
        self.rates = self._rates()
        self.seen: set[tuple[int, ...]] = set()
        self.searches: list[_Search] = []
        self.latest: Attempt | None = None
        self.tried = 0

    def first(self) -> None:
        """Try the greedy's plan for each of the shares."""
        found = []
        for number, share in enumerate(SHARES):
            search = self._begun(share, 0, few=number >= FULL)
            if search is not None:
                found.append(search)
        self.searches = sorted(found, key=lambda each: each.makespan)[:PROMISING]

    def go_on(self) -> None:
        """Continue the best searches."""
        for each in self.searches:
            self._go_on(each, AT_FIRST)

    def further(self, rounds: int) -> Iterator[None]:
        """Continue one search at a time, every other time the best one; restart a search that no longer improves."""
        for number in range(rounds):
            if not self.searches:
                return
            ranked = sorted(self.searches, key=lambda each: each.makespan)
            each = ranked[0 if number % 2 else number // 2 % len(ranked)]
            self._go_on(each, TIMES)
            if each.stale >= STALE:
                share = ranked[0].share * (UP if ranked[0].waits < IDLE else DOWN) ** (1 + number % 8)
                new = self._begun(share, number + 1, few=True)
                if new is not None:
                    self.searches[self.searches.index(each)] = new
                else:
                    each.stale = 0
            yield

    def around(self) -> None:
        """Search for better reruns with the offloading of the best plan, which fixes the extra memory of each run."""
        attempt, budget = self.best.attempt, self.setting.problem.budget
        if attempt is not self.latest:
            self.latest, self.tried = attempt, 0
        if attempt is None or budget is None or self.tried == AROUND or self.best.helped:
            return
        self.tried += 1
        staged = _staged(self.setting, attempt)
        if staged is None:
            return
        model, items, stages, room = staged
        search = Search(model.lent(room), budget, self.context.seed + self.tried)
        plan = search.measure(items, stages)
        if plan.peak > budget:
            return
        search.start(plan)
        for _ in range(TIMES):
            if self.best.done:
                return
            _, better = search.improve(self.rounds)
            if better is None:
                return
            self.walk.settle(Runs(tuple(model.tasks_of(better.item, better.full))), attempt.taste())

    def _begun(self, share: float, seed: int, *, few: bool) -> _Search | None:
        """Start a search with the greedy; None if the greedy fails, or memory is unbounded."""
        setting, budget = self.setting, self.setting.problem.budget
        if budget is None or self.best.done:
            return None
        room = room_of(setting.model, Rates(self.rates.out * share, self.rates.back * share))
        search = Search(setting.model.lent(room), budget, self.context.seed + seed)
        plan = search.construct(ALPHAS[seed % len(ALPHAS)], noise=0.0 if seed < len(ALPHAS) else 1.0)
        if plan is None:
            return None
        search.start(plan)
        begun = _Search(share, search)
        self._take(begun, plan, few=few)
        return begun

    def _go_on(self, each: _Search, times: int) -> None:
        """Search for improved plans of reruns."""
        each.stale += 1
        for _ in range(times):
            if self.best.done:
                return
            _, better = each.search.improve(self.rounds)
            if better is not None:
                each.stale = 0
                self._take(each, better, few=True)

    def _take(self, each: _Search, plan: Plan, *, few: bool) -> None:
        tried = self._look(plan, each.share, few=few)
        if tried is not None and tried.makespan < each.makespan:
            each.makespan, each.waits = tried.makespan, tried.waits
        if tried is not None and tried.attempt is not None and tried.waits > IDLE:
            self.walk.relieve(tried.attempt, frozenset())

    def _look(self, plan: Plan, share: float, *, few: bool) -> Tried | None:
        """Evaluate a plan with the required offloading; None if it was seen before."""
        tasks = tuple(self.setting.model.tasks_of(plan.item, plan.full))
        if tasks in self.seen:
            return None
        self.seen.add(tasks)
        return self.best.consider_runs(Runs(tasks), message=f"reruns for {share:.3g} of the links", few=few)

    def _rates(self) -> Rates:
        """Return the rates of the nearest route; half of each if both directions share a channel."""
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


def _staged(setting: Setting, attempt: Attempt) -> tuple[StageModel, list[int], list[int], list[int]] | None:
    """Return the model of a plan's order, its runs as items and stages, and the minimum extra memory of each stage.

    None if a task runs that the model does not contain.
    """
    first = list(dict.fromkeys(attempt.tasks))
    known = set(setting.listed)
    order = [task for task in first if task in known]
    if len(order) != len(known):
        return None
    model = setting.model if order == setting.listed else stage_model(setting.problem, np.array(order, dtype=np.int64))
    item_of = {task: item for item, task in enumerate(model.task)}
    room = [sum(model.tables.size)] * model.stages
    keys: set[tuple[int, int]] = set()
    stage = 0
    for task, elsewhere in zip(attempt.tasks, attempt.away().tolist(), strict=True):
        if task not in item_of:
            return None
        at = min(stage, model.stages - 1)
        room[at] = min(room[at], elsewhere)
        keys.add((stage, item_of[task]))
        if stage < model.stages and task == order[stage]:
            stage += 1
    ordered = sorted(keys)
    return model, [item for _, item in ordered], [at for at, _ in ordered], room
