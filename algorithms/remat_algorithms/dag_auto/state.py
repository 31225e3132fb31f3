"""The search as an object: tables, room and functions, interpreted or compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from remat_algorithms.dag_auto import replay as replaying
from remat_algorithms.dag_auto import ruin
from remat_algorithms.dag_auto.greedy import CANDIDATES, Room
from remat_algorithms.dag_auto.model import Row, StageModel, Tables
from remat_algorithms.dag_auto.replay import Work

COMPILED_FROM = 40
"""Tasks from which the compiled functions pay."""

LONGEST = 12
"""Most runs of a plan, as a multiple of the order's."""

ALPHAS = (1.0, 0.7, 0.5)
"""Exponents of the gain that the greedy is tried with."""


@dataclass(frozen=True)
class Plan:
    """A plan that fits: its runs in order, each with its stage.

    Attributes
    ----------
    item, stage : tuple of int
    full : tuple of int
        0 where a light twin stands in.
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
        None: by size.
    """

    def __init__(self, model: StageModel, budget: int, seed: int, compiled: bool | None = None) -> None:
        self.model = model
        self.budget = budget
        self.compiled = model.fits_kernel and (model.stages >= COMPILED_FROM if compiled is None else compiled)
        self.tables: Tables = model.arrays if self.compiled else model.tables
        items, values = len(model.tables.time), len(model.tables.size)
        longest = LONGEST * model.stages + 64
        # Plans whose runs read or write more, on average, than a dozen times what the order does, are not looked at.
        accesses = LONGEST * (len(model.tables.read_value) + len(model.tables.write_value)) + 64
        self.work, self.spare = self._work(longest, values, accesses), self._work(longest, values, accesses)
        self.room = self._room(longest, items)
        self.here_item, self.here_stage = self._row(longest), self._row(longest)
        self.room.random[0] = 1 + (seed * 7919 + 12345) % 2147483645
        self._functions = _functions(self.compiled)

    def _row(self, length: int, *, real: bool = False) -> Row:
        if self.compiled:
            return np.zeros(length, dtype=np.float64 if real else np.int64)
        return [0.0 if real else 0] * length

    def _work(self, longest: int, values: int, accesses: int) -> Work:
        row = self._row
        return Work(
            memory=row(longest + 1),
            full=row(longest + 1),
            head=row(values + 1),
            access=row(accesses + 1),
            change=row(longest + 2),
            freed=row(longest + 2),
            figures=row(4, real=True),
        )

    def _room(self, longest: int, items: int) -> Room:
        row = self._row
        return Room(
            item=row(longest),
            stage=row(longest),
            trial_item=row(longest),
            trial_stage=row(longest),
            saved_item=row(longest),
            saved_stage=row(longest),
            counts=row(4),
            todo=row(items + 1),
            depth=row(items + 1),
            mark=row(items + 1),
            stamp=row(1),
            delta=row(longest + 2),
            best_value=row(CANDIDATES),
            best_depth=row(CANDIDATES),
            best_score=row(CANDIDATES, real=True),
            random=row(1),
            stop=row(1),
            cost=row(3, real=True),
        )

    def load(self, item: Row, stage: Row) -> None:
        """Make a sequence of runs the present plan."""
        count = len(item)
        self.room.item[:count] = item
        self.room.stage[:count] = stage
        self.room.counts[0] = count

    def construct(self, alpha: float, noise: float = 0.0, *, item: Row = None, stage: Row = None) -> Plan | None:
        """Build a plan with the greedy, from the order alone or from reruns that are given; None if it fails."""
        first = self.model.tables.first
        self.load(first if item is None else item, range(len(first)) if stage is None else stage)
        work, spare, room = self.work, self.spare, self.room
        fits = self._functions.construct(self.tables, work, spare, room, self.budget, alpha, noise)
        return self._plan(room.item, room.stage, room.counts[0]) if fits else None

    def start(self, plan: Plan) -> None:
        """Make a plan that fits the one that `improve` starts from, and the best known."""
        count = len(plan.item)
        room = self.room
        for items, stages in ((room.saved_item, room.saved_stage), (self.here_item, self.here_stage)):
            items[:count] = plan.item
            stages[:count] = plan.stage
        room.counts[2] = room.counts[3] = count
        room.cost[1] = room.cost[2] = plan.time

    def improve(self, rounds: int) -> tuple[int, Plan | None]:
        """Ruin and recreate; return the rounds that were made, and a plan better than the best known, if any."""
        room, before = self.room, float(self.room.cost[1])
        done = self._functions.improve(
            self.tables, self.work, self.spare, room, self.here_item, self.here_stage, self.budget, rounds
        )
        better = room.cost[1] < before
        return done, self._plan(room.saved_item, room.saved_stage, room.counts[3]) if better else None

    def measure(self, item: Row, stage: Row) -> Plan:
        """Replay runs as they are, within the budget or not."""
        self.load(item, stage)
        return self._plan(self.room.item, self.room.stage, len(item))

    def over(self, item: Row, stage: Row) -> list[int]:
        """Return the bytes held during each run of a sequence."""
        self.measure(item, stage)
        return [int(level) for level in self.work.memory[: len(item)]]

    def stop(self) -> None:
        """Ask a running function to return soon; safe from another thread."""
        self.room.stop[0] = 1

    def _plan(self, item: Row, stage: Row, count: int) -> Plan:
        count = int(count)
        self._functions.replay(self.tables, self.work, item, count, self.budget)
        work = self.work
        return Plan(
            item=tuple(map(int, item[:count])),
            stage=tuple(map(int, stage[:count])),
            full=tuple(map(int, work.full[:count])),
            time=float(work.figures[1]),
            peak=max(map(int, work.memory[:count]), default=int(self.model.tables.static[0])),
        )


class _Interpreted:
    """The functions as they stand."""

    replay = staticmethod(replaying.replay)
    construct = staticmethod(ruin.construct)
    improve = staticmethod(ruin.improve)


def _functions(compiled: bool) -> Any:
    """Return the functions; the compiler is imported, and compiles, only where it is asked for."""
    if not compiled:
        return _Interpreted
    from remat_algorithms.dag_auto import kernel

    return kernel
