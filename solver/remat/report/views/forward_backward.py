"""Operations of a pipeline with their times, from its orders and the verifier's measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Ragged
from remat.report.views.phases import Phase as Step
from remat.report.views.phases import step_phases
from remat.schedule.orders import Orders, Phase
from remat.schedule.steps import StepKind
from remat.solving.result import Result


@dataclass(frozen=True)
class Passes:
    """Every operation: device, phase, chunk (index among its device's stages), micro-batch, start, end and half.

    `half` is 1 and 2 for the two operations of a concurrent pair, and 0 otherwise. If several devices run a stage
    together, each has separate operations. `recomputed` are the intervals in which an operation recomputes, as
    (operation, start, end); a recomputation right before its backward is a part of that operation.
    """

    device: IntArray
    phase: IntArray
    chunk: IntArray
    batch: IntArray
    start: NumberArray
    end: NumberArray
    half: IntArray
    recomputed: tuple[IntArray, NumberArray, NumberArray]

    @property
    def steady(self) -> tuple[float, float] | None:
        """The interval in which every device has begun its backwards and has forwards left; None if it is empty."""
        begun, left = [], []
        for device in np.unique(self.device).tolist():
            mine = self.device == device
            forwards, backwards = mine & (self.phase == Phase.F), mine & (self.phase != Phase.F)
            if not forwards.any() or not backwards.any():
                return None
            begun.append(float(self.start[backwards].min()))
            left.append(float(self.end[forwards].max()))
        return (max(begun), min(left)) if begun and max(begun) < min(left) else None


def passes_of(result: Result) -> Passes:
    """Return the operations of a result that has orders (O(steps log steps))."""
    orders, steps, report = result.orders, result.columns, result.report
    assert orders is not None
    assert steps is not None
    assert steps.on is not None
    assert report is not None
    device, phase, stage, batch = orders.columns
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    on = steps.on.gather(runs).items
    # A device runs its operations, and therefore their tasks, sequentially.
    runs = runs[np.lexsort((np.arange(len(runs)), report.start[runs], on))]
    units = orders.units
    every = _tasks_of(result, orders)[stage, phase]
    if any(one.recompute for one in orders.stages):
        listed = (operation for operations in orders.lists for operation in operations)
        every = every + [sum(map(len, orders.again(operation))) for operation in listed]
    counts = np.add.reduceat(every, units.start[:-1])
    last = np.cumsum(counts) - 1
    unit = units.rows
    half = np.where(units.counts[unit] > 1, 1 + np.arange(len(unit)) - units.start[unit], 0)
    together = np.array([own.tensor for own in orders.stages], dtype=np.int64)[stage]
    of = np.repeat(np.arange(len(stage)), together)
    on_each = device[of] + np.arange(len(of)) - np.repeat(np.cumsum(together) - together, together)
    of, on_each = of[np.argsort(on_each, kind="stable")], np.sort(on_each)
    begin, end = report.start[runs], report.end[runs]
    is_again = step_phases(result.graph, steps, report.start)[runs] == Step.RECOMPUTATION
    # Of a concurrent pair, the operation that is no forward recomputes.
    backward = np.minimum.reduceat(np.where(phase == Phase.F, len(phase), 0) + np.arange(len(phase)), units.start[:-1])
    owner = np.repeat(backward % len(phase), counts)
    first, stop = _stretches(is_again, owner, begin, end)
    places = _rows_of(of, len(phase)).gather(owner[first])
    return Passes(
        device=on_each,
        phase=phase[of],
        chunk=_chunks(orders)[stage][of],
        batch=batch[of],
        start=report.start[runs[last - counts + 1]][unit][of],
        end=report.end[runs[last]][unit][of],
        half=half[of],
        recomputed=(places.items, begin[first][places.rows], end[stop][places.rows]),
    )


def _stretches(mine: BoolArray, owner: IntArray, begin: NumberArray, end: NumberArray) -> tuple[IntArray, IntArray]:
    """Return the first and the last run of each stretch of marked runs without a gap, of one owner."""
    found = np.flatnonzero(mine)
    if not len(found):
        return found, found
    joined = (np.diff(found) == 1) & (np.diff(owner[found]) == 0) & (begin[found[1:]] <= end[found[:-1]])
    cuts = np.flatnonzero(~joined)
    return found[np.append(0, cuts + 1)], found[np.append(cuts, len(found) - 1)]


def _rows_of(items: IntArray, count: int) -> Ragged:
    """Return the positions of each number below `count` in a list."""
    order = np.argsort(items, kind="stable")
    return Ragged(np.append(0, np.cumsum(np.bincount(items, minlength=count))), order)


def _tasks_of(result: Result, orders: Orders) -> IntArray:
    """Return the number of tasks of an operation, by stage and phase."""
    found = np.empty((len(orders.stages), len(Phase)), dtype=np.int64)
    for index, stage in enumerate(orders.stages):
        halves = sum(result.graph.tasks.find(f"W{layer + 1}.0") is not None for layer in stage.layers)
        whole = len(stage.layers)
        found[index] = (whole, whole, halves, whole + halves, 0)
    return found


def _chunks(orders: Orders) -> IntArray:
    """Return the index of each stage among the stages of its device."""
    seen: dict[int, int] = {}
    found = []
    for stage in orders.stages:
        found.append(seen.get(stage.device, 0))
        seen[stage.device] = found[-1] + 1
    return np.array(found, dtype=np.int64)
