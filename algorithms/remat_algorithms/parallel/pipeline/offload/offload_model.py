"""Offload options of pipeline stages, and the steps of an order with copies to the host.

A *sequence* lists operations in scheduling order: those of `model`, and returns (`R`), the copies back of offloaded
values. It is simulated as the kernel simulates its keys (`local_search.transfers`). Devices run in that order,
allocations wait until enough bytes are free, and offloads start when the forward ends. If stages have several options
(`Way`), a *choice* gives the level and part of each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from remat.plugin import (
    IntArray,
    Number,
    OptionError,
    Orders,
    Pass,
    Phase,
    PipelineInstance,
    Problem,
    Ragged,
    StepKind,
    Steps,
    initial_of,
    instant_array,
    tasks_of,
)
from remat_algorithms.parallel.pipeline.model import B, F, Op, PipelineModel
from remat_algorithms.parallel.pipeline.offload.offload_steps import Listing, Row
from remat_algorithms.parallel.pipeline.stages import Staging

R = 3
"""Phase of a return, in addition to F, B and W of `model`."""

HOST = "host"


class Played(NamedTuple):
    """Steps of a sequence with start times, their makespan, and their excess over each device memory and the host."""

    steps: Steps
    makespan: Number
    excess: list[int]


class Way(NamedTuple):
    """Option of a stage for the values that a micro-batch holds from its forward to its backward.

    Attributes
    ----------
    segments : tuple of tuple of int
        Recomputed layers, counted from the stage's first one (`remat.schedule.recompute`).
    sent : tuple of int
        Layers whose values wait at the host. The first layer of a segment represents the segment's input.
    recompute_time : number
        Time of the recomputation.
    held, forward, backward, early : int
        Bytes held from the end of F to the start of B, and bytes that F allocates at its start. The other two are the
        bytes that B allocates in addition to `held`: if segments are recomputed one by one, and if all are recomputed
        before the first backward.
    """

    segments: tuple[tuple[int, ...], ...]
    sent: tuple[int, ...]
    recompute_time: Number
    held: int
    forward: int
    backward: int
    early: int


Ways: TypeAlias = tuple[tuple[tuple[Way, ...], ...], ...]
"""Options by stage, level and part; the first level recomputes nothing, the first part of each level sends nothing."""


class Choice(NamedTuple):
    """Level and part of each stage and micro-batch."""

    level: IntArray
    part: IntArray


class Trip(NamedTuple):
    """An offload: positions among a stage's values, bytes, and the times out and back."""

    values: tuple[int, ...]
    size: int
    out: Number
    back: Number


def check_host(problem: Problem) -> None:
    """Refuse a problem without a host that links connect to each device, or whose steps end with more than backwards.

    Raises
    ------
    OptionError
        In either case, for sequences cut into slices, and for links that occupy processors.
    """
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    if instance.cluster.host is None:
        raise OptionError(
            'this algorithm sends activations to a host, and the cluster has none; give it "host": {"bandwidth": ...}',
            argument="algorithm",
        )
    if instance.closes:
        raise OptionError(
            "plans with copies to a host are steps, and end with the last backward; leave out update_time and exchange",
            argument="algorithm",
        )
    if instance.cut:
        raise OptionError(
            "plans with copies to a host do not support sequences that are cut into slices", argument="algorithm"
        )
    machine = problem.machine
    if HOST not in machine.memory_index:
        raise OptionError(
            f"this algorithm sends activations to a host, and no memory is called {HOST!r}", argument="machine"
        )
    host = machine.memory_index[HOST]
    for processor in machine.processors:
        if processor.memory == host:
            raise OptionError(
                f"this algorithm sends activations to a host, and {processor.name} works there", argument="machine"
            )
        machine.link_between(processor.memory, host)
        machine.link_between(host, processor.memory)
    for link, held in enumerate(machine.held_by_link):
        if min(held) < len(machine.processors):
            raise OptionError(
                f"plans with copies to a host know no link such as {machine.link_name(link)}, whose transfers occupy a "
                "processor",
                argument="machine",
            )


