"""Simulation of orders of stages, by which planners evaluate cuts. Placement and the verifier use separate code.

Operations are (phase, stage, micro-batch), all from 0; phase 0 is a forward, 1 a whole backward.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from remat.plugin import Number, Phase
from remat_algorithms.parallel.pipeline import rules

Op: TypeAlias = tuple[int, int, int]
"""Phase, stage and micro-batch."""

Lists: TypeAlias = tuple[tuple[Op, ...], ...]
"""One ordered list of operations per device."""

F, B = range(2)


class Way(NamedTuple):
    """Time for which an output occupies its channel, and its further delay until arrival; likewise its gradient."""

    busy_there: Number
    late_there: Number
    busy_back: Number
    late_back: Number


@dataclass(frozen=True)
class Pipe:
    """Stages on devices.

    Attributes
    ----------
    place : tuple of int
        Device of each stage.
    devices, batches : int
    forward, backward : tuple of numbers
        Times of each stage for one micro-batch.
    ways : tuple of Way
        Connection into each stage from the previous one.
    previous : tuple of int
        Previous stage of each; -1 for the first of a chain.
    """

    place: tuple[int, ...]
    devices: int
    batches: int
    forward: tuple[Number, ...]
    backward: tuple[Number, ...]
    ways: tuple[Way, ...]
    previous: tuple[int, ...]

    @cached_property
    def following(self) -> tuple[int, ...]:
        """Next stage of each; -1 for the last of a chain."""
        found = [-1] * len(self.place)
        for stage, before in enumerate(self.previous):
            if before >= 0:
                found[before] = stage
        return tuple(found)

    @property
    def round_trip(self) -> Number:
        """Time of one micro-batch through all stages of a chain and back."""
        return sum(self.forward) + sum(self.backward) + sum(map(sum, self.ways))

    @property
    def latency(self) -> Number:
        """Lower bound on the makespan of one chain: no stage can start or end before its dependencies."""
        most: Number = 0
        way: Number = 0
        for forward, backward, before in zip(self.forward, self.backward, self.ways, strict=True):
            way += sum(before)
            most = max(most, way + self.batches * (forward + backward))
            way += forward + backward
        return most

    @cached_property
    def on(self) -> tuple[tuple[int, ...], ...]:
        """Stages on each device, ascending."""
        found: list[list[int]] = [[] for _ in range(self.devices)]
        for stage, device in enumerate(self.place):
            found[device].append(stage)
        return tuple(map(tuple, found))


def makespan(pipe: Pipe, lists: Sequence[Sequence[Op]]) -> Number:
    """Return the makespan of deadlock-free lists, each operation as early as its list and its data allow.

    Transfers from one device to another run in the order of the sender's list.
    """
    come: list[list[Number]] = [[-1 if before >= 0 else 0] * pipe.batches for before in pipe.previous]
    back: list[list[Number]] = [[-1] * pipe.batches for _ in pipe.previous]
    done = [0] * pipe.devices
    clock: list[Number] = [0] * pipe.devices
    free: dict[tuple[int, int], Number] = {}
    ready = list(range(len(lists)))

    def send(source: int, target: int, end: Number, busy: Number, late: Number) -> Number:
        one, other = pipe.place[source], pipe.place[target]
        if one == other:
            return end
        free[one, other] = max(end, free.get((one, other), 0)) + busy
        ready.append(other)
        return free[one, other] + late

    while ready:
        device = ready.pop()
        own = lists[device]
        while done[device] < len(own):
            phase, stage, batch = own[done[device]]
            known = (back if phase else come)[stage][batch]
            if known < 0:
                break
            end = max(known, clock[device]) + (pipe.backward if phase else pipe.forward)[stage]
            clock[device] = end
            done[device] += 1
            if phase:
                before = pipe.previous[stage]
                if before >= 0:
                    way = pipe.ways[stage]
                    back[before][batch] = send(stage, before, end, way.busy_back, way.late_back)
            elif pipe.following[stage] < 0:
                back[stage][batch] = end
            else:
                after = pipe.following[stage]
                way = pipe.ways[after]
                come[after][batch] = send(stage, after, end, way.busy_there, way.late_there)
    assert all(count == len(own) for count, own in zip(done, lists, strict=True)), "these lists wait for ever"
    return max(clock)


def one_forward_one_backward(pipe: Pipe) -> Lists:
    """Return the lists of 1F1B, for one stage per device."""
    lists: list[tuple[Op, ...]] = [()] * pipe.devices
    whole = rules.one_forward_one_backward(len(pipe.place), pipe.batches)
    for device, own in zip(pipe.place, whole.lists, strict=True):
        lists[device] = tuple((F if phase is Phase.F else B, stage, batch) for phase, stage, batch in own)
    return tuple(lists)


def when_ready(pipe: Pipe, caps: Sequence[int]) -> Lists:
    """Return the ordered lists in which no device waits while it could run an operation.

    Among ready operations, backwards come first, then the oldest micro-batch, then the last stage. Such an order
    never deadlocks: the oldest micro-batch in flight is never blocked, because only older ones could block it.
    O(operations x (log operations + stages of a device)).

    Parameters
    ----------
    pipe : Pipe
        Stages in one chain.
    caps : sequence of int
        Maximum number of micro-batches that each stage holds, at least 1.
    """
    return _Eager(pipe, caps).run()


class _Eager:
    def __init__(self, pipe: Pipe, caps: Sequence[int]) -> None:
        self.pipe, self.caps = pipe, caps
        stages = len(pipe.place)
        # How many micro-batches have passed a stage, and how many have arrived at it: they arrive in order.
        self.forwards, self.backwards = [0] * stages, [0] * stages
        self.come = [0 if before >= 0 else pipe.batches for before in pipe.previous]
        self.back = [0] * stages
        self.running = [False] * pipe.devices
        self.free: dict[tuple[int, int], Number] = {}
        self.lists: list[list[Op]] = [[] for _ in range(pipe.devices)]
        # Ends (0) and arrivals (1), each with its stage and phase.
        self.events: list[tuple[Number, int, int, int]] = []

    def run(self) -> Lists:
        """Run until no events are left."""
        now: Number = 0
        awake = set(self.pipe.place)
        while awake:
            for device in sorted(awake):
                self._begin(device, now)
            awake.clear()
            if self.events:
                now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                awake.add(self._happen(*heapq.heappop(self.events)))
        return tuple(map(tuple, self.lists))

    def _begin(self, device: int, now: Number) -> None:
        if self.running[device]:
            return
        ready: list[tuple[int, int, int]] = []
        for stage in self.pipe.on[device]:
            gone, passed = self.backwards[stage], self.forwards[stage]
            if gone < self.back[stage]:
                ready.append((0, gone, -stage))
            if passed < self.come[stage] and passed - gone < self.caps[stage]:
                ready.append((1, passed, -stage))
        if ready:
            later, batch, last = min(ready)
            phase, stage = (F, -last) if later else (B, -last)
            self.running[device] = True
            self.lists[device].append((phase, stage, batch))
            time = (self.pipe.backward if phase else self.pipe.forward)[stage]
            heapq.heappush(self.events, (now + time, 0, stage, phase))

    def _happen(self, now: Number, arrival: int, stage: int, phase: int) -> int:
        """Process an end or an arrival; return the device that may start an operation."""
        pipe = self.pipe
        device = pipe.place[stage]
        if arrival:
            (self.back if phase else self.come)[stage] += 1
            return device
        self.running[device] = False
        target = pipe.previous[stage] if phase else pipe.following[stage]
        if phase:
            self.backwards[stage] += 1
        else:
            self.forwards[stage] += 1
            if target < 0:
                self.back[stage] += 1
        if target >= 0:
            way = pipe.ways[max(stage, target)]
            busy, late = way[2:] if phase else way[:2]
            key = device, pipe.place[target]
            if key[0] != key[1]:
                self.free[key] = now = max(now, self.free.get(key, 0)) + busy
            heapq.heappush(self.events, (now + late, 1, target, phase))
        return device
