"""Streams as placement sees them: units of inseparable tasks, flows between them, and their costs on devices.

A *unit* is a set of tasks that must run in one memory: all tasks that read an input with a single copy. A device is a
processor; identical ones form a class. An output that other units read is sent once to each memory where it is read. On
a *star*, all links of the machine begin or end in one memory, the hub. The output is then sent to the hub once, and
each other reading memory fetches it from there once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from remat.plugin import IntArray, Link, Machine, Number, NumberArray, OptionError, Problem, TaskGraph, needed_tasks

UNABLE = math.inf
"""Time of a unit on a processor that cannot run it."""

LARGEST_WHOLE = 2**53
"""Integers below this are exact in float64."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A value read by units other than its producer.

    Attributes
    ----------
    value, maker : int
    readers : tuple of int
        Units other than the producer, ascending.
    size : int
    """

    value: int
    maker: int
    readers: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Star:
    """Links that all begin or end in one memory.

    Attributes
    ----------
    hub : int
    away, back : tuple of int
        For each memory, its link to the hub and the link from the hub; -1 for the hub.
    separable : bool
        Whether no two memories share a processor or a resource of their links, and each has at most one processor. The
        costs of a device then depend only on its own units.
    """

    hub: int
    away: tuple[int, ...]
    back: tuple[int, ...]
    separable: bool


@dataclass(frozen=True)
class Model:
    """Units, flows and devices of a stream.

    Attributes
    ----------
    graph : TaskGraph
        Graph of one sample.
    machine : Machine
    tasks : tuple of tuple of int
        Tasks of each unit in reference order, without unneeded alternatives.
    time : (processors, units) float64
        `UNABLE` where a processor cannot run a unit.
    whole : bool
        Whether all times of runs and copies are integers.
    size : tuple of int
        Bytes of each unit's parameters.
    own : tuple of int
        Bytes of the parameters that no other unit reads.
    shared : tuple of (int, tuple of int)
        Bytes of each parameter that several units read, and these units. A memory holds it once for all of them.
    working : tuple of int
        Minimum number of additional bytes while some task of a unit runs.
    flows : tuple of Flow
    room : tuple of int or None
        Bytes of each memory for parameters and transient values; None means unbounded.
    star : Star or None
    certain : bool
        Whether every schedule runs these tasks, reads their outputs, and has the tasks of a unit in one memory, with
        the same cost for each share of them. This requires four conditions: no alternatives, no value with several
        origins, no unit kept together only for lack of copies, and processors of one memory that differ only in speed.
    parameters : tuple of tuple of int
        Placeable inputs that each unit reads.
    """

    graph: TaskGraph
    machine: Machine
    tasks: tuple[tuple[int, ...], ...]
    time: NumberArray
    whole: bool
    size: tuple[int, ...]
    own: tuple[int, ...]
    shared: tuple[tuple[int, tuple[int, ...]], ...]
    working: tuple[int, ...]
    flows: tuple[Flow, ...]
    room: tuple[int | None, ...]
    star: Star | None
    certain: bool = True
    parameters: tuple[tuple[int, ...], ...] = ()

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.tasks)

    @property
    def processors(self) -> int:
        """Number of processors."""
        return len(self.machine.processors)

    @cached_property
    def memory_of(self) -> tuple[int, ...]:
        """Memory of each processor."""
        return tuple(processor.memory for processor in self.machine.processors)

    @cached_property
    def unit_of(self) -> dict[int, int]:
        """Unit of each task."""
        return {task: unit for unit, tasks in enumerate(self.tasks) for task in tasks}

    @cached_property
    def free(self) -> bool:
        """Whether all copies take no time."""
        links = range(len(self.machine.links))
        return not any(self.copy_time(link, flow.value) for link in links for flow in self.flows)

    @property
    def counted(self) -> bool:
        """Whether the busy times of transfers are known for all routes: on a star, or if they are zero."""
        return self.star is not None or self.free

    @cached_property
    def alone(self) -> bool:
        """Whether each memory has at most one processor."""
        return len(set(self.memory_of)) == self.processors

    @property
    def settled(self) -> bool:
        """Whether, in addition, every placement of tasks on single processors is one of units: none can be split."""
        return self.certain and (self.alone or all(len(tasks) == 1 for tasks in self.tasks))

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Classes of processors with identical unit times, memories and links, in order."""
        found: dict[object, list[int]] = defaultdict(list)
        for processor in range(self.processors):
            memory = self.memory_of[processor]
            shared = sum(other == memory for other in self.memory_of) > 1
            own = memory if shared else None
            key = (self.time[processor].tobytes(), self.room[memory], self._links(processor), own)
            found[key].append(processor)
        return tuple(tuple(own) for own in found.values())

    def _links(self, processor: int) -> object:
        """Return a key that distinguishes the links of a processor's memory from those of others."""
        own, machine = set[object](), self.machine
        memory = self.memory_of[processor]

        def told(resource: int, ends: set[int]) -> object:
            alone = resource >= self.processors and self._users[resource] <= ends
            return -1 if resource == processor else -2 if alone else resource

        for link, held in zip(machine.links, machine.held_by_link, strict=True):
            if memory in (link.source, link.target):
                other = link.target if link.source == memory else link.source
                far = other if self.star is not None or other == memory else -1
                mine = tuple(told(resource, {link.source, link.target}) for resource in held)
                packed = link.packed if self.graph.ratios else None
                own.add((link.source == memory, far, link.bandwidth, packed, link.latency, link.delay, mine))
        return frozenset(own)

    @cached_property
    def _users(self) -> list[set[int]]:
        """Memories whose links use each resource, except a star's hub."""
        found: list[set[int]] = [set() for _ in self.machine.resources]
        for link, held in zip(self.machine.links, self.machine.held_by_link, strict=True):
            ends = {link.source, link.target} - ({self.star.hub} if self.star is not None else set())
            for resource in held:
                found[resource] |= ends
        return found

    def homes(self, placed: Sequence[int]) -> list[int]:
        """Return the processor of each task, given those of the units; -1 where a task does not run."""
        found = [-1] * len(self.graph.tasks)
        for tasks, processor in zip(self.tasks, placed, strict=True):
            for task in tasks:
                found[task] = processor
        return found

    def arrival_time(self, link: int, value: int) -> Number:
        """Return the time from the start of a copy of a value until its arrival."""
        return _copy_time(self.graph, self.machine.links[link], value)

    def copy_time(self, link: int, value: int) -> Number:
        """Return the time for which a copy of a value occupies its link."""
        return self.arrival_time(link, value) - self.machine.links[link].delay

    # --- costs of a placement -----------------------------------------------------------------------------------------

    def loads(self, placed: Sequence[int]) -> list[float]:
        """Return the busy time of each resource of the machine per sample, for units placed on processors.

        O(tasks + flows x memories); values take the fastest route from their producer.
        """
        busy = [0.0] * len(self.machine.resources)
        for unit, processor in enumerate(placed):
            busy[processor] += float(self.time[processor, unit])
        for flow in self.flows:
            home = self.memory_of[placed[flow.maker]]
            targets = {self.memory_of[placed[reader]] for reader in flow.readers} - {home}
            for link in self.ways(home, targets, flow.value):
                for resource in self.machine.held_by_link[link]:
                    busy[resource] += float(self.copy_time(link, flow.value))
        return busy

    def load(self, placed: Sequence[int]) -> float:
        """Return the largest load, a lower bound on the period of this placement."""
        return max(self.loads(placed))

    def held(self, placed: Sequence[int]) -> list[int]:
        """Return the bytes of parameters in each memory."""
        found = [0] * len(self.machine.memories)
        for unit, processor in enumerate(placed):
            found[self.memory_of[processor]] += self.own[unit]
        for size, units in self.shared:
            for memory in {self.memory_of[placed[unit]] for unit in units}:
                found[memory] += size
        return found

    def excess(self, placed: Sequence[int], less: Sequence[int] = ()) -> int:
        """Return the total bytes by which parameters exceed the memories, each reduced by `less`."""
        over = 0
        for memory, held in enumerate(self.held(placed)):
            room = self.room[memory]
            if room is not None and held:
                over += max(0, held - (room - (less[memory] if less else 0)))
        return over

    def ways(self, home: int, targets: set[int], value: int) -> list[int]:
        """Return the links over which a value travels from a memory to others, each once."""
        if not targets:
            return []
        star = self.star
        if star is not None:
            found = [] if home == star.hub else [star.away[home]]
            return found + [star.back[target] for target in sorted(targets) if target != star.hub]
        found = []
        for target in sorted(targets):
            for link in self._way(home, target, value):
                if link not in found:
                    found.append(link)
        return found

    def route(self, home: int, target: int, value: int) -> tuple[int, ...] | None:
        """Return the links of a value's fastest route between two memories; None if they are not connected."""
        key = (home, target, int(self.graph.size[value]), self.graph.ratios.get(value))
        if key not in self._ways:
            times = [float(self.arrival_time(link, value)) for link in range(len(self.machine.links))]
            self._ways[key] = _quickest(self.machine, home, target, times)
        return self._ways[key]

    def shortest_way(self, home: int, target: int) -> tuple[int, ...] | None:
        """Return the links of the fastest route of a value without bytes; None if there is no route."""
        return _quickest(self.machine, home, target, [float(link.latency + link.delay) for link in self.machine.links])

    def _way(self, home: int, target: int, value: int) -> tuple[int, ...]:
        found = self.route(home, target, value)
        return _no_way(self.machine, home, target) if found is None else found

    @cached_property
    def _ways(self) -> dict[tuple[int, int, int, Number | None], tuple[int, ...] | None]:
        return {}


