"""Two copies of the model, one in each direction: chimera, gems.

Stage s of the first direction is on device s. Stage s of the second, numbered p + s, is on device p - 1 - s. If p is
odd, the middle device holds the same part of the model as two stages. Both rules order the operations by slots of one
operation each.
"""

from __future__ import annotations

from collections.abc import Iterable

from remat.plugin import OptionError
from remat_algorithms.parallel.pipeline.rules.operation_lists import Lists, Pass, Phase, check, frozen, whole


def chimera(devices: int, batches: int, *, split: bool = False) -> Lists:
    """Two 1F1B pipelines that fill each other's idle times (Li & Hoefler 2021), p even.

    Micro-batches form units of p, which alternate between the two directions. For the j-th micro-batch of a direction
    in unit k, F of stage s is in slot 2pk + s + 2j, and B in slot 2pk + 2p - 1 - s + 2j. No two operations of a device
    share a slot. The last unit may be incomplete. If F = B and p divides m, without hops, the makespan is (2m + p -
    2)F. Device d then keeps at most p/2 + 1 + min(d, p - 1 - d) activations, but never more than p.
    """
    check(devices, batches)
    if devices % 2:
        even = f"{devices - 1} or {devices + 1}" if devices > 1 else "2"
        raise OptionError(
            f"Chimera's two directions fill each other's waits on an even number of devices: {even}, not {devices}",
            argument="devices",
        )

    def slots(batch: int) -> tuple[int, int, int]:
        unit, rest = divmod(batch, devices)
        pair, direction = divmod(rest, 2)
        entry = 2 * devices * unit + 2 * pair
        return direction, entry, entry + 2 * devices - 1

    return _two_way(devices, map(slots, range(batches)), split)


def gems(devices: int, batches: int, *, split: bool = False) -> Lists:
    """One micro-batch at a time, alternating between the directions, for minimum memory (Jain et al. 2020).

    For micro-batch i, F of stage s is in slot i(p + 1) + s, and B in slot i(p + 1) + 2p - 1 - s. A device keeps one
    activation.
    """
    check(devices, batches)
    step = devices + 1
    return _two_way(devices, ((i % 2, i * step, i * step + 2 * devices - 1) for i in range(batches)), split)


def _two_way(devices: int, slots: Iterable[tuple[int, int, int]], split: bool) -> Lists:
    """Sort by slots, given each micro-batch's direction and the slots of F and B on its first stage."""
    listed: list[list[tuple[int, Pass]]] = [[] for _ in range(devices)]
    for batch, (direction, entry, way_out) in enumerate(slots):
        for s in range(devices):
            device = devices - 1 - s if direction else s
            stage = direction * devices + s
            listed[device].append((entry + s, Pass(Phase.F, stage, batch)))
            listed[device].append((way_out - s, Pass(whole(split), stage, batch)))
    there = tuple(range(devices))
    return Lists(
        place=there + there[::-1],
        part=there + there,
        lists=frozen([operation for _, operation in sorted(found)] for found in listed),
    )
