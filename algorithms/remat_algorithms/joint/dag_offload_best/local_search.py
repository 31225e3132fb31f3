"""Local search: it removes or adds reruns, and ranks values for offloading differently."""

from __future__ import annotations

import random

import numpy as np

from remat_algorithms.joint.dag_offload_best.incumbent import Best
from remat_algorithms.joint.dag_offload_best.model import RANKINGS, Attempt, Late, Runs, Setting
from remat_algorithms.joint.dag_offload_best.offload_priorities import Taste, taste_of
from remat_algorithms.offload.swaps.fluid_bound import volume_bound

SLACKS = (0.3, 1.0, 3.0)
"""Accepted slowdowns relative to the best, in mean task times; each excursion draws one."""

BACK = 300
"""Rounds without improvement after which the search returns to the best."""

MOVED = 0.25
"""Share of the rounds that move a run, if reordering is allowed."""

RANKED = 0.4
"""Share of the rounds that change only the offloaded values."""

LATE = 0.3
"""Share of the other rounds that recompute an input of a run that waited."""

DEPTHS = (1, 2, 2, 3, 3, 4)
"""Maximum numbers of runs, each an input of the next, that these rounds add."""

SETTLED = 20
"""Number of drawn plans for improved runs with similar offloading."""

RELIEFS = 8
"""Maximum number of runs to add to a plan that waits."""

REACHES = (1, 1, 2, 3, 6, 12)
"""Numbers of adjacent runs that a round removes at once."""


class Walk:
    """A local search from the best plan.

    Parameters
    ----------
    setting : Setting
    best : Best
        Receives improvements.
    reorder : bool
        Whether runs may also change positions.
    """

    def __init__(self, setting: Setting, best: Best, *, reorder: bool) -> None:
        self.setting, self.best, self.reorder = setting, best, reorder
        self.draw = random.Random(best.context.seed)
        self.mean = 1 / max(1, len(setting.listed))
        self.home: Attempt | None = None
        self.current = Runs(())
        self.taste = taste_of(0, np.zeros(0, dtype=np.int64))
        self.since, self.slack = 0, self.mean * SLACKS[0]
        self.late: Late = ((), ())

    def go(self, rounds: int) -> None:
        """Make up to `rounds` rounds.

        A round takes O(runs and accesses), plus the dispatch. Many rounds end early, because the runs alone, or the
        bytes that must cross the links, take too long.
        """
        for _ in range(rounds):
            if self.best.done:
                return
            if self.best.attempt is not self.home or self.since >= BACK:
                self.since, self.slack = 0, self.mean * self.draw.choice(SLACKS)
                self.home = self.best.attempt
                if self.home is not None:
                    self._from(self.home, self.best.helped)
            if self.home is None:
                return
            self._round()

    def _from(self, attempt: Attempt, helped: frozenset[int]) -> None:
        self.current, self.late, self.taste = Runs(attempt.tasks, helped), attempt.late, attempt.taste()

    def settle(self, runs: Runs, taste: Taste) -> None:
        """Evaluate runs with an offloading similar to that of another plan."""
        choice = self.setting.choice(runs)
        if choice is None or self.best.hopeless(choice):
            return
        found: Attempt | None = None
        for _ in range(SETTLED):
            if self.best.done:
                return
            other = self.setting.drawn(choice, taste, self.draw)
            if other is not None and (found is None or other.makespan < found.makespan):
                found = other
                taste = other.taste()
                self.best.consider(other, runs, "much the same leaves")
        if found is not None:
            self.relieve(found, runs.helped)

    def relieve(self, attempt: Attempt, helped: frozenset[int]) -> None:
        """Recompute, one after the other, the values for which the runs of a plan wait, while that is faster.

        Without its waits, such a plan would often be faster than the best one.
        """
        best, current = self.best, attempt
        for _ in range(RELIEFS):
            runs, late = Runs(current.tasks, helped), current.late
            if best.done or not late[0] or float(current.makespan) - sum(late[1]) >= best.makespan:
                return
            changed = _relieved(self.setting, runs, self.draw.choices(*late)[0], self.draw)
            choice = self.setting.choice(changed)
            if choice is None or volume_bound(choice) >= current.makespan:
                continue
            number = max(range(RANKINGS), key=lambda number: (best.wins[number], -number))
            for _, better in self.setting.plans(choice, [number]):
                if better is not None and better.makespan < current.makespan:
                    current = better
                    best.consider(better, changed, "reruns for what runs waited for")

    def _round(self) -> None:
        best, draw, current = self.best, self.draw, self.current
        if not current.tasks or draw.random() < RANKED:  # without tasks the helper runs everything
            changed = current
        elif self.late[0] and draw.random() < LATE:
            at = draw.choices(*self.late)[0]
            changed = _relieved(self.setting, current, at, draw)
        elif self.reorder and draw.random() < MOVED:
            changed = _moved(current, draw)
        else:
            changed = _changed(self.setting, current, draw)
        choice = self.setting.choice(changed)
        self.since += 1
        if choice is None or best.hopeless(choice, 1 + self.slack):
            return
        attempt = self.setting.drawn(choice, self.taste, draw)
        if attempt is None:
            return
        best.consider(attempt, changed, "walk")
        if best.attempt is attempt:
            self.home, self.since = attempt, 0
        elif best.attempt is not None and attempt.makespan > best.attempt.makespan * (1 + self.slack * draw.random()):
            return
        self._from(attempt, changed.helped)