def model_of(problem: Problem, name: str) -> Model:
    """Read a stream.

    Raises
    ------
    OptionError
        If the instance is no stream of samples, if no task has to run, if some processors cannot reach each other, or
        if several tasks produce a value.
    """
    samples = problem.samples
    if samples is None:
        raise OptionError(
            f'{name} is for streams: a task graph says "stream", a pipeline weights "fixed"', argument="algorithm"
        )
    model = build(samples.graph, problem.machine)
    if not model.units:
        raise OptionError(f"{name}: nothing has to run for a sample", argument="algorithm")
    made = dict[int, int]()
    for task in model.unit_of:
        for value in model.graph.writes[task].tolist():
            if value in made:
                what = model.graph.values[value]
                raise OptionError(
                    f"{name!r} does not support values such as {what!r}, which several tasks write",
                    argument="algorithm",
                )
            made[value] = task
    return model


def build(graph: TaskGraph, machine: Machine, *, fixed: bool = True) -> Model:
    """Read a graph, of one sample or one that runs once, on a machine; `fixed` inputs are read only where they are."""
    needed = needed_tasks(graph)
    chosen = np.flatnonzero(needed.once).tolist()
    units, free = _units(graph, chosen, len({processor.memory for processor in machine.processors}))
    unit_of = {task: unit for unit, tasks in enumerate(units) for task in tasks}
    room = _room(graph, machine)
    time = _times(graph, machine, units, {place.value: place.memory for place in graph.inputs} if fixed else {})
    flows = tuple(_flows(graph, units, unit_of))
    certain = bool((needed.once == needed.forced).all()) and _has_single_origins(graph, unit_of)
    certain = certain and free and _alike(graph, machine, units)
    star = _star(machine)
    if star is None and fixed:
        _check_reachable(machine)
    sizes: list[int] = graph.size.tolist()
    parameters = _parameters(graph, units)
    readers: dict[int, list[int]] = defaultdict(list)
    for unit, values in enumerate(parameters):
        for value in sorted(values):
            readers[value].append(unit)
    alone = [sum(sizes[value] for value in values if len(readers[value]) == 1) for values in parameters]
    return Model(
        graph,
        machine,
        units,
        time,
        _is_whole(graph, machine, flows),
        tuple(sum(sizes[value] for value in own) for own in parameters),
        tuple(alone),
        tuple((sizes[value], tuple(own)) for value, own in sorted(readers.items()) if len(own) > 1 and sizes[value]),
        tuple(max(_working(graph, task) for task in tasks) for tasks in units),
        flows,
        room,
        star,
        certain,
        tuple(tuple(sorted(own)) for own in parameters),
    )


