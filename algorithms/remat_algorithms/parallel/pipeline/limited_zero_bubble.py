"""Zero-bubble orders for any limit on activations in flight (the heuristic of Qi et al. 2024, simulated with times).

An idle device alternates between B and F. It runs a W in three cases: the W fits into the wait for the next operation,
the device's idle time would become the largest of all devices, or the limit leaves no memory for the next F. Three
binary choices give eight orders, and the shortest is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

from remat_algorithms.parallel.pipeline.model import B, F, Lists, Op, PipelineModel, W

_Choice = tuple[float, int]
"""Start and phase of an operation."""


class Rules(NamedTuple):
    """Choices of the heuristic.

    Attributes
    ----------
    delay_first : bool
        Whether an F may delay the first B of its device.
    strict_turns : bool
        Whether F and B alternate, even if the other one is ready up to one operation earlier.
    fill : bool
        Whether a W takes any wait, and not only those that would become the longest idle time of a device.
    """

    delay_first: bool
    strict_turns: bool
    fill: bool


def limited_order(model: PipelineModel, limit: float) -> Lists:
    """Return the order with the smallest makespan, then the shortest span of a device.

    Parameters
    ----------
    model : PipelineModel
        One stage per device.
    limit : float
        Activations that a device may hold; at least 1.

    Notes
    -----
    O(m p log p) for each of eight orders of m micro-batches on p devices.
    """
    orders = [_Simulation(model, limit, Rules(*rules)).run() for rules in product((False, True), repeat=3)]
    return min(orders, key=lambda found: found[:2])[2]


class _Device:
    """The state of a device: its operations, its bytes, and the operation that it waits for."""

    def __init__(self, batches: int, *, first: bool) -> None:
        self.listed: list[Op] = []
        self.count = [0, 0, 0]
        self.ready: tuple[list[float | None], list[float | None]] = (
            [0 if first else None] * batches,
            [None] * batches,
        )
        """Times when the inputs of F's and B's arrive."""
        self.held = 0
        self.begin: float | None = None
        self.free: float = 0
        self.idle: float = 0
        self.last = B

    def start(self, phase: int) -> float | None:
        """Return the earliest known start of the next F or B."""
        number = self.count[phase]
        ready = self.ready[phase][number] if number < len(self.ready[phase]) else None
        return None if ready is None else max(ready, self.free)


class _Simulation:
    """One run of the heuristic."""

    def __init__(self, model: PipelineModel, limit: float, rules: Rules) -> None:
        self.model, self.rules = model, rules
        self.times: tuple[Sequence[float], ...] = (model.forward, model.backward, model.weight)
        self.most = [int(Fraction(limit) * size) for size in model.activation]
        self.devices = [_Device(model.batches, first=not device) for device in range(model.stages)]
        self.longest_idle: float = 0
        self.heap: list[tuple[float, int, int]] = []
        self.queued: list[_Choice | None] = [None] * model.stages

    def run(self) -> tuple[float, float, Lists]:
        """Return the makespan, the longest time from the first to the last operation of a device, and the order."""
        for number in range(self.model.stages):
            self._queue(number)
        while self.heap:
            start, number, phase = heappop(self.heap)
            if self.queued[number] != (start, phase):
                continue  # replaced by another choice of this device
            self.queued[number] = None
            if self._choice(number) == (start, phase):
                self._commit(number, start, phase)
                for neighbour in range(max(0, number - 1), min(number + 2, self.model.stages)):
                    self._queue(neighbour)
            else:
                self._queue(number)
        spans = [device.free - (device.begin or 0) for device in self.devices]
        lists: list[tuple[Op, ...]] = [()] * len(self.model.fixed)
        for place, device in zip(self.model.place, self.devices, strict=True):
            lists[place] = tuple(device.listed)
        return max(device.free for device in self.devices), max(spans), tuple(lists)

    def _queue(self, number: int) -> None:
        choice = self._choice(number)
        if choice is not None and choice != self.queued[number]:
            heappush(self.heap, (choice[0], number, choice[1]))
        self.queued[number] = choice

    def _choice(self, number: int) -> _Choice | None:
        """Return the next operation of a device, from its known inputs."""
        device = self.devices[number]
        backward, forward = device.start(B), device.start(F)
        blocked = forward is not None and device.held + self.model.activation[number] > self.most[number]
        chosen = self._in_turns(number, backward, None if blocked else forward)
        if device.count[W] < (device.count[B] if self.model.weight[number] else 0):
            if chosen is None:
                return device.free, W
            wait = chosen[0] - device.free
            if (
                wait >= self.model.weight[number]
                or (blocked and device.last == B)
                or (wait > 0 and (self.rules.fill or device.idle + wait >= self.longest_idle))
            ):
                return device.free, W
        return chosen

    def _in_turns(self, number: int, backward: float | None, forward: float | None) -> _Choice | None:
        device = self.devices[number]
        if backward is None or forward is None:
            return (backward, B) if backward is not None else None if forward is None else (forward, F)
        took = self.model.forward[number]
        if not device.count[B]:
            first = forward < backward if self.rules.delay_first else forward + took <= backward
        elif device.last == B:
            first = forward <= backward + (took if self.rules.strict_turns else 0)
        else:
            first = backward > forward + (self.model.backward[number] if self.rules.strict_turns else 0)
        return (forward, F) if first else (backward, B)

    def _commit(self, number: int, start: float, phase: int) -> None:
        model, device = self.model, self.devices[number]
        if device.begin is None:
            device.begin = start
        else:
            device.idle += start - device.free
            self.longest_idle = max(self.longest_idle, device.idle)
        batch = device.count[phase]
        device.count[phase] += 1
        device.listed.append((phase, number, batch))
        device.free = start + self.times[phase][number]
        kept = model.kept[number] if model.weight[number] else 0
        if phase == F:
            device.held += model.activation[number]
            if number + 1 < model.stages:
                self.devices[number + 1].ready[0][batch] = device.free + model.hop[number]
            else:
                device.ready[1][batch] = device.free
        elif phase == B:
            device.held += kept - model.activation[number]
            if number:
                self.devices[number - 1].ready[1][batch] = device.free + model.hop[number - 1]
        else:
            device.held -= kept
        if phase != W:
            device.last = phase