@dataclass(frozen=True)
class Hosting:
    """A staging, and the offload options of its stages.

    Attributes
    ----------
    problem : Problem
    staged : Staging
    several : Ways, optional
        Options of the stages. By default nothing is recomputed, and all or nothing is offloaded.
    """

    problem: Problem
    staged: Staging
    several: Ways | None = None

    @cached_property
    def ways(self) -> Ways:
        """Options of each stage."""
        if self.several is not None:
            return self.several
        found = []
        for own, held, kept in zip(self.staged.stages, self.model.activation, self.model.kept, strict=True):
            plain = Way((), (), 0, held, held, max(0, kept - held), 0)
            found.append(((plain, plain._replace(sent=tuple(range(len(own.layers))))),))
        return tuple(found)

    @property
    def model(self) -> PipelineModel:
        """Times and bytes of the stages."""
        return self.staged.model

    def tightened(self, excess: Sequence[int]) -> Hosting:
        """Return the same with additional bytes reserved on each device for values outside the model."""
        return replace(self, staged=self.staged.tightened(excess[: self.model.devices]))

    @cached_property
    def tasks(self) -> dict[Op, list[int]]:
        """Tasks of each operation, in the order in which they run."""
        assert isinstance(self.problem.instance, PipelineInstance)
        every, stages = tasks_of(self.problem.instance), self.staged.stages
        first = self.model.first_batch
        return {(p, s, b): every.of(Pass(Phase(p), s, first[s] + b), stages[s]) for p, s, b in self.model.operations()}

    @cached_property
    def owner(self) -> list[Op | None]:
        """Operation of each task."""
        found: list[Op | None] = [None] * len(self.problem.graph.tasks)
        for op, tasks in self.tasks.items():
            for task in tasks:
                found[task] = op
        return found

    @cached_property
    def maker(self) -> dict[int, Op | None]:
        """Operation that produces each value."""
        writes, owner = self.problem.graph.writes, self.owner
        return {value: owner[task] for task, value in zip(writes.rows.tolist(), writes.items.tolist(), strict=True)}

    @cached_property
    def reads(self) -> dict[Op, list[int]]:
        """Values that each operation reads from other operations."""
        graph, maker = self.problem.graph, self.maker
        found: dict[Op, list[int]] = {}
        for op, tasks in self.tasks.items():
            values = dict.fromkeys(graph.reads.gather(np.array(tasks, dtype=np.int64)).items.tolist())
            found[op] = [value for value in values if maker.get(value) not in (None, op)]
        return found

    @cached_property
    def readers(self) -> dict[int, list[Op]]:
        """Operations that read each value, except its producer."""
        found: dict[int, list[Op]] = {}
        for op, values in self.reads.items():
            for value in values:
                found.setdefault(value, []).append(op)
        return found

    @cached_property
    def made(self) -> dict[Op, list[int]]:
        """Values that each operation produces, in the order in which they are sent."""
        writes = self.problem.graph.writes
        return {op: sorted(v for task in tasks for v in writes[task].tolist()) for op, tasks in self.tasks.items()}

    @cached_property
    def held(self) -> dict[tuple[int, int], list[int]]:
        """Values that each stage and micro-batch may offload: those that its forward produces only for its backward."""
        size = self.problem.graph.size
        found: dict[tuple[int, int], list[int]] = {}
        for (phase, stage, batch), values in self.made.items():
            if phase == F:
                found[stage, batch] = [
                    value
                    for value in values
                    if size[value]
                    and (readers := self.readers.get(value))
                    and all(reader[1:] == (stage, batch) for reader in readers)
                ]
        return found

    @cached_property
    def whole(self) -> tuple[Trip, ...]:
        """Everything that each stage may offload without recomputation."""
        return tuple(
            self._trip(stage, tuple(range(len(self.held[stage, 0]))), self.model.activation[stage])
            for stage in range(self.model.stages)
        )

    @cached_property
    def away(self) -> tuple[int, ...]:
        """Bytes of a micro-batch that each stage may offload."""
        return tuple(trip.size for trip in self.whole)

    @cached_property
    def way(self) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Times of each stage's complete offload and of its return."""
        return tuple(trip.out for trip in self.whole), tuple(trip.back for trip in self.whole)

    @cached_property
    def trips(self) -> tuple[tuple[tuple[Trip, ...], ...], ...]:
        """Offloads by stage, level and part."""
        return tuple(
            tuple(tuple(self._trip(stage, self._sent(stage, way), way.held) for way in parts) for parts in levels)
            for stage, levels in enumerate(self.ways)
        )

    def _trip(self, stage: int, values: tuple[int, ...], held: int) -> Trip:
        machine, bytes_of = self.problem.machine, self.problem.graph.size
        here, host = machine.processors[self.model.place[stage]].memory, machine.memory_index[HOST]
        sizes = [int(bytes_of[self.held[stage, 0][place]]) for place in values]
        times: list[Number] = []
        for ends in ((here, host), (host, here)):
            link = machine.links[machine.link_index[ends]]
            times.append(sum(link.time(one) - link.delay for one in sizes) + (link.delay if sizes else 0))
        size = min(sum(sizes), held)
        return Trip(values, size, *times) if size else Trip((), 0, 0, 0)

    def _sent(self, stage: int, way: Way) -> tuple[int, ...]:
        """Return the positions, in `held`, of values at the host: those that only offloaded layers hold."""
        again = {layer for segment in way.segments for layer in segment}
        firsts = {segment[0] for segment in way.segments}
        found = []
        for place, value in enumerate(self.held[stage, 0]):
            forwards, backwards = self.readers_in[stage][value]
            holders = (backwards - again) | (forwards & firsts)
            if holders and holders <= set(way.sent):
                found.append(place)
        return tuple(found)

    @cached_property
    def readers_in(self) -> list[dict[int, tuple[set[int], set[int]]]]:
        """By stage: layers (from its first one) whose forwards and whose backwards read each offloadable value."""
        graph = self.problem.graph
        assert isinstance(self.problem.instance, PipelineInstance)
        every, found = tasks_of(self.problem.instance), []
        for stage, own in enumerate(self.staged.stages):
            read: dict[int, tuple[set[int], set[int]]] = {value: (set(), set()) for value in self.held[stage, 0]}
            for number, layer in enumerate(own.layers):
                one = replace(own, layers=(layer,))
                for phase in (Phase.F, Phase.BW):
                    for task in every.of(Pass(phase, stage, self.model.first_batch[stage]), one):
                        for value in graph.reads[task].tolist():
                            if value in read:
                                read[value][phase != Phase.F].add(number)
            found.append(read)
        return found

    def runs(self, op: Op, way: Way, *, ahead: int) -> list[int]:
        """Return the tasks of an operation in running order, including recomputation; with `ahead`, all of it first."""
        if op[0] != B or not way.segments:
            return self.tasks[op]
        assert isinstance(self.problem.instance, PipelineInstance)
        own = self.staged.stages[op[1]]
        segments = tuple(tuple(own.layers[layer] for layer in segment) for segment in way.segments)
        every, batch = tasks_of(self.problem.instance), self.model.first_batch[op[1]] + op[2]
        if ahead:
            return [*every.of(Pass(Phase.R, op[1], batch), own, segments), *self.tasks[op]]
        return every.of(Pass(Phase.B, op[1], batch), own, segments)

    @cached_property
    def gradients(self) -> dict[Op, set[int]]:
        """Values that each backward reads from the next stage."""
        return {
            op: {value for value in values if (maker := self.maker.get(value)) is not None and maker[0] != F}
            for op, values in self.reads.items()
            if op[0] == B
        }

    def plain(self, sequence: Iterable[Op]) -> Choice:
        """Return the choice in which everything that a sequence returns is fully offloaded, without recomputation."""
        shape = (self.model.stages, self.model.batches)
        choice = Choice(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))
        for phase, stage, batch in sequence:
            if phase == R:
                choice.part[stage, batch] = len(self.ways[stage][0]) - 1
        return choice

    def play(self, sequence: Iterable[Op], choice: Choice | None = None) -> Played | None:
        """Simulate a sequence; None on deadlock. Without a choice, use the plain one."""
        listed = tuple(sequence)
        return _Player(self, self.plain(listed) if choice is None else choice).play(listed)


