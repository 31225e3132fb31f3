"""The search as an object: tables, arrays and functions, interpreted or compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from remat_algorithms.dag.plans import ruin_and_recreate
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.plans import draw
from remat_algorithms.dag.plans.records import BEST, HERE, NOW, Room, pack, search_room, work_room
from remat_algorithms.dag.plans.ruin_and_recreate import CLEAR, MEND, PRUNE, REPLAY, RUIN

COMPILED_FROM = 65
"""Minimum number of tasks for which compilation pays."""

CALLS_INTERPRETED, LARGER = 6, 150
"""Number of interpreted calls in graphs of fewer than `LARGER` tasks: compilation takes a second."""

WORSENING = 0.0008
"""Maximum share of the makespan by which an accepted plan may be worse than the current one."""

RESTARTS = 0.1
"""Share of the rounds that begin from the best plan."""

WORSE_AREA = 0.1
"""Maximum share by which the excess of an infeasible plan may grow from one to the next."""

PRUNED, PRUNED_RUNS = 0.15, 6.0
"""Margin of a plan's time before pruning, as a share of the overhead plus a number of mean reruns; beyond it, the
repair gives up.
"""

MENDING = (0.2, 0.5, 0.5, 1.0)
"""Exponents of the gain while no plan fits: they weigh gain more and time less."""

ALPHAS = (1.0, 0.7, 0.5)
"""Exponents of the gain that the greedy tries."""


@dataclass(frozen=True)
class Plan:
    """A plan: its runs in order, each with its stage.

    Attributes
    ----------
    item, stage : tuple of int
    full : tuple of int
        0 where a light twin replaces the item.
    time : float
        In the tables' unit.
    peak : int
        Bytes.
    """

    item: tuple[int, ...]
    stage: tuple[int, ...]
    full: tuple[int, ...]
    time: float
    peak: int


class Search:
    """Greedy, pruning and ruin-and-recreate on one model and budget.

    Parameters
    ----------
    model : StageModel
    budget : int
    seed : int
    compiled : bool or None
        None: from `COMPILED_FROM` tasks on, after the first calls.
    """

    def __init__(self, model: StageModel, budget: int, seed: int, compiled: bool | None = None) -> None:
        self.model = model
        self.budget = budget
        self._wanted = model.fits_kernel and model.stages >= COMPILED_FROM and compiled is None
        self.room = search_room(model, seed, compiled=False)
        self._calls = 0
        self._area = math.inf
        self._interpreted = CALLS_INTERPRETED if model.stages < LARGER else 0
        self._use(compiled=bool(compiled) and model.fits_kernel)

    def _use(self, *, compiled: bool) -> None:
        """Continue interpreted or compiled, with the search's plans and state."""
        self.compiled = compiled
        if compiled:
            room = search_room(self.model, 0, compiled=True)._replace(draws=self.room.draws, state=self.room.state)
            for new, old in zip(room, self.room, strict=True):
                if isinstance(new, np.ndarray):
                    new[:] = old
            self.room = room
        self._tables = pack(self.model, compiled=compiled)
        self._work, self._spare = (work_room(self.model, compiled=compiled) for _ in range(2))
        self.records = (self._tables, self._work, self._spare, self.room)
        self._function: Callable[..., bool] = partial(ruin_and_recreate.act, *self.records)
        if compiled:
            from remat_algorithms.dag.plans import kernel

            self._function = kernel.ACT.bind(*self.records)

    def _act(self, what: int, alpha: float = 1.0, noise: float = 0.0) -> bool:
        """Call `ruin_and_recreate.act`, interpreted or compiled; it may replace `room`."""
        self._calls += 1
        if self._wanted and not self.compiled and self._calls > self._interpreted:
            try:
                self._use(compiled=True)
            except (ImportError, OSError, RuntimeError):
                # Without a compiler or source text, the interpreted code gives the same answers.
                self._wanted = False
                self._use(compiled=False)
        return bool(self._function(self.budget, what, alpha, noise))

    def _load(self, item: Sequence[int], stage: Sequence[int], plan: int = NOW) -> None:
        count = len(item)
        self.room.item[plan, :count] = item
        self.room.stage[plan, :count] = stage
        self.room.length[plan] = count

    def construct(self, alpha: float, noise: float = 0.0, start: Plan | None = None) -> Plan | None:
        """Build a plan with the greedy, from the order alone or from another plan; None if it fails."""
        first = self.model.tables.first
        self._load(start.item if start else first, start.stage if start else range(len(first)))
        return self._plan(NOW) if self._construct(alpha, noise) else None

    def _construct(self, alpha: float, noise: float) -> bool:
        """Repair the current plan with the greedy, and prune it."""
        return self._act(MEND, alpha, noise) and self._act(PRUNE)

    def repair(self, tries: int) -> Plan | None:
        """Search for a plan after the greedy failed: drop reruns around the peak of one that nearly fits; repair it."""
        if self._area == math.inf:
            self.construct(ALPHAS[-1])
            self._accept()
        for _ in range(tries):
            if self.room.state.stop:
                break
            copy_plan(self.room, HERE, NOW)
            self._act(CLEAR)
            alpha = MENDING[int(draw(self.room) * len(MENDING))]
            if self._construct(alpha, 2.0 * draw(self.room)):
                return self._plan(NOW)
            if self._work.figures.area <= self._area * (1.0 + WORSE_AREA * draw(self.room)):
                self._accept()
        return None

    def _accept(self) -> None:
        """Continue from a plan that does not fit."""
        copy_plan(self.room, NOW, HERE)
        self._area = float(self._work.figures.area)

    def start(self, plan: Plan) -> None:
        """Make a plan that fits the best known plan, and the start of `improve`."""
        for number in (HERE, BEST):
            self._load(plan.item, plan.stage, number)
            self.room.cost[number] = plan.time

    def from_here(self, plan: Plan) -> None:
        """Let the next rounds of `improve` start from another plan that fits, instead of the best known one."""
        self._load(plan.item, plan.stage, HERE)
        self.room.cost[HERE] = plan.time

    def holds(self, plan: Plan | None) -> bool:
        """Whether the best plan known here is at least as good as a given one."""
        return plan is not None and bool(self.room.cost[BEST] <= plan.time)

    def improve(self, rounds: int) -> tuple[int, Plan | None]:
        """Ruin and recreate; return the number of rounds made, and a plan better than the best known, if any."""
        before, done = float(self.room.cost[BEST]), 0
        while done < rounds and not self.room.state.stop:
            done += 1
            copy_plan(self.room, BEST if draw(self.room) < RESTARTS else HERE, NOW)
            self._act(RUIN)
            room = self.room
            alpha = ALPHAS[int(draw(room) * len(ALPHAS))]
            noise = 2.0 * draw(room) * draw(room)
            share = PRUNED + PRUNED_RUNS / max(1, int(room.length[HERE]) - self.model.stages)
            room.state.dearest = room.cost[HERE] + share * max(0.0, room.cost[HERE] - self.model.once_time)
            fits = self._construct(alpha, noise)
            room = self.room
            room.state.dearest = math.inf
            if not fits:
                continue
            slack = WORSENING * draw(room) ** 2
            if room.cost[NOW] <= room.cost[HERE] * (1.0 + slack):
                copy_plan(room, NOW, HERE)
            if room.cost[NOW] < room.cost[BEST] * (1.0 - 1e-12):
                copy_plan(room, NOW, BEST)
        return done, self._plan(BEST) if self.room.cost[BEST] < before else None

    def measure(self, item: Sequence[int], stage: Sequence[int]) -> Plan:
        """Replay runs unchanged, whether or not they fit into the budget."""
        self._load(item, stage)
        return self._plan(NOW)

    def memory(self, item: Sequence[int], stage: Sequence[int]) -> list[int]:
        """Return the bytes held during each run of a sequence."""
        self.measure(item, stage)
        return [int(level) for level in self._work.memory[: len(item)]]

    def stop(self) -> None:
        """Ask a running function to return soon; safe from another thread."""
        self.room.state.stop = 1

    def _plan(self, number: int) -> Plan:
        count = int(self.room.length[number])
        if number != NOW:
            self._load(self.room.item[number, :count], self.room.stage[number, :count])
        self._act(REPLAY)
        work, room = self._work, self.room
        return Plan(
            item=tuple(map(int, room.item[NOW, :count])),
            stage=tuple(map(int, room.stage[NOW, :count])),
            full=tuple(map(int, work.full[:count])),
            time=float(work.figures.total),
            peak=max(map(int, work.memory[:count]), default=int(self.model.tables.static[0])),
        )


def copy_plan(room: Room, source: int, target: int) -> None:
    """Copy a plan, its length and its time."""
    count = int(room.length[source])
    room.item[target, :count] = room.item[source, :count]
    room.stage[target, :count] = room.stage[source, :count]
    room.length[target] = count
    room.cost[target] = room.cost[source]
