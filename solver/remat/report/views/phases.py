"""The purpose of each step of a schedule: forward, saving forward, recomputation, backward, loss, copy, exchange."""

from __future__ import annotations

import enum

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Ragged, TaskGraph
from remat.schedule.steps import StepKind, Steps
from remat.solving.result import Result


class Phase(enum.IntEnum):
    """The purpose of a step; drops have none, as they take no time."""

    NONE = 0
    FORWARD = 1
    SAVING = 2
    RECOMPUTATION = 3
    LOSS = 4
    BACKWARD = 5
    TASK = 6
    COPY = 7
    WEIGHTS = 8
    UPDATE = 9
    EXCHANGE = 10

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        return _LABELS.get(self, self.name.lower())


_LABELS = {Phase.SAVING: "saving forward", Phase.WEIGHTS: "weight gradient"}
_OF_CHAINS = {
    "F": Phase.FORWARD,
    "Fe": Phase.SAVING,
    "loss": Phase.LOSS,
    "B": Phase.BACKWARD,
    "W": Phase.WEIGHTS,
    "U": Phase.UPDATE,
}
_NAMED = {"forward": Phase.FORWARD, "loss": Phase.LOSS, "backward": Phase.BACKWARD}


def shown_phases(result: Result) -> IntArray:
    """Return the `Phase` of each step for pictures, which do not distinguish the forwards of a pipeline.

    Parameters
    ----------
    result : Result
        With a schedule.
    """
    assert result.columns is not None
    assert result.report is not None
    phases = step_phases(result.graph, result.columns, result.report.start)
    if result.orders is not None:
        phases[phases == Phase.SAVING] = Phase.FORWARD
    return phases


def phase_labels(result: Result) -> dict[Phase, str]:
    """Return the label of each phase; the halves of a pipeline's split backward have separate labels."""
    labels = {phase: phase.label for phase in Phase}
    if result.orders is not None:
        layers = {layer for stage in result.orders.stages for layer in stage.layers}
        halves = any(result.graph.tasks.find(f"W{layer + 1}.0") is not None for layer in layers)
        labels |= {Phase.RECOMPUTATION: "recompute", Phase.COPY: "transfers"}
        if halves:
            labels[Phase.BACKWARD] = "input gradient"
    return labels


def step_phases(graph: TaskGraph, steps: Steps, start: NumberArray) -> IntArray:
    """Return the `Phase` of each step (array operations).

    The names of tasks of chains and adjoints determine their phases; tasks of task graphs have a `phase`. A run is a
    recomputation if it writes a value that an earlier run has written, and is neither an update nor an exchange.

    Parameters
    ----------
    graph, steps
    start : (steps,) array
        Start times; runs count in the order in which they start.
    """
    phases = np.full(len(steps), Phase.NONE, dtype=np.int64)
    phases[steps.kind == StepKind.COPY] = Phase.COPY
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    runs = runs[np.argsort(start[runs], kind="stable")]
    phases[runs] = phases_of_tasks(graph)[steps.item[runs]]
    phases[runs[_again(graph, steps.item[runs]) & (phases[runs] != Phase.EXCHANGE)]] = Phase.RECOMPUTATION
    return phases


def phases_of_tasks(graph: TaskGraph) -> IntArray:
    """Return the `Phase` of each task when it runs for the first time."""
    if isinstance(graph.tasks, NumberedNames):
        listed = [_OF_CHAINS.get(name.rstrip("0123456789."), Phase.TASK) for name in graph.tasks]
    elif graph.phase is not None:
        listed = [_NAMED.get(text.lower(), Phase.TASK) for text in graph.phase]
    else:
        listed = [Phase.TASK] * len(graph.tasks)
    phases = np.array(listed, dtype=np.int64)
    phases[~graph.on_processors] = Phase.EXCHANGE
    return phases


def _again(graph: TaskGraph, tasks: IntArray) -> BoolArray:
    """Whether each run, in order of time, is a recomputation: it rewrites a value, or repeats a task."""
    again = np.ones(len(tasks), dtype=bool)
    again[np.unique(tasks, return_index=True)[1]] = False
    # Values that a task reads and writes are updated, not recomputed.
    writes, values = graph.writes, len(graph.values)
    updated = np.isin(writes.rows * values + writes.items, graph.reads.rows * values + graph.reads.items, kind="sort")
    written = writes.gather(tasks)
    counted = Ragged(writes.start, (~updated).astype(np.int64)).gather(tasks).items == 1
    items, rows = written.items[counted], written.rows[counted]
    seen = np.ones(len(items), dtype=bool)
    seen[np.unique(items, return_index=True)[1]] = False
    again[rows[seen]] = True
    return again
