"""What the stages of a pipeline may send to the host, and the steps that come of an order with copies there.

A *sequence* lists operations in the order in which they are scheduled: those of `model`, and returns (`R`), the copies
back of what a micro-batch has sent away. It is played as the kernel plays its keys (`walk`): devices run in that order,
what takes bytes waits until there is room, and what is sent away goes when its forward ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from remat.plugin import (
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
    tasks_of,
)
from remat_algorithms.parallel.pipeline.model import B, F, Op, PipelineModel, W
from remat_algorithms.parallel.pipeline.stages import Staging

R = 3
"""Phase of a return; beside F, B and W of `model`."""

HOST = "host"


class Played(NamedTuple):
    """Steps of a sequence with start times, their makespan, and by how much they exceed each device and the host."""

    steps: Steps
    makespan: Number
    excess: list[int]


def check_host(problem: Problem) -> None:
    """Refuse a problem without a host, and one whose steps end with more than backwards.

    Raises
    ------
    OptionError
        For either.
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
            "plans with copies to a host know no sequences that are cut into slices", argument="algorithm"
        )


@dataclass(frozen=True)
class Hosting:
    """A staging, and what each of its stages may send to the host.

    Attributes
    ----------
    problem : Problem
    staged : Staging
    """

    problem: Problem
    staged: Staging

    @property
    def model(self) -> PipelineModel:
        """Times and bytes of the stages."""
        return self.staged.model

    def tightened(self, excess: Sequence[int]) -> Hosting:
        """Return the same with so many bytes more on each device that the model does not see."""
        return replace(self, staged=self.staged.tightened(excess[: self.model.devices]))

    @cached_property
    def tasks(self) -> dict[Op, list[int]]:
        """The tasks of each operation, in the order in which they run."""
        assert isinstance(self.problem.instance, PipelineInstance)
        every, stages = tasks_of(self.problem.instance), self.staged.stages
        return {(p, s, b): every.of(Pass(Phase(p), s, b), stages[s]) for p, s, b in self.model.operations()}

    @cached_property
    def owner(self) -> list[Op | None]:
        """The operation of each task."""
        found: list[Op | None] = [None] * len(self.problem.graph.tasks)
        for op, tasks in self.tasks.items():
            for task in tasks:
                found[task] = op
        return found

    @cached_property
    def reads(self) -> dict[Op, list[int]]:
        """What each operation reads that others make."""
        graph, owner = self.problem.graph, self.owner
        maker: dict[int, Op | None] = {}
        for task, value in zip(graph.writes.rows.tolist(), graph.writes.items.tolist(), strict=True):
            maker[value] = owner[task]
        found: dict[Op, list[int]] = {}
        for op, tasks in self.tasks.items():
            values = dict.fromkeys(graph.reads.gather(np.array(tasks, dtype=np.int64)).items.tolist())
            found[op] = [value for value in values if maker.get(value) not in (None, op)]
        return found

    @cached_property
    def readers(self) -> dict[int, list[Op]]:
        """The operations that read each value, but for the one that makes it."""
        found: dict[int, list[Op]] = {}
        for op, values in self.reads.items():
            for value in values:
                found.setdefault(value, []).append(op)
        return found

    @cached_property
    def made(self) -> dict[Op, list[int]]:
        """What each operation makes, in the order in which it is sent."""
        writes = self.problem.graph.writes
        return {op: sorted(v for task in tasks for v in writes[task].tolist()) for op, tasks in self.tasks.items()}

    @cached_property
    def held(self) -> dict[tuple[int, int], list[int]]:
        """What each stage and micro-batch may send away: what its forward makes for its backward alone."""
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
    def away(self) -> tuple[int, ...]:
        """Bytes of a micro-batch that each stage may send away."""
        size = self.problem.graph.size
        sent = [sum(int(size[v]) for v in self.held[stage, 0]) for stage in range(self.model.stages)]
        return tuple(min(one, other) for one, other in zip(sent, self.model.activation, strict=True))

    @cached_property
    def way(self) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """How long what a stage may send away takes to go, and to come back."""
        machine, size = self.problem.machine, self.problem.graph.size
        host = machine.memory_index[HOST]
        out: list[Number] = []
        back: list[Number] = []
        for stage, device in enumerate(self.model.place):
            here = machine.processors[device].memory
            sizes = [int(size[value]) for value in self.held[stage, 0]]
            for found, ends in ((out, (here, host)), (back, (host, here))):
                link = machine.links[machine.link_index[ends]]
                found.append(sum(link.time(one) - link.delay for one in sizes) + (link.delay if sizes else 0))
        return tuple(out), tuple(back)

    def play(self, sequence: Iterable[Op]) -> Played | None:
        """Return what comes of a sequence; None where it comes to no end."""
        return _Player(self).play(sequence)


