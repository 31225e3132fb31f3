"""`tessel`: the smallest repetend, then warm-up and drain (after Lin et al. 2024).

A *repetend* is the part of a step that devices repeat: operations of a few micro-batches, not necessarily the same
ones, within one period. The search looks for the smallest period whose repetend fits the memory of each device, with
one constraint program per period. The repetend determines the operations before its first and after its last
repetition. All operations then run as early as possible in that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import Field

from remat.plugin import Context, Problem, Proposal, Termination
from remat_algorithms.kit.integral_bounds import common_step
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import watched
from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, PipelineModel, W, flow, needed
from remat_algorithms.parallel.pipeline.order_search import BestOrders, PlacementOptions, stagings

MOST_STEPS, STEPS = 500, 100
"""Maximum work of a micro-batch on the busiest device for exact times, in multiples of their common step; the
number of steps of that work otherwise."""

FINEST = 2**16
"""Number of steps of a period up to which the bisection is exact; of a longer one, it ends at that share."""

LARGEST = 2**50
"""Maximum time of a program, in steps."""

ROUNDS = 3
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""


class TesselOptions(PlacementOptions):
    """Options of `tessel`."""

    repeats: int = Field(default=1, ge=1, le=8, description="maximum number of micro-batches in a repetend")
    work: float = Field(
        default=0.2, gt=0, le=1e6, description="work limit of each program, in CP-SAT's deterministic units"
    )


def solve(problem: Problem, options: TesselOptions, context: Context) -> Proposal:
    """Find repetends on one placement after another, and keep the fastest orders that fit."""
    best = BestOrders(problem, context)
    for staged in stagings(problem, options):
        for count in range(1, min(options.repeats, staged.model.batches) + 1):
            here = staged
            for _ in range(ROUNDS):
                if context.stopped:
                    break
                lists = repeated(here.model, count, work=options.work, seed=context.seed, stop=lambda: context.stopped)
                excess = [] if lists is None else best.consider(here, lists)
                if not any(excess):
                    break
                here = here.tightened(excess)
    return Proposal(
        orders=best.answer,
        makespan=best.makespan,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def repeated(
    model: PipelineModel, count: int, *, work: float, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> Lists | None:
    """Return lists that repeat the smallest repetend of `count` micro-batches; None if none was found."""
    found = least_repetend(model, count, work=work, seed=seed, stop=stop)
    return None if found is None else _lists(model, found[1], found[0], count)


def least_repetend(
    model: PipelineModel, count: int, *, work: float, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> tuple[int, dict[Op, int]] | None:
    """Return the smallest period and the starts of the first `count` micro-batches' operations, in time steps.

    If times have a common step that is large enough, they are exact; otherwise they are rounded up.

    Notes
    -----
    Bisection with one program per period, up to a `FINEST`-th of it, and one more for the repetend that finishes a
    micro-batch earliest.
    """
    if not model.feasible:
        return None
    most = max(map(sum, _loads(model)))
    step = common_step(time for times in (*_loads(model), model.delays) for time in times)
    unit = step if most <= MOST_STEPS * step else most / STEPS
    longest = sum(map(sum, _loads(model))) + 2 * sum(model.delays)
    if longest * count * _shifts(model) > LARGEST * unit:
        unit = longest * count * _shifts(model) / LARGEST
    if not unit:
        unit = 1
    low = max(1, *(sum(math.ceil(time / unit) for time in loads) for loads in _loads(model))) * count
    # One micro-batch at a time always fits.
    high = count * (sum(sum(math.ceil(time / unit) for time in loads) for loads in _loads(model)))
    high = max(low, high + 2 * count * sum(math.ceil(delay / unit) for delay in model.delays))
    best: dict[Op, int] | None = None
    period = least = low
    while low <= high and not stop():
        if high >= FINEST and (high - low) * FINEST < high:
            if best is not None:
                break
            period = high
        program = _Repetend(model, period, count, unit)
        found = program.solved(work, seed, stop)
        if found is None:
            low = period + 1
        else:
            best, high, least = found, period - 1, period
        period = (low + high) // 2
    if best is None:
        return None
    soonest = _Repetend(model, least, count, unit, soonest=True).solved(work, seed, stop)
    return least, soonest or best


def _shifts(model: PipelineModel) -> int:
    """Return the largest number of periods from the start of a repetend to that of one of its operations, plus two."""
    return 2 * (2 * model.stages + 2) + 2


def _loads(model: PipelineModel) -> list[list[float]]:
    """Return the times of all operations of each device."""
    phases = (F, B, W)
    return [[model.times[phase][stage] for stage in own for phase in phases] for own in model.on]


def _lists(model: PipelineModel, starts: dict[Op, int], period: int, count: int) -> Lists:
    """Return the list of each device: one repetend after the other, without operations beyond the last micro-batch."""
    found: list[list[tuple[int, tuple[int, int, int], Op]]] = [[] for _ in range(model.devices)]
    for (phase, stage, number), start in starts.items():
        for first in range(0, model.batches - number, count):
            op = (phase, stage, first + number)
            found[model.place[stage]].append((start + first // count * period, flow(op), op))
    return tuple(tuple(op for _, _, op in sorted(listed)) for listed in found)


@dataclass(frozen=True)
class _When:
    """An instant of a repetend: its offset in the period, the number of the period, and the absolute time."""

    offset: Any
    shift: Any
    time: Any


class _Repetend:
    """The program of one period: each operation starts at an offset in it, some periods after the first one."""

    def __init__(
        self, model: PipelineModel, period: int, count: int, unit: float | Fraction, *, soonest: bool = False
    ) -> None:
        from ortools.sat.python import cp_model

        self.pipeline, self.period, self.count, self.unit = model, period, count, unit
        self.model: Any = cp_model.CpModel()
        self.shifts = _shifts(model) - 2
        self.ops = [
            (phase, stage, number)
            for phase in (F, B, W)
            for stage in range(model.stages)
            if phase != W or model.weight[stage]
            for number in range(count)
        ]
        self.start = {op: self._instant() for op in self.ops}
        self._precede()
        for device, own in enumerate(model.on):
            if own:
                self._run_on(own)
                free = model.free[device]
                if free is not None:
                    self._hold(own, free)
        if soonest:
            last = self.model.new_int_var(0, period * (self.shifts + 2), "")
            for op in self.ops:
                self.model.add(last >= self._end(op))
            self.model.minimize(last)

    def _instant(self) -> _When:
        offset = self.model.new_int_var(0, self.period - 1, "")
        shift = self.model.new_int_var(0, self.shifts, "")
        return _When(offset, shift, offset + self.period * shift)

    def _took(self, op: Op) -> int:
        return math.ceil(self.pipeline.times[op[0]][op[1]] / self.unit)

    def _end(self, op: Op) -> Any:
        return self.start[op].time + self._took(op)

    def _precede(self) -> None:
        for op in self.ops:
            for source, delay in needed(self.pipeline, op):
                self.model.add(self.start[op].time >= self._end(source) + math.ceil(delay / self.unit))
            if op[2]:
                self.model.add(self.start[op].time >= self.start[(op[0], op[1], op[2] - 1)].time)

    def _run_on(self, own: tuple[int, ...]) -> None:
        """Forbid overlaps modulo the period: each operation also appears one period earlier."""
        intervals = []
        for op in self.ops:
            if op[1] in own and self._took(op):
                for before in (0, self.period):
                    begin = self.start[op].offset - before
                    intervals.append(self.model.new_fixed_size_interval_var(begin, self._took(op), ""))
        self.model.add_no_overlap(intervals)

    def _hold(self, own: tuple[int, ...], free: int) -> None:
        """Limit the bytes held at the start of each forward, and of each backward that increases them."""
        model = self.pipeline
        if all(model.activation[stage] == model.kept[stage] == 0 for stage in own):
            return
        ends = {op: self._instant() for op in self.ops if op[0] != F and op[1] in own}
        for op, end in ends.items():
            self.model.add(end.time == self._end(op))
        for phase, stage, number in self.ops:
            takes = phase == F or (phase == B and model.kept[stage] > model.activation[stage])
            if stage in own and takes:
                at = self.start[phase, stage, number]
                terms = [term for held in own for term in self._held(at, held, ends)]
                more = max(0, model.kept[stage] - model.activation[stage]) if phase == B else 0
                self.model.add(sum(terms) + more <= free)

    def _held(self, at: _When, stage: int, ends: dict[Op, _When]) -> Iterator[Any]:
        """Yield the bytes that a stage holds when an operation starts, including that operation."""
        model = self.pipeline
        for number in range(self.count):
            back = ends[B, stage, number]
            yield model.activation[stage] * (self._since(self.start[F, stage, number], at) - self._since(back, at))
            if model.kept[stage]:
                done = ends[W, stage, number]
                yield model.kept[stage] * (self._since(back, at) - self._since(done, at))

    def _since(self, event: _When, at: _When) -> Any:
        """Return how often an event has happened by an instant, up to a common constant."""
        if event is at:
            return 1 - event.shift
        happened = self.model.new_bool_var("")
        self.model.add(event.offset <= at.offset).only_enforce_if(happened)
        self.model.add(event.offset > at.offset).only_enforce_if(~happened)
        return happened - event.shift

    def solved(self, work: float, seed: int, stop: Callable[[], bool]) -> dict[Op, int] | None:
        """Return the starts of a solution; None without one."""
        solutions: list[dict[Op, int]] = []

        def chosen(value: Callable[[Any], int]) -> dict[Op, int]:
            return {op: value(when.offset) + self.period * value(when.shift) for op, when in self.start.items()}

        job = CpSatJob(self.model, threads=1, seed=seed, seconds=None, chosen=chosen, found=solutions.append)
        job.solver.parameters.max_deterministic_time = work
        watched(job, stop, None)
        return solutions[-1] if solutions else None
