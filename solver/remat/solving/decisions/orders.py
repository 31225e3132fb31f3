"""The order of tasks as a list, as plain arrays, and as a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from remat.schedule.steps import StepKind

if TYPE_CHECKING:
    from remat.solving.result import Result

KINDS = ("run", "copy", "drop")


def order_of(result: Result) -> tuple[str, ...]:
    """Return the tasks in the order in which they are listed, each as often as it runs."""
    if result.columns is None:
        return ()
    return tuple(result.graph.tasks[int(task)] for task in result.columns.runs)


def timeline_of(result: Result) -> Mapping[str, Any]:
    """Return one array for each property of the steps; they are empty without a schedule.

    Returns
    -------
    dict of str to array
        `kind` (run, copy or drop), `name` (of the task of a run, the value of a copy; empty for a drop), `start`,
        `end`, `source` and `target` (names of memories; empty for runs), `on` (the first processor of a run).
    """
    import numpy as np

    steps, report, machine = result.columns, result.report, result.machine
    if steps is None or report is None:
        return {key: np.empty(0, dtype=object) for key in ("kind", "name", "start", "end", "source", "target", "on")}
    memories = np.array([*(memory.name for memory in machine.memories), ""], dtype=object)
    names, on = [], []
    for index, (kind, item) in enumerate(zip(steps.kind.tolist(), steps.item.tolist(), strict=True)):
        run = kind == StepKind.RUN
        names.append(result.graph.tasks[item] if run else result.graph.values[item] if item >= 0 else "")
        row = () if steps.on is None else steps.on[index].tolist()
        on.append(machine.processors[row[0] if row else 0].name if run else "")
    return {
        "kind": np.array(KINDS, dtype=object)[steps.kind],
        "name": np.array(names, dtype=object),
        "start": report.start.copy(),
        "end": report.end.copy(),
        "source": memories[steps.source],
        "target": memories[steps.target],
        "on": np.array(on, dtype=object),
    }


def graph_of(result: Result) -> Any:
    """Return the task graph as a `networkx.DiGraph`: tasks, with lists of their start and end times.

    An edge runs from each task that writes a value to those that read it; `values` are the names of these values.
    """
    import networkx

    graph = result.graph
    found: Any = networkx.DiGraph()
    for task, name in enumerate(graph.tasks):
        found.add_node(name, time=graph.time[task].item(), start=[], end=[])
    steps, report = result.columns, result.report
    if steps is not None and report is not None:
        for step, task in enumerate(steps.item.tolist()):
            if steps.kind[step] == StepKind.RUN:
                node = found.nodes[graph.tasks[task]]
                node["start"].append(report.start[step].item())
                node["end"].append(report.end[step].item())
    for value, name in enumerate(graph.values):
        for maker in graph.producers[value].tolist():
            for reader in graph.readers[value].tolist():
                ends = graph.tasks[maker], graph.tasks[reader]
                if not found.has_edge(*ends):
                    found.add_edge(*ends, values=[])
                found.edges[ends]["values"].append(name)
    return found
