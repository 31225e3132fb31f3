"""Constraint program for latency: the processor and start of each task and each copy, for the minimum makespan.

Tarnawski et al. 2020 give each accelerator q slots of subgraphs that run as one. Here every task and every copy starts
independently. Binaries are x[u, p] for units and made[v, M] for values. On a star, sent[v] and received[v, N] follow;
elsewhere passed[v, M, N] over the direct link. Runs and copies are optional intervals without overlap on a processor or
a channel. Parameters must fit into each memory. Transient values must also fit, if they would not all fit together.

Times are integers in steps, rounded down if no common step exists.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from remat.plugin import Number
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.placement.parameter_constraints import parameter_bytes, parameters_in
from remat_algorithms.parallel.placement.program import LARGEST_SIZE, Steps, exact_time, one_of_each_length, step_of
from remat_algorithms.parallel.placement.single_run import Once

Copy = tuple[int, int, int]
"""A value, and the source and target memories of its copy."""


@dataclass(frozen=True)
class Found:
    """A solution: the processor of each unit, and all start times in steps."""

    placed: tuple[int, ...]
    runs: dict[int, int]
    copies: dict[Copy, int]


@dataclass(frozen=True)
class Outlook:
    """Result of a program: a bound on the makespan, and whether the program was solved to the end."""

    bound: Fraction
    ended: bool


class LatencyProgram:
    """The program of a graph that runs once."""

    def __init__(self, once: Once, upper: float) -> None:
        from ortools.sat.python import cp_model

        self.once, self.model = once, once.model
        self.steps = self._steps()
        self.horizon = max(1, math.ceil(exact_time(upper) / self.steps.step) + 1)
        self.program: Any = cp_model.CpModel()
        self.sum = cp_model.LinearExpr.weighted_sum
        self.intervals: dict[int, list[Any]] = defaultdict(list)
        self.end = self.program.new_int_var(0, self.horizon, "")
        self._place()
        self._run()
        self._copy()
        self._hold()
        for listed in self.intervals.values():
            self.program.add_no_overlap(listed)
        self.program.minimize(self.end)

    def _steps(self) -> Steps:
        model = self.model
        times: set[Number] = {time for task in self.once.order for time in self.once.times(task).values()}
        values = one_of_each_length(model.graph, range(len(model.graph.values)))
        for link in range(len(model.machine.links)):
            times |= {model.copy_time(link, value) for value in values} | {model.machine.links[link].delay}
        return step_of(times, sum(times) * (1 + len(self.once.order)))

    def _place(self) -> None:
        model = self.model
        self.on = [
            {p: self.program.new_bool_var("") for p in range(model.processors) if math.isfinite(model.time[p, unit])}
            for unit in range(model.units)
        ]
        for own in self.on:
            self.program.add_exactly_one(own.values())
        self.inside: list[dict[int, Any]] = []
        for own in self.on:
            of_memory: dict[int, list[Any]] = defaultdict(list)
            for processor, on in own.items():
                of_memory[model.memory_of[processor]].append(on)
            self.inside.append({memory: self._any(listed) for memory, listed in of_memory.items()})

    def _any(self, listed: list[Any]) -> Any:
        if len(listed) == 1:
            return listed[0]
        found = self.program.new_bool_var("")
        self.program.add(sum(listed) == found)
        return found

    def _instant(self) -> Any:
        return self.program.new_int_var(0, self.horizon, "")

    def _run(self) -> None:
        self.start: dict[int, Any] = {}
        self.ended: dict[int, Any] = {}
        for task in self.once.order:
            self.start[task], self.ended[task] = begin, end = self._instant(), self._instant()
            self.program.add(end <= self.end)
            for processor, time in self.once.times(task).items():
                on = self.on[self.model.unit_of[task]][processor]
                length = self.steps.down(time)
                self.intervals[processor].append(
                    self.program.new_optional_fixed_size_interval_var(begin, length, on, "")
                )
                self.program.add(end == begin + length).only_enforce_if(on)

    def _copy(self) -> None:
        graph = self.model.graph
        placeable = {place.value for place in graph.placeable}
        self.copies: dict[Copy, tuple[Any, Any]] = {}
        maker: dict[int, int] = {}
        for task in self.once.order:
            for value in graph.writes[task].tolist():
                if value not in self.once.lying:
                    maker.setdefault(value, task)
        readers: dict[int, list[int]] = defaultdict(list)
        for task in self.once.order:
            for value in graph.reads[task].tolist():
                if value not in placeable:
                    readers[value].append(task)
        ends: dict[int, list[int]] = defaultdict(list)
        for value, memory in self.once.wanted:
            ends[value].append(memory)
        for value in sorted({*readers, *ends, *maker}):
            self._pass(value, maker.get(value), readers[value], ends[value])

    def _pass(self, value: int, maker: int | None, readers: Sequence[int], ends: Sequence[int]) -> None:
        """Bring a value to all memories where it is read or finally required."""
        program, memories = self.program, range(len(self.model.machine.memories))
        made: dict[int, Any] = {}
        if maker is None:
            made = dict.fromkeys(self.once.lying[value], True)
        else:
            made = dict(self.inside[self.model.unit_of[maker]])
        known: Any = 0 if maker is None else self.ended[maker]
        there = {memory: self._instant() for memory in memories}
        wanted: dict[int, list[Any]] = defaultdict(list)
        for task in readers:
            for memory, inside in self.inside[self.model.unit_of[task]].items():
                wanted[memory].append(inside)
                program.add(self.start[task] >= there[memory]).only_enforce_if(inside)
        for memory in ends:
            wanted[memory].append(True)
            program.add(there[memory] <= self.end)
        ways: dict[int, list[Any]] = {memory: [] for memory in memories}
        for memory, on in made.items():
            ways[memory].append(on)
            program.add(there[memory] >= known).only_enforce_if(on)
        for source, target in self._hops(made):
            on = program.new_bool_var("")
            # Copies to the hub precede those from it, so all possible origins at the source are known.
            if not any(way is True for way in ways[source]):
                program.add_bool_or([*ways[source], ~on])
            link = self.model.machine.link_index[source, target]
            begin = self._instant()
            length = self.steps.down(self.model.copy_time(link, value))
            later = self.steps.down(self.model.machine.links[link].delay)
            for resource in dict.fromkeys(self.model.machine.held_by_link[link]):
                self.intervals[resource].append(program.new_optional_fixed_size_interval_var(begin, length, on, ""))
            program.add(begin >= there[source]).only_enforce_if(on)
            program.add(there[target] >= begin + length + later).only_enforce_if(on)
            program.add(begin + length + later <= self.end).only_enforce_if(on)
            ways[target].append(on)
            self.copies[value, source, target] = (on, begin)
        for memory, listed in wanted.items():
            for inside in listed:
                if any(way is True for way in ways[memory]):
                    continue
                program.add_bool_or([*ways[memory], *([] if inside is True else [~inside])])

    def _hops(self, made: dict[int, Any]) -> list[tuple[int, int]]:
        """Return the possible copies of a value: through the hub on a star, else directly from its origin."""
        machine, star = self.model.machine, self.model.star
        if star is None:
            return [pair for pair in machine.link_index if pair[0] in made]
        away = [(memory, star.hub) for memory in made if memory != star.hub and star.away[memory] >= 0]
        back = [(star.hub, memory) for memory in range(len(machine.memories)) if memory != star.hub]
        return [*away, *(pair for pair in back if pair in machine.link_index)]

    def _hold(self) -> None:
        """Require that the parameters fit into each memory."""
        model = self.model
        total = parameter_bytes(model) + 1
        shift = max(0, total.bit_length() - LARGEST_SIZE.bit_length())
        for memory, room in enumerate(model.room):
            units = [unit for unit in range(model.units) if memory in self.inside[unit]]
            if room is not None and units:
                limit = min(-(-max(0, room) >> shift), (total >> shift) + 1)
                inside = {unit: self.inside[unit][memory] for unit in units}
                terms, sizes = parameters_in(self.program, model, inside)
                self.program.add(self.sum(terms, [size >> shift for size in sizes]) <= limit)

    def solve(
        self,
        *,
        hint: Sequence[int],
        found: Callable[[Found], object],
        bounded: Callable[[float], object],
        stop: Callable[[], bool],
        work: float,
        seed: int,
    ) -> Outlook:
        """Solve the program; `found` receives each improved solution."""
        for unit, own in enumerate(self.on):
            for processor, on in own.items():
                self.program.add_hint(on, processor == hint[unit])

        def chosen(value: Callable[[Any], int]) -> Found:
            placed = tuple(next(p for p, on in own.items() if value(on)) for own in self.on)
            runs = {task: value(begin) for task, begin in self.start.items()}
            return Found(placed, runs, {key: value(begin) for key, (on, begin) in self.copies.items() if value(on)})

        step = self.steps.step
        job = CpSatJob(
            self.program,
            threads=1,
            seed=seed,
            seconds=None,
            chosen=chosen,
            found=found,
            bounded=lambda bound: bounded(float(step * max(0, math.ceil(bound - 1e-6)))),
        )
        job.solver.parameters.max_deterministic_time = work
        answer = watched(job, stop)
        if answer.outcome is Outcome.INFEASIBLE:
            return Outlook(Fraction(0), True)
        least = max(0, math.ceil(answer.bound - 1e-6)) if math.isfinite(answer.bound) else 0
        return Outlook(step * least, answer.outcome is Outcome.OPTIMAL)
