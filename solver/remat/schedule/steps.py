"""Steps of a schedule as columns: runs, copies and drops, with or without start times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Ragged, TaskGraph
from remat.messages import counted

WHOLE = -1
"""`amount` of a copy that takes the whole value."""


class StepKind(IntEnum):
    """Kind of a step."""

    RUN = 0
    COPY = 1
    DROP = 2


@dataclass(frozen=True, repr=False)
class Steps:
    """An ordered list of steps, one column per property.

    Attributes
    ----------
    kind : (steps,) int8
        `StepKind`.
    item : (steps,) int64
        The task of a run, the value of a copy; -1 for a drop, -2 for an unknown name.
    source : (steps,) int64
        Memory that a copy reads, or a drop frees; -1 for runs.
    target : (steps,) int64
        Memory that a copy writes; -1 otherwise.
    amount : (steps,) int64
        Bytes of a partial move; `WHOLE` otherwise.
    drop : Ragged
        Values freed at the end of each step; for a copy with `drop`, its value.
    on : Ragged or None
        Processors of each run; an empty row (or None) is the first processor.
    after : Ragged or None
        Indices of earlier steps that must have ended before each step starts.
    start : (steps,) int64 or float64, or None
        Start times; None until the list is placed.
    unknown : mapping of int to (rule, name)
        Steps with unknown names (their item is -2), for the verifier to report.
    initial : tuple of (value, memory)
        Initial memories of placeable inputs.
    paired : (steps,) bool, or None
        Runs that execute simultaneously with the run listed before them, on its processor (see `PairTimes`).
    """

    kind: NDArray[np.int8]
    item: IntArray
    source: IntArray
    target: IntArray
    amount: IntArray
    drop: Ragged
    on: Ragged | None = None
    after: Ragged | None = None
    start: NumberArray | None = None
    unknown: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    initial: tuple[tuple[int, int], ...] = ()
    paired: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return f"<Steps: {counted(len(self), 'step')}>"

    def placed(self, start: NumberArray) -> Steps:
        """Return the same steps with start times."""
        return replace(self, start=start)

    @property
    def runs(self) -> IntArray:
        """Tasks in the order in which they are listed."""
        tasks: IntArray = self.item[self.kind == StepKind.RUN]
        return tasks

    @staticmethod
    def of_runs(tasks: IntArray, drop: Ragged | None = None) -> Steps:
        """Build steps that only run tasks; each frees the given values at its end."""
        count = len(tasks)
        none = np.full(count, -1, dtype=np.int64)
        return Steps(
            kind=np.zeros(count, dtype=np.int8),
            item=np.asarray(tasks, dtype=np.int64),
            source=none,
            target=none,
            amount=none,
            drop=Ragged.empty(count) if drop is None else drop,
        )


def started(graph: TaskGraph, machine: Machine, steps: Steps) -> TaskGraph:
    """Return the graph with its placeable inputs where the steps' `initial` puts them."""
    return graph.starting_with((value, machine.memories[memory].name) for value, memory in steps.initial)


