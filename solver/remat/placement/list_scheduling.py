"""List scheduling of overlapping steps: one pass over the list, with a heap of future releases of bytes."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.placement.outcome import Placement, Unplaceable
from remat.schedule.steps import StepKind, Steps
from remat.units import Number

Change = list[tuple[int, int]]
"""(memory, bytes) pairs."""


def place_general(graph: TaskGraph, machine: Machine, steps: Steps) -> Placement | Unplaceable:
    """Place any list of steps (see `remat.placement.place`)."""
    return _Placer(graph, machine).place(steps)


class _Placer:
    """The state during the pass over the list; times in the instance's unit.

    Keys are (memory * values + value). `present` contains the bytes of each key after all listed steps have ended.
    Steps are taken in list order. This is also the order in time of any two steps that access one key.
    """

    def __init__(self, graph: TaskGraph, machine: Machine) -> None:
        self.graph, self.values = graph, len(graph.values)
        self.size = graph.size.tolist()
        self.time = graph.time.tolist()
        self.types = graph.types
        self.times = None if graph.times is None else graph.times.tolist()
        self.workspace: list[int] = graph.workspace.tolist()
        self.in_place = graph.in_place.tolist()
        self.reads = graph.reads.to_lists()
        self.writes = graph.writes.to_lists()
        self.parts = graph.parts
        self.busy = graph.busy
        self.alpha = None if graph.parallel_alpha is None else graph.parallel_alpha.tolist()
        self.machine = machine
        self.memory_of = [processor.memory for processor in machine.processors]
        self.speed = [processor.speed for processor in machine.processors]
        self.capacity = [math.inf if memory.capacity is None else memory.capacity for memory in machine.memories]
        self.used = [graph.static_bytes(machine, memory) for memory in range(len(machine.memories))]
        self.free_at: list[Number] = [0] * len(machine.resources)
        self.present: defaultdict[int, int] = defaultdict(int)
        self.written: defaultdict[int, Number] = defaultdict(int)  # end of the latest writer
        self.accessed: defaultdict[int, Number] = defaultdict(int)  # end of all readers and writers
        self.touched: defaultdict[int, Number] = defaultdict(int)  # end of all readers, writers and frees
        self.freed: defaultdict[int, Number] = defaultdict(int)  # end of all frees
        self.releases: list[tuple[Number, int, int, int]] = []
        self.ticket = 0
        for place in graph.inputs:
            memory = 0 if place.memory is None else machine.memory_index.get(place.memory, -1)
            if memory >= 0:
                self.present[memory * self.values + place.value] = self.size[place.value]
                self.used[memory] += self.size[place.value]

    def place(self, steps: Steps) -> Placement | Unplaceable:
        kinds, items = steps.kind.tolist(), steps.item.tolist()
        sources, targets, amounts = steps.source.tolist(), steps.target.tolist(), steps.amount.tolist()
        drops = steps.drop.to_lists()
        ons = None if steps.on is None else steps.on.to_lists()
        afters = None if steps.after is None else steps.after.to_lists()
        starts: list[Number] = []
        ends: list[Number] = []
        now: Number = 0
        for index, kind in enumerate(kinds):
            earliest = now
            if afters is not None:
                for other in afters[index]:
                    if 0 <= other < index and ends[other] > earliest:
                        earliest = ends[other]
            item = items[index]
            if item == -2 or index in steps.unknown:  # an unknown name: the verifier reports it
                outcome: tuple[Number, Number] | tuple[int, int, int] = (earliest, earliest)
            elif kind == StepKind.RUN and item in self.parts:
                outcome = self._meet(item, drops[index], ons[index] if ons else [], earliest)
            elif kind == StepKind.RUN:
                outcome = self._run(item, drops[index], ons[index] if ons else [], earliest)
            elif kind == StepKind.COPY:
                outcome = self._copy(item, sources[index], targets[index], amounts[index], bool(drops[index]), earliest)
            else:
                outcome = self._drop(drops[index], sources[index], earliest)
            if len(outcome) == 3:
                memory, needed, capacity = outcome
                return Unplaceable(index, memory, needed, capacity)
            now, end = outcome
            starts.append(now)
            ends.append(end)
        exact = all(type(time) is int for time in starts) and all(type(time) is int for time in ends)
        exact = exact and max(ends, default=0) < 2**62  # beyond, sums could leave int64
        return Placement(np.array(starts, dtype=np.int64 if exact else np.float64))

    def _run(
        self, task: int, drops: list[int], on: list[int], earliest: Number
    ) -> tuple[Number, Number] | tuple[int, int, int]:
        processors = on or [0]
        memory = self.memory_of[processors[0]]
        base = memory * self.values
        duration = self.time[task]
        if self.times is not None and self.machine.processors[processors[0]].type in self.types:
            duration = max(0, self.times[self.types.index(self.machine.processors[processors[0]].type)][task])
        if len(processors) > 1 and self.alpha is not None:
            duration = duration / len(processors) ** self.alpha[task]
        slowest = min([self.speed[processor] for processor in processors])
        if slowest != 1:
            duration = _slowed(duration, slowest)
        for processor in processors:
            if self.free_at[processor] > earliest:
                earliest = self.free_at[processor]
        written, touched, accessed, present = self.written, self.touched, self.accessed, self.present
        for value in self.reads[task]:
            if written[base + value] > earliest:
                earliest = written[base + value]
        total = 0
        replaced = 0
        for value in self.writes[task]:
            key = base + value
            if touched[key] > earliest:
                earliest = touched[key]
            total += self.size[value]
            replaced += present[key]
        reads: Collection[int] = self.reads[task]
        writes: Collection[int] = self.writes[task]
        if len(drops) > 8:  # membership in long lists would take quadratic time
            reads, writes = set(reads), set(writes)
        others: Number = 0  # ends of other steps that use a value that this one frees
        freed = 0
        freed_reads = 0
        for value in drops:
            key = base + value
            if accessed[key] > others:
                others = accessed[key]
            if value in writes:
                freed += self.size[value]
            else:
                freed += present[key]
            if value in reads:
                freed_reads += present[key]
        earliest = _ending_after(earliest, duration, others)
        extra = max(0, total - freed_reads) if self.in_place[task] else total
        taken = extra + self.workspace[task]
        start = self._fit(memory, taken, earliest)
        if isinstance(start, tuple):
            return start
        end = start + duration
        self._release(end, memory, taken - total + replaced + freed)
        for processor in processors:
            self.free_at[processor] = end
        for value in self.reads[task]:
            self._access(base + value, end)
        for value in self.writes[task]:
            key = base + value
            written[key] = end
            present[key] = self.size[value]
            self._access(key, end)
        for value in drops:
            key = base + value
            present[key] = 0
            self._access(key, end)
        return start, end

    def _meet(
        self, task: int, drops: list[int], on: list[int], earliest: Number
    ) -> tuple[Number, Number] | tuple[int, int, int]:
        """Run a collective when all its processors are ready: part i in the memory of the i-th processor.

        A collective of several parts drops nothing.
        """
        parts, processors = self.parts[task], on or [0]
        memories = [self.memory_of[processor] for processor in processors]
        ends = list(zip(memories, memories[1:] + memories[:1], strict=True))
        if len(memories) == 1 and ends[0] not in self.machine.link_index:
            ends = []
        if len(parts) != len(processors) or any(pair not in self.machine.link_index for pair in ends):
            return earliest, earliest  # the verifier reports it
        held = {channel for pair in ends for channel in self.machine.held_by_link[self.machine.link_index[pair]]}
        held.update(processors if task in self.busy else ())
        earliest = max([earliest, *(self.free_at[resource] for resource in held)])
        reads = [
            memory * self.values + value for memory, part in zip(memories, parts, strict=True) for value in part.reads
        ]
        writes = [(memory, value) for memory, part in zip(memories, parts, strict=True) for value in part.writes]
        earliest = max([earliest, *(self.written[key] for key in reads)])
        earliest = max([earliest, *(self.touched[memory * self.values + value] for memory, value in writes)])
        dropped = [memories[0] * self.values + value for value in drops]
        others = max((self.accessed[key] for key in dropped), default=0)
        earliest = _ending_after(earliest, self.time[task], others)
        taken: dict[int, int] = dict.fromkeys(memories, self.workspace[task])
        for memory, value in writes:
            taken[memory] += self.size[value]
        start = earliest
        for memory, size in taken.items():  # later starts fit, too: bytes are only released meanwhile
            found = self._fit(memory, size, start)
            if isinstance(found, tuple):
                return found
            start = found
        end = start + self.time[task]
        for memory in memories:
            self._release(end, memory, self.workspace[task])
        for resource in held:
            self.free_at[resource] = end
        for key in reads:
            self._access(key, end)
        for memory, value in writes:
            key = memory * self.values + value
            self._release(end, memory, self.present[key])
            self.written[key], self.present[key] = end, self.size[value]
            self._access(key, end)
        for key in dropped:
            self._release(end, memories[0], self.present[key])
            self.present[key] = 0
            self._access(key, end)
        return start, end

    def _copy(
        self, value: int, source: int, target: int, amount: int, drop: bool, earliest: Number
    ) -> tuple[Number, Number] | tuple[int, int, int]:
        link = self.machine.link_index.get((source, target))
        if link is None:  # the verifier reports it
            return earliest, earliest
        ends = self.graph.link_for(self.machine.links[link], value)
        held = self.machine.held_by_link[link]
        size = self.size[value]
        moved = size if amount < 0 else amount
        duration: Number = ends.latency
        if ends.bandwidth is not None:
            exact = isinstance(ends.bandwidth, int) and moved % ends.bandwidth == 0
            duration = ends.latency + (moved // ends.bandwidth if exact else moved / ends.bandwidth)
        here, there = source * self.values + value, target * self.values + value
        # After a partial move, the rest is read here: not before that part has left.
        earliest = max(
            earliest,
            *(self.free_at[resource] for resource in held),
            self.written[here],
            self.freed[here],
            self.touched[there],
        )
        if drop:
            earliest = _ending_after(earliest, duration + ends.delay, self.accessed[here])
        start = self._fit(target, moved, earliest)
        if isinstance(start, tuple):
            return start
        for resource in held:
            self.free_at[resource] = start + duration
        duration += ends.delay
        end = start + duration
        self.written[there] = end
        self._access(there, end)
        self._access(here, end)
        if drop:
            self.freed[here] = end
        if amount < 0:
            self._release(end, target, self.present[there])
            self.present[there] = size
            if drop:
                self._release(end, source, self.present[here])
                self.present[here] = 0
        else:
            self.present[there] += moved
            left = min(moved, self.present[here])
            self._release(end, source, left)
            self.present[here] -= left
            # The rest stays readable, but not while this part is leaving: its next reader waits for the end.
            self.written[here] = max(self.written[here], end)
        return start, end

    def _drop(self, values: list[int], memory: int, earliest: Number) -> tuple[Number, Number]:
        for value in values:
            if self.accessed[memory * self.values + value] > earliest:
                earliest = self.accessed[memory * self.values + value]
        for value in values:
            key = memory * self.values + value
            self._release(earliest, memory, self.present[key])
            self.present[key] = 0
            if self.touched[key] < earliest:
                self.touched[key] = earliest
        return earliest, earliest

    def _access(self, key: int, end: Number) -> None:
        if self.accessed[key] < end:
            self.accessed[key] = end
        if self.touched[key] < end:
            self.touched[key] = end

    def _release(self, end: Number, memory: int, size: int) -> None:
        if size:
            self.ticket += 1  # breaks ties, so that the heap compares no further
            heapq.heappush(self.releases, (end, self.ticket, memory, size))

    def _fit(self, memory: int, size: int, earliest: Number) -> Number | tuple[int, int, int]:
        """Reserve bytes at the first instant, from `earliest` on, at which they fit; or return why they never fit."""
        releases, used = self.releases, self.used
        while releases and releases[0][0] <= earliest:
            _, _, where, released = heapq.heappop(releases)
            used[where] -= released
        while used[memory] + size > self.capacity[memory]:
            if not releases:
                return memory, used[memory] + size, int(self.capacity[memory])
            earliest, _, where, released = heapq.heappop(releases)
            used[where] -= released
            while releases and releases[0][0] <= earliest:
                _, _, where, released = heapq.heappop(releases)
                used[where] -= released
        used[memory] += size
        return earliest


def _slowed(duration: Number, speed: Number) -> Number:
    """Return the duration at that speed; an integer stays an integer if the quotient is one."""
    longer = duration / speed
    return int(longer) if isinstance(duration, int) and longer < 2**53 and longer == int(longer) else longer


def _ending_after(start: Number, duration: Number, end: Number) -> Number:
    """Return the first start, no earlier than `start`, whose end is no earlier than `end`."""
    if start + duration >= end:
        return start
    start = end - duration
    while start + duration < end:  # float64: the difference may round down
        start = math.nextafter(start, math.inf)
    return start
