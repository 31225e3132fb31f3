"""The dispatcher: runs in a given order and overlapped transfers, each started as early as memory and channels allow.

A simulation decides when each run and transfer of a `Program` starts:

- A processor runs its tasks in the order of the program. A channel prefers transfers out to transfers back, unless the
  next run waits for one back. Transfers out go in the order in which they became ready, those back in order of use.
- A transfer back starts as soon as its bytes fit in addition to all that the runs up to its use will hold. That
  *planned* profile counts values under way out no longer than necessary; a run waits until they really are out. An
  early transfer can therefore never block a run for good.

The steps keep their start times. Placement could place a list without them differently, since it does not know what a
transfer is kept waiting for.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from dataclasses import dataclass

from remat.plugin import IntArray, Machine, Number, StepBuilder, Steps, TaskGraph, instant_array
from remat_algorithms.offload.swaps.program import Program, Run, planned_profile, reused_bytes, run_time

INSTANT = 1e-9
"""Share of the makespan within which float times count as equal."""

_LOOKED_AT = 8
"""Waiting transfers of a channel that are tried before it stays idle."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Steps with start times, and the end of the last one."""

    steps: Steps
    makespan: Number


@dataclass(frozen=True, slots=True)
class Overfull:
    """A run (its position) at which a memory would have to hold more than its capacity."""

    position: int
    memory: int
    needed: int


def dispatch(graph: TaskGraph, machine: Machine, program: Program) -> Dispatched | Overfull:
    """Start every run and transfer of a program.

    Parameters
    ----------
    graph, machine
    program : Program
        Its order of runs is topological. Each value that a run reads was written before in its memory, or a transfer
        that is `needed` by a run no later brings it.

    Returns
    -------
    Dispatched or Overfull
        Overfull if the planned profile exceeds a capacity.

    Notes
    -----
    O((runs + transfers) (log + the runs that a transfer comes early by)).
    """
    profile = planned_profile(graph, machine, program)
    for memory, row in enumerate(profile):
        capacity = machine.memories[memory].capacity
        if capacity is not None and len(row) and row.max() > capacity:
            position = int(row.argmax())
            return Overfull(position, memory, int(row[position]))
    return _Simulation(graph, machine, program, profile).simulate()


