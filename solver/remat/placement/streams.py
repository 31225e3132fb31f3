"""Placement of a stream from the processor of each task: the steps of each sample, their times, and the period.

The choice of processors determines the copies, and how long each processor and channel is busy per period. No period
is shorter than the busiest of them. If each run and copy occupies one resource at a time, that period is feasible.
The resources can be filled in any order without gaps, because a step may begin some periods after its predecessors.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.circular_occupancy import Circle
from remat.placement.durations import copy_held, copy_time, run_time
from remat.schedule.modulo import ModuloSchedule, Turn, folded
from remat.schedule.steps import StepKind
from remat.units import Number

ROUNDING = 2.0**-42
"""Rounding tolerance for sums of float times, as a share of a period."""

LONGER = 12
"""Number of longer periods that are tried if the values in flight do not fit at the shortest one."""

Homes = Sequence[Sequence[int]]
"""For each sample of a period, the processor of each task; -1 where it does not run."""

RUN, COPY = StepKind.RUN, StepKind.COPY


@dataclass(frozen=True)
class PlacedStream:
    """A pattern, with its memory peaks.

    Attributes
    ----------
    pattern : ModuloSchedule
    peaks : tuple of int
        Maximum bytes in each memory over a period.
    fits : bool
        Whether the peaks are within the capacities.
    """

    pattern: ModuloSchedule
    peaks: tuple[int, ...]
    fits: bool


@dataclass(slots=True)
class _Job:
    """A run or a copy for one sample: its resources, its duration, and the jobs that it waits for."""

    kind: StepKind
    item: int
    sample: int
    held: tuple[int, ...]
    length: Number
    later: Number
    waits: list[int] = field(default_factory=list)
    on: int = -1
    source: int = -1
    target: int = -1


def place_stream(
    graph: TaskGraph,
    machine: Machine,
    homes: Homes,
    initial: Iterable[tuple[int, int]] = (),
    *,
    longer: int = LONGER,
) -> PlacedStream:
    """Find start times at the shortest period at which the values in flight fit into the memories.

    Parameters
    ----------
    graph : TaskGraph
        The graph of one sample.
    machine : Machine
    homes : sequence of sequences of int
        For each sample of a period, the processor of each task; -1 where it does not run.
    initial : iterable of (value, memory)
        Further memories of placeable inputs, in addition to those where tasks read them.
    longer : int
        Number of longer periods that are tried, up to the period that processes one sample after the other.

    Returns
    -------
    PlacedStream
        At the shortest of these periods at which it fits; at the longest one if it fits at none.

    Raises
    ------
    OptionError
        For a processor that cannot run a task, or memories that no links connect.

    Notes
    -----
    First fit modulo the period, in precedence order: each run and copy begins at the first instant at which all its
    resources are free. If a job does not fit into the gaps, its resource is filled without gaps.
    """
    jobs = _Jobs(graph, machine)
    for sample, own in enumerate(homes):
        jobs.add(sample, own)
    places = jobs.places(initial)
    least = jobs.least_period(homes)
    period, best = least, None
    for step in range(longer + 1):
        folded = _Folding(jobs.listed, machine, len(homes), period)
        times = folded.times()
        found = _Memory(graph, machine, jobs.listed, times, folded.period, places).placed(times)
        best = found
        if found.fits:
            break
        most = jobs.one_by_one(len(homes))
        period = _between(least, most, (step + 1) / max(1, longer)) if longer else least
        if period >= most and step:
            period = most
    assert best is not None
    return best


def _between(least: Number, most: Number, share: float) -> Number:
    if isinstance(least, int) and isinstance(most, int):
        return min(most, least + math.ceil((most - least) * share**2))
    return least + (most - least) * share**2


class _Jobs:
    """Runs and copies of the samples of a period, each after all jobs that it waits for."""

    def __init__(self, graph: TaskGraph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.listed: list[_Job] = []
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.shared = graph.available
        self.size: list[int] = graph.size.tolist()
        self.ways: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for index, link in enumerate(machine.links):
            self.ways[link.source].append((link.target, index))
        self.resources = {name: index for index, name in enumerate(machine.resources)}

    def add(self, sample: int, homes: Sequence[int]) -> None:
        """Add all jobs of a sample."""
        # For each value and memory, the job after which the value is present.
        there: dict[int, dict[int, int]] = defaultdict(dict)
        for task in self._order(homes):
            memory = self.machine.processors[homes[task]].memory
            own = [value for value in self.reads[task] if value not in self.shared]
            waits = [self._brought(sample, value, memory, there[value]) for value in own]
            time = run_time(self.graph, self.machine, task, homes[task])
            self._check(task, homes[task])
            job = self._add(_Job(RUN, task, sample, (homes[task],), time, 0, waits, on=homes[task]))
            for value in self.writes[task]:
                there[value].setdefault(memory, job)

    def _check(self, task: int, processor: int) -> None:
        tied = self.graph.tied.get(task)
        name = self.machine.processors[processor].name
        if tied is not None and name not in tied:
            raise OptionError(f"{self.graph.tasks[task]} is not tied to {name}", argument="placement")

    def _order(self, homes: Sequence[int]) -> Iterator[int]:
        """Yield the tasks that run, each after the producers of its reads, otherwise in listed order."""
        made: set[int] = set(self.shared)
        waiting: dict[int, list[int]] = defaultdict(list)
        missing: dict[int, int] = {}
        ready: list[int] = []
        for task, processor in enumerate(homes):
            if processor < 0:
                continue
            absent = [value for value in dict.fromkeys(self.reads[task]) if value not in made]
            missing[task] = len(absent)
            for value in absent:
                waiting[value].append(task)
            if not absent:
                heapq.heappush(ready, task)
        done = 0
        while ready:
            task = heapq.heappop(ready)
            done += 1
            yield task
            for value in self.writes[task]:
                if value not in made:
                    made.add(value)
                    for reader in waiting[value]:
                        missing[reader] -= 1
                        if not missing[reader]:
                            heapq.heappush(ready, reader)
        if done < len(missing):
            raise OptionError("some task reads a value that no task writes", argument="placement")

    def _brought(self, sample: int, value: int, memory: int, there: dict[int, int]) -> int:
        """Return the job after which a value is in a memory; add copies if it is not there."""
        if memory in there:
            return there[memory]
        for source, target, link in self._route(value, memory, there):
            held = tuple(dict.fromkeys(self.machine.held_by_link[link]))
            length = copy_held(self.graph, self.machine, value, source, target)
            delay = self.machine.links[link].delay
            job = _Job(COPY, value, sample, held, length, delay, [there[source]], source=source, target=target)
            there[target] = self._add(job)
        return there[memory]

    def _route(self, value: int, memory: int, there: dict[int, int]) -> list[tuple[int, int, int]]:
        """Return the fastest route from the memories of a value: (source, target, link) of each hop."""
        queue: list[tuple[Number, int]] = [(0, source) for source in sorted(there)]
        far: dict[int, Number] = dict.fromkeys(there, 0)
        came: dict[int, tuple[int, int]] = {}
        heapq.heapify(queue)
        while queue:
            distance, source = heapq.heappop(queue)
            if source == memory:
                break
            if distance > far[source]:
                continue
            for target, link in self.ways[source]:
                length = distance + copy_time(self.graph, self.machine, value, source, target)
                if target not in far or length < far[target]:
                    far[target], came[target] = length, (source, link)
                    heapq.heappush(queue, (length, target))
        if memory not in far:
            name = self.machine.memories[memory].name
            raise OptionError(f"no link leads {self.graph.values[value]} to memory {name}", argument="placement")
        way = []
        while memory in came and memory not in there:
            source, link = came[memory]
            way.append((source, memory, link))
            memory = source
        return way[::-1]

    def _add(self, job: _Job) -> int:
        self.listed.append(job)
        return len(self.listed) - 1

    def places(self, initial: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """Return the memories of placeable inputs: as requested, and where read; else the one with most free bytes."""
        found: dict[int, set[int]] = {place.value: set() for place in self.graph.placeable}
        for value, memory in initial:
            found.setdefault(value, set()).add(memory)
        for job in self.listed:
            if job.kind is RUN:
                for value in self.reads[job.item]:
                    if value in found:
                        found[value].add(self.machine.processors[job.on].memory)
        used = [self.graph.static_bytes(self.machine, memory) for memory in range(len(self.machine.memories))]
        for value, memories in found.items():
            for memory in memories:
                used[memory] += self.size[value]

        def room(memory: int) -> float:
            capacity = self.machine.memories[memory].capacity
            return math.inf if capacity is None else capacity - used[memory]

        for value, memories in found.items():
            if not memories:
                memory = max(range(len(used)), key=room)
                memories.add(memory)
                used[memory] += self.size[value]
        return tuple((value, memory) for value in sorted(found) for memory in sorted(found[value]))

    def least_period(self, homes: Homes) -> Number:
        """Return the busy time per period of the busiest processor or channel; more than 0."""
        busy: dict[int, list[Number]] = defaultdict(list)
        for job in self.listed:
            for resource in job.held:
                busy[resource].append(job.length)
        loads = [_total(lengths) for lengths in busy.values()]
        return max(loads, default=0) or len(homes)

    def one_by_one(self, samples: int) -> Number:
        """Return a period in which all jobs run one after the other."""
        return max(_total([job.length for job in self.listed]) + _total([job.later for job in self.listed]), samples)


def _total(lengths: Sequence[Number]) -> Number:
    return sum(lengths) if all(isinstance(length, int) for length in lengths) else math.fsum(lengths)


class _Folding:
    """Start times of all jobs at which no resource is occupied twice at once, modulo the period."""

    def __init__(self, jobs: Sequence[_Job], machine: Machine, samples: int, period: Number) -> None:
        self.jobs, self.samples, self.period = jobs, samples, period
        self.packed: set[int] = set()
        self.together = {resource for job in jobs if len(job.held) > 1 for resource in job.held}
        self.slack = self._slack()

    def _slack(self) -> Number:
        whole = isinstance(self.period, int) and all(isinstance(job.length, int) for job in self.jobs)
        return 0 if whole else ROUNDING * float(self.period)

    def times(self) -> list[Number]:
        """Return the start of each job for the samples of the first period; lengthen the period if necessary."""
        while True:
            found = self._fold()
            if isinstance(found, list):
                return found
            if found & self.together:
                # A job occupies several resources at once: filling without gaps does not help.
                longer = self.period * 1.05
                self.period = math.ceil(longer) if isinstance(self.period, int) else longer
                self.packed, self.slack = set(), self._slack()
            else:
                self.packed |= found

    def _fold(self) -> list[Number] | set[int]:
        """Return start times, or the resources of a job that does not fit."""
        busy: dict[int, Circle] = defaultdict(lambda: Circle(self.period, self.slack))
        offsets: dict[int, Number] = {}
        times: list[Number] = []
        for index, job in enumerate(self.jobs):
            ready: Number = self._release(job.sample)
            for before in job.waits:
                ready = max(ready, times[before] + self.jobs[before].length + self.jobs[before].later)
            if len(job.held) == 1 and job.held[0] in self.packed:
                offset = offsets.get(index)
                if offset is None:
                    offset = self._begin(job.held[0], index, ready, offsets)
                times.append(self._next(ready, offset))
                continue
            when = self._first_fit(job, ready, [busy[resource] for resource in job.held])
            if when is None:
                return set(job.held)
            times.append(when)
        return times

    def _begin(self, resource: int, first: int, ready: Number, offsets: dict[int, Number]) -> Number:
        """Fill a resource without gaps, with its jobs from `first` on in order; return the offset of that job."""
        phase = ready % self.period
        before: list[Number] = []
        for index in range(first, len(self.jobs)):
            job = self.jobs[index]
            if job.held == (resource,):
                offsets[index] = (phase + _total(before)) % self.period
                before.append(job.length)
        return offsets[first]

    def _release(self, sample: int) -> Number:
        """Return the earliest begin of a sample; samples are spread evenly over the period."""
        if isinstance(self.period, int):
            return sample * self.period // self.samples
        return sample * self.period / self.samples

    def _next(self, ready: Number, offset: Number) -> Number:
        """Return the first instant from `ready` on that equals an offset modulo the period."""
        whole = (
            math.floor((ready - offset) / self.period - 1e-12) if self.slack else (ready - offset - 1) // self.period
        )
        when = offset + whole * self.period
        while when < ready - self.slack:
            whole += 1
            when = offset + whole * self.period
        return when

    def _first_fit(self, job: _Job, ready: Number, busy: list[Circle]) -> Number | None:
        """Place a job at the first instant at which all its resources are free; None if there is none."""
        if job.length > self.period + self.slack:
            return None
        when, free = ready, 0
        while free < len(busy):
            for circle in busy:
                later = circle.first_free(when, job.length)
                if later is None or later - ready > self.period + self.slack:
                    return None
                when, free = later, free + 1 if later == when else 1
        for circle in busy:
            circle.add(when, when + job.length)
        return when


class _Memory:
    """The contents of each memory for a folded stream."""

    def __init__(
        self,
        graph: TaskGraph,
        machine: Machine,
        jobs: Sequence[_Job],
        times: Sequence[Number],
        period: Number,
        places: tuple[tuple[int, int], ...],
    ) -> None:
        self.graph, self.machine, self.jobs, self.times, self.period = graph, machine, jobs, times, period
        self.places = places
        self.size: list[int] = graph.size.tolist()

    def placed(self, times: Sequence[Number]) -> PlacedStream:
        """Return the pattern with its peaks."""
        turns = []
        for job, time in zip(self.jobs, times, strict=True):
            when = folded(time, self.period, ROUNDING)
            turns.append(Turn(job.kind, job.item, *when, job.sample, job.on, job.source, job.target))
        pattern = ModuloSchedule(self.graph, self.period, tuple(turns), self.places)
        peaks = self._peaks()
        capacities = [memory.capacity for memory in self.machine.memories]
        fits = all(limit is None or peak <= limit for peak, limit in zip(peaks, capacities, strict=True))
        return PlacedStream(pattern, peaks, fits)

    def _peaks(self) -> tuple[int, ...]:
        machine, graph = self.machine, self.graph
        fixed = [graph.static_bytes(machine, memory) for memory in range(len(machine.memories))]
        for value, memory in self.places:
            fixed[memory] += self.size[value]
        for place in graph.inputs:
            fixed[0 if place.memory is None else machine.memory_index[place.memory]] += self.size[place.value]
        lives: list[list[tuple[Number, Number, bool, int]]] = [[] for _ in fixed]
        for (memory, value, _), (begin, end, late) in self._lives().items():
            lives[memory].append((begin, end, late, self.size[value]))
        for job, begin in zip(self.jobs, self.times, strict=True):
            work = int(graph.workspace[job.item]) if job.kind is RUN else 0
            if work:
                lives[machine.processors[job.on].memory].append((begin, begin + job.length, not job.length, work))
        return tuple(held + self._most(own) for held, own in zip(fixed, lives, strict=True))

    def _lives(self) -> dict[tuple[int, int, int], tuple[Number, Number, bool]]:
        """Return the lifetime of each value of a sample in each memory, and whether its last use takes no time."""
        lives: dict[tuple[int, int, int], tuple[Number, Number, bool]] = {}
        reads, writes, shared = self.graph.reads.to_lists(), self.graph.writes.to_lists(), self.graph.available
        for job, begin in zip(self.jobs, self.times, strict=True):
            end = begin + job.length + job.later
            if job.kind is RUN:
                memory = self.machine.processors[job.on].memory
                used = [(memory, value) for value in (*reads[job.item], *writes[job.item]) if value not in shared]
            else:
                used = [(job.source, job.item), (job.target, job.item)]
            for memory, value in used:
                first, last, late = lives.get((memory, value, job.sample), (begin, end, False))
                late = end == begin if end > last else late or (end == begin and end == last)
                lives[memory, value, job.sample] = (min(first, begin), max(last, end), late)
        return lives

    def _most(self, lives: list[tuple[Number, Number, bool, int]]) -> int:
        """Return the largest sum at any instant of a period, or slightly more if steps take no time."""
        held, events = 0, []
        slack: Number = 0 if isinstance(self.period, int) else 1e-9 * self.period
        for begin, end, late, size in lives:
            # Order: ends first, then begins, and last the ends of values whose last use takes no time.
            ends = 2 if late or end - begin <= slack else 0
            for time, sign, rank in ((begin, 1, 1), (end, -1, ends)):
                whole = math.floor(time / self.period + 1e-9) if slack else int(time // self.period)
                held -= sign * size * (whole + 1)
                events.append((max(0, time - whole * self.period), rank, sign * size))
        most = held
        for cluster in _clustered(sorted(events), slack):
            for _, _, change in sorted(cluster, key=lambda event: event[1]):
                held += change
                most = max(most, held)
        return most


def _clustered(events: list[tuple[Number, int, int]], slack: float) -> Iterator[list[tuple[Number, int, int]]]:
    """Yield groups of events at one instant."""
    cluster: list[tuple[Number, int, int]] = []
    for event in events:
        if cluster and event[0] - cluster[0][0] > slack:
            yield cluster
            cluster = []
        cluster.append(event)
    if cluster:
        yield cluster
