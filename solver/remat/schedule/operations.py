"""Operations on a time loop (advance, back, write, read, discard) and their expansion into steps.

The working memory holds one state x_i (and one adjoint, and a tape where steps have one). A schedule of an adjoint is
a list of operations, each a triple of integers:

- ``(ADVANCE, i, j)``: advance from the live x_i to x_j, consuming x_i;
- ``(BACK, i, 0)``: run the backward of step i from the live x_i, consuming it;
- ``(WRITE, i, level)``: store the live x_i in a storage level, the memory of that index;
- ``(READ, i, level)``: bring x_i from a level; ``READ_LAST`` removes it there;
- ``(DISCARD, i, level)``: remove x_i from a level.

With a single memory, storing a state means not dropping it: writes and reads take no step, and the run after the last
read drops the state. The level is then 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, islice

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import BoolArray, IntArray, Ragged
from remat.schedule.steps import WHOLE, StepKind, Steps

Entry = tuple[int, int, int]
"""An operation and its two numbers."""

BATCH = 4096
"""Number of operations that are converted to steps together."""

MOST_AT_ONCE = 1 << 16
"""Maximum number of steps of a chunk; longer advances are split."""


class Operation(IntEnum):
    """Operation code of an entry."""

    ADVANCE = 0
    BACK = 1
    WRITE = 2
    READ = 3
    READ_LAST = 4
    DISCARD = 5


@dataclass(frozen=True, slots=True)
class Layout:
    """Numbering of the tasks and values of a lowered adjoint.

    Attributes
    ----------
    stages : int
        Number of tasks F (and Fe, if there are tapes) and B: n - 1 for n steps without tapes, n with.
    taped : bool
        Whether a step's tape is a separate value, written by Fe right before the backward.
    shared : bool
        Whether everything lives in one memory.
    """

    stages: int
    taped: bool = False
    shared: bool = False

    @property
    def last(self) -> int:
        """The last step, which is reversed first."""
        return self.stages - 1 if self.taped else self.stages

    @property
    def tasks(self) -> NumberedNames:
        """Names of the tasks, as lowering gives them."""
        saving = self.stages if self.taped else 0
        return NumberedNames([("F", 1, self.stages), ("Fe", 1, saving), ("loss", None, 1), ("B", 1, self.stages)])

    @property
    def values(self) -> NumberedNames:
        """Names of the values, as lowering gives them."""
        saved = self.stages if self.taped else 0
        return NumberedNames([("x", 0, self.stages + 1), ("s", 1, saved), ("y", 0, self.stages + 1)])


def entry_array(entries: list[Entry]) -> IntArray:
    """Return a list of operations as an (entries, 3) array."""
    flat = np.fromiter(chain.from_iterable(entries), dtype=np.int64, count=3 * len(entries))
    return flat.reshape(-1, 3)


def chunks(operations: Iterable[Entry], layout: Layout) -> Iterator[Steps]:
    """Turn operations into steps, some thousands at a time; O(`BATCH` + `MOST_AT_ONCE`) memory.

    Parameters
    ----------
    operations : iterable of (operation, first, end or level)
    layout : Layout

    Yields
    ------
    Steps
        Non-empty pieces without start times; their concatenation is the schedule.
    """
    waiting = iter(operations)
    before = (int(Operation.DISCARD), -1, 0)
    while batch := list(islice(waiting, BATCH)):
        entries = entry_array(batch)
        total = len(batch) + int(np.where(entries[:, 0] == Operation.ADVANCE, entries[:, 2] - entries[:, 1], 0).sum())
        for piece in [entries] if total <= MOST_AT_ONCE else _cut(batch):
            steps = expand(piece, layout, before)
            before = tuple(piece[-1].tolist())
            if len(steps):
                yield steps


def _cut(batch: list[Entry]) -> Iterator[IntArray]:
    """Yield a batch in pieces of at most about `MOST_AT_ONCE` steps."""
    piece: list[Entry] = []
    count = 0
    for entry in batch:
        operation, first, end = entry
        while operation == Operation.ADVANCE and end - first > MOST_AT_ONCE:
            piece.append((operation, first, first + MOST_AT_ONCE))
            yield entry_array(piece)
            piece, count, first = [], 0, first + MOST_AT_ONCE
        piece.append((operation, first, end))
        count += end - first if operation == Operation.ADVANCE else 3
        if count >= MOST_AT_ONCE:
            yield entry_array(piece)
            piece, count = [], 0
    if piece:
        yield entry_array(piece)


def expand(entries: IntArray, layout: Layout, before: Entry = (int(Operation.DISCARD), -1, 0)) -> Steps:
    """Turn operations into steps without start times (array operations).

    Parameters
    ----------
    entries : (entries, 3) ints
    layout : Layout
    before : tuple
        The operation before the first one: whether the live state is also stored.
    """
    stored = np.zeros(len(entries), dtype=bool)
    if layout.shared:
        earlier = np.vstack((np.array([before], dtype=np.int64), entries[:-1]))
        kept = (earlier[:, 0] == Operation.WRITE) | (earlier[:, 0] == Operation.READ)
        stored = kept & (earlier[:, 1] == entries[:, 1])
        taking_steps = (entries[:, 0] <= Operation.BACK) | (entries[:, 0] == Operation.DISCARD)
        entries, stored = entries[taking_steps], stored[taking_steps]
    if not layout.taped:
        return _untaped(entries, stored, layout)
    entry, offset = expanded(entries, layout)
    operation, state, level = entries[entry].T
    runs = operation <= Operation.BACK
    copies = (operation >= Operation.WRITE) & (operation <= Operation.READ_LAST)
    writes = operation == Operation.WRITE
    item = np.where(runs, task_sequence(entries, entry, offset, layout), np.where(copies, state, -1))
    kind = np.where(runs, StepKind.RUN, np.where(copies, StepKind.COPY, StepKind.DROP)).astype(np.int8)
    none = np.full(len(item), -1, dtype=np.int64)
    return Steps(
        kind=kind,
        item=item,
        source=np.where(runs, none, np.where(writes, 0, level)),
        target=np.where(copies, np.where(writes, level, 0), none),
        amount=np.full(len(item), WHOLE, dtype=np.int64),
        drop=_drops(operation, state, offset, stored[entry], layout),
    )


def expanded(entries: IntArray, layout: Layout) -> tuple[IntArray, IntArray]:
    """Return, for each resulting step, its entry and its number within the entry."""
    operation, first, end = entries.T
    count = np.where(operation == Operation.ADVANCE, end - first, 1)
    if layout.taped:
        # The tape comes first; after the last step's tape comes the loss.
        count = np.where(operation == Operation.BACK, np.where(first == layout.last, 3, 2), count)
    entry = np.repeat(np.arange(len(entries)), count)
    offset = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    return entry, offset


def task_sequence(entries: IntArray, entry: IntArray, offset: IntArray, layout: Layout) -> IntArray:
    """Return the tasks of the steps that run one."""
    length = layout.stages
    operation, first = entries[entry, 0], entries[entry, 1]
    forward = first + offset
    if not layout.taped:  # F1..FL, loss, B1..BL: the last step's backward is the loss
        backward = np.where(first == length, length, length + 1 + first)
        return np.where(operation == Operation.ADVANCE, forward, backward)
    # F1..FL, Fe1..FeL, loss, B1..BL
    tape, loss, backward = length + first, np.full(len(first), 2 * length), 2 * length + 1 + first
    with_loss = first == length - 1
    taped_backward = np.where(offset == 0, tape, np.where(with_loss & (offset == 1), loss, backward))
    return np.where(operation == Operation.ADVANCE, forward, taped_backward)


def _untaped(entries: IntArray, stored: BoolArray, layout: Layout) -> Steps:
    """Turn operations into steps if each operation except an advance is one step: as `expand`, with fewer passes."""
    operation, first, second = entries.T.copy()
    length = layout.stages
    advance, back = operation == Operation.ADVANCE, operation == Operation.BACK
    count = np.where(advance, second - first, 1)
    begin = np.cumsum(count) - count
    total = int(count.sum())

    def spread(column: IntArray) -> IntArray:
        return np.repeat(column, count)

    # The state that each step begins with, or moves; F1..FL, loss, B1..BL: the last step's backward is the loss.
    state = spread(first - begin) + np.arange(total, dtype=np.int64)
    ahead = np.where(back & (first < length), length + 1, 0)
    item = state + spread(ahead)
    item[begin[operation == Operation.DISCARD]] = -1
    writes = operation == Operation.WRITE
    moves = (operation >= Operation.WRITE) & (operation <= Operation.READ_LAST)
    kind = np.select((operation <= Operation.BACK, moves), (StepKind.RUN, StepKind.COPY), StepKind.DROP).astype(np.int8)
    source = np.where(operation <= Operation.BACK, -1, np.where(writes, 0, second))
    # A step frees the state that it uses up, and the adjoint that a backward has used: y_0 .. y_L follow x_0 .. x_L.
    uses_up = (operation <= Operation.BACK) | (operation >= Operation.READ_LAST)
    frees = spread((uses_up & ~(stored & back)).astype(np.int8))
    frees[begin[stored & advance & (count > 0)]] = 0
    both = begin[back & (first < length)]
    frees[both] += 1
    ends = np.cumsum(frees, dtype=np.int64)
    items = np.repeat(state, frees)
    items[ends[both] - 1] = length + 2 + state[both]
    return Steps(
        kind=np.repeat(kind, count),
        item=item,
        source=spread(source),
        target=spread(np.where(moves, np.where(writes, second, 0), -1)),
        amount=np.full(total, WHOLE, dtype=np.int64),
        drop=Ragged(np.concatenate((np.zeros(1, dtype=np.int64), ends)), items),
    )


def _drops(operation: IntArray, state: IntArray, offset: IntArray, stored: BoolArray, layout: Layout) -> Ragged:
    """Return the values that each step frees: the consumed state, its tape, and a backward's input adjoint."""
    length, count = layout.stages, len(operation)
    advance, back = operation == Operation.ADVANCE, operation == Operation.BACK
    freed = np.full((count, 2), -1, dtype=np.int64)
    used_up = ~(stored & (offset == 0))
    freed[:, 0] = np.where(advance & used_up, state + offset, -1)
    freed[:, 0] = np.where(operation >= Operation.READ_LAST, state, freed[:, 0])
    saved, adjoint = length + 1 + state, 2 * length + 2 + state
    last = back & (state == layout.last)
    tape = back & (offset == 0)
    final = back & (offset == np.where(last, 2, 1))
    # The tape's forward also makes x_{i+1}, which only the loss reads.
    freed[:, 0] = np.where(tape & used_up, state, freed[:, 0])
    freed[:, 1] = np.where(tape & ~last, state + 1, -1)
    freed[:, 0] = np.where(last & (offset == 1), state + 1, freed[:, 0])
    freed[:, 0] = np.where(final, saved, freed[:, 0])
    freed[:, 1] = np.where(final, adjoint, freed[:, 1])
    present = freed >= 0
    return Ragged(np.concatenate(([0], np.cumsum(present.sum(axis=1)))), freed[present])