def _units(graph: TaskGraph, chosen: Sequence[int], memories: int) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the tasks of each unit: tasks that read an input without enough copies for all of them.

    Also return whether schedules have no other choice: tasks that read an input with several copies could be separated.
    """
    parent = {task: task for task in chosen}

    def find(task: int) -> int:
        while parent[task] != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    copies = {place.value: place.copies for place in graph.placeable}
    readers: dict[int, list[int]] = defaultdict(list)
    for task in chosen:
        for value in graph.reads[task].tolist():
            if value in copies:
                readers[value].append(task)
    single = {value for value, own in readers.items() if copies[value] < min(len(own), memories)}
    for value in sorted(single):
        first, *others = readers[value]
        for task in others:
            parent[find(task)] = find(first)
    found: dict[int, list[int]] = defaultdict(list)
    for task in chosen:
        found[find(task)].append(task)
    return tuple(tuple(tasks) for tasks in found.values()), all(copies[value] == 1 for value in single)


def _alike(graph: TaskGraph, machine: Machine, units: Sequence[Sequence[int]]) -> bool:
    """Whether the processors of each memory can run the same tasks of multi-task units, and differ only in speed."""
    several = [tasks for tasks in units if len(tasks) > 1]
    for tasks in several:
        found: dict[int, set[object]] = defaultdict(set)
        for processor in machine.processors:
            tied = tuple(task in graph.tied and processor.name not in graph.tied[task] for task in tasks)
            found[processor.memory].add((processor.type if graph.times is not None else "", tied))
        if any(len(kinds) > 1 for kinds in found.values()):
            return False
    return True


def _has_single_origins(graph: TaskGraph, unit_of: Mapping[int, int]) -> bool:
    """Whether each value has one origin: a task that runs, or the initial state."""
    made: set[int] = set(graph.available)
    for task in unit_of:
        for value in graph.writes[task].tolist():
            if value in made:
                return False
            made.add(value)
    return True


def _parameters(graph: TaskGraph, units: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return the placeable inputs that each unit reads; inputs with several copies count for each unit."""
    placeable = {place.value for place in graph.placeable}
    return [{value for task in tasks for value in graph.reads[task].tolist() if value in placeable} for tasks in units]