class StepBuilder:
    """Collects steps with indices instead of names."""

    def __init__(self) -> None:
        self._kind: list[int] = []
        self._item: list[int] = []
        self._source: list[int] = []
        self._target: list[int] = []
        self._amount: list[int] = []
        self._drop: list[Sequence[int]] = []
        self._on: dict[int, Sequence[int]] = {}
        self._after: dict[int, Sequence[int]] = {}
        self._paired: list[int] = []

    def __len__(self) -> int:
        return len(self._kind)

    @property
    def columns(self) -> tuple[list[int], list[int], list[int], list[int], list[int], list[Sequence[int]]]:
        """Kind, item, source, target, amount and drop of the existing steps, for loops that add millions of steps."""
        return self._kind, self._item, self._source, self._target, self._amount, self._drop

    def ordered(self, index: int, on: Sequence[int], after: Sequence[int]) -> None:
        """Set the processors and predecessors of a step that was added to the columns."""
        if on:
            self._on[index] = on
        if after:
            self._after[index] = after

    def run(
        self,
        task: int,
        *,
        drop: Sequence[int] = (),
        on: Sequence[int] = (),
        after: Sequence[int] = (),
        paired: bool = False,
    ) -> int:
        """Run a task, freeing the values `drop` at its end; return the step's index."""
        if paired:
            self._paired.append(len(self))
        return self._add(StepKind.RUN, task, -1, -1, WHOLE, drop, on, after)

    def copy(
        self,
        value: int,
        source: int,
        target: int,
        *,
        drop: bool = False,
        amount: int = WHOLE,
        after: Sequence[int] = (),
    ) -> int:
        """Copy a value between memories; `drop` frees the source at the end, `amount` limits the moved bytes."""
        return self._add(StepKind.COPY, value, source, target, amount, (value,) if drop else (), (), after)

    def drop(self, values: Sequence[int], memory: int = 0, *, after: Sequence[int] = ()) -> int:
        """Free values at an instant."""
        return self._add(StepKind.DROP, -1, memory, -1, WHOLE, values, (), after)

    def _add(
        self,
        kind: StepKind,
        item: int,
        source: int,
        target: int,
        amount: int,
        drop: Sequence[int],
        on: Sequence[int],
        after: Sequence[int],
    ) -> int:
        index = len(self._kind)
        self._kind.append(kind)
        self._item.append(item)
        self._source.append(source)
        self._target.append(target)
        self._amount.append(amount)
        self._drop.append(drop)
        self.ordered(index, on, after)
        return index

    def build(self, start: NumberArray | None = None, unknown: Mapping[int, tuple[str, str]] | None = None) -> Steps:
        """Return the collected steps."""
        return Steps(
            kind=np.array(self._kind, dtype=np.int8),
            item=np.array(self._item, dtype=np.int64),
            source=np.array(self._source, dtype=np.int64),
            target=np.array(self._target, dtype=np.int64),
            amount=np.array(self._amount, dtype=np.int64),
            drop=Ragged.from_lists(self._drop),
            on=_sparse(self._on, len(self)),
            after=_sparse(self._after, len(self)),
            start=start,
            unknown=unknown or {},
            paired=self._pairs(),
        )

    def _pairs(self) -> BoolArray | None:
        if not self._paired:
            return None
        paired = np.zeros(len(self), dtype=bool)
        paired[self._paired] = True
        return paired


def _sparse(rows: Mapping[int, Sequence[int]], count: int) -> Ragged | None:
    if not rows:
        return None
    return Ragged.from_lists([rows.get(i, ()) for i in range(count)])


def concatenate(parts: Iterable[Steps]) -> Steps:
    """Concatenate lists of steps and renumber `after`; start times are kept if every list has them."""
    pieces = list(parts)
    some_on = any(piece.on is not None for piece in pieces)
    some_after = any(piece.after is not None for piece in pieces)
    some_paired = any(piece.paired is not None for piece in pieces)
    starts = [piece.start for piece in pieces if piece.start is not None]
    return Steps(
        kind=np.concatenate([piece.kind for piece in pieces]),
        item=np.concatenate([piece.item for piece in pieces]),
        source=np.concatenate([piece.source for piece in pieces]),
        target=np.concatenate([piece.target for piece in pieces]),
        amount=np.concatenate([piece.amount for piece in pieces]),
        drop=_join([piece.drop for piece in pieces]),
        on=_join([piece.on or Ragged.empty(len(piece)) for piece in pieces]) if some_on else None,
        after=_join(_shifted(pieces)) if some_after else None,
        start=np.concatenate(starts) if len(starts) == len(pieces) else None,
        initial=pieces[0].initial if pieces else (),
        paired=np.concatenate([_paired(piece) for piece in pieces]) if some_paired else None,
    )


def _paired(piece: Steps) -> BoolArray:
    return np.zeros(len(piece), dtype=bool) if piece.paired is None else piece.paired


def _shifted(pieces: Sequence[Steps]) -> list[Ragged]:
    """Return each piece's `after`, counted from the first step of all pieces."""
    rows, before = [], 0
    for piece in pieces:
        own = piece.after or Ragged.empty(len(piece))
        rows.append(Ragged(own.start, own.items + before))
        before += len(piece)
    return rows


def _join(parts: Sequence[Ragged]) -> Ragged:
    counts = np.concatenate([part.counts for part in parts])
    return Ragged(np.concatenate(([0], np.cumsum(counts))), np.concatenate([part.items for part in parts]))
