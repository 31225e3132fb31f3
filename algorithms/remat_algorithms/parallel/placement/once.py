"""A graph that runs once on several devices: what a placement makes of it, run by run and copy by copy.

Each task runs once, on a processor in whose memory its parameters lie. What it reads and does not find there is copied
over the quickest way from where it was made, or lies from the start; once to each memory.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from remat.plugin import Number, OptionError, Problem, StepBuilder, StepKind, Steps
from remat_algorithms.parallel.placement.model import Model, build

RUN, COPY = StepKind.RUN, StepKind.COPY


@dataclass(slots=True)
class Job:
    """A run or a copy: what it holds, for how long, until when what it brings has come, and what it waits for."""

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
    """Jobs with their starts, and when all are over."""

    jobs: list[Job]
    start: list[Number]
    makespan: Number


@dataclass(frozen=True)
class Once:
    """A graph that runs once, as it is placed.

    Attributes
    ----------
    model : Model
    lying : mapping of int to int
        The memory of each input that does not lie where the schedule says.
    wanted : tuple of (value, memory)
        What has to be there at the end.
    """

    model: Model
    lying: dict[int, int]
    wanted: tuple[tuple[int, int], ...]

    @cached_property
    def order(self) -> list[int]:
        """The tasks that run, each after those whose values it reads."""
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
        """The least time from the start of each task to the end of all: on the quickest processors, without copies."""
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
        """Return the time of a task on each processor that may run it."""
        return self._times[task]

    def timed(self, placed: Sequence[int]) -> Timed:
        """Return what a placement of units takes: whoever waits longest for its turn goes first, copies as all else.

        O(jobs log jobs).
        """
        jobs, rank = self.jobs(placed)
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

    def jobs(self, placed: Sequence[int]) -> tuple[list[Job], list[float]]:
        """Return all runs and copies of a placement, each after what it waits for, and how long what follows takes."""
        model, graph = self.model, self.model.graph
        placeable = {place.value for place in graph.placeable}
        jobs: list[Job] = []
        rank: list[float] = []
        # For each value and memory, the job after which it is there; -1: from the start.
        there: dict[int, dict[int, int]] = defaultdict(dict)
        for value, memory in self.lying.items():
            there[value][memory] = -1

        def brought(value: int, memory: int, priority: float) -> int:
            if memory in there[value]:
                return there[value][memory]
            source = min(there[value], key=lambda one: (self._far(one, memory, value), one))
            for link in model.ways(source, {memory}, int(graph.size[value])):
                ends = model.machine.links[link]
                if ends.target in there[value]:
                    continue
                length = model.copy_time(link, int(graph.size[value]))
                before = there[value][ends.source]
                job = Job(COPY, value, tuple(dict.fromkeys(model.machine.held_by_link[link])), length, ends.delay)
                job.waits = [before] if before >= 0 else []
                job.source, job.target = ends.source, ends.target
                there[value][ends.target] = len(jobs)
                jobs.append(job)
                rank.append(priority)
            return there[value][memory]

        for task in self.order:
            processor = placed[model.unit_of[task]]
            memory = model.memory_of[processor]
            waits = [
                brought(value, memory, self.rank[task])
                for value in graph.reads[task].tolist()
                if value not in placeable
            ]
            job = Job(RUN, task, (processor,), self.times(task)[processor], 0, [k for k in waits if k >= 0])
            job.on = processor
            for value in graph.writes[task].tolist():
                there[value].setdefault(memory, len(jobs))
            jobs.append(job)
            rank.append(self.rank[task])
        for value, memory in self.wanted:
            brought(value, memory, 0.0)
        return jobs, rank

    def _far(self, source: int, memory: int, value: int) -> float:
        if source == memory:
            return 0.0
        links = self.model.ways(source, {memory}, int(self.model.graph.size[value]))
        return sum(float(self.model.machine.links[link].time(int(self.model.graph.size[value]))) for link in links)

    def steps(self, placed: Sequence[int], timed: Timed) -> tuple[Steps, list[Number]]:
        """Return the steps in the order of their starts, and how long each takes.

        Each value is dropped in each memory after its last use there.
        """
        graph, model = self.model.graph, self.model
        order = sorted(range(len(timed.jobs)), key=lambda k: (timed.start[k], timed.jobs[k].length > 0, k))
        fixed = {place.value for place in graph.placeable} | set(graph.pinned)
        kept = set(self.wanted)
        last: dict[tuple[int, int], tuple[Number, int]] = {}
        for place, index in enumerate(order):
            job = timed.jobs[index]
            if job.kind is RUN:
                memory = model.memory_of[job.on]
                used = [(memory, v) for v in (*graph.reads[job.item].tolist(), *graph.writes[job.item].tolist())]
            else:
                used = [(job.source, job.item)]
            for where in used:
                if where[1] not in fixed and (where[1], where[0]) not in kept:
                    end = timed.start[index] + job.length + job.later
                    last[where] = max(last.get(where, (end, place)), (end, place))
        dropped: dict[int, list[int]] = defaultdict(list)
        for (_, value), (_, place) in last.items():
            dropped[place].append(value)
        builder = StepBuilder()
        for place, index in enumerate(order):
            job = timed.jobs[index]
            if job.kind is RUN:
                builder.run(job.item, drop=sorted(dropped[place]), on=(job.on,))
            else:
                builder.copy(job.item, job.source, job.target, drop=bool(dropped[place]))
        lengths = [timed.jobs[index].length + timed.jobs[index].later for index in order]
        return replace(builder.build(), initial=self.initial(placed)), lengths

    def initial(self, placed: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return where placeable inputs lie: where they are read, else where there is most room."""
        model, graph = self.model, self.model.graph
        found: dict[int, set[int]] = {place.value: set() for place in graph.placeable}
        for unit, own in enumerate(model.parameters):
            for value in own:
                found[value].add(model.memory_of[placed[unit]])
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


def once_of(problem: Problem, name: str) -> Once:
    """Read a graph that runs once.

    Raises
    ------
    OptionError
        For a stream, or collectives.
    """
    graph, machine = problem.graph, problem.machine
    if problem.samples is not None:
        raise OptionError(f'{name} is for graphs that run once; leave "stream" out', argument="algorithm")
    if graph.parts:
        task = graph.described(min(graph.parts), repr)
        raise OptionError(
            f"{name!r} knows no task such as {task}, which is a collective of several memories", argument="algorithm"
        )
    first = machine.memories[0].name

    def memory(name_: str | None) -> int:
        return machine.memory_index[name_ or first]

    model = build(graph, machine, fixed=False)
    lying = {place.value: memory(place.memory) for place in reversed(graph.inputs)}
    placeable = {place.value for place in graph.placeable}
    wanted = [(place.value, memory(place.memory)) for place in graph.outputs if place.value not in placeable]
    return Once(model, lying, tuple(wanted))
