"""The memories that values can reach: a necessary condition for schedules of a task graph on a machine."""

from __future__ import annotations

from collections import deque

import numpy as np

from remat.graph.bounds import NeededTasks
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph

MOST_LISTED = 2
"""Number of values, and of memories of one value, in a message."""


def unreachable(graph: TaskGraph, machine: Machine, needed: NeededTasks) -> str | None:
    """Name an output, or a task that every schedule runs, that no sequence of transfers and runs can serve.

    Parameters
    ----------
    graph : TaskGraph
    machine : Machine
    needed : NeededTasks
        Those of the graph.

    Returns
    -------
    str or None
        One line that proves that no schedule exists, whatever the capacities; None if nothing is proved.

    Notes
    -----
    The function computes the fixpoint of three rules over pairs of a value and a memory:

    - An input is in the memory where it begins.
    - A link takes the values in its source to its target.
    - A task runs in the memory of a processor that may run it, if all its reads can be there. Then its writes can be
      there too.

    Values are never dropped. Therefore the fixpoint contains every pair that any schedule produces.

    If links lead from each relevant memory to each other one, values can be anywhere: O(inputs + links).
    Otherwise sets of memories are bits of one integer. A task is examined again when one of its reads can be in another
    memory: O(memories * size of the graph) in the worst case, and linear if few values have to move.
    """
    if len(machine.memories) == 1:
        return None
    closed = _closures(machine)
    if _all_connected(graph, machine, closed):
        return None
    return _Fixpoint(graph, machine, closed).refuted(needed)


def allowed_memories(graph: TaskGraph, machine: Machine, task: int) -> int:
    """Return the memories of the processors that may run a task, as the bits of an integer."""
    tied, times = graph.tied.get(task), graph.times
    allowed = [processor for processor in machine.processors if tied is None or processor.name in tied]
    if times is not None:
        rows = {name: row for row, name in enumerate(graph.types)}
        allowed = [
            processor for processor in allowed if processor.type in rows and times[rows[processor.type], task] >= 0
        ]
    return sum({1 << processor.memory for processor in allowed})


def _closures(machine: Machine) -> list[int]:
    """Return for each memory the set of memories that links reach from it, including itself."""
    targets: list[list[int]] = [[] for _ in machine.memories]
    for link in machine.links:
        targets[link.source].append(link.target)
    closed = []
    for memory in range(len(machine.memories)):
        found, waiting = 1 << memory, [memory]
        while waiting:
            for target in targets[waiting.pop()]:
                if not found >> target & 1:
                    found |= 1 << target
                    waiting.append(target)
        closed.append(found)
    return closed


def _all_connected(graph: TaskGraph, machine: Machine, closed: list[int]) -> bool:
    """Whether links lead from each memory in which a value begins or ends or a task runs to each other one."""
    index = machine.memory_index
    own = {processor.memory for processor in machine.processors}
    own |= {index[place.memory] if place.memory else 0 for place in (*graph.inputs, *graph.outputs)}
    if graph.parts or graph.placeable:
        return False
    wanted = sum(1 << memory for memory in own)
    return all(closed[memory] & wanted == wanted for memory in own)


def _members(memories: int) -> list[int]:
    """Return the memories of a set."""
    return [memory for memory in range(memories.bit_length()) if memories >> memory & 1]


