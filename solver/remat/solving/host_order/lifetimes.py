"""Lifetimes of values in memories: producer, readers and release of each copy of a value in a placed schedule."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.durations import instants
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import Number
from remat.verifier import Report

SLACK = 1e-9
"""Share of the makespan within which float times are one instant, as in the verifier."""


@dataclass(eq=False)
class Lifetime:
    """One stay of a value in a memory.

    Attributes
    ----------
    value, memory : int
    maker : int or None
        The step that makes it; None: resident from the start.
    readers : set of int
        Steps that read it and have not ended.
    freed : bool
        Whether the schedule frees it.
    before : Lifetime or None
        The previous stay of the same value in the same memory.
    replaced : int or None
        The run that makes the value again while this one is resident: it ends with that run.
    complete, resident : bool
        During a simulation: whether it can be read, and whether its bytes are taken.
    """

    value: int
    memory: int
    maker: int | None
    readers: set[int] = field(default_factory=set)
    freed: bool = False
    before: Lifetime | None = None
    replaced: int | None = None
    complete: bool = False
    resident: bool = False

    def ends_with(self, run: int) -> bool:
        """Whether a run is the last one that reads or writes it, so that it can be freed at the run's end."""
        return self.freed and self.readers <= {run}


@dataclass(eq=False)
class Action:
    """A run or a copy of a schedule.

    Attributes
    ----------
    step : int
    item : int
        The task, or the value.
    start, end : int or float
        As placed; instants that rounding has separated are one.
    duration : int or float
    reads, makes : list of Lifetime
    replaces : list of Lifetime
        Those of the same values that a run replaces.
    source, target, channel : int
        Indices of a copy; -1 for a run.
    """

    step: int
    item: int
    start: Number
    end: Number
    duration: Number
    reads: list[Lifetime] = field(default_factory=list)
    makes: list[Lifetime] = field(default_factory=list)
    replaces: list[Lifetime] = field(default_factory=list)
    source: int = -1
    target: int = -1
    channel: int = -1

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy."""
        return self.channel >= 0


@dataclass(frozen=True)
class Flow:
    """The runs and copies of a schedule in order of their start, and all lifetimes."""

    runs: list[Action]
    copies: list[Action]
    lifetimes: list[Lifetime]


def flow_of(graph: TaskGraph, machine: Machine, steps: Steps, report: Report) -> Flow:
    """Follow a placed, valid schedule.

    Raises
    ------
    OptionError
        For schedules that no program with one compute stream expresses: several processors, copies of parts of values,
        links that are synchronous, compress, or deliver late.
    """
    _check(graph, machine, steps)
    return _Sweep(graph, machine, steps, report).sweep()


def _check(graph: TaskGraph, machine: Machine, steps: Steps) -> None:
    if graph.parts or steps.paired is not None or (steps.on is not None and steps.on.items.any()):
        raise OptionError(_several(machine, steps), argument="schedule")
    if (steps.amount[steps.kind == StepKind.COPY] != WHOLE).any():
        raise OptionError("the schedule copies parts of values; a program copies them whole", argument="schedule")
    names = {processor.name for processor in machine.processors}
    for link in machine.links:
        if link.channel in names or link.also or link.delay or link.packed is not None:
            ends = " to ".join(machine.memories[end].name for end in (link.source, link.target))
            why = "is synchronous, compresses, delivers late, or shares a second channel"
            raise OptionError(f"the link from {ends} {why}; a program has plain links", argument="machine")


def _several(machine: Machine, steps: Steps) -> str:
    """Return why a schedule of several processors is no program, and what gives one."""
    names = [processor.name for processor in machine.processors]
    others = [] if steps.on is None else [names[index] for index in sorted(set(steps.on.items.tolist())) if index]
    why = "a program has one processor; the schedule uses several"
    if not others:
        return why
    generated = " (generate the instance with host_speed 0)" if others == ["cpu"] else ""
    return f"{why}: solve with a `machine` without {', '.join(others)}{generated}"


class _Sweep:
    """Goes through the instants of a schedule in the verifier's order."""

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps, report: Report) -> None:
        self.graph, self.machine, self.steps = graph, machine, steps
        times = np.concatenate((report.start, report.end))
        slack = 0.0 if times.dtype == np.int64 else SLACK * report.makespan
        times = instants(times, slack)
        self.start, self.end = times[: len(steps)].tolist(), times[len(steps) :].tolist()
        self.taken = (report.end - report.start).tolist()
        self.current: dict[tuple[int, int], Lifetime] = {}
        self.flow = Flow([], [], [])
        self.actions: dict[int, Action] = {}
        first = machine.memories[0].name
        names = [memory.name for memory in machine.memories]
        for place in graph.inputs:
            made = self._make(place.value, names.index(place.memory or first), None)
            made.complete = made.resident = True

    def sweep(self) -> Flow:
        events = []
        for step in range(len(self.steps)):
            events.append((self.start[step], 1, step))
            if self.end[step] > self.start[step]:
                events.append((self.end[step], 0, step))
        for _, begins, step in sorted(events):
            if begins:
                self._begin(step)
            if not begins or self.end[step] == self.start[step]:
                self._finish(step)
        return self.flow

    def _make(self, value: int, memory: int, maker: int | None) -> Lifetime:
        key = (value, memory)
        made = Lifetime(value, memory, maker, before=self.current.get(key))
        self.current[key] = made
        self.flow.lifetimes.append(made)
        return made

    def _begin(self, step: int) -> None:
        steps, kind = self.steps, self.steps.kind[step]
        if kind == StepKind.DROP:
            return
        action = Action(step, int(steps.item[step]), self.start[step], self.end[step], self.taken[step])
        self.actions[step] = action
        if kind == StepKind.RUN:
            self.flow.runs.append(action)
            reads = [(value, 0) for value in self.graph.reads[action.item].tolist()]
            writes = [(value, 0) for value in self.graph.writes[action.item].tolist()]
        else:
            action.source, action.target = int(steps.source[step]), int(steps.target[step])
            link = self.machine.link_index[action.source, action.target]
            action.channel = self.machine.resource_of_link[link]
            self.flow.copies.append(action)
            reads, writes = [(action.item, action.source)], [(action.item, action.target)]
        for key in reads:
            action.reads.append(self.current[key])
            self.current[key].readers.add(step)
        for value, memory in writes:
            old = self.current.get((value, memory))
            if old is not None and not old.freed:
                if action.is_copy:
                    name, where = self.graph.values[value], self.machine.memories[memory].name
                    raise OptionError(
                        f"the schedule copies {name} to {where}, where it is already", argument="schedule"
                    )
                old.replaced, old.freed = step, True
                action.replaces.append(old)
            action.makes.append(self._make(value, memory, step))

    def _finish(self, step: int) -> None:
        memory = 0 if self.steps.kind[step] == StepKind.RUN else int(self.steps.source[step])
        for value in self.steps.drop[step].tolist():
            self.current[value, memory].freed = True
