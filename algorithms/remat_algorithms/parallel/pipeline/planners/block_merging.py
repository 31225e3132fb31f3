"""Greedy merging of layers into blocks, and assignment of blocks to devices, where a device's blocks may be scattered.

After FTPipe (Eliad et al. 2021), for layers in a row.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from remat_algorithms.parallel.pipeline.planners.layer_sums import Position, Row


def merged(work: Sequence[float], crossing: Sequence[float], reach: Sequence[int], blocks: int) -> list[int]:
    """Merge neighbours until `blocks` are left or no pair can be merged; return their cuts.

    Each step merges the pair with the smallest total time. Ties prefer the longest transfer between the two.

    Parameters
    ----------
    work : sequence of numbers
        Time of each layer.
    crossing : sequence of numbers
        Time of the transfers at each inner cut, one fewer than layers.
    reach : sequence of int
        For each layer, the last end of a block from it that some device can run.
    blocks : int
    """
    count = len(work)
    following = list(range(1, count + 1))
    before = list(range(-1, count - 1))
    time = list(work)
    alive = [True] * count
    stamp = [0] * count

    def entry(first: int) -> tuple[float, float, int, int, int]:
        second = following[first]
        return time[first] + time[second], -crossing[second - 1], first, stamp[first], stamp[second]

    heap = [entry(first) for first in range(count - 1)]
    heapq.heapify(heap)
    left = count
    while left > blocks and heap:
        _, _, first, one, other = heapq.heappop(heap)
        second = following[first] if alive[first] else count
        if second == count or stamp[first] != one or stamp[second] != other:
            continue
        if following[second] > reach[first]:
            continue  # longer blocks cannot be merged later, either
        time[first] += time[second]
        following[first] = following[second]
        alive[second] = False
        stamp[first] += 1
        left -= 1
        if following[first] < count:
            before[following[first]] = first
            heapq.heappush(heap, entry(first))
        if before[first] >= 0:
            heapq.heappush(heap, entry(before[first]))
    return [*(first for first in range(count) if alive[first]), count]


def dealt(row: Row, positions: Sequence[Position], cuts: Sequence[int]) -> list[int] | None:
    """Assign blocks, longest first, each to the device that would finish its blocks first (Graham 1969).

    The length of a block is its time on its fastest device. A device accepts a block only if its memory suffices for
    the block's fixed bytes and for one micro-batch.

    Returns
    -------
    list of int or None
        Device of each block; None if some block does not fit anywhere.
    """
    loads = [0.0] * len(positions)
    used = [0] * len(positions)
    parts = list(itertools.pairwise(cuts))

    def time(part: tuple[int, int], device: int) -> float | None:
        first, end = part
        position = positions[device]
        return None if position.stop[first] < end else float(position.work[end] - position.work[first])

    def least(part: tuple[int, int]) -> float:
        return min((taken for device in range(len(positions)) if (taken := time(part, device)) is not None), default=0)

    devices = [-1] * len(parts)
    for index in sorted(range(len(parts)), key=lambda index: (-least(parts[index]), index)):
        part = parts[index]
        size = row.held(*part) + row.kept(*part)
        able: list[tuple[float, int]] = []
        for device, position in enumerate(positions):
            taken = time(part, device)
            if taken is not None and (position.room is None or used[device] + size <= position.room):
                able.append((loads[device] + taken, device))
        if not able:
            return None
        loads[min(able)[1]], devices[index] = min(able)
        used[devices[index]] += size
    return devices


def joined(cuts: Sequence[int], devices: Sequence[int]) -> tuple[list[int], list[int]]:
    """Join consecutive blocks on the same device into stages; return cuts and devices."""
    found, homes = [0], [devices[0]]
    for cut, device in zip(cuts[1:-1], devices[1:], strict=True):
        if device != homes[-1]:
            found.append(cut)
            homes.append(device)
    return [*found, cuts[-1]], homes


def shares(activations: Sequence[int], places: Sequence[int], rooms: Sequence[int | None], batches: int) -> list[int]:
    """Return how many micro-batches each stage may hold such that each device's stages fit.

    Stage s of S requests min(S - s, m), as in 1F1B. While this exceeds a device's memory, the stage with the most
    micro-batches gives up one. The memory must suffice for one micro-batch of each stage.
    """
    count = len(activations)
    found = [min(count - stage, batches) for stage in range(count)]
    for device, room in enumerate(rooms):
        own = [stage for stage in range(count) if places[stage] == device]
        if room is None or not own:
            continue
        total = sum(found[stage] * activations[stage] for stage in own)
        while total > room:
            most = max((stage for stage in own if activations[stage] and found[stage] > 1), key=found.__getitem__)
            found[most] -= 1
            total -= activations[most]
    return found
