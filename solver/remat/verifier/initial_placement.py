"""Initial memories of placeable inputs (rule `initial-placement`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.schedule.steps import Steps

if TYPE_CHECKING:
    from remat.verifier.findings import Findings


def settled(graph: TaskGraph, machine: Machine, steps: Steps, findings: Findings) -> TaskGraph:
    """Check a schedule's `initial`; return the graph with its placeable inputs in those memories."""
    placeable = {place.value: place.copies for place in graph.placeable}
    found: Counter[int] = Counter()
    places: list[tuple[int, str]] = []
    for value, memory in dict.fromkeys(steps.initial):
        if not 0 <= value < len(graph.values) or not 0 <= memory < len(machine.memories):
            findings.add(None, "initial-placement", f"value {value} in memory {memory}: there is no such place")
            continue
        name = graph.values[value]
        if value not in placeable:
            findings.add(None, "initial-placement", f"{name} is not an input with a free place")
            continue
        found[value] += 1
        places.append((value, machine.memories[memory].name))
    for value, copies in placeable.items():
        count = found[value]
        if count == 0:
            findings.add(None, "initial-placement", f"{graph.values[value]} is initially in no memory")
        elif count > copies:
            message = f"{graph.values[value]} is initially in {count} memories; at most {copies} are allowed"
            findings.add(None, "initial-placement", message)
    return graph.starting_with(places)