def _working(graph: TaskGraph, task: int) -> int:
    """Return the bytes that a running task needs in addition to permanently resident values."""
    staying = graph.pinned | {place.value for place in graph.placeable}
    reads = sum(int(graph.size[value]) for value in graph.reads[task].tolist() if value not in staying)
    writes = sum(int(graph.size[value]) for value in graph.writes[task].tolist() if value not in staying)
    if graph.in_place[task]:
        writes = max(0, writes - reads)
    return reads + writes + int(graph.workspace[task])


def _room(graph: TaskGraph, machine: Machine) -> tuple[int | None, ...]:
    """Return the bytes of each memory after permanently resident values; other inputs may be dropped."""
    used = [graph.static_bytes(machine, memory) for memory in range(len(machine.memories))]
    for place in graph.inputs:
        if place.value in graph.pinned:
            used[0 if place.memory is None else machine.memory_index[place.memory]] += int(graph.size[place.value])
    return tuple(
        None if memory.capacity is None else memory.capacity - own
        for memory, own in zip(machine.memories, used, strict=True)
    )


def _times(
    graph: TaskGraph, machine: Machine, units: Sequence[Sequence[int]], fixed: dict[int, str | None]
) -> NumberArray:
    first = machine.memories[0].name
    known: list[NumberArray | None] = []
    for processor in machine.processors:
        times = graph.time if graph.times is None else None
        if graph.times is not None and processor.type in graph.types:
            times = graph.times[graph.types.index(processor.type)]
        known.append(times)
    found = np.zeros((len(machine.processors), len(units)), dtype=np.float64)
    for index, (processor, times) in enumerate(zip(machine.processors, known, strict=True)):
        memory = machine.memories[processor.memory].name
        for unit, tasks in enumerate(units):
            able = times is not None and all(
                times[task] >= 0
                and (task not in graph.tied or processor.name in graph.tied[task])
                and all((fixed[v] or first) == memory for v in graph.reads[task].tolist() if v in fixed)
                for task in tasks
            )
            if able and times is not None:
                own = [times[task].item() for task in tasks]
                found[index, unit] = math.fsum(own if processor.speed == 1 else [t / processor.speed for t in own])
            else:
                found[index, unit] = UNABLE
    return found


