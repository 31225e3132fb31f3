"""The bound `blocks`: the maximum weight of units that one device can run within a time, including transfers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from remat.plugin import Context
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.duals import solve_linear
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.placement.model import Model
from remat_algorithms.parallel.placement.parameter_constraints import parameter_bytes, parameters_in
from remat_algorithms.parallel.placement.program import Steps, steps_of

WEIGHTS = 10**6
"""Total of the integer weights of all units."""

ROUNDS = 200
"""Maximum number of weight vectors tried for a time."""

NEAR = 1e-3
"""Relative gap between refuted and feasible times at which the search stops."""

LEAST = 1e-12
"""Relative difference below which two times count as equal."""

MOST_WORK = 2.0
"""Limit of one program, in CP-SAT's own units."""

SHARE = 0.25
"""Share of the total work limit that one time may use."""


@dataclass(frozen=True)
class Block:
    """Units that a device of a class runs within a time."""

    kind: int
    units: frozenset[int]


@dataclass
class Blocks:
    """Blocks of a model on a separable star whose units all stay in one place.

    Attributes
    ----------
    model : Model
    context : Context
    work : float
        Remaining work, in CP-SAT's own units.
    """

    model: Model
    context: Context
    work: float
    steps: Steps = field(init=False)
    most: float = field(init=False)
    found: dict[Block, float] = field(default_factory=dict[Block, float])

    def __post_init__(self) -> None:
        self.steps = steps_of(self.model)
        self.most = self.work

    def bound(self, low: float, high: float) -> float:
        """Raise a lower bound on the time per sample, up to a time known to be feasible."""
        just_below = high * (1 - LEAST)
        if low >= just_below:
            return low
        if self._refuted(just_below):
            return just_below
        top = high
        while self.work > 0 and not self.context.stopped and top - low > NEAR * high:
            middle = low + (top - low) / 2
            if self._refuted(middle):
                low = middle
            else:
                top = middle
        return low

    def _refuted(self, time: float) -> bool:
        """Whether blocks prove that no placement keeps all loads within this time."""
        model = self.model
        least = model.time.min(axis=0)
        weights = least / least.sum() if least.sum() else np.full(model.units, 1 / model.units)
        speeds = [self._speed(own[0], least) for own in model.classes]
        together = sum(len(own) * speed for own, speed in zip(model.classes, speeds, strict=True))
        if not together:
            return False
        limits = [speed / together for speed in speeds]
        spent = self.work
        for _ in range(ROUNDS):
            whole = np.floor(weights * WEIGHTS).astype(np.int64)
            # The limits of all devices must sum to less than the total weight.
            most = [math.floor(limit * WEIGHTS) for limit in limits]
            short = int(whole.sum()) - 1 - sum(len(own) * one for own, one in zip(model.classes, most, strict=True))
            if short < 0:
                most = [one + short for one in most]
            news = False
            for kind in range(len(model.classes)):
                known, block = self._heavier(kind, whole, time, max(-1, most[kind]) + 1)
                if not known:
                    return False
                if block is not None:
                    self.found.setdefault(block, self._load(block))
                    news = True
            if not news:
                return True
            if self.work <= 0 or self.context.stopped or spent - self.work > SHARE * self.most:
                return False
            new = self._weights(time)
            if new is None:
                return False
            weights, limits = new
        return False

    def _speed(self, processor: int, least: np.ndarray) -> float:
        """Return the maximum work of a processor, in minimum times, per unit of the processor's time."""
        time = self.model.time[processor]
        able = np.isfinite(time) & (least > 0)
        return float((least[able] / time[able]).max(initial=0.0))

    def _weights(self, time: float) -> tuple[np.ndarray, list[float]] | None:
        """Return weights of units and limits of blocks that separate the known blocks from the set of all units."""
        model = self.model
        builder = ProgramBuilder()
        weight = [builder.add_column(cost=-1.0, upper=1.0) for _ in range(model.units)]
        most = [builder.add_column(cost=float(len(own)), upper=1.0) for own in model.classes]
        for block, load in self.found.items():
            if load <= time * (1 + 1e-12):
                entries = [(weight[unit], 1.0) for unit in sorted(block.units)]
                builder.add_row([*entries, (most[block.kind], -1.0)], upper=0.0)
        program = builder.build()
        solved = solve_linear(program, self.context.seconds_left)
        if solved.solution is None or -float(program.cost @ solved.solution) <= 1e-6:
            return None
        found = np.maximum(solved.solution, 0.0)
        total = float(found[: model.units].sum())
        return found[: model.units] / total, (found[model.units :] / total).tolist()

    def _load(self, block: Block) -> float:
        """Return the busy time of the busiest resource of the device of a block."""
        model, star = self.model, self.model.star
        assert star is not None
        processor = model.classes[block.kind][0]
        memory = model.memory_of[processor]
        busy: dict[int, float] = {processor: float(model.time[processor, sorted(block.units)].sum())}
        if memory != star.hub:
            for flow in model.flows:
                inside = flow.maker in block.units
                read = [reader in block.units for reader in flow.readers]
                link = star.away[memory] if inside and not all(read) else -1
                link = star.back[memory] if not inside and any(read) else link
                for resource in model.machine.held_by_link[link] if link >= 0 else ():
                    busy[resource] = busy.get(resource, 0.0) + float(model.copy_time(link, flow.value))
        return max(busy.values())

    def _heavier(self, kind: int, weights: np.ndarray, time: float, least: int) -> tuple[bool, Block | None]:
        """Look for a block of at least the given weight that a device of a class runs within a time.

        Returns
        -------
        bool, Block or None
            Whether the answer is certain, and the block.
        """
        from ortools.sat.python import cp_model

        model, star = self.model, self.model.star
        assert star is not None
        processor = model.classes[kind][0]
        memory = model.memory_of[processor]
        program: Any = cp_model.CpModel()
        able = [unit for unit in range(model.units) if math.isfinite(model.time[processor, unit])]
        on = {unit: program.new_bool_var("") for unit in able}
        busy: dict[int, list[tuple[Any, int]]] = {
            processor: [(on[unit], self.steps.down(float(model.time[processor, unit]))) for unit in able]
        }
        if memory != star.hub:
            for flow in model.flows:
                self._add_flow(program, on, busy, flow, (star.away[memory], star.back[memory]))
        limit = math.floor(Fraction(time) / self.steps.step)
        for own in busy.values():
            program.add(cp_model.LinearExpr.weighted_sum([v for v, _ in own], [t for _, t in own]) <= limit)
        room = model.room[memory]
        if room is not None:
            total = parameter_bytes(model)
            shift = max(0, total.bit_length() - 44)
            terms, sizes = parameters_in(program, model, on)
            held = cp_model.LinearExpr.weighted_sum(terms, [size >> shift for size in sizes])
            program.add(held <= min(-(-max(0, room) >> shift), (total >> shift) + 1))
        weight = cp_model.LinearExpr.weighted_sum([on[u] for u in able], [int(weights[u]) for u in able])
        program.add(weight >= least)
        program.maximize(weight)
        best: list[frozenset[int]] = []

        def chosen(value: Callable[[Any], int]) -> frozenset[int]:
            return frozenset(unit for unit in able if value(on[unit]))

        job = CpSatJob(program, threads=1, seed=self.context.seed, seconds=None, chosen=chosen, found=best.append)
        job.solver.parameters.max_deterministic_time = min(self.work, MOST_WORK)
        answer = watched(job, lambda: self.context.stopped)
        self.work -= job.work
        if answer.outcome is Outcome.INFEASIBLE:
            return True, None
        return bool(best), Block(kind, best[-1]) if best else None

    def _add_flow(
        self, program: Any, on: dict[int, Any], busy: dict[int, list[tuple[Any, int]]], flow: Any, links: Sequence[int]
    ) -> None:
        made = on.get(flow.maker)
        readers = [on.get(reader) for reader in flow.readers]
        terms = []
        if made is not None:
            sent = program.new_bool_var("")
            for there in readers:
                program.add_bool_or([sent, ~made] + ([] if there is None else [there]))
            terms.append((links[0], sent))
        inside = [there for there in readers if there is not None]
        if inside:
            received = program.new_bool_var("")
            for there in inside:
                program.add_bool_or([received, ~there] + ([] if made is None else [made]))
            terms.append((links[1], received))
        for link, used in terms:
            time = self.steps.down(float(self.model.copy_time(link, flow.value)))
            for resource in self.model.machine.held_by_link[link] if time else ():
                busy.setdefault(resource, []).append((used, time))
