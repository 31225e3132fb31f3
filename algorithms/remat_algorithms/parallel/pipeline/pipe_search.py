"""`pipe-search`: list scheduling and local search under bytes per device, with a look-ahead that excludes deadlock.

Three steps, each in moves, of which a move is a schedule made in O(operations * stages): rules and given orders;
regular schedules (`walk.drift`), which many micro-batches ask for; walks from the best orders that are there
(`walk.walk`), half of which are given up again and again, and the others go on twice as far.

It ends early where a lower bound says that there is nothing to gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.device_span import least_span
from remat_algorithms.parallel.pipeline.kernel_arrays import facts_of, lists_of, start_keys, state_of
from remat_algorithms.parallel.pipeline.local_search import Facts
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, PipelineModel, W, complete, evaluate
from remat_algorithms.parallel.pipeline.successive_halving import halve

Report = Callable[[Lists, float], object]

MOVES = 100_000
"""Moves at most, where nobody says how many."""

WORK = 1_000_000_000
"""Operations times classes up to which as many moves are made: more of them, fewer moves."""

AT_ONCE = 10_000_000
"""The same, between two looks at whether to stop."""

DRIFTING = 0.3
"""Share of the moves that look for regular schedules."""

BEGINNINGS = 16
"""Regular schedules that are begun with."""

SPREADS = (0.0, 0.05, 0.1, 0.2, 0.02, 0.05, 0.1, 0.5)
"""How many loads the gaps of a regular schedule are drawn from at first, in turns."""

KEPT = 16
"""Orders that the walks begin with."""

HEAT = 1.0
"""Mean times of an operation by which a schedule that is taken may be longer than the present one."""


class Found(NamedTuple):
    """Lists that fit, and their figure: makespan or span. None and infinity: nothing fits."""

    lists: Lists | None
    figure: float


class _Entry(NamedTuple):
    """Start times of an order; where it is a regular one, its gaps, those of its W's, and its period."""

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
    """Search for the order with the least makespan.

    Parameters
    ----------
    model : PipelineModel
    starts : sequence of lists
        Orders to begin with, complete ones or not; what fits of them bounds the answer. Micro-batches may be in any
        order in them, and B and W at one go.
    span : bool
        Look for the least largest span of a device, instead of the makespan.
    seed : int
    moves : int, optional
        How many schedules to make at most, default: `MOVES`, or fewer of large ones.
    stop : callable
        Asked now and then whether to stop.
    report : callable
        Receives better and better lists with their figure.

    Returns
    -------
    Found
        Every B apart from its W. The same for the same arguments, as long as `stop` does not interfere.
    """
    return _Search(model, span, seed, stop, report).run(starts, moves)