class _Simulation:
    """One simulation, from event to event; positions are indices of runs and of transfers."""

    def __init__(self, graph: TaskGraph, machine: Machine, program: Program, profile: list[IntArray]) -> None:
        self.graph, self.machine = graph, machine
        self.runs, self.transfers = program.runs, program.transfers
        count = len(self.runs)
        # Plain lists: searches over many programs depend on the speed of this.
        self.size: list[int] = graph.size.tolist()
        self.writes = graph.writes.to_lists()
        self.in_place: list[bool] = graph.in_place.tolist()
        self.workspace: list[int] = graph.workspace.tolist()
        self.link_target = [link.target for link in machine.links]
        self.memory_of = [processor.memory for processor in machine.processors]
        self.slack = [
            None if memory.capacity is None else memory.capacity - row
            for memory, row in zip(machine.memories, profile, strict=True)
        ]
        self.room = [memory.capacity for memory in machine.memories]
        for memory in range(len(machine.memories)):
            self._take(memory, graph.static_bytes(machine, memory))
        self.present: set[tuple[int, int]] = set()  # (memory, value)
        for place in graph.inputs:
            memory = machine.memory_index[place.memory] if place.memory else 0
            self._take(memory, self.size[place.value])
            self.present.add((memory, place.value))
        self.run_started: list[Number | None] = [None] * count
        self.run_ended = [False] * count
        self.ended = [False] * len(self.transfers)
        self.unfinished = 0  # the first run that has not ended
        self.latest = -1  # the latest run that has started
        # The run before whose end a transfer found no free memory next to the planned profile.
        self.full = [-1] * len(self.transfers)
        # Runs occupy a processor or, as collectives, a channel; those without a ring wait for each other.
        self.free_ring = len(machine.resources)
        self.resource = [self._resource(run) for run in self.runs]
        self.queue: list[list[int]] = [[] for _ in range(self.free_ring + 1)]
        for position, resource in enumerate(self.resource):
            self.queue[resource].append(position)
        self.next = [0] * len(self.queue)
        self.busy = [False] * len(self.queue)
        self.awaited: defaultdict[int, list[int]] = defaultdict(list)  # transfers that a run waits for
        self.used_last: defaultdict[int, list[int]] = defaultdict(list)  # transfers whose source a run uses last
        channels = machine.resource_of_link
        self.leaving: defaultdict[int, list[int]] = defaultdict(list)
        self.coming: defaultdict[int, list[int]] = defaultdict(list)
        for index, transfer in enumerate(self.transfers):
            self.awaited[transfer.needed].append(index)
            if transfer.holds >= 0:
                self.awaited[transfer.holds].append(index)
            if transfer.last_use is not None and transfer.last_use >= 0:
                self.used_last[transfer.last_use].append(index)
            waiting = self.leaving if transfer.leaves else self.coming
            waiting[channels[transfer.link]].append(index)
        for row in self.leaving.values():
            row.sort(key=lambda index: (self.transfers[index].ready, self.transfers[index].begin, index))
        for row in self.coming.values():
            row.sort(key=lambda index: (self.transfers[index].needed, index))
        self.in_use = [resource for resource, queue in enumerate(self.queue) if queue]
        self.channels = sorted({*self.leaving, *self.coming})
        self._await_sources()
        self.waits = self._hazards()
        self.events: list[tuple[Number, int, bool, int]] = []
        self.now: Number = 0
        # Started items in order: (start, what, index); and who frees what.
        self.log: list[tuple[Number, str, int]] = []
        self.carried: list[list[int]] = [list(run.drops) for run in self.runs]
        self.replaced: dict[int, list[int]] = {}
        self.run_ends: dict[int, Number] = {}
        self.carries = [False] * len(self.transfers)

    def simulate(self) -> Dispatched | Overfull:
        self._start_all()
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _, _, is_run, index = heapq.heappop(self.events)
                if is_run:
                    self._end_run(index)
                else:
                    self._end_transfer(index)
            self._start_all()
        if not all(self.run_ended) or not all(self.ended):
            return self._stuck()
        return Dispatched(self._steps(), self.now)

    def _stuck(self) -> Overfull:
        """Return what waits for ever: a run, or, after all runs, a transfer that does not fit.

        This happens only if several bounded memories wait for each other, or if a value that must end elsewhere does
        not fit there. The planned profile, which ends with the last run, rules out all other cases.
        """
        if self.unfinished < len(self.runs):
            processor = self.runs[self.unfinished].processor
            return Overfull(self.unfinished, self.machine.processors[processor].memory, 0)
        transfer = self.transfers[self.ended.index(False)]
        return Overfull(max(0, len(self.runs) - 1), self.link_target[transfer.link], 0)

    # --- starts -------------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        again, busy = True, self.busy
        while again:
            again = False
            for resource in self.in_use:
                if not busy[resource]:
                    again |= self._start_run(resource)
            for resource in self.channels:
                if not busy[resource]:
                    again |= self._start_transfer(resource)

    def _resource(self, run: Run) -> int:
        """Return the resource that a run occupies."""
        if run.task not in self.graph.parts:
            return run.processor
        memory = self.machine.processors[run.processor].memory
        ring = self.machine.link_index.get((memory, memory))
        return self.free_ring if ring is None else self.machine.resource_of_link[ring]

    def _start_run(self, resource: int) -> bool:
        queue = self.queue[resource]
        if self.next[resource] >= len(queue):
            return False
        position, ended, size = queue[self.next[resource]], self.ended, self.size
        for index in self.awaited.get(position, ()):
            if not ended[index]:
                return False
        for other in self.waits[position]:
            if not self.run_ended[other]:
                return False
        run = self.runs[position]
        # Values that have left by now are freed with the run that uses them last.
        gone = [self.transfers[index].value for index in self.used_last.get(position, ()) if ended[index]]
        memory = self.memory_of[run.processor]
        needed = self.workspace[run.task] - self._reused(run.task, [*run.drops, *gone])
        for value in self.writes[run.task]:
            needed += size[value]
        replaced = [value for value in run.replaces if (memory, value) in self.present]
        if not self._fits(memory, needed - sum(size[value] for value in replaced)):
            return False
        if replaced:
            self.log.append((self.now, "free", position))
            self.replaced[position] = replaced
        for value in replaced:
            self._free(memory, value)
        self._take(memory, needed)
        self.carried[position] += gone
        self.next[resource] += 1
        self.busy[resource] = True
        self.run_started[position] = self.now
        self.latest = max(self.latest, position)
        self.log.append((self.now, "run", position))
        self.run_ends[position] = self.now + self._run_time(position)
        self._expect(self.run_ends[position], True, position)
        return True

    def _run_time(self, position: int) -> Number:
        run = self.runs[position]
        time: Number = self.graph.time[run.task].item()
        return time if run.task in self.graph.parts else run_time(self.machine.processors[run.processor], time)

    def _start_transfer(self, resource: int) -> bool:
        leaving, coming = self.leaving.get(resource, []), self.coming.get(resource, [])
        urgent = bool(coming) and self.transfers[coming[0]].needed <= self.unfinished + 1
        for row in (coming, leaving) if urgent else (leaving, coming):
            for index in row[:_LOOKED_AT]:
                if row is leaving and self.transfers[index].ready > self.latest:
                    break  # those after it are not ready, either
                if self._may_start(index):
                    row.remove(index)
                    self._begin(index, resource)
                    return True
        return False

    def _may_start(self, index: int) -> bool:
        transfer = self.transfers[index]
        if transfer.ready >= 0 and not self.run_ended[transfer.ready]:
            return False
        if transfer.previous >= 0 and not self.ended[transfer.previous]:
            return False
        if transfer.begin >= 0 and self.run_started[transfer.begin] is None:
            return False
        target = self.link_target[transfer.link]
        size = self.size[transfer.value]
        if not self._fits(target, size):
            return False
        slack = self.slack[target]
        if transfer.leaves or transfer.begin >= 0 or slack is None or transfer.needed <= self.unfinished:
            return True
        # From its use on, the profile counts it; a value that no run waits for counts during the last one.
        if self.full[index] >= self.unfinished:
            return False
        window = slack[self.unfinished : min(transfer.needed, len(self.runs) - 1)]
        if len(window) and window[least := int(window.argmin())] < size:
            self.full[index] = self.unfinished + least
            return False
        window -= size
        return True

    def _begin(self, index: int, resource: int) -> None:
        transfer = self.transfers[index]
        link = self.graph.link_for(self.machine.links[transfer.link], transfer.value)
        size = self.size[transfer.value]
        self._take(link.target, size)
        self.busy[resource] = True
        self.log.append((self.now, "copy", index))
        self._expect(self.now + link.time(size), False, index)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _end_run(self, position: int) -> None:
        run = self.runs[position]
        memory = self.memory_of[run.processor]
        self.busy[self.resource[position]] = False
        self.run_ended[position] = True
        while self.unfinished < len(self.runs) and self.run_ended[self.unfinished]:
            self.unfinished += 1
        dropped = self.carried[position]
        self._take(memory, self._reused(run.task, dropped) - self.workspace[run.task])
        for value in self.writes[run.task]:
            self._free(memory, value)  # the old copy, where there is one
            self.present.add((memory, value))
        for value in dropped:
            self._free(memory, value)
        for index in self.used_last.get(position, ()):
            if self.ended[index] and self.transfers[index].value not in dropped:
                # It left while the run was using it: a separate step frees it.
                self.log.append((self.now, "drop", index))
                self._free(memory, self.transfers[index].value)

    def _end_transfer(self, index: int) -> None:
        transfer = self.transfers[index]
        link = self.machine.links[transfer.link]
        self.busy[self.machine.resource_of_link[transfer.link]] = False
        self.ended[index] = True
        last = transfer.last_use
        if last is not None and (last < 0 or self.run_ended[last]):
            self.carries[index] = True
            self._free(link.source, transfer.value)
        self.present.add((link.target, transfer.value))

    def _reused(self, task: int, drops: list[int]) -> int:
        return reused_bytes(self.graph, task, drops) if drops and self.in_place[task] else 0

    # --- memory and time ----------------------------------------------------------------------------------------------

    def _fits(self, memory: int, size: int) -> bool:
        room = self.room[memory]
        return room is None or size <= room

    def _take(self, memory: int, size: int) -> None:
        room = self.room[memory]
        if room is not None:
            self.room[memory] = room - size

    def _free(self, memory: int, value: int) -> None:
        if (memory, value) in self.present:
            self.present.remove((memory, value))
            self._take(memory, -self.size[value])

    def _expect(self, end: Number, is_run: bool, index: int) -> None:
        heapq.heappush(self.events, (end, len(self.log), is_run, index))

    def _await_sources(self) -> None:
        """Make the run that overwrites a value wait for the transfers that still read the old version."""
        writers: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for position, run in enumerate(self.runs):
            memory = self.memory_of[run.processor]
            for value in self.writes[run.task]:
                writers[memory, value].append(position)
        for index, transfer in enumerate(self.transfers):
            after = writers[self.machine.links[transfer.link].source, transfer.value]
            later = bisect.bisect_right(after, transfer.ready)
            if later < len(after):
                self.awaited[after[later]].append(index)

    def _hazards(self) -> list[list[int]]:
        """Return for each run the runs on other processors that must have ended before it starts."""
        waits: list[list[int]] = [list(run.after) for run in self.runs]
        if len(set(self.resource)) < 2:
            return waits
        writer: dict[int, int] = {}
        users: defaultdict[int, list[int]] = defaultdict(list)
        for position, run in enumerate(self.runs):
            for value in self.graph.reads[run.task].tolist():
                if value in writer:
                    waits[position].append(writer[value])
                users[value].append(position)
            for value in self.graph.writes[run.task].tolist():
                waits[position] += [user for user in users[value] if user != position]
                writer[value] = position
                users[value] = [position]
            for value in run.replaces:
                waits[position] += [user for user in users[value] if user != position]
        return waits

    def _untangled(self) -> list[tuple[Number, str, int]]:
        """Return the log, in which no transfer frees its source at the instant at which a run that reads it begins.

        Float times within a share of the makespan count as equal: a separate step then frees the source.
        """
        if isinstance(self.now, int):
            return self.log
        instant = 2 * INSTANT * self.now
        place = {index: at for at, (_, what, index) in enumerate(self.log) if what == "run"}
        late: defaultdict[int, list[tuple[Number, int]]] = defaultdict(list)
        for at, (start, what, index) in enumerate(self.log):
            transfer = self.transfers[index] if what == "copy" and self.carries[index] else None
            if transfer is None or transfer.last_use is None or place.get(transfer.last_use, -1) < at:
                continue
            run = place[transfer.last_use]
            link = self.graph.link_for(self.machine.links[transfer.link], transfer.value)
            end = start + link.time(int(self.graph.size[transfer.value]))
            if end - self.log[run][0] <= instant:
                self.carries[index] = False
                late[run].append((end, index))
        found: list[tuple[Number, str, int]] = []
        drops: list[tuple[Number, int]] = []  # which wait for their time
        for at, entry in enumerate(self.log):
            while drops and drops[0][0] <= entry[0]:
                when, index = heapq.heappop(drops)
                found.append((when, "drop", index))
            found.append(entry)
            for end, index in late.get(at, ()):
                heapq.heappush(drops, (max(self.run_ends[entry[2]], end), index))
        return found + [(when, "drop", index) for when, index in sorted(drops)]

    def _steps(self) -> Steps:
        """Build the steps in the order in which they started."""
        builder = StepBuilder()
        starts: list[Number] = []
        for start, what, index in self._untangled():
            starts.append(start)
            if what == "run":
                run = self.runs[index]
                on = (run.processor,) if run.processor else ()
                builder.run(run.task, drop=self.carried[index], on=on)
                continue
            if what == "free":
                run = self.runs[index]
                builder.drop(self.replaced[index], self.machine.processors[run.processor].memory)
                continue
            transfer = self.transfers[index]
            link = self.machine.links[transfer.link]
            if what == "copy":
                builder.copy(transfer.value, link.source, link.target, drop=self.carries[index])
            else:
                builder.drop([transfer.value], link.source)
        return builder.build(instant_array(starts))
