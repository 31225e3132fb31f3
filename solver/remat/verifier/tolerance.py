"""Check that the time tolerance does not hide accumulated overlaps.

Float times within the tolerance count as one instant, so a step may begin slightly before its predecessors have ended.
These overlaps must not add up: a thousand runs, each shorter than the tolerance, still take the sum of their times. The
check replays the schedule exactly. Every step waits for its predecessors in the order of events: its resources, the
writers of its inputs, the users of the values that it writes or frees, and free memory. No step may start later than
its given time by more than the tolerance. Therefore every accepted schedule has an exact counterpart that ends at most
one tolerance later.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.schedule.steps import Steps
from remat.verifier.memory import changes
from remat.verifier.residency import (
    INITIAL,
    PART_FREE,
    PART_READ,
    PART_WRITE,
    PART_WRITE_END,
    READ,
    WRITE,
    WRITE_END,
    Residency,
)
from remat.verifier.timeline import TOLERANCE, Timeline

if TYPE_CHECKING:
    from remat.verifier.findings import Findings


def check_hidden_time(
    graph: TaskGraph,
    machine: Machine,
    steps: Steps,
    timeline: Timeline,
    residency: Residency,
    valid: BoolArray,
    uses: tuple[IntArray, IntArray],
    *,
    delay: NumberArray,
    findings: Findings,
) -> None:
    """Report the steps that would be late by more than the tolerance in an exact replay.

    `uses` are (step, resource) pairs; `delay` is the time from when each step releases its resources to its end.
    Call this only for schedules that pass the other rules.
    """
    count = len(steps)
    if not timeline.merged:
        return
    tolerance = TOLERANCE * float(timeline.end.max())
    time = np.empty(3 * count)
    time[timeline.start_position] = timeline.start
    time[timeline.release_position] = time[timeline.free_position] = timeline.end
    # A step can wait at its start and at its frees. With this slack per wait, all steps together hide little.
    if (np.maximum.accumulate(time) - time).max() <= tolerance / (2 * count):
        return
    replay = _Replay(machine, timeline, tolerance, delay)
    static = [graph.static_bytes(machine, memory) for memory in range(len(machine.memories))]
    replay.look_up(residency, changes(graph, machine, steps, timeline, residency, valid), uses, static)
    for step, late in replay.late():
        findings.add(
            step,
            "time-hidden",
            f"is {late:.3g} late if all that it waits for takes its time: overlaps within the tolerance of "
            f"{tolerance:.3g} add up",
        )


class _Replay:
    """Exact replay of all events in the verifier's order, each as late as its predecessors require."""

    def __init__(self, machine: Machine, timeline: Timeline, tolerance: float, delay: NumberArray) -> None:
        self.timeline, self.tolerance, self.delay = timeline, tolerance, delay.tolist()
        self.capacity = [memory.capacity for memory in machine.memories]
        self.used = [0] * len(machine.memories)
        self.keys: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.bytes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.resources: defaultdict[int, list[int]] = defaultdict(list)
        self.written: defaultdict[int, float] = defaultdict(float)
        self.touched: defaultdict[int, float] = defaultdict(float)
        self.free_at: defaultdict[int, float] = defaultdict(float)
        self.given_back: list[list[tuple[float, int]]] = [[] for _ in machine.memories]

    def look_up(
        self,
        residency: Residency,
        changed: tuple[IntArray, IntArray, IntArray],
        uses: tuple[IntArray, IntArray],
        static: list[int],
    ) -> None:
        """Record the event at each position."""
        for position, key, operation in zip(
            residency.position.tolist(), residency.key.tolist(), residency.operation.tolist(), strict=True
        ):
            if operation != INITIAL:
                self.keys[position].append((key, operation))
        self.used = list(static)
        for memory, position, change in zip(*(column.tolist() for column in changed), strict=True):
            if position < 0:
                self.used[memory] += change
            elif change and self.capacity[memory] is not None:
                self.bytes[position].append((memory, change))
        for step, resource in zip(*(column.tolist() for column in uses), strict=True):
            self.resources[step].append(resource)

    def late(self) -> list[tuple[int, float]]:
        """Return the steps that are late by more than the tolerance, and by how much."""
        start, end = self.timeline.start.tolist(), self.timeline.end.tolist()
        begins, releases = self.timeline.start_position.tolist(), self.timeline.release_position.tolist()
        ended = list(end)
        late: dict[int, float] = {}
        for position, step in enumerate(self.timeline.step_at.tolist()):
            if position == begins[step]:
                begun = self._begin(position, step, start[step])
                ended[step] = max(end[step], begun + (end[step] - start[step]))
                delay = begun - start[step]
                if self.delay[step]:  # others may begin on its channel long before it has ended
                    for resource in self.resources[step]:
                        self.free_at[resource] = ended[step] - self.delay[step]
            elif position == releases[step]:
                delay = self._release(position, step, ended[step])
            else:
                freed = self._free(position, ended[step])
                delay = freed - end[step]
            if delay > self.tolerance:
                late.setdefault(step, delay)
        return list(late.items())

    def _begin(self, position: int, step: int, time: float) -> float:
        begun = max([time, *(self.free_at[resource] for resource in self.resources[step])])
        for key, operation in self.keys[position]:
            if operation in (READ, PART_READ):
                begun = max(begun, self.written[key])
            elif operation in (WRITE, PART_WRITE):
                begun = max(begun, self.touched[key])
        taken: defaultdict[int, int] = defaultdict(int)
        for memory, change in self.bytes[position]:
            taken[memory] += change
        for memory, change in taken.items():
            self.used[memory] += change
            if change > 0:
                begun = max(begun, self._room(memory, time))
        return begun

    def _room(self, memory: int, time: float) -> float:
        """Return the time from which the memory is within its capacity; bytes freed later count until then."""
        capacity = self.capacity[memory]
        assert capacity is not None
        # Later steps begin at most one tolerance before this time.
        waiting = sorted(item for item in self.given_back[memory] if item[0] > time - self.tolerance)
        self.given_back[memory] = waiting
        held = self.used[memory] + sum(size for _, size in waiting)
        for until, size in waiting:
            if held <= capacity:
                break
            held -= size
            time = max(time, until)
        return time

    def _release(self, position: int, step: int, ended: float) -> float:
        for resource in self.resources[step] if not self.delay[step] else ():
            self.free_at[resource] = max(self.free_at[resource], ended)
        for key, operation in self.keys[position]:
            self.touched[key] = max(self.touched[key], ended)
            # Readers do not wait for readers.
            if operation in (WRITE_END, PART_WRITE_END):
                self.written[key] = max(self.written[key], ended)
        self._give_back(position, ended)
        return 0.0

    def _free(self, position: int, ended: float) -> float:
        freed = max([ended, *(self.touched[key] for key, _ in self.keys[position])])
        for key, operation in self.keys[position]:
            self.touched[key] = max(self.touched[key], freed)
            if operation == PART_FREE:  # the next part of the value moves when this one has gone
                self.written[key] = max(self.written[key], freed)
        self._give_back(position, freed)
        return freed

    def _give_back(self, position: int, time: float) -> None:
        for memory, change in self.bytes[position]:
            self.used[memory] += change
            self.given_back[memory].append((time, -change))
