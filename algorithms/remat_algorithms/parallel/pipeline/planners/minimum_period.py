"""The minimum period of 1F1B*, for given cuts and over all cuts (Beaumont, Eyraud-Dubois & Shilova 2021).

The units of a pipeline are its stages and the connections between them, in order. For a period T, units are grouped
from the last one backwards. A new group begins when the total time of a group would exceed T. A stage of group g keeps
g activations, and no schedule of that period keeps fewer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from remat.plugin import IntArray, Number
from remat_algorithms.parallel.pipeline.planners.layer_sums import FloatArray, Line


def groups(stages: Sequence[Number], hops: Sequence[Number], period: Number) -> list[int] | None:
    """Return the group of each stage, 1 for the last; None if a unit takes longer than the period.

    Parameters
    ----------
    stages : sequence of numbers
        Time of the forward and the backward of each stage.
    hops : sequence of numbers
        Round-trip time of each connection between two stages.
    period : number
    """
    if max((*stages, *hops)) > period:
        return None
    group, taken = 1, stages[-1]
    found = [group]
    for stage, hop in zip(stages[-2::-1], hops[::-1], strict=True):
        for unit in (hop, stage):
            if taken + unit > period:
                group, taken = group + 1, 0
            taken += unit
        found.append(group)
    return found[::-1]


def least_period(
    stages: Sequence[Number],
    hops: Sequence[Number],
    activations: Sequence[int],
    versioned: Sequence[int],
    rooms: Sequence[int | None],
    versions: int = 2,
) -> Number | None:
    """Return the minimum period for which the stages fit; None if a single micro-batch at a time does not fit.

    A stage of group g needs g activations and min(versions, g) copies of its weights. The groups change only at periods
    that are sums of consecutive units, and longer periods have fewer groups. The result is found by bisection over
    these sums.
    """
    units = [stages[0], *(unit for pair in zip(hops, stages[1:], strict=True) for unit in pair)]
    least = max(units)
    candidates = sorted({total for k in range(len(units)) for total in accumulate(units[k:]) if total >= least})

    def fits(period: Number) -> bool:
        found = groups(stages, hops, period)
        return found is not None and all(
            room is None or group * held + min(versions, group) * weights <= room
            for group, held, weights, room in zip(found, activations, versioned, rooms, strict=True)
        )

    index = bisect_left(candidates, True, key=fits)
    return candidates[index] if index < len(candidates) else None


def least_period_cuts(line: Line, versions: int = 2) -> tuple[float, list[int]] | None:
    """Return the minimum period of 1F1B* on all devices of a line, and cuts that attain it; None if none fit.

    `Row.fixed` is the part with several versions. Consider a period, and all cuts of the layers from i on into k
    stages. Only those whose first unit is in the smallest group are kept, and of these, those with the smallest time in
    that group. Any preceding unit that fits before some cuts also fits before these. O(stages x layers^2) per period,
    with bisection over periods.
    """
    row, count = line.row, len(line.positions)
    most = sum(float(position.work[-1]) for position in line.positions)
    most += sum(float((hop.busy_there + hop.busy_back).max()) for hop in line.hops)
    cuts = _cut(line, most, versions) if count <= row.length else None
    if cuts is None:
        return None
    low, high = 0.0, _least_of(line, cuts, versions)
    while low < high and high - low > 1e-12 * high:
        middle = (low + high) / 2
        found = _cut(line, middle, versions)
        if found is None:
            low = middle
        else:
            cuts, high = found, _least_of(line, found, versions)
    return high, cuts


def _least_of(line: Line, cuts: Sequence[int], versions: int) -> float:
    row = line.row
    parts = list(zip(cuts[:-1], cuts[1:], line.positions, strict=True))
    found = least_period(
        [float(position.work[end] - position.work[first]) for first, end, position in parts],
        [float(hop.busy[cut]) for hop, cut in zip(line.hops, cuts[1:-1], strict=True)],
        [row.held(first, end) for first, end, _ in parts],
        [row.kept(first, end) for first, end, _ in parts],
        [position.room for _, _, position in parts],
        versions,
    )
    assert found is not None, "these cuts fit"
    return float(found)


def _cut(line: Line, period: float, versions: int) -> list[int] | None:
    """Return cuts whose groups fit for this period."""
    row = line.row
    length, count = row.length, len(line.positions)
    infinite = 2**62
    group = np.full(length + 1, infinite, dtype=np.int64)
    taken = np.zeros(length + 1)
    group[length] = 1
    chosen = []
    for place in range(count - 1, -1, -1):
        position = line.positions[place]
        if place < count - 1:
            group, taken = _more(group, taken, line.hops[place].busy, period)
        best, least = np.full(length + 1, infinite, dtype=np.int64), np.full(length + 1, np.inf)
        ends = np.full(length + 1, length)
        for first in range(length):
            stop = int(position.stop[first])
            ways = slice(first + 1, stop + 1)
            stages, more = _more(group[ways], taken[ways], position.work[ways] - position.work[first], period)
            if position.room is not None and stages.size:
                real = np.minimum(stages, length + count + 1)
                held = row.activation[ways] - row.activation[first] + row.entry[first]
                kept = row.fixed[ways] - row.fixed[first]
                stages[real * held + np.minimum(real, versions) * kept > position.room] = infinite
            if stages.size:
                index = int(np.lexsort((more, stages))[0])
                best[first], least[first], ends[first] = stages[index], more[index], first + 1 + index
        chosen.append(ends)
        group, taken = best, least
    if group[0] == infinite:
        return None
    cuts = [0]
    for ends in reversed(chosen):
        cuts.append(int(ends[cuts[-1]]))
    return cuts


def _more(group: IntArray, taken: FloatArray, units: FloatArray, period: float) -> tuple[IntArray, FloatArray]:
    """Prepend a unit to each group: to the current group if it fits, else to a new one."""
    full = taken + units > period
    found = np.where(full, group + 1, group)
    found[(group >= 2**62) | (units > period)] = 2**62
    return found, np.where(full, units, taken + units)
