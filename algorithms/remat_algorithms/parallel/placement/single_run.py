"""Schedule of a placement for a graph that runs once on several devices, as runs and copies.

Each task runs once, on a processor whose memory holds its parameters. Inputs absent from that memory are copied over
the fastest route from their producer or their initial memory, once to each memory. Inputs that are not pinned are
dropped after their last use.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from remat.plugin import Number, OptionError, Problem, StepBuilder, StepKind, Steps
from remat_algorithms.parallel.placement.model import Model, build

RUN, COPY = StepKind.RUN, StepKind.COPY

SAME = 2e-9
"""Share of the makespan within which two floating-point times count as the same instant."""


@dataclass(slots=True)
class Job:
    """A run or a copy: its resources, its duration, the additional delay of its result, and its predecessors."""

    kind: StepKind
    item: int
    held: tuple[int, ...]
    length: Number
    later: Number
    waits: list[int] = field(default_factory=list)
    on: int = -1
    source: int = -1
    target: int = -1


@dataclass(frozen=True)
class Timed:
    """Jobs with their starts, and the makespan."""

    jobs: list[Job]
    start: list[Number]
    makespan: Number


class Listing(NamedTuple):
    """Steps in the order of their starts.

    Attributes
    ----------
    steps : Steps
    lengths : list of int or float
        Duration of each step.
    drops : list of (int, list of int)
        The step that drops a value, and all steps that use the value there.
    """

    steps: Steps
    lengths: list[Number]
    drops: list[tuple[int, list[int]]]

    def ends(self, starts: Sequence[Number]) -> list[Number] | None:
        """Return the ends of steps with these starts; None if a value is dropped while in use."""
        ends: list[Number] = [start + length for start, length in zip(starts, self.lengths, strict=True)]
        # Within an instant, earlier steps of the list end before later ones start. Rounding may separate equal
        # instants.
        rounding = 0 if all(isinstance(end, int) for end in ends) else SAME * max(ends)
        for step, users in self.drops:
            latest = ends[step] - rounding
            if any(ends[user] > ends[step] or (user > step and starts[user] >= latest) for user in users):
                return None
        return ends


@dataclass(frozen=True)
class Once:
    """A graph that runs once, as input for placements.

    Attributes
    ----------
    model : Model
    lying : mapping of int to tuple of int
        Memories of each input whose location the schedule does not choose.
    wanted : tuple of (value, memory)
        Values required at the end.
    staying : tuple of (value, memory)
        Those of them whose location the schedule chooses: they begin there.
    """

    model: Model
    lying: dict[int, tuple[int, ...]]
    wanted: tuple[tuple[int, int], ...]
    staying: tuple[tuple[int, int], ...] = ()

    @cached_property
    def order(self) -> list[int]:
        """Tasks that run, in topological order."""
        graph = self.model.graph
        chosen = set(self.model.unit_of)
        made = set(graph.available)
        waiting: dict[int, list[int]] = defaultdict(list)
        missing: dict[int, int] = {}
        ready: list[int] = []
        for task in sorted(chosen):
            absent = [value for value in graph.reads[task].tolist() if value not in made]
            missing[task] = len(absent)
            for value in absent:
                waiting[value].append(task)
            if not absent:
                heapq.heappush(ready, task)
        found = []
        while ready:
            task = heapq.heappop(ready)
            found.append(task)
            for value in graph.writes[task].tolist():
                if value not in made:
                    made.add(value)
                    for reader in waiting[value]:
                        missing[reader] -= 1
                        if not missing[reader]:
                            heapq.heappush(ready, reader)
        return found

    @cached_property
    def rank(self) -> dict[int, float]:
        """Minimum time from the start of each task to the end of all: on the fastest processors, without copies."""
        graph, model = self.model.graph, self.model
        least = {task: min(self.times(task).values(), default=0.0) for task in self.order}
        after: dict[int, float] = {}
        found: dict[int, float] = {}
        for task in reversed(self.order):
            tail = max((after.get(value, 0.0) for value in graph.writes[task].tolist()), default=0.0)
            found[task] = float(least[task]) + tail
            for value in graph.reads[task].tolist():
                after[value] = max(after.get(value, 0.0), found[task])
        assert len(found) == len(model.unit_of)
        return found

    @cached_property
    def _times(self) -> dict[int, dict[int, Number]]:
        graph, machine, model = self.model.graph, self.model.machine, self.model
        found: dict[int, dict[int, Number]] = {}
        for task, unit in model.unit_of.items():
            found[task] = {}
            for index, processor in enumerate(machine.processors):
                if math.isfinite(model.time[index, unit]):
                    row = graph.time if graph.times is None else graph.times[graph.types.index(processor.type)]
                    time: Number = row[task].item()
                    if processor.speed != 1:
                        slower = time / processor.speed
                        time = int(slower) if isinstance(time, int) and slower == int(slower) else slower
                    found[task][index] = time
        return found

    def times(self, task: int) -> dict[int, Number]:
        """Return the time of a task on each processor that can run it."""
        return self._times[task]

    def timed(self, placed: Sequence[int]) -> Timed | None:
        """Return the list schedule of a placement, in which jobs with the longest remaining paths go first.

        Copies are jobs, too. None if a required copy has no route. O(jobs log jobs).
        """
        found = self.jobs(placed)
        if found is None:
            return None
        jobs, rank = found
        missing = [len(job.waits) for job in jobs]
        following: list[list[int]] = [[] for _ in jobs]
        for index, job in enumerate(jobs):
            for before in job.waits:
                following[before].append(index)
        start: list[Number] = [0] * len(jobs)
        ready: list[tuple[Number, float, int]] = [(0, -rank[k], k) for k, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        free: dict[int, Number] = defaultdict(int)
        arrived: list[Number] = [0] * len(jobs)
        makespan: Number = 0
        while ready:
            when, priority, index = heapq.heappop(ready)
            job = jobs[index]
            begin = max([when, *(free[resource] for resource in job.held)])
            if begin > when:
                heapq.heappush(ready, (begin, priority, index))
                continue
            start[index] = begin
            for resource in job.held:
                free[resource] = begin + job.length
            arrived[index] = begin + job.length + job.later
            makespan = max(makespan, arrived[index])
            for other in following[index]:
                missing[other] -= 1
                if not missing[other]:
                    at = max(arrived[before] for before in jobs[other].waits)
                    heapq.heappush(ready, (at, -rank[other], other))
        return Timed(jobs, start, makespan)

    def jobs(self, placed: Sequence[int]) -> tuple[list[Job], list[float]] | None:
        """Return all runs and copies of a placement in topological order, and the remaining path length of each.

        None if a required copy has no route, or an input is needed in more memories than it can begin in.
        """
        model, graph = self.model, self.model.graph
        placeable = {place.value for place in graph.placeable}
        if self.staying and any(len(self._begins(placed)[place.value]) > place.copies for place in graph.placeable):
            return None
        jobs: list[Job] = []
        rank: list[float] = []
        # For each value and memory, the job that brings the value there; -1 if it is there from the start.
        there: dict[int, dict[int, int]] = defaultdict(dict)
        for value, memories in self.lying.items():
            there[value] = dict.fromkeys(memories, -1)

        def brought(value: int, memory: int, priority: float) -> int | None:
            if memory in there[value]:
                return there[value][memory]
            source = min(there[value], key=lambda one: (self._far(one, memory, value), one))
            links = model.route(source, memory, value)
            for link in links or ():
                ends = model.machine.links[link]
                if ends.target in there[value]:
                    continue
                length = model.copy_time(link, value)
                before = there[value][ends.source]
                job = Job(COPY, value, tuple(dict.fromkeys(model.machine.held_by_link[link])), length, ends.delay)
                job.waits = [before] if before >= 0 else []
                job.source, job.target = ends.source, ends.target
                there[value][ends.target] = len(jobs)
                jobs.append(job)
                rank.append(priority)
            return None if links is None else there[value][memory]

        for task in self.order:
            processor = placed[model.unit_of[task]]
            memory = model.memory_of[processor]
            waits: list[int] = []
            for value in graph.reads[task].tolist():
                if value not in placeable:
                    before = brought(value, memory, self.rank[task])
                    if before is None:
                        return None
                    waits += [before] if before >= 0 else []
            job = Job(RUN, task, (processor,), self.times(task)[processor], 0, waits)
            job.on = processor
            for value in graph.writes[task].tolist():
                there[value].setdefault(memory, len(jobs))
            jobs.append(job)
            rank.append(self.rank[task])
        if any(brought(value, memory, 0.0) is None for value, memory in self.wanted):
            return None
        return jobs, rank

    def _far(self, source: int, memory: int, value: int) -> float:
        if source == memory:
            return 0.0
        links = self.model.route(source, memory, value)
        if links is None:
            return math.inf
        return sum(float(self.model.arrival_time(link, value)) for link in links)

    def steps(self, placed: Sequence[int], timed: Timed, *, by_list: bool = False) -> Listing:
        """Return the steps in the order of their starts, each after its predecessors.

        The last use of each value in a memory drops it there. By default this is the use that ends last at these times.
        With `by_list`, it is the last use in the list, which remains valid if times change. Inputs without a use are
        dropped first.
        """
        order = self._order(timed)
        uses = self._uses(timed, order)
        builder = StepBuilder()
        unused = [key for key in self._held_inputs() if key not in uses and key not in self._kept]
        for memory in sorted({memory for memory, _ in unused}):
            builder.drop(sorted(value for at, value in unused if at == memory), memory)
        first = len({memory for memory, _ in unused})
        dropped: dict[int, list[int]] = defaultdict(list)
        drops: list[tuple[int, list[int]]] = []
        for key, places in uses.items():
            if key not in self._kept:
                last = places[-1] if by_list else max(places, key=lambda k: (self._end(timed, order[k]), k))
                dropped[last].append(key[1])
                drops.append((first + last, [first + place for place in places]))
        for place, index in enumerate(order):
            job = timed.jobs[index]
            if job.kind is RUN:
                builder.run(job.item, drop=sorted(dropped[place]), on=(job.on,))
            else:
                builder.copy(job.item, job.source, job.target, drop=bool(dropped[place]))
        lengths = [0] * first + [timed.jobs[index].length + timed.jobs[index].later for index in order]
        return Listing(replace(builder.build(), initial=self.initial(placed)), lengths, drops)

    @staticmethod
    def _end(timed: Timed, index: int) -> Number:
        job = timed.jobs[index]
        return timed.start[index] + job.length + job.later

    @staticmethod
    def _order(timed: Timed) -> list[int]:
        """Return jobs in the order of their starts, each after its predecessors, even if rounding makes starts equal.

        Among jobs that start at the same instant, those of zero length come first.
        """
        missing = [len(job.waits) for job in timed.jobs]
        following: list[list[int]] = [[] for _ in timed.jobs]
        for index, job in enumerate(timed.jobs):
            for before in job.waits:
                following[before].append(index)
        ready = [(timed.start[k], job.length > 0, k) for k, job in enumerate(timed.jobs) if not job.waits]
        heapq.heapify(ready)
        found = []
        while ready:
            index = heapq.heappop(ready)[2]
            found.append(index)
            for other in following[index]:
                missing[other] -= 1
                if not missing[other]:
                    heapq.heappush(ready, (timed.start[other], timed.jobs[other].length > 0, other))
        return found

    def _uses(self, timed: Timed, order: Sequence[int]) -> dict[tuple[int, int], list[int]]:
        """Return, for each memory and value, the positions in the list at which a run reads or writes it there.

        Reads by copies are included. A copy's result always has a later use, or is required at the end.
        """
        graph, model = self.model.graph, self.model
        placeable = {place.value for place in graph.placeable}
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place, index in enumerate(order):
            job = timed.jobs[index]
            if job.kind is RUN:
                memory = model.memory_of[job.on]
                values = dict.fromkeys([*graph.reads[job.item].tolist(), *graph.writes[job.item].tolist()])
                for value in values:
                    if value not in placeable:
                        found[memory, value].append(place)
            else:
                found[job.source, job.item].append(place)
        return found

    def _held_inputs(self) -> list[tuple[int, int]]:
        """Return memory and value of each input whose location the schedule does not choose."""
        return [(memory, value) for value, memories in self.lying.items() for memory in memories]

    @cached_property
    def _kept(self) -> set[tuple[int, int]]:
        """Memory and value of everything that must not be dropped: required values, and pinned inputs in place."""
        pinned = {key for key in self._held_inputs() if key[1] in self.model.graph.pinned}
        return pinned | {(memory, value) for value, memory in self.wanted}

    def initial(self, placed: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return the locations of placeable inputs: where they are read, else the memory with the most free space."""
        model, graph = self.model, self.model.graph
        found = self._begins(placed)
        left = [math.inf if room is None else float(room) for room in model.room]
        for value, memories in found.items():
            for memory in memories:
                left[memory] -= int(graph.size[value])
        for value, memories in found.items():
            if not memories:
                memory = max(range(len(left)), key=lambda m: left[m])
                memories.add(memory)
                left[memory] -= int(graph.size[value])
        return tuple((value, memory) for value in sorted(found) for memory in sorted(found[value]))

    def _begins(self, placed: Sequence[int]) -> dict[int, set[int]]:
        """Return the memories in which each placeable input is read, or required at the end."""
        found: dict[int, set[int]] = {place.value: set() for place in self.model.graph.placeable}
        for unit, own in enumerate(self.model.parameters):
            for value in own:
                found[value].add(self.model.memory_of[placed[unit]])
        for value, memory in self.staying:
            found[value].add(memory)
        return found


def once_of(problem: Problem, name: str) -> Once:
    """Read a graph that runs once.

    Raises
    ------
    OptionError
        If the instance is a stream.
    """
    graph, machine = problem.graph, problem.machine
    if problem.samples is not None:
        raise OptionError(f'{name} is for graphs that run once; leave "stream" out', argument="algorithm")
    first = machine.memories[0].name

    def memory(name_: str | None) -> int:
        return machine.memory_index[name_ or first]

    model = build(graph, machine, fixed=False)
    lying: dict[int, tuple[int, ...]] = {}
    for place in graph.inputs:
        lying[place.value] = (*lying.get(place.value, ()), memory(place.memory))
    placeable = {place.value for place in graph.placeable}
    ends = [(place.value, memory(place.memory)) for place in graph.outputs]
    wanted = tuple(end for end in ends if end[0] not in placeable)
    return Once(model, lying, wanted, tuple(end for end in ends if end[0] in placeable))
