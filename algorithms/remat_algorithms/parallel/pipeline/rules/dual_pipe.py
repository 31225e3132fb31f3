"""Simultaneous forwards and backwards of different micro-batches: dualpipe, dualpipev (DeepSeek-AI 2024).

A pair has a separate time, usually less than the sum of its two operations. Both schedules split some backwards, and
run the weight gradients in idle times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from remat.plugin import OptionError
from remat_algorithms.parallel.pipeline.rules.operation_lists import Pass, Phase, check


class Pair(NamedTuple):
    """A forward and a backward that a device runs at the same time; as text ``F2.0&BW5.3``."""

    forward: Pass
    backward: Pass

    def __str__(self) -> str:
        return f"{self.forward}&{self.backward}"


@dataclass(frozen=True, slots=True)
class PairedLists:
    """`Lists` with pairs among the operations."""

    place: tuple[int, ...]
    part: tuple[int, ...]
    lists: tuple[tuple[Pass | Pair, ...], ...]

    @property
    def parts(self) -> int:
        """Number of parts into which the layers are cut."""
        return max(self.part) + 1


def dualpipe(devices: int, batches: int) -> PairedLists:
    """Two copies of the model, one in each direction, with overlapping micro-batches.

    Stages as in `chimera`: s of the first direction is on device s, p + s of the second on device p - 1 - s.
    Micro-batches alternate between the directions. p and m are even, and m is at least 2p. If W is half of a whole
    backward B, without hops, the middle devices are idle for (p/2 - 1)(F&B + B - 3W). Each device keeps p + 1
    activations, if nothing of them is kept for W.
    """
    check(devices, batches)
    if devices % 2:
        raise OptionError(
            f"DualPipe folds its devices in the middle, an even number: "
            f"{f'{devices - 1} or {devices + 1}' if devices > 1 else 2}, not {devices}",
            argument="devices",
        )
    least = 2 * devices
    if batches % 2 or batches < least:
        would_do = f"{least}" if batches < least else f"{batches - 1} or {batches + 1}"
        raise OptionError(
            f"DualPipe on {devices} devices takes an even number of micro-batches, at least {least}: "
            f"use {would_do} instead of {batches}",
            argument="batches",
        )

    def passes(device: int) -> Callable[[Phase, int, int], Pass]:
        def named(phase: Phase, far: int, index: int) -> Pass:
            direction = far ^ (device >= devices // 2)
            stage = 2 * devices - 1 - device if direction else device
            return Pass(phase, stage, 2 * index + direction)

        return named

    lists = tuple(
        tuple(_overlapped(devices // 2, min(device, devices - 1 - device), batches // 2, passes(device)))
        for device in range(devices)
    )
    there = tuple(range(devices))
    return PairedLists(there + there[::-1], there + there, lists)


def dualpipev(devices: int, batches: int) -> PairedLists:
    """DualPipe folded: two chunks in V shape on half the devices, with one copy of the model.

    Chunk 0 of device d is stage d, and chunk 1 is stage 2p - 1 - d; m is at least 2p. Each device keeps the activations
    of 2p + 1 chunks.
    """
    check(devices, batches)
    least = 2 * devices
    if batches < least:
        raise OptionError(
            f"DualPipeV on {devices} devices takes at least {least} micro-batches; there are {batches}",
            argument="batches",
        )

    def passes(device: int) -> Callable[[Phase, int, int], Pass]:
        return lambda phase, chunk, index: Pass(phase, 2 * devices - 1 - device if chunk else device, index)

    there = tuple(range(devices))
    lists = tuple(tuple(_overlapped(devices, device, batches, passes(device))) for device in there)
    return PairedLists(there + there[::-1], tuple(range(2 * devices)), lists)


def _overlapped(half: int, rank: int, count: int, named: Callable[[Phase, int, int], Pass]) -> Iterator[Pass | Pair]:
    """Yield the operations of the device at distance `rank` from an end, for `count` micro-batches per direction.

    `half` is the number of devices up to the middle. Direction 0 enters at the nearer end. The eight steps are those of
    DeepSeek's code. Deferred W's run in the order of their deferral.
    """
    count_of = {(phase, way): 0 for phase in (Phase.F, Phase.B) for way in (0, 1)}
    deferred: list[Pass] = []
    outer = half - rank - 1

    def forward(way: int) -> Pass:
        count_of[Phase.F, way] += 1
        return named(Phase.F, way, count_of[Phase.F, way] - 1)

    def backward(way: int, late: bool = False) -> Pass:
        index = count_of[Phase.B, way]
        count_of[Phase.B, way] += 1
        if late:
            deferred.append(named(Phase.W, way, index))
        return named(Phase.B if late else Phase.BW, way, index)

    for _ in range(2 * outer):
        yield forward(0)
    for _ in range(rank + 1):
        yield forward(0)
        yield forward(1)
    for _ in range(outer):
        yield backward(1, late=True)
        yield deferred.pop(0)
        yield forward(1)
    for turn in range(count - 2 * half + rank + 1):
        first = Pair(forward(0), backward(1))
        # In the middle, the first pair would wait for its backward, so its forward runs first.
        yield from first if turn == 0 and outer == 0 else (first,)
        yield Pair(forward(1), backward(0))
    for _ in range(outer):
        yield backward(1)
        yield Pair(forward(1), backward(0))
    middle = (rank + 1) // 2
    for turn in range(rank + 1):
        yield backward(1, late=turn > middle or (turn == middle and rank % 2 == 1))
        yield backward(0, late=turn >= middle)
    for _ in range(outer):
        yield deferred.pop(0)
        yield backward(0, late=True)
    yield from deferred