class _Begun(NamedTuple):
    """Start of an operation, availability of its inputs, its bytes, and the number of tasks recomputed first."""

    start: Number
    ready: Number
    taken: int
    ahead: int


class _Player:
    """Simulator that processes a sequence operation by operation, with all times known at each operation's turn."""

    def __init__(self, hosting: Hosting, choice: Choice) -> None:
        self.hosting, self.model, self.choice = hosting, hosting.model, choice
        problem = hosting.problem
        self.graph, self.machine = problem.graph, problem.machine
        self.host = self.machine.memory_index[HOST]
        self.memory = [self.machine.processors[device].memory for device in self.model.place]
        self.size = self.graph.size.tolist()
        self.room = self.model.free
        devices = self.model.devices
        self.clock: list[Number] = [0] * devices
        self.taking: list[Number] = [0] * devices
        self.free_at: dict[int, Number] = {}
        self.used = [0] * devices
        self.later: list[list[tuple[Number, int]]] = [[] for _ in range(devices)]
        self.there: dict[tuple[int, int], Number] = {}
        self.rows: list[Row] = []
        self.ends: list[Number] = []
        self.times = [self._times(device) for device in range(devices)]

    def _times(self, device: int) -> list[Number]:
        graph = self.graph
        kind = self.machine.processors[device].type
        found: list[Number] = (graph.time if graph.times is None else graph.times[graph.types.index(kind)]).tolist()
        return found

    def play(self, sequence: Iterable[Op]) -> Played | None:
        seen: set[Op] = set()
        for op in sequence:
            if op in seen or not (self._back(*op[1:]) if op[0] == R else self._run(op)):
                return None
            seen.add(op)
        if not seen.issuperset(self.hosting.tasks):
            return None
        return self._played()

    def _at(self, stage: int, batch: int) -> tuple[Way, Trip]:
        level, part = int(self.choice.level[stage, batch]), int(self.choice.part[stage, batch])
        return self.hosting.ways[stage][level][part], self.hosting.trips[stage][level][part]

    def _room(self, device: int, start: Number, taken: int) -> Number | None:
        """Return the first instant, from `start`, at which the given bytes are free."""
        if not taken:
            return start
        start = max(start, self.taking[device])
        used, room = self.used[device] + taken, self.room[device]
        for time, size in self.later[device]:
            if time > start and (room is None or used <= room):
                break
            start, used = max(start, time), used - size
        return start if room is None or used <= room else None

    def _take(self, device: int, start: Number, taken: int) -> None:
        if not taken:
            return
        later = self.later[device]
        while later and later[0][0] <= start:
            self.used[device] -= later.pop(0)[1]
        self.used[device] += taken
        self.taking[device] = start

    def _frees(self, device: int, time: Number, size: int) -> None:
        if size:
            self.later[device].append((time, size))
            self.later[device].sort(key=lambda entry: entry[0])

    def _run(self, op: Op) -> bool:
        model, (phase, stage, batch) = self.model, op
        device, here = model.place[stage], self.memory[stage]
        way, trip = self._at(stage, batch)
        begun = self._begin(op, way)
        if begun is None:
            return False
        self._take(device, begun.start, begun.taken)
        end = begun.start
        for number, task in enumerate(self.hosting.runs(op, way, ahead=begun.ahead)):
            if number == begun.ahead:
                end = max(end, begun.ready)
            self._step(end, end + self.times[device][task], int(StepKind.RUN), task, device, -1)
            end += self.times[device][task]
        self.clock[device] = end
        for value in self.hosting.made[op]:
            self.there[value, here] = end
            for other in dict.fromkeys(self.memory[reader[1]] for reader in self.hosting.readers.get(value, ())):
                if other != here:
                    self.there[value, other] = self._copy(value, here, other, end)
        if phase == F:
            self._frees(device, end, begun.taken - way.held)
            if trip.values:
                gone = end
                for place in trip.values:
                    value = self.hosting.held[stage, batch][place]
                    gone = self._copy(value, here, self.host, end)
                    del self.there[value, here]
                    self.there[value, self.host] = gone
                self._frees(device, gone, trip.size)
        elif phase == B:
            self._frees(device, end, way.held + begun.taken - model.kept[stage])
        else:
            self._frees(device, end, model.kept[stage])
        return True

    def _begin(self, op: Op, way: Way) -> _Begun | None:
        """Return the start of an operation; None if it cannot start."""
        phase, stage, batch = op
        device, here, reads = self.model.place[stage], self.memory[stage], self.hosting.reads[op]
        ready = self._ready(reads, here)
        if ready is None:
            return None
        clock, taken = self.clock[device], (way.forward, way.backward, 0)[phase]
        start = self._room(device, max(clock, ready), taken)
        if phase == B and way.recompute_time and ready > clock:
            own = self._ready((value for value in reads if value not in self.hosting.gradients[op]), here)
            made = self.hosting.made[F, stage, batch]
            sent = [time for value in made for other in self.memory if (time := self.there.get((value, other)))]
            early = self._room(device, max(own or 0, *sent, ready - way.recompute_time, clock), way.early)
            if early is not None and (
                start is None or max(early + way.recompute_time, ready) < start + way.recompute_time
            ):
                count = sum(map(len, way.segments))
                return _Begun(early, ready, way.early, count)
        return None if start is None else _Begun(start, ready, taken, 0)

    def _back(self, stage: int, batch: int) -> bool:
        device, here = self.model.place[stage], self.memory[stage]
        trip = self._at(stage, batch)[1]
        values = [self.hosting.held[stage, batch][place] for place in trip.values]
        ready = self._ready(values, self.host)
        if ready is None:
            return False
        start = max(self._free_at(self.host, here), ready)
        begin = self._room(device, start, trip.size)
        if begin is None or not values:
            return False
        self._take(device, begin, trip.size)
        for value in values:
            self.there[value, here] = self._copy(value, self.host, here, begin)
        return True

    def _ready(self, values: Iterable[int], memory: int) -> Number | None:
        """Return when all values are available; None if some have not been produced or sent."""
        latest: Number = 0
        for value in values:
            time = self.there.get((value, memory))
            if time is None:
                return None
            latest = max(latest, time)
        return latest

    def _free_at(self, source: int, target: int) -> Number:
        """Return when everything that a link occupies is free."""
        held = self.machine.held_by_link[self.machine.link_index[source, target]]
        return max(self.free_at.get(resource, 0) for resource in held)

    def _copy(self, value: int, source: int, target: int, ready: Number) -> Number:
        """Send a value as soon as its channels are free; return its arrival time."""
        index = self.machine.link_index[source, target]
        link = self.machine.links[index]
        begin = max(ready, self._free_at(source, target))
        took = link.time(self.size[value]) - link.delay
        for resource in self.machine.held_by_link[index]:
            self.free_at[resource] = begin + took
        self._step(begin, begin + took + link.delay, int(StepKind.COPY), value, source, target)
        return begin + took + link.delay

    def _step(self, start: Number, end: Number, kind: int, item: int, source: int, target: int) -> None:
        self.rows.append((start, len(self.rows), kind, item, source, target))
        self.ends.append(end)

    def _played(self) -> Played:
        listing = Listing(self.graph, self.machine, self.host)
        rows, ends = listing.in_order(self.rows, self.ends)
        runs = [row[2] == StepKind.RUN for row in rows]
        drops = listing.drops(rows, ends)
        exact = all(type(row[0]) is int for row in rows) and all(type(end) is int for end in ends)
        steps = Steps(
            kind=np.array([row[2] for row in rows], dtype=np.int8),
            item=np.array([row[3] for row in rows], dtype=np.int64),
            source=np.array([-1 if run else row[4] for run, row in zip(runs, rows, strict=True)], dtype=np.int64),
            target=np.array([row[5] for row in rows], dtype=np.int64),
            amount=np.full(len(rows), -1, dtype=np.int64),
            drop=Ragged.from_lists(drops),
            on=Ragged.from_lists([[row[4]] if run else [] for run, row in zip(runs, rows, strict=True)]),
            start=instant_array(row[0] if exact else float(row[0]) for row in rows),
            initial=initial_of(self.graph, self.machine, Orders(self.hosting.staged.stages, ())),
        )
        makespan = max(end for end, run in zip(ends, runs, strict=True) if run)
        peaks = listing.peaks(rows, ends, drops, steps.initial)
        homes = [*(processor.memory for processor in self.machine.processors), self.host]
        limits = [self.machine.memories[home].capacity for home in homes]
        pairs = zip((peaks[home] for home in homes), limits, strict=True)
        return Played(steps, makespan, [0 if most is None else max(0, peak - most) for peak, most in pairs])
