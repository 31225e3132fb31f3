"""`pipe-search`: list scheduling and local search under the memory of each device, with a deadlock-free look-ahead.

A move is a schedule built in O(operations * stages). The search has three phases, each limited by a number of moves.
The first uses rules and given orders. The second looks for regular schedules (`local_search.moves.drift`), which pay
for many micro-batches. The third runs local searches (`local_search.moves.walk`) from the best orders found. Successive
halving drops half of the searches in each round, and continues the others for twice as long.

The search ends early if a lower bound proves that no improvement is possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.device_span import least_span
from remat_algorithms.parallel.pipeline.local_search.arrays import facts_of, lists_of, start_keys
from remat_algorithms.parallel.pipeline.local_search.driver import LocalSearch
from remat_algorithms.parallel.pipeline.local_search.records import Facts
from remat_algorithms.parallel.pipeline.model import Lists, Op, PipelineModel, complete, evaluate, one_by_one
from remat_algorithms.parallel.pipeline.successive_halving import halve

Report = Callable[[Lists, float], object]

MOVES = 100_000
"""Default maximum number of moves."""

WORK = 1_000_000_000
"""Maximum product of moves, operations and classes; larger pipelines make fewer moves."""

AT_ONCE = 10_000_000
"""The same product, between two checks for a stop."""

DRIFTING = 0.3
"""Share of the moves that look for regular schedules."""

BEGINNINGS = 16
"""Number of initial regular schedules."""

SPREADS = (0.0, 0.05, 0.1, 0.2, 0.02, 0.05, 0.1, 0.5)
"""Ranges of the initial gaps of regular schedules in loads, used in rotation."""

KEPT = 16
"""Number of orders from which local search starts."""

HEAT = 1.0
"""Accepted increase of the makespan over the current schedule, in mean operation times."""


class Found(NamedTuple):
    """Feasible lists and their objective value, makespan or span. None and infinity: no order fits."""

    lists: Lists | None
    figure: float


class _Entry(NamedTuple):
    """Start times of an order; for a regular one, also its gaps, the delays of its W's, and its period."""

    figure: float
    keys: Any
    regular: tuple[Any, Any, float] | None = None


def search(
    model: PipelineModel,
    *,
    starts: Sequence[Sequence[Sequence[Op]]] = (),
    span: bool = False,
    seed: int = 0,
    moves: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    report: Report = lambda lists, figure: None,
) -> Found:
    """Search for the order with the minimum makespan.

    Parameters
    ----------
    model : PipelineModel
    starts : sequence of lists
        Starting orders, complete or not; those that fit bound the answer. They may have micro-batches in any order, and
        B and W together.
    span : bool
        Minimise the largest span of a device instead of the makespan.
    seed : int
    moves : int, optional
        Maximum number of schedules to build; default: `MOVES`, or fewer for large pipelines.
    stop : callable
        Polled regularly for a stop.
    report : callable
        Receives each improved solution with its objective value.

    Returns
    -------
    Found
        With separate B and W. Deterministic for equal arguments, unless `stop` intervenes.
    """
    return _Search(model, span, seed, stop, report).run(starts, moves)


def figure_of(model: PipelineModel, lists: Sequence[Sequence[Op]], *, span: bool = False) -> float:
    """Return the objective value of lists; infinite if they deadlock or do not fit."""
    found = least_span(model, lists) if span else None
    evaluation = evaluate(model, lists) if found is None else found[1]
    if evaluation is None:
        return math.inf
    pairs = zip(evaluation.peaks, model.capacity, strict=True)
    if any(capacity is not None and peak > capacity for peak, capacity in pairs):
        return math.inf
    return evaluation.makespan if found is None else found[0]