class _Player:
    """Plays a sequence, one operation after the other; every time is known when its operation's turn comes."""

    def __init__(self, hosting: Hosting) -> None:
        self.hosting, self.model = hosting, hosting.model
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
        self.rows: list[tuple[Number, int, int, int, int, int]] = []
        self.ends: list[Number] = []
        self.times = [self._times(device) for device in range(devices)]

    def _times(self, device: int) -> list[Number]:
        graph = self.graph
        kind = self.machine.processors[device].type
        found: list[Number] = (graph.time if graph.times is None else graph.times[graph.types.index(kind)]).tolist()
        return found

    def play(self, sequence: Iterable[Op]) -> Played | None:
        listed = tuple(sequence)
        sent = {op[1:] for op in listed if op[0] == R}
        seen: set[Op] = set()
        for op in listed:
            if op in seen or not (self._back(*op[1:]) if op[0] == R else self._run(op, op[1:] in sent)):
                return None
            seen.add(op)
        if not seen.issuperset(self.hosting.tasks):
            return None
        return self._played()

    def _room(self, device: int, start: Number, taken: int) -> Number | None:
        """Return the first instant, no earlier, at which so many bytes are free, and take them."""
        if not taken:
            return start
        start = max(start, self.taking[device])
        later, room = self.later[device], self.room[device]
        while later and later[0][0] <= start:
            self.used[device] -= later.pop(0)[1]
        while room is not None and self.used[device] + taken > room:
            if not later:
                return None
            start, size = later.pop(0)
            self.used[device] -= size
        while later and later[0][0] <= start:
            self.used[device] -= later.pop(0)[1]
        self.used[device] += taken
        self.taking[device] = start
        return start

    def _frees(self, device: int, time: Number, size: int) -> None:
        if size:
            self.later[device].append((time, size))
            self.later[device].sort(key=lambda entry: entry[0])

    def _run(self, op: Op, sent: bool) -> bool:
        model, (phase, stage, batch) = self.model, op
        device, here = model.place[stage], self.memory[stage]
        ready = self._ready(self.hosting.reads[op], here)
        if ready is None:
            return False
        activation, kept = model.activation[stage], model.kept[stage]
        taken = (activation, max(0, kept - activation), 0)[phase]
        start = self._room(device, max(self.clock[device], ready), taken)
        if start is None:
            return False
        end = start
        for task in self.hosting.tasks[op]:
            self._step(end, end + self.times[device][task], int(StepKind.RUN), task, device, -1)
            end += self.times[device][task]
        self.clock[device] = end
        for value in self.hosting.made[op]:
            self.there[value, here] = end
            for other in dict.fromkeys(self.memory[reader[1]] for reader in self.hosting.readers.get(value, ())):
                if other != here:
                    self.there[value, other] = self._copy(value, here, other, end)
        if phase == F and sent:
            gone = end
            for value in self.hosting.held[stage, batch]:
                gone = self._copy(value, here, self.host, end)
                del self.there[value, here]
                self.there[value, self.host] = gone
            self._frees(device, gone, self.hosting.away[stage])
        if phase == B:
            self._frees(device, end, max(0, activation - kept) if model.weight[stage] else activation)
        elif phase == W:
            self._frees(device, end, kept)
        return True

    def _back(self, stage: int, batch: int) -> bool:
        device, here = self.model.place[stage], self.memory[stage]
        values = self.hosting.held[stage, batch]
        ready = self._ready(values, self.host)
        if ready is None:
            return False
        way = self._channel(self.host, here)
        start = max(self.free_at.get(way, 0), ready)
        begin = self._room(device, start, self.hosting.away[stage])
        if begin is None:
            return False
        for value in values:
            self.there[value, here] = self._copy(value, self.host, here, begin)
        return True

    def _ready(self, values: Iterable[int], memory: int) -> Number | None:
        """Return when values are there; None: not all of them have been made, or sent."""
        latest: Number = 0
        for value in values:
            time = self.there.get((value, memory))
            if time is None:
                return None
            latest = max(latest, time)
        return latest

    def _channel(self, source: int, target: int) -> int:
        return self.machine.resource_of_link[self.machine.link_index[source, target]]

    def _copy(self, value: int, source: int, target: int, ready: Number) -> Number:
        """Send a value as soon as its way is free; return when it is there."""
        way = self._channel(source, target)
        link = self.machine.links[self.machine.link_index[source, target]]
        begin = max(ready, self.free_at.get(way, 0))
        took = link.time(self.size[value]) - link.delay
        self.free_at[way] = begin + took
        self._step(begin, begin + took + link.delay, int(StepKind.COPY), value, source, target)
        return begin + took + link.delay

    def _step(self, start: Number, end: Number, kind: int, item: int, source: int, target: int) -> None:
        self.rows.append((start, len(self.rows), kind, item, source, target))
        self.ends.append(end)

    def _played(self) -> Played:
        order = sorted(range(len(self.rows)), key=lambda k: self.rows[k][:2])
        rows = [self.rows[k] for k in order]
        ends = [self.ends[k] for k in order]
        runs = [row[2] == StepKind.RUN for row in rows]
        drops = self._drops(rows, ends)
        exact = all(type(row[0]) is int for row in rows) and all(type(end) is int for end in ends)
        steps = Steps(
            kind=np.array([row[2] for row in rows], dtype=np.int8),
            item=np.array([row[3] for row in rows], dtype=np.int64),
            source=np.array([-1 if run else row[4] for run, row in zip(runs, rows, strict=True)], dtype=np.int64),
            target=np.array([row[5] for row in rows], dtype=np.int64),
            amount=np.full(len(rows), -1, dtype=np.int64),
            drop=Ragged.from_lists(drops),
            on=Ragged.from_lists([[row[4]] if run else [] for run, row in zip(runs, rows, strict=True)]),
            start=np.array([row[0] for row in rows], dtype=np.int64 if exact else np.float64),
            initial=initial_of(self.graph, self.machine, Orders(self.hosting.staged.stages, ())),
        )
        makespan = max(end for end, run in zip(ends, runs, strict=True) if run)
        peaks = self._peaks(rows, ends, drops, steps.initial)
        homes = [*(processor.memory for processor in self.machine.processors), self.host]
        limits = [self.machine.memories[home].capacity for home in homes]
        pairs = zip((peaks[home] for home in homes), limits, strict=True)
        return Played(steps, makespan, [0 if most is None else max(0, peak - most) for peak, most in pairs])

    def _home(self, row: tuple[Number, int, int, int, int, int]) -> int:
        """Return the memory in which a run works, or from which a copy is sent."""
        return self.machine.processors[row[4]].memory if row[2] == StepKind.RUN else row[4]

    def _drops(self, rows: list[tuple[Number, int, int, int, int, int]], ends: list[Number]) -> list[list[int]]:
        """Each value goes with its last use in a memory; what crosses to the host, or back, when it has."""
        graph = self.graph
        stays = set(self.graph_inputs)
        last: dict[tuple[int, int], tuple[Number, Number, int]] = {}
        found: list[list[int]] = [[] for _ in rows]
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            home = self._home(row)
            if row[2] == StepKind.RUN:
                uses = [(home, value) for value in (*graph.reads[row[3]].tolist(), *graph.writes[row[3]].tolist())]
            else:
                uses = [(home, row[3]), (row[5], row[3])]
                if self.host in (row[4], row[5]):
                    found[place].append(row[3])
                    uses = uses[1:] if row[5] != self.host else []
            for key in uses:
                if key[1] not in stays:
                    last[key] = max(last.get(key, (end, row[0], place)), (end, row[0], place))
        for (_, value), (_, _, place) in last.items():
            found[place].append(value)
        return found

    @cached_property
    def graph_inputs(self) -> list[int]:
        """Parameters, which stay where they are."""
        return [place.value for place in self.graph.placeable]

    def _peaks(
        self,
        rows: list[tuple[Number, int, int, int, int, int]],
        ends: list[Number],
        drops: list[list[int]],
        initial: Iterable[tuple[int, int]],
    ) -> list[int]:
        """Return the most bytes of each memory: of an instant, what ended before it gives back first."""
        size, graph = self.size, self.graph
        held = [0] * len(self.machine.memories)
        for value, memory in initial:
            held[memory] += size[value]
        events: list[tuple[Number, int, int, int]] = []
        for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
            home = self._home(row)
            freed = sum(size[value] for value in drops[place])
            turn = 2 * place
            after = -1 if end > row[0] else turn + 1
            if row[2] == StepKind.RUN:
                work = int(graph.workspace[row[3]])
                taken = sum(size[value] for value in graph.writes[row[3]].tolist())
                events.append((row[0], turn, home, taken + work))
                freed += work
            else:
                events.append((row[0], turn, row[5], size[row[3]]))
            events.append((end, after, home, -freed))
        most = list(held)
        for _, _, home, change in sorted(events):
            held[home] += change
            most[home] = max(most[home], held[home])
        return most
