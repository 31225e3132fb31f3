"""Costs that the planners assign to a stage of layers i .. j - 1 on a device, as measures for the table.

f and b are the times of its forward and backward; x and y those of the transfers to the next stage and back. A stage
that its device cannot run or hold is excluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.planners.layer_sums import FloatArray, Line
from remat_algorithms.parallel.pipeline.planners.partition_table import Costs, Measure, Table, fill

Counting = Callable[[Line, int, int], Measure]
"""``counting(line, place, left)``: the measure of a device, the first of `left` stages."""


def compute(line: Line, place: int, left: int) -> Measure:
    """Work: f + b."""
    return Measure(
        _reach(line, place, left), lambda first, last, end: Costs(_work(line, place, first, last, end), None)
    )


def overlapped(line: Line, place: int, left: int) -> Measure:
    """The longer of f + b and x + y: transfers overlap with work (Narayanan et al. 2019, without replicas)."""
    busy = line.after(place).busy

    def costs(first: int, last: int, end: int) -> Costs:
        return Costs(np.maximum(_work(line, place, first, last, end), busy[first + 1 : end + 1]), None)

    return Measure(_reach(line, place, left), costs)


def received(line: Line, place: int, left: int) -> Measure:
    """Work, f + b, and waits: x from the previous stage, y from the next one (Narayanan et al. 2021)."""
    inputs, gradients = line.before(place).busy_there, line.after(place).busy_back

    def costs(first: int, last: int, end: int) -> Costs:
        work = _work(line, place, first, last, end)
        return Costs(work + inputs[first:last, None] + gradients[first + 1 : end + 1], None)

    return Measure(_reach(line, place, left), costs)


def serial(line: Line, place: int, left: int) -> Measure:
    """Work, f + b, and all transfers to and from both neighbours (Park et al. 2020, Zhan & Zhang 2019)."""
    before, after = line.before(place).busy, line.after(place).busy

    def costs(first: int, last: int, end: int) -> Costs:
        work = _work(line, place, first, last, end)
        return Costs(work + before[first:last, None] + after[first + 1 : end + 1], None)

    return Measure(_reach(line, place, left), costs)


def pivoted(line: Line, place: int, left: int) -> Measure:
    """Latency of a step whose slowest stage Q never waits (Fan et al. 2021, without replicas).

    The micro-batches pass Q one after another. Before the first and after the last, one micro-batch travels to Q and
    back:

        max over Q of  m (f_Q + b_Q) + sum of (f + b + x + y) of the stages before Q

    Each connection to the next stage is also a Q, with m - 1 times max(x, y). No schedule of these stages is faster.
    """
    batches, hop = line.batches, line.after(place)
    both, busy = hop.both, (line.batches - 1) * np.maximum(hop.busy_there, hop.busy_back)

    def costs(first: int, last: int, end: int) -> Costs:
        work = _work(line, place, first, last, end)
        then = work + both[first + 1 : end + 1]
        return Costs(np.maximum(batches * work, then + busy[first + 1 : end + 1]), then)

    return Measure(_reach(line, place, left), costs)


def slower(other: Line, counting: Counting = compute) -> Counting:
    """Return the larger cost of a part on two devices: at its place in the line, and in another line."""

    def both(line: Line, place: int, left: int) -> Measure:
        one, two = counting(line, place, left), counting(other, place, left)

        def costs(first: int, last: int, end: int) -> Costs:
            mine, theirs = one.costs(first, last, end).alone, two.costs(first, last, end).alone
            assert mine is not None
            assert theirs is not None
            return Costs(np.maximum(mine, theirs), None)

        return Measure(np.minimum(one.reach, two.reach), costs)

    return both


def table_of(line: Line, counting: Counting) -> Table:
    """Fill the table for a line; for identical devices, it also contains the best cuts for fewer of them."""
    count = len(line.positions)
    return fill(line.row.length, (counting(line, count - left, left) for left in range(1, count + 1)))


def least_table(line: Line, counting: Counting, most: float = math.inf) -> Table:
    """Fill the table for a line and a largest cost, up to the necessary limit.

    Stages with more work than the limit are excluded. The result is optimal if its cost is at most the limit; otherwise
    the limit is doubled. Costs above `most` are not searched.
    """
    count = len(line.positions)
    if not possible(line, counting):
        return Table([np.full(line.row.length + 1, np.inf)] * (count + 1), [])
    whole = max(float(position.work[-1]) for position in line.positions)
    longest = max(float(np.diff(position.work).max()) for position in line.positions)
    limit = min(most, 1.25 * whole / count + longest)
    while True:
        table = table_of(line if limit >= whole else replace(line, longest=limit), counting)
        if limit >= min(whole, most) or table.value(count) <= limit:
            return table
        limit = min(most, 2 * limit)


def each_depth(
    line: Line, counting: Counting, depths: Sequence[int], most: Callable[[], float] = lambda: math.inf
) -> Iterator[tuple[int, float, Table]]:
    """Yield numbers of first devices, with the minimum largest cost and the table, in decreasing order.

    Parameters
    ----------
    line : Line
    counting : callable
    depths : sequence of int
    most : callable
        ``most()`` returns the current upper limit of useful costs.
    """
    common = table_of(line.first(max(depths)), counting) if line.alike and depths else None
    for depth in sorted(depths, reverse=True):
        table = common or least_table(line.first(depth), counting, most())
        if table.value(depth) <= most() and np.isfinite(table.value(depth)):
            yield depth, table.value(depth), table


def possible(line: Line, counting: Counting) -> bool:
    """Whether any cuts exist, according to the reach of stages alone: O(stages x layers)."""
    count = len(line.positions)
    found = np.zeros(line.row.length + 1, dtype=bool)
    found[-1] = True
    for left in range(1, count + 1):
        # Number of ends up to each layer. A stage is possible if some lie between its first layer and its reach.
        ends = np.cumsum(found)
        reach = np.maximum(counting(line, count - left, left).reach, np.arange(line.row.length))
        found = np.append(ends[reach] > ends[:-1], False)
    return bool(found[0])


def evened(line: Line, counting: Counting, value: float) -> list[int]:
    """Return the cuts with the smallest sum of squared times, among those whose stages cost at most `value`."""
    limit = value * (1 + 1e-12)
    count = len(line.positions)
    bounded = replace(line, longest=limit)

    def squares(place: int, left: int) -> Measure:
        measure = counting(bounded, place, left)

        def costs(first: int, last: int, end: int) -> Costs:
            alone = measure.costs(first, last, end).alone
            assert alone is not None, "the objective is a largest cost"
            return Costs(None, np.where(alone <= limit, _work(line, place, first, last, end) ** 2, np.inf))

        return Measure(measure.reach, costs)

    return fill(line.row.length, (squares(count - left, left) for left in range(1, count + 1))).cuts(count)


def least_largest(line: Line, counting: Counting) -> tuple[float, list[int]] | None:
    """Return the minimum largest cost of a stage using all devices, and balanced cuts that attain it; None if none fit.

    Raises
    ------
    ValueError
        If there are more devices than layers.
    """
    if len(line.positions) > line.row.length:
        raise ValueError(f"{len(line.positions)} stages of at least one layer each, and {line.row.length} layers")
    value = least_table(line, counting).value(len(line.positions))
    return (value, evened(line, counting, value)) if np.isfinite(value) else None


def _work(line: Line, place: int, first: int, last: int, end: int) -> FloatArray:
    until = line.positions[place].work
    work: FloatArray = until[first + 1 : end + 1] - until[first:last, None]
    return work


def _reach(line: Line, place: int, left: int) -> IntArray:
    """Return the last ends of stages that a device can run and hold; their needs grow with their layers."""
    position, row = line.positions[place], line.row
    reach = position.stop[:-1]
    if np.isfinite(line.longest):
        # Slightly more than the limit, because sums are rounded. The costs decide.
        latest = position.work[:-1] + line.longest * (1 + 1e-9)
        reach = np.minimum(reach, np.searchsorted(position.work, latest, side="right") - 1)
    if position.room is not None:
        flight = min(left, line.batches) if position.flight is None else position.flight
        taken = flight * row.activation + row.fixed
        room = position.room + taken[:-1] - flight * row.entry[:-1]
        reach = np.minimum(reach, np.searchsorted(taken, room, side="right") - 1)
    return reach
