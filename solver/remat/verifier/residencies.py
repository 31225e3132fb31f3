"""Residencies of a schedule: the stays of values and workspaces in memories, each of which needs an address."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.schedule.steps import StepKind, Steps
from remat.verifier.collectives import collective_runs, memories_of
from remat.verifier.event_simulation import follow
from remat.verifier.findings import Findings
from remat.verifier.residency import FREE, INITIAL, PART_FREE, PART_WRITE, WRITE, WRITE_END, Residency, memory_of_steps

WORKSPACE = -1


@dataclass(frozen=True)
class Residencies:
    """Stays of values and workspaces, one row each, sorted by their begin.

    Attributes
    ----------
    memory, value : (residencies,) int64
        Indices; `value` is `WORKSPACE` for the workspace of a run.
    first, last : (residencies,) int64
        Half-open interval of positions in the order of all events; 0 for initial values.
    first_step, last_step : (residencies,) int64
        Steps at which the stay begins and ends. -1: before the first step; the number of steps: it never ends.
    size : (residencies,) int64
        Full size, also for a value that is moved in parts: its range is kept until its last byte has left.
    hosts : (pairs, 2) int64
        (guest, host): an output that may overlap an input that the same run frees.
    """

    memory: IntArray
    value: IntArray
    first: IntArray
    last: IntArray
    first_step: IntArray
    last_step: IntArray
    size: IntArray
    hosts: IntArray

    def __len__(self) -> int:
        return len(self.size)

    def of_memory(self, memory: int) -> IntArray:
        """Return the rows in one memory."""
        return np.flatnonzero(self.memory == memory)

    def at(self, rows: IntArray) -> Residencies:
        """Return selected rows, with hosts and guests among them renumbered."""
        place = np.full(len(self), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        hosts = place[self.hosts]
        return Residencies(
            self.memory[rows],
            self.value[rows],
            self.first[rows],
            self.last[rows],
            self.first_step[rows],
            self.last_step[rows],
            self.size[rows],
            hosts[(hosts >= 0).all(axis=1)],
        )

    def tasks(self, steps: Steps) -> IntArray:
        """Return the task of each workspace; -1 for values."""
        found = np.full(len(self), -1, dtype=np.int64)
        works = self.value == WORKSPACE
        found[works] = steps.item[self.first_step[works]]
        return found

    def names(self, graph: TaskGraph, steps: Steps) -> list[str]:
        """Name each residency: the value, or the task whose workspace it is."""
        found = []
        for value, step in zip(self.value.tolist(), self.first_step.tolist(), strict=True):
            task = graph.tasks[int(steps.item[step])] if value == WORKSPACE else ""
            found.append(f"workspace of {task}" if value == WORKSPACE else graph.values[value])
        return found


def residencies_of(graph: TaskGraph, machine: Machine, steps: Steps) -> Residencies:
    """Collect the residencies of a valid schedule, whose steps have start times."""
    followed = follow(graph, machine, steps, Findings())
    graph, timeline = followed.graph, followed.timeline
    rows = _of_values(graph, steps, followed.residency, 1 + 3 * len(steps))
    memory = memory_of_steps(machine, steps)
    collective = set(collective_runs(graph, steps, followed.valid).tolist())
    for step in np.flatnonzero(steps.kind == StepKind.RUN).tolist():
        size = int(graph.workspace[steps.item[step]])
        places = memories_of(machine, steps, step) if step in collective else [int(memory[step])]
        first, last = (1 + int(column[step]) for column in (timeline.start_position, timeline.release_position))
        rows += [(place, WORKSPACE, first, last, step, step, size) for place in places if size]
    rows.sort(key=lambda row: (row[2], row[3], row[0], row[1]))
    columns = np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, 7).T)
    memories, value, first, last, first_step, last_step, size = columns
    hosts = _hosts(graph, steps, columns)
    return Residencies(memories, value, first, last, first_step, last_step, size, hosts)


Row = tuple[int, int, int, int, int, int, int]


def _of_values(graph: TaskGraph, steps: Steps, residency: Residency, end: int) -> list[Row]:
    """Return (memory, value, first, last, first step, last step, size) of each stay of a value."""
    rows: list[Row] = []
    open_at: tuple[int, int] | None = None
    renewed: tuple[int, int] | None = None
    columns = (residency.key, residency.position, residency.operation, residency.step, residency.before)
    amount = steps.amount.tolist()
    previous = -1
    values = len(graph.values)

    def close(key: int, position: int, step: int, begun: tuple[int, int] | None) -> None:
        size = int(graph.size[key % values])
        if begun is not None and size and position > begun[0]:
            rows.append((*divmod(key, values), begun[0], position, begun[1], step, size))

    listed = zip(*(column.tolist() for column in columns), strict=True)
    for key, position, operation, step, before in listed:
        if key != previous:
            if previous >= 0:
                close(previous, end, len(steps), open_at)
            open_at, renewed, previous = None, None, key
        at = (1 + position, step)
        if operation == INITIAL:
            open_at = (0, -1)
        elif operation == WRITE:
            if open_at is None:
                open_at = at
            else:
                renewed = at
        elif operation == PART_WRITE and open_at is None:
            open_at = at
        elif operation == WRITE_END and renewed is not None:
            close(key, at[0], step, open_at)
            open_at, renewed = renewed, None
        elif operation == FREE or (operation == PART_FREE and before <= amount[step]):
            close(key, at[0], step, open_at)
            open_at = None
    if previous >= 0:
        close(previous, end, len(steps), open_at)
    return rows


def _hosts(graph: TaskGraph, steps: Steps, columns: IntArray) -> IntArray:
    """Return (guest, host) rows: outputs of in-place runs, and the inputs that these runs free."""
    memory, value, _, _, first_step, last_step, _ = columns
    ended: dict[tuple[int, int], list[int]] = {}
    running = np.zeros(len(steps) + 1, dtype=bool)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    running[runs] = graph.in_place[steps.item[runs]]
    for row in np.flatnonzero(running[last_step] & (value != WORKSPACE)).tolist():
        step = int(last_step[row])
        if value[row] in graph.reads[int(steps.item[step])]:
            ended.setdefault((step, int(memory[row])), []).append(row)
    pairs: list[tuple[int, int]] = []
    for row in np.flatnonzero((first_step >= 0) & running[first_step] & (value != WORKSPACE)).tolist():
        hosts = ended.get((int(first_step[row]), int(memory[row])), ())
        pairs += [(row, host) for host in hosts if host != row and columns[3, host] <= columns[3, row]]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