class _Search:
    def __init__(self, model: PipelineModel, span: bool, seed: int, stop: Callable[[], bool], report: Report) -> None:
        self.model, self.span, self.seed, self.stop, self.report = model, span, seed, stop, report
        self.best = Found(None, math.inf)

    def run(self, starts: Sequence[Sequence[Sequence[Op]]], moves: int | None) -> Found:
        model = self.model
        if not model.feasible:
            return self.best
        for lists in (one_by_one(model), *starts):
            whole = complete(model, lists)
            if whole is not None:
                self._offer(whole)
        self.bound = lower_bound(model, span=self.span)
        if self.best.figure <= self.bound or moves == 0:
            return self.best
        self.facts = facts = facts_of(model, span=self.span)
        size = int(facts.runs.sum()) * len(facts.runs)
        left = min(MOVES, max(1000, WORK // size)) if moves is None else moves
        self.kernel = LocalSearch(facts, self.seed, AT_ONCE // size, left)
        halve(self._begin(starts), self.kernel.left, self._walk, lambda: self.over)
        return self.best

    @property
    def over(self) -> bool:
        return self.kernel.left <= 0 or self.best.figure <= self.bound or self.stop()

    def _offer(self, lists: Lists) -> None:
        figure = figure_of(self.model, lists, span=self.span)
        if figure < self.best.figure:
            self.best = Found(lists, figure)
            self.report(lists, figure)

    def _offer_walked(self) -> None:
        """Offer the kernel's best schedule if it is better."""
        if self.kernel.progress.best < float(self.best.figure):  # the kernel starts from that figure as a float
            self._offer(lists_of(self.facts, self.kernel.best_order))

    def _made(self, keys: Any, patience: float) -> _Entry:
        """Build a schedule from keys."""
        self.kernel.left -= 1
        figure = self.kernel.build(keys, patience)
        if figure < math.inf:
            self.kernel.take(figure)
        self._offer_walked()
        return _Entry(figure, self.kernel.state.start.astype(np.float64))

    def _begin(self, starts: Sequence[Sequence[Sequence[Op]]]) -> list[_Entry]:
        """Return the starting orders of the local searches: given ones, those of rules, and regular ones."""
        most = self.kernel.left
        found: list[_Entry] = []
        for lists in starts:
            whole = complete(self.model, lists)
            keys = None if whole is None else start_keys(self.model, whole)
            if keys is not None and not self.over:
                found.append(self._made(keys, -1.0))
        for number, keys in enumerate(_rules(self.facts)):
            if not self.over and (number == 0 or self.kernel.left > 0.8 * most):
                found += [self._made(keys, patience) for patience in (0.0, 1.0, -1.0)]
        begun = [_Entry(math.inf, None) for _ in range(BEGINNINGS)]
        found += halve(begun, int(DRIFTING * self.kernel.left), self._drift, lambda: self.over)
        unique = {entry.keys.tobytes(): entry for entry in found if entry.figure < math.inf}
        return sorted(unique.values(), key=lambda entry: entry.figure)[:KEPT]

    def _drift(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.kernel.state, self.kernel.progress
        spread = SPREADS[number % len(SPREADS)]
        progress.best = self.best.figure
        if entry.regular is not None:
            spread = -1.0
            state.gap[1], state.late[1], progress.period = entry.regular
            state.current[:] = entry.keys
            progress.current = entry.figure
        for part in self.kernel.parts(moves, lambda: self.over):
            self.kernel.drift(part, spread, float(self.bound))
            spread = -1.0
            self._offer_walked()
        return _Entry(
            progress.current, state.current.copy(), (state.gap[1].copy(), state.late[1].copy(), progress.period)
        )

    def _walk(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.kernel.state, self.kernel.progress
        state.current[:] = entry.keys
        state.best[:] = entry.keys
        progress.current = progress.best = entry.figure
        for part in self.kernel.parts(moves, lambda: self.over):
            self.kernel.walk(part, HEAT, float(self.bound))
            self._offer_walked()
        return _Entry(progress.best, state.best.copy())


def _rules(facts: Facts) -> Iterator[Any]:
    """Yield keys: backwards first, then the deepest forward, then W; also groups of micro-batches at distances."""
    stages, batches, classes = facts.stages, facts.batches, len(facts.runs)
    number = np.arange(batches, dtype=np.float64)
    first = np.maximum.accumulate(np.where(facts.head, np.arange(stages), 0))
    stage = (np.arange(stages, dtype=np.float64) - first)[:, None]
    largest = float(stages * batches)
    keys = np.concatenate([largest * (stages - stage) + number, number + stage - largest, number + 0 * stage])
    keys = np.concatenate([keys, largest * (stages + 1) + number + stage])[
        [*range(2 * stages), *range(3 * stages, 4 * stages)]
    ]
    yield keys[:classes]
    offset, round_trip = _first_times(facts)
    for group in _groups(batches):
        least = facts.load * group
        more = max(0.0, round_trip + (group - 1) * facts.load - least)
        for apart in (0.0, 0.5, 1.0):
            for share in (0.0, 0.15, 0.3, 0.5, 0.7, 1.0) if more > 0.0 else (0.0,):
                within = number % group * apart * facts.load * stages / classes
                yield offset[:, None] + within + (least + share * more) * (number // group)


def _groups(batches: int) -> list[int]:
    """Return group sizes: all small ones, then increasingly sparse ones."""
    found, size = [], 1
    while size <= batches:
        found.append(size)
        size += max(1, size // 8)
    return found


def _first_times(facts: Facts) -> tuple[Any, float]:
    """Return the start times of a single micro-batch of each chain, and the latest return time."""
    stages = facts.stages
    time = facts.duration.astype(np.float64)
    offset = np.zeros(len(facts.runs))
    clock = longest = 0.0
    for stage in range(stages):
        clock = 0.0 if facts.head[stage] else clock + facts.delay[stage]
        offset[stage] = clock
        clock += time[stage]
    for stage in reversed(range(stages)):
        if facts.tail[stage]:
            clock = offset[stage] + time[stage]
        offset[stages + stage] = clock
        clock += time[stages + stage] + facts.delay[stage]
        longest = max(longest, clock)
    for index in range(2 * stages, len(offset)):
        offset[index] = offset[index - stages] + time[index - stages]
    return offset, longest
