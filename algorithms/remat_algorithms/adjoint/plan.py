"""Plans of adjoint schedules: advance, back, write, read, discard; and their steps.

The working memory holds one state x_i (and one adjoint). A plan is a list of operations:

- ``advance(i, j)``: from the live x_i forward to x_j; x_i is used up;
- ``back(i)``: the backward of step i from the live x_i, which is used up;
- ``write(i, level)``: store the live x_i in a storage level;
- ``read(i, level, last)``: bring x_i from a level; `last` removes it there;
- ``discard(i, level)``: remove x_i from a level.

Where everything lives in one memory, states are simply not dropped: writes, reads and discards vanish, and
each state is freed after its last use.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from remat.problem import Problem
from remat.steps import WHOLE, StepKind, Steps
from remat.taskgraph import IntArray, Ragged
from remat_algorithms.emit import run_in_order


class Operation(IntEnum):
    """What an entry of a plan does."""

    ADVANCE = 0
    BACK = 1
    WRITE = 2
    READ = 3
    READ_LAST = 4
    DISCARD = 5


class Plan:
    """A list of operations on the steps of an adjoint."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []
        self.advances = 0
        self.writes: dict[int, int] = {}
        self.reads: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

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

    def steps(self, problem: Problem) -> Steps:
        """Return the plan as steps on the problem's machine (array operations)."""
        entries = np.array(self._entries, dtype=np.int64).reshape(-1, 3)
        chain = problem.chain
        if len(problem.machine.memories) == 1:
            return run_in_order(problem.graph, problem.machine, _runs(entries, chain.length, taped=chain.saves))
        return _steps(entries, chain.length, taped=chain.saves)


def _expanded(entries: IntArray, length: int, *, taped: bool) -> tuple[IntArray, IntArray]:
    """Return, for each step to be, its entry and its number within the entry."""
    operation, first, end = entries.T
    count = np.where(operation == Operation.ADVANCE, end - first, 1)
    if taped:
        # The tape is made first; the last step's is followed by the loss.
        count = np.where(operation == Operation.BACK, np.where(first == length - 1, 3, 2), count)
    entry = np.repeat(np.arange(len(entries)), count)
    offset = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return entry, offset


def _tasks(entries: IntArray, entry: IntArray, offset: IntArray, length: int, *, taped: bool) -> IntArray:
    """Return the task of each step (of those that run one)."""
    operation, first = entries[entry, 0], entries[entry, 1]
    forward = first + offset
    if not taped:  # F1..FL, loss, B1..BL: the last step's backward is the loss
        backward = np.where(first == length, length, length + 1 + first)
        return np.where(operation == Operation.ADVANCE, forward, backward)
    # F1..FL, Fe1..FeL, loss, B1..BL
    tape, loss, backward = length + first, np.full(len(first), 2 * length), 2 * length + 1 + first
    with_loss = first == length - 1
    taped_backward = np.where(offset == 0, tape, np.where(with_loss & (offset == 1), loss, backward))
    return np.where(operation == Operation.ADVANCE, forward, taped_backward)


def _runs(entries: IntArray, length: int, *, taped: bool) -> IntArray:
    """Return the tasks of a plan in one memory."""
    entries = entries[entries[:, 0] <= Operation.BACK]
    entry, offset = _expanded(entries, length, taped=taped)
    return _tasks(entries, entry, offset, length, taped=taped)


def _steps(entries: IntArray, length: int, *, taped: bool) -> Steps:
    entry, offset = _expanded(entries, length, taped=taped)
    operation, state, level = entries[entry].T
    runs = operation <= Operation.BACK
    copies = (operation >= Operation.WRITE) & (operation <= Operation.READ_LAST)
    writes = operation == Operation.WRITE
    item = np.where(runs, _tasks(entries, entry, offset, length, taped=taped), np.where(copies, state, -1))
    kind = np.where(runs, StepKind.RUN, np.where(copies, StepKind.COPY, StepKind.DROP)).astype(np.int8)
    none = np.full(len(item), -1, dtype=np.int64)
    return Steps(
        kind=kind,
        item=item,
        source=np.where(runs, none, np.where(writes, 0, level)),
        target=np.where(copies, np.where(writes, level, 0), none),
        amount=np.full(len(item), WHOLE, dtype=np.int64),
        drop=_drops(operation, state, offset, length, taped=taped),
    )


def _drops(operation: IntArray, state: IntArray, offset: IntArray, length: int, *, taped: bool) -> Ragged:
    """Return what each step frees: the state that it uses up, and the adjoint that a backward has used."""
    count = len(operation)
    advance, back = operation == Operation.ADVANCE, operation == Operation.BACK
    freed = np.full((count, 2), -1, dtype=np.int64)
    freed[:, 0] = np.where(advance, state + offset, -1)
    freed[:, 0] = np.where(operation >= Operation.READ_LAST, state, freed[:, 0])
    x = np.arange(length + 1)
    if not taped:
        y = length + 1 + x
        freed[:, 0] = np.where(back, state, freed[:, 0])
        freed[:, 1] = np.where(back & (state < length), y[np.minimum(state + 1, length)], -1)
    else:
        s, y = length + 1 + state, 2 * length + 1 + x
        last = back & (state == length - 1)
        tape = back & (offset == 0)
        final = back & (offset == np.where(last, 2, 1))
        # The tape's forward also makes x_{i+1}, which only the loss reads.
        freed[:, 0] = np.where(tape, state, freed[:, 0])
        freed[:, 1] = np.where(tape & ~last, state + 1, -1)
        freed[:, 0] = np.where(last & (offset == 1), state + 1, freed[:, 0])
        freed[:, 0] = np.where(final, s, freed[:, 0])
        freed[:, 1] = np.where(final, y[np.minimum(state + 1, length)], freed[:, 1])
    present = freed >= 0
    return Ragged(np.concatenate(([0], np.cumsum(present.sum(axis=1)))), freed[present])
