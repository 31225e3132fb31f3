"""`pipe-exact`: the best order under each device's memory, by a constraint program with combinatorial bounds (CP-SAT).

Every operation is an interval, without overlap on a device. A cumulative resource per device represents its bytes: a
stage holds `activation` from the start of F to the end of B, `kept` to the end of W, and any excess of `kept` during B.

Three kinds of redundant constraints pay for themselves:

- the backwards that a forward waits for, if its stage can hold only a limited number of micro-batches (`bounds.waits`)
- bytes x time within each device's bytes x its available time
- the bounds of `bounds`

The program asks for an order that is better than that of `pipe_search`. If there is none, this is the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from remat_algorithms.kit.integral_bounds import common_step
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.pipeline.bounds import lower_bound, waits
from remat_algorithms.parallel.pipeline.device_span import least_span
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, PipelineModel, W, evaluate, flow, needed
from remat_algorithms.parallel.pipeline.pipe_search import Report, figure_of, search

MOVES = 20_000
"""Default number of moves of the initial search."""

FINEST = 2**32
"""Number of steps in a horizon if times are not integers, or are very large."""

MOST_BYTES = 2**24
"""Maximum number of bytes for exact sizes. Above it, sizes are rounded down to units, and solutions are checked."""

CLOSE = 1e-8
"""Relative difference within which an order counts as optimal, if times had to be rounded."""

SAME, MOST_PARTS = 1e-10, 1000
"""Relative tolerance for a common time step, and the maximum number of steps in the smallest time."""


class Proof(NamedTuple):
    """Best lists known, their objective value, a valid bound, and whether they are proved optimal.

    None and infinity, proved: no order fits. Not proved: the search was stopped, and lists and bound are its last ones.
    """

    lists: Lists | None
    figure: float
    bound: float
    proved: bool


def prove(
    model: PipelineModel,
    *,
    starts: Sequence[Sequence[Sequence[Op]]] = (),
    span: bool = False,
    seed: int = 0,
    threads: int = 1,
    moves: int | None = None,
    work: float | None = None,
    seconds: float | None = None,
    stop: Callable[[], bool] = lambda: False,
    report: Report = lambda lists, figure: None,
    bounded: Callable[[float], object] = lambda bound: None,
) -> Proof:
    """Find the order with the minimum makespan, and prove it.

    Parameters
    ----------
    model, starts, span, seed
        As in `pipe_search.search`.
    threads : int
    moves : int, optional
        Moves of the initial search; default `MOVES`.
    work : float, optional
        Limit of the program in CP-SAT's own units, for answers that do not depend on the clock.
    seconds : float, optional
        Time limit of the program.
    stop : callable
        Polled regularly for a stop.
    report, bounded : callable
        Receive each improved solution with its objective value, and each improved bound.
    """
    if not model.feasible:
        return Proof(None, math.inf, math.inf, True)
    bound = lower_bound(model, span=span)
    bounded(bound)
    moves = MOVES if moves is None else moves
    lists, figure = search(model, starts=starts, span=span, seed=seed, moves=moves, stop=stop, report=report)
    assert lists is not None
    if figure <= bound or stop():
        return Proof(lists, figure, min(bound, figure), figure <= bound)
    program = _Program(model, lists, span=span, figure=figure, bound=bound)

    def found(starts: dict[Op, int]) -> None:
        nonlocal lists, figure
        ordered = program.lists_of(starts)
        value = figure_of(model, ordered, span=span)
        if value < figure:
            lists, figure = ordered, value
            report(ordered, value)

    def raised(value: float) -> None:
        nonlocal bound
        if not math.isfinite(value):
            return
        better = min(program.time_of(value), figure)
        if better > bound:
            bound = better
            bounded(bound)

    job = CpSatJob(
        program.model, threads=threads, seed=seed, seconds=seconds, chosen=program.chosen, found=found, bounded=raised
    )
    if work is not None:
        job.solver.parameters.max_deterministic_time = work
    answer = watched(job, stop, seconds)
    if answer.outcome is Outcome.INFEASIBLE:
        # No order beats the known one by a full step.
        raised(program.most)
    elif answer.outcome is not Outcome.UNKNOWN:
        raised(answer.bound)
    ended = answer.outcome is Outcome.INFEASIBLE or (answer.outcome is Outcome.OPTIMAL and program.holds)
    proved = figure <= bound or (ended and figure - bound <= CLOSE * figure)
    return Proof(lists, figure, min(bound, figure), proved)


def _common_unit(model: PipelineModel, figure: float) -> float | None:
    """Return a step that divides all times, within float accuracy; None if no large enough step exists."""
    times = {time for row in (*model.times[:3], model.delays) for time in row if time}
    for parts in range(1, MOST_PARTS + 1):
        unit = min(times) / parts
        if all(abs(time / unit - round(time / unit)) <= SAME * time / unit for time in times):
            return unit if figure <= FINEST * unit else None
    return None


class _Program:
    """Program that asks for an order better than a given one.

    Attributes
    ----------
    unit : int or float
        Length of a time step.
    exact, rounded : bool
        Whether times equal those of the pipeline, multiples of an integer unit; whether they are rounded down.
    most : int
        Lower bound in steps on every order, if the program has no solution.
    holds : bool
        Whether its bytes also equal those of the pipeline.
    """

    def __init__(self, model: PipelineModel, lists: Lists, *, span: bool, figure: float, bound: float) -> None:
        from ortools.sat.python import cp_model

        self.pipeline = model
        self.model: Any = cp_model.CpModel()
        step = int(common_step(time for row in (*model.times, model.delays) for time in row)) if model.whole else 0
        self.exact = 0 < figure <= FINEST * step
        common = step if self.exact else _common_unit(model, figure)
        self.unit: float = figure / FINEST if common is None else common
        self.rounded = common is None
        self.holds = True
        self.ops = model.operations()
        # For spans, the last device may start as late as the first one ends.
        most = round(figure / self.unit) if common else math.ceil(figure / self.unit)
        self.horizon = most if not span else 2 * sum(self._steps(model.times[op[0]][op[1]]) for op in self.ops)
        if span:
            self.horizon += 2 * model.batches * sum(map(self._steps, model.delays)) * 2
        least = math.ceil(bound / self.unit) if self.exact else math.floor(bound / self.unit * (1 - CLOSE))
        self.most = most - (1 if self.rounded else 0)
        self.figure = self.model.new_int_var(min(least, most - 1), most - 1, "")
        self.time = {op: self._steps(model.times[op[0]][op[1]]) for op in self.ops}
        self.start = {op: self.model.new_int_var(0, self.horizon - self.time[op], "") for op in self.ops}
        self._precede()
        for device, own in enumerate(model.on):
            if own:
                self._run_on(device, span=span)
        self._hint(lists, span=span)
        self.model.minimize(self.figure)

    def _steps(self, time: float) -> int:
        return math.floor(time / self.unit) if self.rounded else round(time / self.unit)

    def time_of(self, steps: float) -> float:
        """Return a time that is at most the given number of steps."""
        if self.exact:
            return math.ceil(steps - CLOSE) * self.unit
        return steps * self.unit * (1 - SAME)

    def _end(self, op: Op) -> Any:
        return self.start[op] + self.time[op]

    def _precede(self) -> None:
        model, program = self.pipeline, self.model
        for op in self.ops:
            for source, delay in needed(model, op):
                program.add(self.start[op] >= self._end(source) + self._steps(delay))
            if op[2]:
                program.add(self.start[op] >= self._end((op[0], op[1], op[2] - 1)))
        for before, after in waits(model):
            program.add(self.start[after] >= self._end(before))

    def _run_on(self, device: int, *, span: bool) -> None:
        model, program = self.pipeline, self.model
        own = model.on[device]
        ops = [op for op in self.ops if op[1] in own]
        program.add_no_overlap([program.new_fixed_size_interval_var(self.start[op], self.time[op], "") for op in ops])
        begin = self.start[F, own[0], 0] if span else 0
        for op in ops:
            if op[2] == model.count[op[1]] - 1:
                program.add(self.figure >= self._end(op) - begin)
        free = model.free[device]
        most = sum(model.count[stage] * max(model.activation[stage], model.kept[stage]) for stage in own)
        if free is not None and free < most:
            self._hold(own, free)

    def _hold(self, own: tuple[int, ...], free: int) -> None:
        model, program = self.pipeline, self.model
        sizes = [model.activation[stage] for stage in own] + [model.kept[stage] for stage in own]
        unit = math.gcd(*sizes)
        if free // unit > MOST_BYTES:
            unit = -(-free // MOST_BYTES)
            self.holds = False
        intervals, demands, products = [], [], []
        for stage in own:
            for batch in range(model.count[stage]):
                ends = self._end((B, stage, batch))
                held = [(self.start[F, stage, batch], ends, model.activation[stage])]
                if model.kept[stage]:
                    held.append((ends, self._end((W, stage, batch)), model.kept[stage]))
                    more = model.kept[stage] - model.activation[stage]
                    if more > 0:
                        held.append((self.start[B, stage, batch], ends, more))
                for first, last, size in held:
                    length = program.new_int_var(0, self.horizon, "")
                    intervals.append(program.new_interval_var(first, length, last, ""))
                    demands.append(size // unit)
                    products.append(size // unit * length)
        room = free // unit if self.holds else -(-free // unit)
        program.add_cumulative(intervals, demands, room)
        program.add(sum(products) <= room * self.figure)

    def _hint(self, lists: Lists, *, span: bool) -> None:
        found = least_span(self.pipeline, lists) if span else None
        evaluation = evaluate(self.pipeline, lists) if found is None else found[1]
        assert evaluation is not None
        for listed, starts in zip(lists, evaluation.starts, strict=True):
            for op, start in zip(listed, starts, strict=True):
                self.model.add_hint(self.start[op], min(self.horizon - self.time[op], self._steps(start)))

    def chosen(self, value: Callable[[Any], int]) -> dict[Op, int]:
        """Return the starts of a solution."""
        return {op: value(start) for op, start in self.start.items()}

    def lists_of(self, starts: dict[Op, int]) -> Lists:
        """Return the lists ordered by start; of operations that start together, those of zero length come first."""
        lists: list[list[Op]] = [[] for _ in self.pipeline.fixed]
        for _, together in groupby(sorted(self.ops, key=starts.__getitem__), key=starts.__getitem__):
            ops = list(together)
            instant = self._in_data_order({op for op in ops if not self.time[op]})
            for op in (*instant, *(op for op in ops if self.time[op])):
                lists[self.pipeline.place[op[1]]].append(op)
        return tuple(map(tuple, lists))

    def _in_data_order(self, ops: set[Op]) -> Iterator[Op]:
        """Yield operations of one instant after those that they wait for, and those that free bytes early."""
        waiting = {op: {source for source, _ in needed(self.pipeline, op)} & ops for op in ops}
        for op in ops:
            if (before := (op[0], op[1], op[2] - 1)) in waiting:
                waiting[op].add(before)
        while waiting:
            op = min((op for op, sources in waiting.items() if not sources), key=lambda op: (op[0] == F, flow(op)))
            del waiting[op]
            for sources in waiting.values():
                sources.discard(op)
            yield op
