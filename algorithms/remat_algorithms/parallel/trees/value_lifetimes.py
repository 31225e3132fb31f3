"""Copies of values that an order of runs creates, and their lifetimes, which parallel runs must respect.

A value may be written several times. Each write creates a new copy, and a run reads the copy written by the latest
earlier run in the order. Runs that preserve these relations compute the same results in any order. Each run reads a
copy after it is complete, and overwrites a value after all users of its previous copy have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from remat.plugin import Machine, TaskGraph


@dataclass(frozen=True)
class CopyModel:
    """Runs, numbered 0..n-1 in a sequential order, and the copies that they read and write.

    Attributes
    ----------
    tasks : list of int
        Task of each run.
    before : list of list of int
        Runs that must end before each run starts.
    uses : list of list of int
        Copies that cannot be freed before each run ends: those that it reads or replaces, or writes without a reader.
    value, size : list of int
        Value and bytes of each copy.
    users : list of list of int
        Runs after whose ends the copy is freed, ascending; empty if it is kept.
    replaced : list of bool
        Whether the last user frees the copy by overwriting the value, not by a drop.
    reads, writes : list of list of int
        Copies that each run reads and writes.
    workspace : list of int
    in_place : list of bool
    unused : list of int
        Input values without readers, dropped first.
    resident : int
        Bytes in the memory after these drops, including static memory.
    at_start : int
        Bytes in the memory before these drops.
    """

    tasks: list[int]
    before: list[list[int]]
    uses: list[list[int]]
    value: list[int]
    size: list[int]
    users: list[list[int]]
    replaced: list[bool]
    reads: list[list[int]]
    writes: list[list[int]]
    workspace: list[int]
    in_place: list[bool]
    unused: list[int]
    resident: int
    at_start: int

    def __len__(self) -> int:
        return len(self.tasks)

    @cached_property
    def written(self) -> list[int]:
        """Bytes that each run writes."""
        return [sum([self.size[copy] for copy in copies]) for copies in self.writes]

    def added(self, run: int, dropped: int) -> int:
        """Bytes that a run allocates at its start, if it drops `dropped` bytes of its inputs."""
        total = self.written[run]
        return (max(0, total - dropped) if self.in_place[run] else total) + self.workspace[run]

    def droppable(self, run: int, copy: int) -> bool:
        """Whether a run that is the last user of a copy drops it as one of its inputs."""
        return not self.replaced[copy] and copy not in self.writes[run]

    @cached_property
    def usage(self) -> list[int]:
        """Bytes held while each run of the sequential order runs."""
        held = self.resident
        during = []
        for run in range(len(self)):
            last = [copy for copy in self.uses[run] if self.users[copy][-1] == run]
            dropped = sum([self.size[copy] for copy in last if self.droppable(run, copy)]) if self.in_place[run] else 0
            during.append(held + self.added(run, dropped))
            held += self.written[run] - sum([self.size[copy] for copy in last])
        return during

    @property
    def peak(self) -> int:
        """Peak of the order."""
        return max(self.at_start, max(self.usage, default=0))


def copy_model(graph: TaskGraph, machine: Machine, order: Sequence[int]) -> CopyModel:
    """Build the model of an order of runs, in the first processor's memory (O(size of the graph)).

    Parameters
    ----------
    graph, machine
    order : sequence of int
        Tasks; every input is resident at the start or written by an earlier task.
    """
    own = machine.processors[0].memory
    first, name = machine.memories[0].name, machine.memories[own].name
    sizes = graph.size.tolist()
    builder = _Builder(graph, sizes)
    inputs = [place.value for place in graph.inputs if (place.memory or first) == name]
    for value in inputs:
        builder.current[value] = builder.add(value, -1)
    read_lists, write_lists = graph.reads.to_lists(), graph.writes.to_lists()
    for run, task in enumerate(order):
        builder.run(run, read_lists[task], write_lists[task])
    builder.finish({place.value for place in graph.outputs if (place.memory or first) == name})
    uses: list[list[int]] = [[] for _ in order]
    for copy, users in enumerate(builder.users):
        for run in users:
            uses[run].append(copy)
    at_start = sum([sizes[value] for value in inputs]) + (graph.static_memory if own == 0 else 0)
    return CopyModel(
        tasks=list(order),
        before=builder.before,
        uses=uses,
        value=builder.value,
        size=[sizes[value] for value in builder.value],
        users=builder.users,
        replaced=builder.replaced,
        reads=builder.reads,
        writes=builder.writes,
        workspace=graph.workspace[list(order)].tolist(),
        in_place=graph.in_place[list(order)].tolist(),
        unused=builder.unused,
        resident=at_start - sum([sizes[value] for value in builder.unused]),
        at_start=at_start,
    )


class _Builder:
    """Tracks the current copy of each value along the order."""

    def __init__(self, graph: TaskGraph, sizes: list[int]) -> None:
        self.pinned = graph.pinned
        self.current: dict[int, int] = {}
        self.value: list[int] = []
        self.writer: list[int] = []
        self.users: list[list[int]] = []
        self.replaced: list[bool] = []
        self.before: list[list[int]] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.unused: list[int] = []

    def add(self, value: int, writer: int) -> int:
        """Record a new copy."""
        self.value.append(value)
        self.writer.append(writer)
        self.users.append([])
        self.replaced.append(False)
        return len(self.value) - 1

    def run(self, run: int, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Record the reads and writes of the next run."""
        before = set()
        read = [self.current[value] for value in dict.fromkeys(reads)]
        for copy in read:
            before.add(self.writer[copy])
            self.users[copy].append(run)
        written = []
        for value in dict.fromkeys(writes):
            old = self.current.get(value)
            if old is not None:
                before.update(self.users[old])
                before.add(self.writer[old])
                self._end(old, run)
            self.current[value] = self.add(value, run)
            written.append(self.current[value])
        before -= {run, -1}
        self.before.append(sorted(before))
        self.reads.append(read)
        self.writes.append(written)

    def _end(self, copy: int, run: int) -> None:
        """Free a copy before or by the run that overwrites its value."""
        users = self.users[copy]
        if self.value[copy] in self.pinned or (users and users[-1] == run):
            self.replaced[copy] = True
            if not users or users[-1] != run:
                users.append(run)
        else:
            self._free(copy)

    def _free(self, copy: int) -> None:
        """Free a copy after its last reader; without one, after its write or before all runs."""
        users = self.users[copy]
        if not users and self.writer[copy] >= 0:
            users.append(self.writer[copy])
        elif not users:
            self.unused.append(self.value[copy])

    def finish(self, outputs: set[int]) -> None:
        """Complete the copies that are current at the end: some are kept, the others are freed after their last use."""
        for value, copy in self.current.items():
            if value in outputs or value in self.pinned:
                self.users[copy].clear()
            else:
                self._free(copy)