def _flows(graph: TaskGraph, units: Sequence[Sequence[int]], unit_of: dict[int, int]) -> list[Flow]:
    found = []
    readers: list[list[int]] = graph.readers.to_lists()
    made: set[int] = set()
    for task in sorted(unit_of):
        for value in graph.writes[task].tolist():
            if value in made:
                continue
            made.add(value)
            own = {unit_of[reader] for reader in readers[value] if reader in unit_of} - {unit_of[task]}
            if own:
                found.append(Flow(value, unit_of[task], tuple(sorted(own)), int(graph.size[value])))
    return found


def _star(machine: Machine) -> Star | None:
    """Return the machine as a star; None if it is none, or if some memory with processors lacks a link."""
    if not machine.links:
        return Star(0, (-1,), (-1,), True) if len(machine.memories) == 1 else None
    common = set(range(len(machine.memories)))
    for link in machine.links:
        common &= {link.source, link.target}
    homes = {processor.memory for processor in machine.processors}
    for hub in sorted(common):
        away = [machine.link_index.get((memory, hub), -1) for memory in range(len(machine.memories))]
        back = [machine.link_index.get((hub, memory), -1) for memory in range(len(machine.memories))]
        if all(memory == hub or (away[memory] >= 0 and back[memory] >= 0) for memory in homes):
            return Star(hub, tuple(away), tuple(back), _separable(machine, hub, away, back))
    return None


def _separable(machine: Machine, hub: int, away: Sequence[int], back: Sequence[int]) -> bool:
    owner: dict[int, int] = {index: p.memory for index, p in enumerate(machine.processors)}
    homes = [processor.memory for processor in machine.processors if processor.memory != hub]
    if len(set(homes)) < len(homes):
        return False
    for memory in homes:
        for link in (away[memory], back[memory]):
            for resource in machine.held_by_link[link]:
                if owner.setdefault(resource, memory) != memory:
                    return False
    return True


def _is_whole(graph: TaskGraph, machine: Machine, flows: Sequence[Flow]) -> bool:
    if not graph.exact_times or any(processor.speed != 1 for processor in machine.processors):
        return False
    largest = graph.time if graph.times is None else np.maximum(graph.times, 0).max(axis=0)
    if float(largest.sum(dtype=np.float64)) >= LARGEST_WHOLE:
        return False
    lengths = [_copy_time(graph, link, flow.value) for link in machine.links for flow in flows]
    return all(isinstance(length, int) and length < LARGEST_WHOLE for length in lengths)


def _copy_time(graph: TaskGraph, link: Link, value: int) -> Number:
    return graph.link_for(link, value).time(int(graph.size[value]))


def _check_reachable(machine: Machine) -> None:
    homes = sorted({processor.memory for processor in machine.processors})
    times = [0.0] * len(machine.links)
    for home in homes:
        for target in homes:
            if home != target and _quickest(machine, home, target, times) is None:
                _no_way(machine, home, target)


def _no_way(machine: Machine, home: int, target: int) -> NoReturn:
    names = [machine.memories[memory].name for memory in (home, target)]
    raise OptionError(f"no links lead from memory {names[0]} to {names[1]}", argument="machine")


def _quickest(machine: Machine, home: int, target: int, times: Sequence[float]) -> tuple[int, ...] | None:
    """Return the links of the fastest route (Bellman and Ford), by the time of each link; None if there is none."""
    far: dict[int, float] = {home: 0.0}
    came: dict[int, int] = {}
    for _ in machine.memories:
        for index, link in enumerate(machine.links):
            if link.source in far:
                there = far[link.source] + times[index]
                if there < far.get(link.target, math.inf):
                    far[link.target], came[link.target] = there, index
    if target not in far:
        return None
    way: list[int] = []
    while target != home:
        way.append(came[target])
        target = machine.links[came[target]].source
    return tuple(reversed(way))


def as_array(numbers: Sequence[int]) -> IntArray:
    """Return integers as an array."""
    return np.array(numbers, dtype=np.int64)
