"""Collectives: runs that read and write in several memories at once, expanded into their parts.

Part i of a collective works in the memory of the i-th processor of its run. The run occupies the links of a ring: from
the memory of each part to that of the next, and from the last to the first. It occupies processors only if the task is
busy. A single part occupies the link from its memory to itself, if that link exists. This models a ring among equal
processors that the graph leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.schedule.steps import Steps

if TYPE_CHECKING:
    from remat.verifier.findings import Findings

RUN = 0


class Accesses(NamedTuple):
    """Accesses by the parts of collectives: step, memory and value of each."""

    step: IntArray
    memory: IntArray
    value: IntArray


def collective_runs(graph: TaskGraph, steps: Steps, valid: BoolArray) -> IntArray:
    """Return the steps that run a collective."""
    if not graph.parts:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero((steps.kind == RUN) & valid & np.isin(steps.item, list(graph.parts)))


def processors_of(steps: Steps, step: int) -> list[int]:
    """Return the processors that a run names; the machine's first if it names none."""
    named: list[int] = [] if steps.on is None else steps.on[step].tolist()
    return named or [0]


def memories_of(machine: Machine, steps: Steps, step: int) -> list[int]:
    """Return the memory of each part of a collective's run."""
    return [machine.processors[processor].memory for processor in processors_of(steps, step)]


def accesses(graph: TaskGraph, machine: Machine, steps: Steps, runs: IntArray, *, writes: bool) -> Accesses:
    """Return the reads or the writes of all parts of these runs."""
    found: list[tuple[int, int, int]] = []
    for step in runs.tolist():
        for part, memory in zip(graph.parts[int(steps.item[step])], memories_of(machine, steps, step), strict=True):
            found += [(step, memory, value) for value in (part.writes if writes else part.reads)]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return Accesses(columns[0], columns[1], columns[2])


def resources_of(graph: TaskGraph, machine: Machine, steps: Steps, step: int) -> list[int]:
    """Return the channels, and for busy ones the processors, that a collective's run occupies."""
    task = int(steps.item[step])
    links = [machine.link_index[ends] for ends in ring(machine, memories_of(machine, steps, step))]
    held = [resource for link in links for resource in machine.held_by_link[link]]
    if task in graph.busy:
        held += processors_of(steps, step)
    return list(dict.fromkeys(held))


def ring(machine: Machine, memories: list[int]) -> list[tuple[int, int]]:
    """Return the ends of the links between the memories of a collective."""
    pairs = list(zip(memories, [*memories[1:], *memories[:1]], strict=True))
    return pairs if len(pairs) > 1 else [pair for pair in pairs if pair in machine.link_index]


def check_collectives(graph: TaskGraph, machine: Machine, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    """Report collectives that run on processors other than those of their parts."""
    for step in collective_runs(graph, steps, valid).tolist():
        rule, problem = _problem(graph, machine, steps, step)
        if problem:
            findings.add(step, rule, problem)
            valid[step] = False


def _problem(graph: TaskGraph, machine: Machine, steps: Steps, step: int) -> tuple[str, str]:
    parts, on = graph.parts[int(steps.item[step])], processors_of(steps, step)
    if any(not 0 <= processor < len(machine.processors) for processor in on):
        return "unknown-processor", "no such processor"
    if len(on) != len(parts):
        return "bad-step", f"a collective of {len(parts)} parts needs as many processors, not {len(on)}"
    memories = memories_of(machine, steps, step)
    if len(set(memories)) < len(memories):
        return "bad-step", "the parts of a collective are in different memories"
    names = [machine.memories[memory].name for memory in memories]
    for number, (part, name) in enumerate(zip(parts, names, strict=True)):
        if part.memory not in (None, name):
            return "bad-step", f"part {number} of this collective is in {part.memory}, not in {name}"
    if steps.drop.counts[step] and len(parts) > 1:
        return "bad-step", "a collective cannot drop values: use a separate drop step for each memory"
    for source, target in ring(machine, memories):
        if (source, target) not in machine.link_index:
            return "unknown-link", f"no link from {machine.memories[source].name} to {machine.memories[target].name}"
    return "", ""
