"""Replay of runs with their exact memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.plugin import Number, Problem


@dataclass(frozen=True)
class Execution:
    """An order of runs with its minimum memory.

    Attributes
    ----------
    runs : list of int
        The graph's tasks, in order.
    peak : int
    makespan : int or float
    usage : list of int
        Bytes during each run.
    """

    runs: list[int]
    peak: int
    makespan: Number
    usage: list[int]


def execute(problem: Problem, runs: Sequence[int]) -> Execution:
    """Replay an order of runs; each copy of a value is freed at its last use (O(accesses))."""
    graph, machine = problem.graph, problem.machine
    own = machine.processors[0].memory
    home, default = machine.memories[own].name, machine.memories[0].name
    here = {place.value for place in graph.inputs if (place.memory or default) == home}
    stays = {place.value for place in graph.outputs if (place.memory or default) == home}
    pinned = set(graph.pinned) & here
    size, workspace = graph.size.tolist(), graph.workspace.tolist()
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    time = graph.time.tolist()
    in_place = graph.in_place.tolist()
    # Backwards: the values needed after each run.
    wanted = stays | pinned
    dead: list[list[int]] = []
    alive = set(wanted)
    for task in reversed(runs):
        mine = dict.fromkeys((*reads[task], *writes[task]))
        dead.append([value for value in mine if value not in alive])
        _pass_back(alive, writes[task], reads[task], pinned)
    dead.reverse()
    resident = (here & alive) | pinned
    static = graph.static_memory if own == 0 else 0
    start = static + sum(size[value] for value in here)
    held = static + sum(size[value] for value in resident)
    usage: list[int] = []
    for task, gone in zip(runs, dead, strict=True):
        old = set(writes[task]) - set(reads[task]) - pinned
        for value in writes[task]:
            if value in old and value in resident:
                resident.discard(value)
                held -= size[value]
        added = sum(size[value] for value in dict.fromkeys(writes[task]))
        if in_place[task]:
            taken = [value for value in gone if value in resident and value not in writes[task]]
            added = max(0, added - sum(size[value] for value in taken))
        usage.append(held + added + workspace[task])
        for value in writes[task]:
            if value not in resident:
                resident.add(value)
                held += size[value]
        for value in gone:
            if value in resident and value not in pinned:
                resident.discard(value)
                held -= size[value]
    makespan: Number = 0
    for task in runs:
        makespan += time[task]
    return Execution(list(runs), max([start, *usage]), makespan, usage)


def _pass_back(alive: set[int], writes: Sequence[int], reads: Sequence[int], pinned: set[int]) -> None:
    """Turn the set of values needed after a run into the set needed before it."""
    alive.difference_update(value for value in writes if value not in pinned)
    alive.update(reads)