def _changed(setting: Setting, runs: Runs, draw: random.Random) -> Runs:
    """Return runs with some reruns removed or added; or the same runs, for another ranking."""
    kind, tasks = draw.random(), list(runs.tasks)
    if kind < 0.4:
        again = _reruns(tasks)
        if again:
            at = draw.choice(again)
            end = at + draw.choice(REACHES)
            gone = {place for place in again if at <= place < end}
            return Runs(tuple(task for place, task in enumerate(tasks) if place not in gone), runs.helped)
    elif kind < 0.8:
        at = draw.randrange(len(tasks))
        added = _remade(setting, tasks[at], draw)
        return Runs((*tasks[:at], *added, *tasks[at:]), runs.helped)
    elif kind < 0.9 and setting.movable:
        return _handed(setting, runs, draw.choice(setting.movable))
    return runs


def _handed(setting: Setting, runs: Runs, task: int) -> Runs:
    """Return the runs with a task moved to the helper, or back to the position right after its inputs' producers."""
    if task not in runs.helped:
        return Runs(runs.tasks, runs.helped | {task})
    tasks = [other for other in runs.tasks if other != task]
    first = {other: place for place, other in reversed(list(enumerate(tasks)))}
    makers = {maker for value in setting.reads[task] for maker in setting.graph.producers[value].tolist()}
    place = max((first[maker] for maker in makers if maker in first), default=-1) + 1
    return Runs((*tasks[:place], task, *tasks[place:]), runs.helped - {task})


def _relieved(setting: Setting, runs: Runs, at: int, draw: random.Random) -> Runs:
    """Return the runs with recomputations of some inputs, and recursively of their inputs, before one of them."""
    added: list[int] = []
    depth = draw.choice(DEPTHS)
    while len(added) < depth:
        task = added[0] if added else runs.tasks[at]
        reads = [value for value in setting.reads[task] if setting.maker[value] >= 0]
        if not reads:
            break
        added.insert(0, setting.maker[draw.choice(reads)])
    return Runs((*runs.tasks[:at], *added, *runs.tasks[at:]), runs.helped)


def _moved(runs: Runs, draw: random.Random) -> Runs:
    """Return the runs with one moved, usually not far; `Setting.choice` checks whether its inputs are present."""
    tasks = list(runs.tasks)
    place = draw.randrange(len(tasks))
    task = tasks.pop(place)
    reach = draw.choice((1, 2, 4, 8, len(tasks)))
    tasks.insert(draw.randint(max(0, place - reach), min(len(tasks), place + reach)), task)
    return Runs(tuple(tasks), runs.helped)


def _reruns(tasks: list[int]) -> list[int]:
    """Return the positions of runs that are not the first of their task."""
    seen: set[int] = set()
    found = []
    for place, task in enumerate(tasks):
        if task in seen:
            found.append(place)
        seen.add(task)
    return found


def _remade(setting: Setting, task: int, draw: random.Random) -> list[int]:
    """Return runs that recompute an input of a task, sometimes with their own inputs."""
    added: list[int] = []
    while not added or draw.random() < 0.4:
        reads = [value for value in setting.reads[added[0] if added else task] if setting.maker[value] >= 0]
        if not reads:
            break
        added.insert(0, setting.maker[draw.choice(reads)])
    return added
