"""Two chunks of the model per device, folded: zb-v, v-half, v-min.

Chunk 0 of device d is stage d, and chunk 1 is stage 2p - 1 - d. The last device thus sends to itself, and the first one
begins and ends every micro-batch. All three rules separate B and W. Figures are for F = B = W = 1 per chunk, without
hops, and for a W that keeps half an activation. Memory counts activations of a device, which cover two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from remat_algorithms.parallel.pipeline.rules.operation_lists import Lists, Pass, Phase, check, frozen

PERIOD = 6
"""Work of a device for one micro-batch: F, B and W of two chunks."""


def zb_v(devices: int, batches: int) -> Lists:
    """Zero bubble in the memory of 1F1B (ZB-V of Qi et al. 2024, in the order of PyTorch's `ScheduleZBVZeroBubble`).

    Device d runs these operations in order:

    1. 2(p - d) - 1 F's of chunk 0
    2. d times: F of chunk 1, F of chunk 0
    3. p - d times: F, B, W of chunk 1
    4. repeatedly: F of chunk 0 while any are left, B and W of chunk 0, F, B, W of chunk 1
    5. d times: B of chunk 0, B of chunk 1
    6. p - d times: B, W of chunk 0
    7. the remaining W's

    From m = 2p - 1, no device is idle between its first and its last operation. The makespan is then 6m + p - 1, with
    at most p activations. For fewer micro-batches, the order is that of 2p - 1 without the last ones.
    """
    check(devices, batches)
    planned = max(2 * devices - 1, batches)
    lists = (
        (operation for operation in _zero_bubble(devices, device, planned) if operation.batch < batches)
        for device in range(devices)
    )
    return _folded(devices, frozen(lists))


def v_half(devices: int, batches: int) -> Lists:
    """The V schedule in half the memory of 1F1B, (p + 2) // 2 activations (Qi et al. 2024b).

    Steady-state hops are 1, 2, 1, 2 units. If p is even, the last device runs the forward of micro-batch p / 2 before
    its first backward, which shortens the schedule by one unit. For m >= p, the makespan is 6m + 3p - 4 if p is odd
    (and not 1), and 6m + 3p - 7 if p is even, except 6m + 1 for p = 2.
    """
    block = _Block((1, 2, 1, 2), (1, 1, 2))
    if devices % 2 == 0:
        block = _Block((1, 2, 1, 2), (5, 1, 5), late=devices // 2)
    return _controlled(devices, batches, (devices + 2) // 2, block)


def v_min(devices: int, batches: int) -> Lists:
    """The V schedule in a third of the memory of 1F1B, (p + 4) // 3 activations (Qi et al. 2024b).

    Steady-state hops are one unit. If 3 divides p, operations would collide, so the turns on the last device take 3.
    The makespan is 6m + 4p - 5 for p > 1.
    """
    turns = (1, 1, 1) if devices % 3 else (3, 1, 3)
    return _controlled(devices, batches, (devices + 4) // 3, _Block((1, 1, 1, 1), turns))


class _Block(NamedTuple):
    """A building block: the path of one micro-batch down, up, down and up the devices, repeated every 6 units.

    `hops` are the units from a device to the next in F of chunk 0, F of chunk 1, B of chunk 1, B of chunk 0. `turns`
    are the units between two of these on the device where they meet (the last device, the first, the last). No two of
    the four starts on a device are equal modulo 6; W's use the remaining units. If `late` is given, the last device
    runs its first B after the F of this micro-batch in the same chunk.
    """

    hops: tuple[int, int, int, int]
    turns: tuple[int, int, int]
    late: int | None = None

    def starts(self, devices: int, device: int) -> tuple[int, int, int, int]:
        """Return the starts on a device of F and F, B and B, in the order of `hops`, for micro-batch 0."""
        there, back = device, devices - 1 - device
        entries = [0]
        for hop, turn in zip(self.hops, self.turns, strict=False):
            entries.append(entries[-1] + hop * (devices - 1) + turn)
        passed = (there, back, there, back)
        first, second, third, fourth = (
            entry + hop * steps for entry, hop, steps in zip(entries, self.hops, passed, strict=True)
        )
        return first, second, third, fourth

    def order(self, devices: int, device: int, batches: int) -> list[Pass]:
        """Return the F's and B's of a device in the order of their starts."""
        chunks = (device, 2 * devices - 1 - device)
        kinds = ((Phase.F, chunks[0]), (Phase.F, chunks[1]), (Phase.B, chunks[1]), (Phase.B, chunks[0]))
        starts = self.starts(devices, device)
        found = [
            operation
            for _, operation in sorted(
                (start + PERIOD * batch, Pass(phase, stage, batch))
                for start, (phase, stage) in zip(starts, kinds, strict=True)
                for batch in range(batches)
            )
        ]
        if device == devices - 1 and self.late is not None and self.late < batches:
            first, late = Pass(Phase.B, devices, 0), Pass(Phase.F, devices, self.late)
            found.remove(first)
            found.insert(found.index(late) + 1, first)
        return found


def _controlled(devices: int, batches: int, most: int, block: _Block) -> Lists:
    """Compress the repetition of a block to `most` activations per device."""
    check(devices, batches)
    return _folded(
        devices, _squeezed(devices, [block.order(devices, device, batches) for device in range(devices)], most)
    )


def _squeezed(devices: int, orders: list[list[Pass]], most: int) -> tuple[tuple[Pass, ...], ...]:
    """Run each device's F's and B's in order as early as possible, and W's whenever it is idle or full.

    The simulation proceeds by units. An F takes two halves of a chunk's activation, B and W free one each, and a device
    holds up to `most` activations. The blocks of `v_half` and `v_min` never deadlock.
    """
    last = 2 * devices - 1
    listed: list[list[Pass]] = [[] for _ in range(devices)]
    due: list[list[Pass]] = [[] for _ in range(devices)]
    place, paid, held = [0] * devices, [0] * devices, [0] * devices
    done: set[Pass] = set()
    while any(len(run) * 2 < len(order) * 3 for run, order in zip(listed, orders, strict=True)):
        now = []
        for device, order in enumerate(orders):
            following = order[place[device]] if place[device] < len(order) else None
            if following is not None and _fits(following, done, held[device], 4 * most, last):
                now.append(following)
                place[device] += 1
                if following.phase is Phase.F:
                    held[device] += 2
                else:
                    held[device] -= 1
                    due[device].append(Pass(Phase.W, following.stage, following.batch))
                listed[device].append(following)
            elif paid[device] < len(due[device]):
                now.append(due[device][paid[device]])
                paid[device] += 1
                held[device] -= 1
                listed[device].append(now[-1])
        assert now, "a block without deadlock"
        done.update(now)
    return frozen(listed)


def _fits(operation: Pass, done: set[Pass], held: int, most: int, last: int) -> bool:
    """Whether the data of an F or a B is available, and for an F also the memory."""
    phase, stage, batch = operation
    if phase is Phase.F:
        return held + 2 <= most and (stage == 0 or Pass(Phase.F, stage - 1, batch) in done)
    return Pass(Phase.F, stage, batch) in done and (stage == last or Pass(Phase.B, stage + 1, batch) in done)


def _zero_bubble(devices: int, device: int, batches: int) -> Iterator[Pass]:
    """Yield the operations of a device for at least 2p - 1 micro-batches."""
    chunks = (device, 2 * devices - 1 - device)
    count = dict.fromkeys(((phase, stage) for phase in Phase for stage in chunks), 0)

    def following(phase: Phase, chunk: int) -> Pass:
        key = (phase, chunks[chunk])
        count[key] += 1
        return Pass(*key, count[key] - 1)

    def left(phase: Phase, chunk: int) -> int:
        return batches - count[phase, chunks[chunk]]

    for _ in range(2 * (devices - device) - 1):
        yield following(Phase.F, 0)
    for _ in range(device):
        yield following(Phase.F, 1)
        yield following(Phase.F, 0)
    for _ in range(devices - device):
        yield from (following(phase, 1) for phase in (Phase.F, Phase.B, Phase.W))
    while left(Phase.F, 1):
        if left(Phase.F, 0):
            yield following(Phase.F, 0)
        yield from (following(phase, 0) for phase in (Phase.B, Phase.W))
        yield from (following(phase, 1) for phase in (Phase.F, Phase.B, Phase.W))
    for _ in range(device):
        yield following(Phase.B, 0)
        yield following(Phase.B, 1)
    for _ in range(devices - device):
        yield from (following(phase, 0) for phase in (Phase.B, Phase.W))
    for chunk in (1, 0):
        while left(Phase.W, chunk):
            yield following(Phase.W, chunk)


def _folded(devices: int, lists: tuple[tuple[Pass, ...], ...]) -> Lists:
    there = tuple(range(devices))
    return Lists(there + there[::-1], tuple(range(2 * devices)), lists)
