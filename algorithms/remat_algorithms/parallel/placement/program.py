"""Program of placements: the processor of each unit, minimising the busy time of the busiest resource.

The binaries are x[u, p], and for each memory M their sum over its processors, X[u, M]. For a flow f from unit u to unit
r,

    sent[f, M] >= X[u, M] - X[r, M],    received[f, M] >= X[r, M] - X[u, M]

on a star, where M is not the hub (Tarnawski et al. 2020). On other machines, passed[f, M, N] >= X[u, M] + X[r, N] - 1
occupies the links of the fastest route from M to N. The objective bounds the total run and copy time of each resource.
In each memory, parameters must fit along with the bytes that a running unit needs.

Times are integers in steps: exactly, if a common step exists. Otherwise they are rounded down, so that the program's
bound remains valid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from remat.plugin import Number, TaskGraph
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Outcome, watched
from remat_algorithms.parallel.placement.bounds import SAFE
from remat_algorithms.parallel.placement.groups import Groups
from remat_algorithms.parallel.placement.model import Model
from remat_algorithms.parallel.placement.parameter_constraints import parameter_bytes, parameters_in

MOST_STEPS = 2**42
"""Maximum total time in steps."""

LARGEST_SIZE = 2**44
"""Maximum total of all sizes in the program; larger totals are scaled."""


@dataclass(frozen=True)
class Steps:
    """Times as integers in steps.

    Attributes
    ----------
    step : Fraction
    exact : bool
        Whether all times are multiples of it.
    """

    step: Fraction
    exact: bool

    def down(self, time: Number) -> int:
        """Return a time in steps, rounded down."""
        return math.floor(exact_time(time) / self.step)


def exact_time(time: Number) -> Fraction:
    """Return a time exactly as written: 0.1 as one tenth."""
    return Fraction(repr(time)) if isinstance(time, float) else Fraction(time)


def steps_of(model: Model) -> Steps:
    """Return a common step for all times of a model."""
    times = {float(time) for time in model.time[np.isfinite(model.time)].tolist()}
    values = one_of_each_length(model.graph, (flow.value for flow in model.flows))
    times |= {float(model.copy_time(link, value)) for link in range(len(model.machine.links)) for value in values}
    longest = np.where(np.isfinite(model.time), model.time, 0).max(axis=0)
    return step_of(times, sum(times) + float(longest.sum()))


def one_of_each_length(graph: TaskGraph, values: Iterable[int]) -> list[int]:
    """Return some of the values: one for each pair of size and compression ratio."""
    return list({(int(graph.size[value]), graph.ratios.get(value)): value for value in values}.values())


def step_of(times: Iterable[Number], total: Number) -> Steps:
    """Return a common step of some times; if none is coarse enough, the total divided by `MOST_STEPS`."""
    step = Fraction(0)
    for time in sorted(times):
        step = _gcd(step, exact_time(time))
        if step and exact_time(total) / step > MOST_STEPS:
            return Steps(exact_time(total) / MOST_STEPS, exact=False)
    return Steps(step or Fraction(1), exact=True)


def _gcd(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(
        math.gcd(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )


@dataclass(frozen=True)
class Outlook:
    """Result of a program.

    Attributes
    ----------
    bound : Fraction
        Lower bound on the load of every placement; 0 if unknown.
    ended : bool
        Whether the program was solved to optimality or proved infeasible.
    infeasible : bool
    work : float
        In CP-SAT's own units.
    """

    bound: Fraction
    ended: bool
    infeasible: bool = False
    work: float = 0.0


@dataclass
class PlacementProgram:
    """The program of a model.

    Attributes
    ----------
    model : Model
    less : sequence of int
        Reduction of each memory, in bytes.
    upper : float or None
        Largest load of interest.
    transfers : bool
        Whether transfers are included.
    groups : Groups or None
        If given, only contiguous placements of these groups.
    """

    model: Model
    less: Sequence[int] = ()
    upper: float | None = None
    transfers: bool = True
    groups: Groups | None = None

    def solve(
        self,
        *,
        hint: Sequence[int] | None,
        found: Callable[[tuple[int, ...]], object],
        bounded: Callable[[float], object],
        stop: Callable[[], bool],
        work: float,
        seed: int,
    ) -> Outlook:
        """Solve the program; `found` receives the processors of each better solution, `bounded` bounds on the load."""
        self._build(hint)
        step = self.steps.step
        share = Fraction(1) if self.model.whole else Fraction(SAFE)  # other times are rounded to floats

        def chosen(value: Any) -> tuple[int, ...]:
            return tuple(next(p for p, on in own.items() if value(on)) for own in self.on)

        job = CpSatJob(
            self.program,
            threads=1,
            seed=seed,
            seconds=None,
            chosen=chosen,
            found=found,
            bounded=lambda bound: bounded(float(share * step * max(0, math.ceil(bound - 1e-6)))),
        )
        parameters = job.solver.parameters
        parameters.max_deterministic_time = work
        parameters.linearization_level = 2
        answer = watched(job, stop)
        if answer.outcome is Outcome.INFEASIBLE:
            return Outlook(Fraction(0), True, infeasible=True, work=job.work)
        least = max(0, math.ceil(answer.bound - 1e-6)) if math.isfinite(answer.bound) else 0
        return Outlook(share * step * least, answer.outcome is Outcome.OPTIMAL, work=job.work)

    def _build(self, hint: Sequence[int] | None) -> None:
        from ortools.sat.python import cp_model

        model = self.model
        self.steps = steps_of(model)
        self.program: Any = cp_model.CpModel()
        self.sum = cp_model.LinearExpr.weighted_sum
        self.on = [
            {p: self.program.new_bool_var("") for p in range(model.processors) if math.isfinite(model.time[p, unit])}
            for unit in range(model.units)
        ]
        for own in self.on:
            self.program.add_exactly_one(own.values())
        self.inside = [self._memories(own) for own in self.on]
        self.busy: dict[int, list[tuple[Any, int]]] = defaultdict(list)
        for unit, own in enumerate(self.on):
            for processor, on in own.items():
                self.busy[processor].append((on, self.steps.down(float(model.time[processor, unit]))))
        if self.transfers and model.star is not None:
            self._send_on_star()
        elif self.transfers and not model.free:
            self._send()
        highest = sum(time for own in self.busy.values() for _, time in own) or 1
        if self.upper is not None:
            highest = min(highest, math.ceil(Fraction(self.upper) / self.steps.step) + 1)
        self.load = self.program.new_int_var(0, highest, "")
        for listed in self.busy.values():
            self.program.add(self.sum([term for term, _ in listed], [time for _, time in listed]) <= self.load)
        self._hold()
        if self.groups is not None:
            self._follow(self.groups)
        self.program.minimize(self.load)
        if hint is not None:
            for unit, own in enumerate(self.on):
                for processor, on in own.items():
                    self.program.add_hint(on, processor == hint[unit])

    def _follow(self, groups: Groups) -> None:
        """Require that groups stay together, and that no value flows backwards in some order of the processors."""
        last = self.model.processors - 1
        rank = [self.program.new_int_var(0, last, "") for _ in range(self.model.processors)]
        self.program.add_all_different(rank)
        for own in self.model.classes:
            for one, other in pairwise(own):
                self.program.add(rank[one] < rank[other])
        position = [self.program.new_int_var(0, last, "") for _ in range(len(groups))]
        for group, (first, *others) in enumerate(groups.units):
            for processor, on in self.on[first].items():
                self.program.add(position[group] == rank[processor]).only_enforce_if(on)
            for unit in others:
                for processor in sorted(self.on[first].keys() | self.on[unit].keys()):
                    self.program.add(self.on[first].get(processor, 0) == self.on[unit].get(processor, 0))
            for before in groups.after[group]:
                self.program.add(position[before] <= position[group])

    def _memories(self, own: dict[int, Any]) -> dict[int, Any]:
        """Return whether a unit is in a memory, for each memory in which it may be."""
        of_memory: dict[int, list[Any]] = defaultdict(list)
        for processor, on in own.items():
            of_memory[self.model.memory_of[processor]].append(on)
        found = {}
        for memory, listed in of_memory.items():
            if len(listed) == 1:
                found[memory] = listed[0]
            else:
                found[memory] = inside = self.program.new_bool_var("")
                self.program.add(sum(listed) == inside)
        return found

    def _hold_link(self, link: int, used: Any, value: int) -> None:
        time = self.steps.down(float(self.model.copy_time(link, value)))
        if time:
            for resource in self.model.machine.held_by_link[link]:
                self.busy[resource].append((used, time))

    def _send_on_star(self) -> None:
        star = self.model.star
        assert star is not None
        for flow in self.model.flows:
            made = self.inside[flow.maker]
            for memory in range(len(self.model.machine.memories)):
                if memory == star.hub:
                    continue
                if memory in made:
                    sent = self.program.new_bool_var("")
                    for reader in flow.readers:
                        there = self.inside[reader].get(memory)
                        # A value produced but not read in this memory is sent.
                        self.program.add_bool_or([sent, ~made[memory]] + ([] if there is None else [there]))
                    self._hold_link(star.away[memory], sent, flow.value)
                readers = [self.inside[reader][memory] for reader in flow.readers if memory in self.inside[reader]]
                if readers:
                    received = self.program.new_bool_var("")
                    for there in readers:
                        own = [made[memory]] if memory in made else []
                        self.program.add_bool_or([received, ~there, *own])
                    self._hold_link(star.back[memory], received, flow.value)

    def _send(self) -> None:
        model = self.model
        for flow in model.flows:
            held: dict[int, Any] = {}
            for home, made in self.inside[flow.maker].items():
                targets = {memory for reader in flow.readers for memory in self.inside[reader]} - {home}
                for target in sorted(targets):
                    passed = self.program.new_bool_var("")
                    for reader in flow.readers:
                        if target in self.inside[reader]:
                            self.program.add_bool_or([passed, ~made, ~self.inside[reader][target]])
                    for link in model.ways(home, {target}, flow.value):
                        if link not in held:
                            held[link] = self.program.new_bool_var("")
                        self.program.add_implication(passed, held[link])
            for link, used in held.items():
                self._hold_link(link, used, flow.value)

    def _hold(self) -> None:
        """Require that parameters and the bytes of a running unit fit into each memory."""
        model = self.model
        total = parameter_bytes(model) + sum(model.working)
        shift = max(0, total.bit_length() - LARGEST_SIZE.bit_length())
        for memory, limit in enumerate(model.room):
            units = [unit for unit in range(model.units) if memory in self.inside[unit]]
            if limit is None or not units:
                continue
            room = max(0, limit - (self.less[memory] if self.less else 0))
            room = min(-(-room >> shift), (total >> shift) + 1)
            inside = {unit: self.inside[unit][memory] for unit in units}
            terms, sizes = parameters_in(self.program, model, inside)
            held = self.sum(terms, [size >> shift for size in sizes])
            self.program.add(held <= room)
            for unit, on in inside.items():
                if model.working[unit] >> shift:
                    self.program.add(held + (model.working[unit] >> shift) <= room).only_enforce_if(on)
