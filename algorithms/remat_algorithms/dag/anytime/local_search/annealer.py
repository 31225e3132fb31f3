"""Simulated annealing as an object: the sequences of one model, interpreted or compiled."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from remat_algorithms.dag.anytime.local_search import annealing
from remat_algorithms.dag.anytime.local_search.run_sequence import COPIES, LOG, LONGEST, walk_room
from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.dag.plans.records import pack

MEAN_TIME = 1000.0
"""Time of the mean task of a model (see `remat_algorithms.dag.plans.model`, `Tables`)."""

HOT, WARM, COLD = 0.3, 0.05, 0.005
"""Temperatures at the start of a round, at the start of the price's rise, and at the end, in mean tasks."""

LOW_PRICE, HIGH_PRICE = 0.1, 5.0
"""Initial and final price of a mean value above the budget during one run, in mean tasks."""

WANDERING = 0.3
"""Share of a round with the low price, at which excess memory costs about as much as the reruns that avoid it."""

CHUNK = 1000
"""Steps at one temperature, between two checks of the clock."""

SAFE_AREA = 2**61
"""Maximum sum of bytes over a sequence that cannot overflow."""


def can_anneal(model: StageModel) -> bool:
    """Whether sums over the sequences of a model fit into 64 bits."""
    most = sum(model.tables.size) + max(model.tables.workspace, default=0) + model.tables.static[0]
    return bool(most * (LONGEST * model.stages + LOG) < SAFE_AREA)


class Annealer:
    """Simulated annealing over sequences of runs in any order, on one model and budget.

    Parameters
    ----------
    model : StageModel
        Simple: its items are the tasks of its order.
    budget : int
    seed : int
    compiled : bool
    """

    def __init__(self, model: StageModel, budget: int, seed: int, *, compiled: bool) -> None:
        self.model = model
        self.budget = budget
        self._tables = pack(model, compiled=compiled)
        self._walk = walk_room(model, seed, compiled=compiled)
        self.records = (self._tables, self._walk)
        self._function: Callable[..., bool] = partial(annealing.act, *self.records)
        if compiled:
            from remat_algorithms.dag.anytime.local_search import kernel

            self._function = kernel.ACT.bind(*self.records)
        sizes = [size for size in model.tables.size if size]
        self._mean_size = sum(sizes) / len(sizes) if sizes else 1.0
        self._walk.state.best_time = math.inf
        self.follow(model.tables.first)

    def _act(self, steps: int) -> bool:
        return bool(self._function(self.budget, steps))

    def follow(self, items: Sequence[int]) -> bool:
        """Continue from a sequence in which each read has a copy; return whether it fits.

        If it fits and is faster than the best sequence, it becomes the best one. The arrays hold no sequence that is
        longer than `longest`, or has more than `COPIES` runs of an item: then nothing changes.
        """
        if len(items) > self.longest or max(Counter(items).values(), default=0) > COPIES:
            return False
        best = self.best
        self._set_best(items)
        fits = self._act(0)
        if fits and self._walk.state.spent < self._walk.state.best_time:
            self._walk.state.best_time = self._walk.state.spent
        else:
            self._set_best(best or ())
        return fits

    def _set_best(self, items: Sequence[int]) -> None:
        self._walk.best[1 : len(items) + 1] = items
        self._walk.state.best_length = len(items) + 1

    @property
    def longest(self) -> int:
        """The maximum number of runs of a sequence."""
        return LONGEST * self.model.stages

    @property
    def best(self) -> list[int] | None:
        """Items of the fastest known sequence that fits."""
        if self._walk.state.best_time == math.inf:
            return None
        return [int(item) for item in self._walk.best[1 : self._walk.state.best_length]]

    @property
    def present(self) -> list[int]:
        """Items of the current sequence."""
        walk = self._walk
        return [int(walk.item[run]) for run in walk.sequence[1 : walk.state.length]]

    @property
    def time(self) -> float:
        """Time of the fastest sequence that fits, in the tables' unit; infinite if there is none."""
        return float(self._walk.state.best_time)

    @property
    def excess(self) -> float:
        """Excess of the current sequence over the budget, as penalized by `run_sequence`; 0 if it fits."""
        return float(self._walk.state.over)

    def round(self, steps: int, seconds: float, going_on: Callable[[], bool]) -> None:
        """Cool down once, in about `steps` steps or `seconds` seconds, whichever ends first, while `going_on` holds.

        The price is low at first, so that the search passes through sequences that do not fit. Then it rises.
        """
        start, done, share = time.monotonic(), 0, 0.0
        while share < 1.0 and going_on():
            if share < WANDERING:
                heat, price = HOT * (WARM / HOT) ** (share / WANDERING), LOW_PRICE
            else:
                late = (share - WANDERING) / (1.0 - WANDERING)
                heat, price = WARM * (COLD / WARM) ** late, LOW_PRICE * (HIGH_PRICE / LOW_PRICE) ** late
            self._walk.state.heat = MEAN_TIME * heat
            self._walk.state.price = MEAN_TIME / self._mean_size * price
            self._act(min(CHUNK, steps))
            done += CHUNK
            share = max(done / steps, (time.monotonic() - start) / seconds)

    def stop(self) -> None:
        """Ask a running round to return soon; safe from another thread."""
        self._walk.state.stop = 1