class _Fixpoint:
    """Sets of memories, as bits: the memories where each value can be, and where each task can run."""

    def __init__(self, graph: TaskGraph, machine: Machine, closed: list[int]) -> None:
        self.graph, self.machine, self.closed = graph, machine, closed
        self.closure_of: dict[int, int] = {0: 0}
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.readers = graph.readers.to_lists()
        self.own = sum({1 << processor.memory for processor in machine.processors})
        self.where = [0] * len(graph.values)
        self.waiting = deque(range(len(self.reads)))
        self.queued = [True] * len(self.reads)
        everywhere = (1 << len(machine.memories)) - 1
        for input_place in graph.inputs:
            memory = machine.memory_index[input_place.memory] if input_place.memory else 0
            self._put(input_place.value, 1 << memory)
        for placeable in graph.placeable:
            self._put(placeable.value, everywhere)
        while self.waiting:
            task = self.waiting.popleft()
            self.queued[task] = False
            self._run(task)

    def allowed(self, task: int) -> int:
        """Return the memories of the processors that may run a task."""
        if self.graph.times is None and task not in self.graph.tied:
            return self.own
        return allowed_memories(self.graph, self.machine, task)

    def runs_in(self, task: int) -> int:
        """Return the memories in which a task can run; the task is no collective."""
        memories = self.allowed(task)
        for value in self.reads[task]:
            memories &= self.where[value]
        return memories

    def _put(self, value: int, memories: int) -> None:
        found = self.where[value] | self._closure(memories)
        if found != self.where[value]:
            self.where[value] = found
            for reader in self.readers[value]:
                if not self.queued[reader]:
                    self.queued[reader] = True
                    self.waiting.append(reader)

    def _closure(self, memories: int) -> int:
        if memories not in self.closure_of:
            found = 0
            for memory in _members(memories):
                found |= self.closed[memory]
            self.closure_of[memories] = found
        return self.closure_of[memories]

    def _run(self, task: int) -> None:
        parts = self.graph.parts.get(task)
        if parts is None:
            memories = self.runs_in(task)
            if memories:
                for value in self.writes[task]:
                    self._put(value, memories)
            return
        # Each part of a collective has a memory; the check ignores that no two parts may share one.
        places = []
        for part in parts:
            memories = self.own if part.memory is None else 1 << self.machine.memory_index[part.memory]
            for value in part.reads:
                memories &= self.where[value]
            places.append(memories)
        if all(places):
            for part, memories in zip(parts, places, strict=True):
                for value in part.writes:
                    self._put(value, memories)

    # --- refutations --------------------------------------------------------------------------------------------------

    def refuted(self, needed: NeededTasks) -> str | None:
        """Name a needed task that never runs, or an output that never reaches its final memory."""
        graph, index = self.graph, self.machine.memory_index
        if graph.parts:
            stuck = []  # for collectives, check only where their values end
        else:
            stuck = [task for task in np.flatnonzero(needed.forced).tolist() if not self.runs_in(task)]
        # Prefer a task whose reads all exist somewhere to a task that waits for the writes of a stuck one.
        first = min(stuck, key=lambda task: not all(self.where[value] for value in self.reads[task]), default=None)
        if first is not None:
            return self._of_task(first)
        for place in graph.outputs:
            memory = index[place.memory] if place.memory else 0
            if not self.where[place.value] >> memory & 1:
                value, where = _quoted(graph.values[place.value]), self._named(1 << memory)
                if not self.where[place.value]:
                    return f"output {value} must end in {where}, and no task can ever write it"
                leads = f"no link leads there from {self._named(self.where[place.value])}"
                return f"output {value} must end in {where}, but {leads}"
        for placeable in graph.placeable:
            if placeable.successor is not None and not self.where[placeable.successor]:
                return f"output {_quoted(graph.values[placeable.successor])} can never be computed"
        return None

    def _of_task(self, task: int) -> str:
        name, allowed = _quoted(self.graph.tasks[task]), self.allowed(task)
        if not allowed:
            return f"task {name} can run on no processor of this machine"
        for value in self.reads[task]:
            if not self.where[value] & allowed:
                read, there = _quoted(self.graph.values[value]), self._named(allowed)
                if not self.where[value]:
                    return f"task {name} reads {read}, which no task can ever write"
                source = self._named(self.where[value])
                return f"task {name} reads {read} in {there}, but no link leads there from {source}"
        listed = self.reads[task][:MOST_LISTED]
        reads = ", ".join(
            f"{_quoted(self.graph.values[value])} in {self._named(self.where[value])}" for value in listed
        )
        more = "" if len(listed) == len(self.reads[task]) else ", ..."
        return f"task {name} reads {reads}{more}, and no links bring these together in {self._named(allowed)}"

    def _named(self, memories: int) -> str:
        members = _members(memories)
        names = " or ".join(_quoted(self.machine.memories[memory].name, 20) for memory in members[:MOST_LISTED])
        return names if len(members) <= MOST_LISTED else f"{names} or {len(members) - MOST_LISTED} more"


def _quoted(name: str, most: int = 30) -> str:
    """Quote a name, without the middle part if it is long."""
    shown = name if len(name) <= most else f"{name[: most // 2]}...{name[-(most // 2 - 3) :]}"
    return repr(shown)
