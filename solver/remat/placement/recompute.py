"""Recomputation in placement: each later run of a task becomes a separate task that writes separate values.

A task reads the latest run on its processor; other processors read the values of the first run. Therefore a
recomputed value is dropped after its last use before the recomputation, and the event simulation of
`remat.placement.orders` needs no special case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, overload

import numpy as np

from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, PairTimes, Ragged, TaskGraph
from remat.schedule.steps import StepKind, Steps


class _Alias(Names):
    """Names of tasks or values, with some of them repeated at the end."""

    def __init__(self, names: Names, again: IntArray) -> None:
        self._first, self._again = names, again

    def __len__(self) -> int:
        return len(self._first) + len(self._again)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        return self._first[index if index < len(self._first) else int(self._again[index - len(self._first)])]


class Repeated(NamedTuple):
    """A graph in which every run is a separate task, its operations, and the original tasks and values.

    `task` and `value` map to indices of the original graph. `remade` lists (value, operation): each recomputed value
    of the original graph, with the operation that recomputes it.
    """

    graph: TaskGraph
    operations: Ragged
    task: IntArray
    value: IntArray
    remade: list[tuple[int, int]]

    def folded(self, steps: Steps) -> Steps:
        """Return steps with the tasks and values of the original graph."""
        runs = steps.kind == StepKind.RUN
        item = np.where(runs, self.task[np.where(runs, steps.item, 0)], self.value[np.where(runs, 0, steps.item)])
        return replace(steps, item=item, drop=Ragged(steps.drop.start, self.value[steps.drop.items]))


def repeated(graph: TaskGraph, processors: IntArray, operations: Ragged) -> Repeated | None:
    """Separate later runs of tasks from first runs; return None if no task runs twice.

    Parameters
    ----------
    graph : TaskGraph
    processors : (operations,) int64
        Processor of each operation, ascending; all runs of one task are on one processor.
    operations : Ragged
        The tasks of each operation, in execution order.

    Notes
    -----
    O(accesses log accesses).
    """
    tasks = operations.items
    order = np.argsort(tasks, kind="stable")
    later = np.zeros(len(tasks), dtype=bool)
    later[order[1:]] = tasks[order[1:]] == tasks[order[:-1]]
    if not later.any():
        return None
    count, values = len(graph.tasks), len(graph.values)
    at = np.flatnonzero(later)
    again = tasks[at]
    items = tasks.copy()
    items[at] = count + np.arange(len(at))
    made = graph.writes.gather(again)
    on = processors[operations.rows]

    # Producers in order: for each recomputed value, the positions of the recomputations.
    reads = graph.reads.gather(tasks)
    code = made.items * (len(tasks) + 1) + at[made.rows]
    ranked = np.argsort(code)
    place = np.searchsorted(code[ranked], reads.items * (len(tasks) + 1) + reads.rows) - 1
    last = ranked[np.maximum(place, 0)]
    mine = (place >= 0) & (made.items[last] == reads.items) & (on[at[made.rows[last]]] == on[reads.rows])
    read = np.where(mine, values + last, reads.items)
    # The reads of first runs replace the task's row; those of later runs are appended as rows.
    own = graph.reads.items.copy()
    where = np.repeat(graph.reads.start[tasks], reads.counts) + _offsets(reads)
    first = ~later[reads.rows]
    own[where[first]] = read[first]
    more = Ragged(np.concatenate(([0], np.cumsum(reads.counts[at]))), read[later[reads.rows]])

    def extended(column: IntArray) -> IntArray:
        return np.concatenate((column, column[again]))

    spread = replace(
        graph,
        tasks=_Alias(graph.tasks, again),
        values=_Alias(graph.values, made.items),
        time=extended(graph.time),
        times=None if graph.times is None else np.concatenate((graph.times, graph.times[:, again]), axis=1),
        size=np.concatenate((graph.size, graph.size[made.items])),
        reads=_joined(Ragged(graph.reads.start, own), more),
        writes=_joined(graph.writes, Ragged(made.start, values + np.arange(len(made.items)))),
        workspace=extended(graph.workspace),
        in_place=extended(graph.in_place),  # type: ignore[arg-type]
        required=extended(graph.required),  # type: ignore[arg-type]
        recomputable=extended(graph.recomputable),  # type: ignore[arg-type]
        once=extended(graph.once),  # type: ignore[arg-type]
        parallel_max=None if graph.parallel_max is None else extended(graph.parallel_max),
        parallel_alpha=None
        if graph.parallel_alpha is None
        else np.concatenate((graph.parallel_alpha, graph.parallel_alpha[again])),
        pairs=None if graph.pairs is None else _pairs(graph.pairs, again),
        cheapest=None,
        modules=None,
    )
    task = np.concatenate((np.arange(count), again))
    remade = list(zip(made.items.tolist(), operations.rows[at[made.rows]].tolist(), strict=True))
    value = np.concatenate((np.arange(values), made.items))
    return Repeated(spread, Ragged(operations.start, items), task, value, remade)


def _pairs(pairs: PairTimes, again: IntArray) -> PairTimes:
    side = np.concatenate((pairs.side, pairs.side[again]))
    return PairTimes(side, np.concatenate((pairs.spared, pairs.spared[:, again]), axis=1))


def _offsets(rows: Ragged) -> IntArray:
    """Return the position of each item in its row."""
    found: IntArray = np.arange(len(rows.items)) - rows.start[rows.rows]
    return found


def _joined(one: Ragged, other: Ragged) -> Ragged:
    return Ragged(
        np.concatenate((one.start, one.start[-1] + other.start[1:])), np.concatenate((one.items, other.items))
    )
