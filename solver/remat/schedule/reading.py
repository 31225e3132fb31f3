"""Fast reader of schedule documents: parse the text of the steps into columns, one part at a time.

A list of a million steps, each an object with a few keys, costs hundreds of bytes and a microsecond per step. This
reader turns each part of the text into plain records and then into columns, and discards the records. It leaves unusual
steps, malformed documents and duplicate keys to the ordinary reader, which accepts them or reports the error. The
ordinary reader accepts every document that this reader accepts, with the same columns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import chain
from types import NoneType
from typing import IO, Any

import numpy as np

from remat.documents import collector_paused, read_unparsed
from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, TaskGraph
from remat.instance.lazy_text import ListText, Part, opened
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import LARGEST_SIZE, LARGEST_TOTAL


def read_schedule(source: str | os.PathLike[str] | IO[Any]) -> Any:
    """Read a schedule document as `remat.documents.read_document` does; its steps may still be a text."""
    return opened(read_unparsed(source, "schedule"), "steps")


@cache
def _record() -> Any:
    """Return the record type of a step: None for absent keys."""
    import msgspec

    names, flag = list[str] | None, bool | None
    return msgspec.defstruct(
        "Record",
        [
            ("run", str, ""),
            ("copy", str | None, None),
            ("source", str | None, None),
            ("target", str | None, None),
            ("start", int | float | None, None),
            ("drop", list[str] | bool | None, None),
            ("amount", int | None, None),
            ("memory", str | None, None),
            ("on", names, None),
            ("after", list[int] | None, None),
            ("paired", flag, None),
        ],
        rename={"source": "from", "target": "to", "amount": "bytes"},
        forbid_unknown_fields=True,
        gc=False,
    )


def columns_of(listed: ListText, graph: TaskGraph, machine: Machine) -> Steps | None:
    """Return the steps of a schedule as columns, names as indices; None if a step is unusual."""
    import msgspec

    columns = _Columns(graph, machine, listed.most())
    try:
        with collector_paused():
            for part in listed.parts(_record()):
                columns.add(part)
            return columns.build()
    except (msgspec.MsgspecError, _UnusualError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


class _UnusualError(Exception):
    """Content that is left to the ordinary reader."""


def _all(names: Names, asked: Sequence[str]) -> IntArray:
    """Return the indices of names."""
    found = names.find_all(asked)
    if len(found) and int(found.min()) < 0:
        raise _UnusualError
    return found


class _Columns:
    """Columns of steps, to which parts are added."""

    def __init__(self, graph: TaskGraph, machine: Machine, room: int) -> None:
        self._tasks, self._values = graph.tasks, graph.values
        self._memories, self._processors = machine.memory_index, machine.processor_index
        self._kind = np.zeros(room, dtype=np.int8)
        self._item, self._counts = np.empty((2, room), dtype=np.int64)
        self._source, self._target, self._amount = (np.full(room, -1, dtype=np.int64) for _ in range(3))
        self._freed: list[IntArray] = []
        self._starts: list[NumberArray] = []
        self._on: dict[int, list[int]] = {}
        self._after: dict[int, list[int]] = {}
        self._paired: list[int] = []
        self._count = 0

    def add(self, part: Part) -> None:
        """Add some steps."""
        if not part.typed:
            raise _UnusualError
        records = part.records
        count, first = len(records), self._count
        rows = slice(first, first + count)
        runs = [record.run for record in records]
        drops = [record.drop for record in records]
        keys = count + count - drops.count(None) + self._add_starts(records)
        item = self._tasks.find_all(runs)
        others = np.flatnonzero(item < 0)
        if len(others):
            keys -= len(others)
            keys += self._add_others([records[index] for index in others.tolist()], others, item, drops)
        lists = [drop or () for drop in drops]
        self._item[rows] = item
        self._counts[rows] = np.fromiter(map(len, lists), dtype=np.int64, count=count)
        self._freed.append(_all(self._values, list(chain.from_iterable(lists))))
        if not part.has_keys(keys) and not part.has_keys(keys + self._add_rare(records)):
            raise _UnusualError
        self._count += count

    def _add_starts(self, records: list[Any]) -> int:
        starts = [record.start for record in records]
        if None in starts:
            if starts.count(None) < len(starts) or self._starts:
                raise _UnusualError
            return 0
        if self._count and not self._starts:
            raise _UnusualError
        column = np.array(starts)
        if column.dtype == np.int64:
            largest: float = LARGEST_SIZE
        elif column.dtype == np.float64:
            largest = LARGEST_TOTAL if not any(type(start) is int and start > LARGEST_SIZE for start in starts) else -1
        else:
            raise _UnusualError
        if not (column.min() >= 0 and column.max() <= largest):
            raise _UnusualError
        self._starts.append(column)
        return len(starts)

    def _add_others(self, records: list[Any], at: IntArray, item: IntArray, drops: list[Any]) -> int:
        """Fill in copies, drops and the common keys; return the number of keys, except `drop`."""
        is_copy = np.array([record.copy is not None for record in records])
        copies = [record for record in records if record.copy is not None]
        others = [record for record in records if record.copy is None]
        freeing = [record.drop for record in copies]
        if any(type(record.drop) is not list for record in others) or not {*map(type, freeing)} <= {bool, NoneType}:
            raise _UnusualError
        for index, record, frees in zip(at[is_copy].tolist(), copies, freeing, strict=True):
            drops[index] = (record.copy,) if frees else ()  # its own value
        item[at[is_copy]] = _all(self._values, [record.copy for record in copies])
        at = at + self._count
        self._kind[at] = np.where(is_copy, StepKind.COPY, StepKind.DROP)
        where, memories = at[is_copy], self._memories
        self._source[where] = [memories[record.source] for record in copies]
        self._target[where] = [memories[record.target] for record in copies]
        sizes = [record.amount for record in copies]
        partial = len(sizes) - sizes.count(None)
        if partial:
            if not all(size is None or 0 <= size <= LARGEST_SIZE for size in sizes):
                raise _UnusualError
            self._amount[where] = [WHOLE if size is None else size for size in sizes]
        places = [record.memory for record in others]
        self._source[at[~is_copy]] = [0 if place is None else memories[place] for place in places]
        return 3 * len(copies) + partial + len(places) - places.count(None)

    def _add_rare(self, records: list[Any]) -> int:
        """Fill in rare keys; return their number."""
        keys = 0
        for index, record in enumerate(records, self._count):
            if record.on is not None:
                keys += 1
                self._on[index] = [self._processors[name] for name in record.on]
            if record.after is not None:
                keys += 1
                if any(not 0 <= other < index for other in record.after):
                    raise _UnusualError
                self._after[index] = record.after
            if record.paired is not None:
                keys += 1
                if record.start is None:
                    raise _UnusualError
                if record.paired:
                    self._paired.append(index)
            if not record.run and (record.on is not None or record.paired is not None):
                raise _UnusualError
        return keys

    def build(self) -> Steps:
        """Return all steps."""
        exact = all(part.dtype == np.int64 for part in self._starts)
        starts = [part if exact else part.astype(np.float64) for part in self._starts]
        paired = None
        if self._paired:
            paired = np.zeros(self._count, dtype=bool)
            paired[self._paired] = True
        rows = slice(0, self._count)
        begins = np.zeros(self._count + 1, dtype=np.int64)
        np.cumsum(self._counts[rows], out=begins[1:])
        return Steps(
            kind=self._kind[rows],
            item=self._item[rows],
            source=self._source[rows],
            target=self._target[rows],
            amount=self._amount[rows],
            drop=Ragged(begins, np.concatenate(self._freed)),
            on=self._sparse(self._on),
            after=self._sparse(self._after),
            start=np.concatenate(starts) if starts else None,
            paired=paired,
        )

    def _sparse(self, rows: dict[int, list[int]]) -> Ragged | None:
        filled = {index: row for index, row in rows.items() if row}
        return Ragged.from_lists([filled.get(index, ()) for index in range(self._count)]) if filled else None
