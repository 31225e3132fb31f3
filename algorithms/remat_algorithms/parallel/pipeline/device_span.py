"""The largest span of a device: the time between two consecutive training steps without a barrier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from remat_algorithms.parallel.pipeline.model import B, Evaluation, Op, PipelineModel, evaluate, needed


def least_span(model: PipelineModel, lists: Sequence[Sequence[Op]]) -> tuple[float, Evaluation] | None:
    """Return the minimum largest span of lists, and an evaluation that attains it; None if the lists deadlock.

    The span of a device is from the start of its first operation to the end of its last. The largest span is the
    maximum cycle mean of longest paths, each from the first start of a device to the last end of the next (Karp 1978).
    It is rounded up if all times are integers, so that all starts are integers.
    """
    first = evaluate(model, lists)
    if first is None:
        return None
    order = sorted(
        ((start, number, device) for device, starts in enumerate(first.starts) for number, start in enumerate(starts)),
    )
    ops = _in_order(model, lists, order)
    used = [device for device, listed in enumerate(lists) if listed]
    reach = {source: _ways(model, ops, {source: 0})[1] for source in used}
    span = _largest_mean(reach, used)
    if model.whole:
        span = math.ceil(span)
    # First starts of the devices, each from those of the others: the next step begins one span later.
    begins: dict[int, float] = dict.fromkeys(used, 0)
    for _ in used:
        for target in used:
            ends = [begins[source] + reach[source][target] for source in used if target in reach[source]]
            begins[target] = max(begins[target], max(ends) - span)
    starts, lasts = _ways(model, ops, begins)
    return span, Evaluation(
        max(lasts.values(), default=0), tuple(tuple(starts[op] for op in listed) for listed in lists), first.peaks
    )


def _in_order(
    model: PipelineModel, lists: Sequence[Sequence[Op]], order: list[tuple[float, int, int]]
) -> list[tuple[int, Op]]:
    """Return all operations with their devices in topological order: by start, and by precedence at equal starts."""
    found: list[tuple[int, Op]] = []
    done: set[Op] = set()
    nexts = [0] * len(lists)
    waiting = order
    while waiting:
        left = []
        for entry in waiting:
            _, number, device = entry
            op = lists[device][number]
            if number == nexts[device] and all(source in done for source, _ in needed(model, op)):
                found.append((device, op))
                done |= {op, (B, *op[1:])} if op[0] > B and op[0] != 2 else {op}
                nexts[device] += 1
            else:
                left.append(entry)
        waiting = left
    return found


def _ways(
    model: PipelineModel, ops: list[tuple[int, Op]], begins: dict[int, float]
) -> tuple[dict[Op, float], dict[int, float]]:
    """Return the starts of all operations that follow the first starts of some devices, and each device's last end."""
    starts: dict[Op, float] = {}
    ends: dict[Op, float] = {}
    clocks: dict[int, float] = dict(begins)
    for device, op in ops:
        sources = [ends[source] + delay for source, delay in needed(model, op) if source in ends]
        if device in clocks:
            sources.append(clocks[device])
        if sources:
            starts[op] = max(sources)
            clocks[device] = starts[op] + model.times[op[0]][op[1]]
            ends[op] = clocks[device]
            if op[0] > 2:
                ends[B, op[1], op[2]] = clocks[device]
    return starts, clocks


def _largest_mean(reach: dict[int, dict[int, float]], used: list[int]) -> float:
    """Return the maximum cycle mean of a weighted graph (Karp 1978)."""

    def longer(path: dict[int, float], _: int) -> dict[int, float]:
        found: dict[int, float] = {}
        for source, length in path.items():
            for target, way in reach[source].items():
                found[target] = max(found.get(target, -math.inf), length + way)
        return found

    start: dict[int, float] = dict.fromkeys(used, 0)
    paths = list(accumulate(range(len(used)), longer, initial=start))
    best: float | Fraction = 0
    for target, length in paths[-1].items():
        shorter = ((path[target], number) for number, path in enumerate(paths[:-1]) if target in path)
        means = [
            Fraction(length - other, len(used) - number)
            if isinstance(length, int) and isinstance(other, int)
            else (length - other) / (len(used) - number)
            for other, number in shorter
        ]
        best = max(best, min(means))
    return best if not isinstance(best, Fraction) else (int(best) if best.denominator == 1 else best)  # type: ignore[return-value]