def figure_of(model: PipelineModel, lists: Sequence[Sequence[Op]], *, span: bool = False) -> float:
    """Return the figure of lists: infinite where they do not end, or do not fit."""
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
        self.facts = facts_of(model, span=self.span)
        self.state = state_of(self.facts, self.seed)
        size = int(self.facts.runs.sum()) * len(self.facts.runs)
        self.left = min(MOVES, max(1000, WORK // size)) if moves is None else moves
        self.at_once = max(1, AT_ONCE // size)
        self._bind()
        halve(self._begin(starts), self.left, self._walk, lambda: self.over)
        return self.best

    def _bind(self) -> None:
        # Compiled here, so that nothing is where a rule is the answer, or nothing fits.
        from remat_algorithms.parallel.pipeline import local_search_kernel as kernel

        facts, state = self.facts, self.state
        self.schedule = kernel.SCHEDULE.bind(facts, state)
        self.figure = kernel.FIGURE.bind(facts, state)
        self.take = kernel.TAKE.bind(facts, state)
        self.drift = kernel.DRIFT.bind(facts, state)
        self.walk = kernel.WALK.bind(facts, state)

    @property
    def over(self) -> bool:
        return self.left <= 0 or self.best.figure <= self.bound or self.stop()

    def _offer(self, lists: Lists) -> None:
        figure = figure_of(self.model, lists, span=self.span)
        if figure < self.best.figure:
            self.best = Found(lists, figure)
            self.report(lists, figure)

    def _offer_walked(self) -> None:
        """Offer the best that the kernel has, where it is better."""
        if self.state.progress.best < self.best.figure:
            self._offer(lists_of(self.facts, self.state.best_order))

    def _made(self, keys: Any, patience: float) -> _Entry:
        """Make a schedule from keys."""
        state = self.state
        state.key[:] = keys
        self.left -= 1
        self.schedule(patience)
        figure = self.figure()
        if figure < math.inf:
            self.take(figure)
        self._offer_walked()
        return _Entry(figure, state.start.astype(np.float64))

    def _begin(self, starts: Sequence[Sequence[Sequence[Op]]]) -> list[_Entry]:
        """Return the orders that the walks begin with: given ones, those of rules, and regular ones."""
        most = self.left
        found: list[_Entry] = []
        for lists in starts:
            whole = complete(self.model, lists)
            keys = None if whole is None else start_keys(self.model, whole)
            if keys is not None and not self.over:
                found.append(self._made(keys, -1.0))
        for number, keys in enumerate(_rules(self.facts)):
            if not self.over and (number == 0 or self.left > 0.8 * most):
                found += [self._made(keys, patience) for patience in (0.0, 1.0, -1.0)]
        begun = [_Entry(math.inf, None) for _ in range(BEGINNINGS)]
        found += halve(begun, int(DRIFTING * self.left), self._drift, lambda: self.over)
        unique = {entry.keys.tobytes(): entry for entry in found if entry.figure < math.inf}
        return sorted(unique.values(), key=lambda entry: entry.figure)[:KEPT]

    def _drift(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.state, self.state.progress
        spread = SPREADS[number % len(SPREADS)]
        progress.best = self.best.figure
        if entry.regular is not None:
            spread = -1.0
            state.gap[1], state.late[1], progress.period = entry.regular
            state.current[:] = entry.keys
            progress.current = entry.figure
        for part in self._parts(moves):
            self.drift(part, spread, float(self.bound))
            spread = -1.0
        return _Entry(
            progress.current, state.current.copy(), (state.gap[1].copy(), state.late[1].copy(), progress.period)
        )

    def _walk(self, number: int, entry: _Entry, moves: int) -> _Entry:
        state, progress = self.state, self.state.progress
        state.current[:] = entry.keys
        state.best[:] = entry.keys
        progress.current = progress.best = entry.figure
        for part in self._parts(moves):
            self.walk(part, HEAT, float(self.bound))
        return _Entry(progress.best, state.best.copy())

    def _parts(self, moves: int) -> Iterator[int]:
        """Yield how many moves to make at a time, and see afterwards what has come of them."""
        progress = self.state.progress
        while moves > 0 and not self.over:
            before = progress.moves
            yield min(moves, self.at_once, self.left)
            done = max(1, progress.moves - before)
            moves -= done
            self.left -= done
            self._offer_walked()


def one_by_one(model: PipelineModel) -> Lists:
    """Return the order in which no two micro-batches are under way at a time: it fits where any order does."""
    stages = range(model.stages)
    lists: list[list[Op]] = [[] for _ in model.fixed]
    for batch in range(model.batches):
        for stage in stages:
            lists[model.place[stage]].append((F, stage, batch))
        for stage in reversed(stages):
            own = lists[model.place[stage]]
            own.append((B, stage, batch))
            if model.weight[stage]:
                own.append((W, stage, batch))
    return tuple(map(tuple, lists))


def _rules(facts: Facts) -> Iterator[Any]:
    """Yield keys: backwards first, then the deepest forward, then W; groups of micro-batches at distances."""
    stages, batches, classes = facts.stages, facts.batches, len(facts.runs)
    number = np.arange(batches, dtype=np.float64)
    stage = np.arange(stages, dtype=np.float64)[:, None]
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
    """Return sizes of groups: all that are small, then fewer and fewer."""
    found, size = [], 1
    while size <= batches:
        found.append(size)
        size += max(1, size // 8)
    return found


def _first_times(facts: Facts) -> tuple[Any, float]:
    """Return when the operations of one micro-batch alone would run, and when it would be back."""
    stages = facts.stages
    time = facts.duration.astype(np.float64)
    offset = np.zeros(len(facts.runs))
    clock = 0.0
    for stage in range(stages):
        clock += facts.delay[stage]
        offset[stage] = clock
        clock += time[stage]
    for stage in reversed(range(stages)):
        offset[stages + stage] = clock
        clock += time[stages + stage] + facts.delay[stage]
    for index in range(2 * stages, len(offset)):
        offset[index] = offset[index - stages] + time[index - stages]
    return offset, clock
