"""Plans of adjoint schedules: operations collected one by one, and the steps that they represent.

`remat.schedule.operations` defines the operations. If everything is in one memory, states are simply not dropped:
writes, reads and discards vanish, and each state is freed after its last use.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from remat.plugin import (
    Entry,
    IntArray,
    Layout,
    Operation,
    Problem,
    Steps,
    entry_array,
    expand,
    expanded,
    run_in_order,
    task_sequence,
)


class Plan:
    """A list of operations on the steps of an adjoint.

    Attributes
    ----------
    advances : int
        Forward steps.
    writes, reads : dict of int to int
        How many there are, by level.
    """

    def __init__(self) -> None:
        self._blocks: list[IntArray] = []
        self._entries: list[Entry] = []
        """Operations after the blocks."""
        self.advances = 0
        self.writes: dict[int, int] = {}
        self.reads: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self._entries)

    def advance(self, first: int, end: int) -> None:
        """Go forward from x_first to x_end."""
        if end > first:
            self._entries.append((Operation.ADVANCE, first, end))
            self.advances += end - first

    def back(self, step: int) -> None:
        """Run the backward of a step."""
        self._entries.append((Operation.BACK, step, 0))

    def write(self, step: int, level: int) -> None:
        """Store x_step in a level (an index into the machine's memories)."""
        self._entries.append((Operation.WRITE, step, level))
        self.writes[level] = self.writes.get(level, 0) + 1

    def read(self, step: int, level: int, *, last: bool) -> None:
        """Bring x_step from a level."""
        self._entries.append((Operation.READ_LAST if last else Operation.READ, step, level))
        self.reads[level] = self.reads.get(level, 0) + 1

    def discard(self, step: int, level: int) -> None:
        """Remove x_step from a level."""
        self._entries.append((Operation.DISCARD, step, level))

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append operations."""
        for entry in entries:
            operation, first, second = entry
            self._entries.append(entry)
            if operation == Operation.ADVANCE:
                self.advances += second - first
            elif operation == Operation.WRITE:
                self.writes[second] = self.writes.get(second, 0) + 1
            elif operation in (Operation.READ, Operation.READ_LAST):
                self.reads[second] = self.reads.get(second, 0) + 1

    def add(self, block: IntArray) -> None:
        """Append an (entries, 3) array of operations."""
        self._flush()
        self._blocks.append(block)
        operation, first, second = block.T
        advances = operation == Operation.ADVANCE
        self.advances += int((second[advances] - first[advances]).sum())
        for total, kinds in ((self.writes, (Operation.WRITE,)), (self.reads, (Operation.READ, Operation.READ_LAST))):
            levels = np.bincount(second[np.isin(operation, kinds)])
            for level in np.flatnonzero(levels).tolist():
                total[level] = total.get(level, 0) + int(levels[level])

    def _flush(self) -> None:
        if self._entries:
            self._blocks.append(entry_array(self._entries))
            self._entries = []

    @property
    def entries(self) -> IntArray:
        """All operations, as an (entries, 3) array."""
        self._flush()
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate(self._blocks or [entry_array([])])]
        return self._blocks[0]

    def steps(self, problem: Problem) -> Steps:
        """Return the plan as steps on the problem's machine (array operations)."""
        entries = self.entries
        chain = problem.chain
        layout = Layout(chain.length, chain.saves, shared=len(problem.machine.memories) == 1)
        if not layout.shared:
            return expand(entries, layout)
        entries = entries[entries[:, 0] <= Operation.BACK]
        return run_in_order(problem.graph, problem.machine, task_sequence(entries, *expanded(entries, layout), layout))
