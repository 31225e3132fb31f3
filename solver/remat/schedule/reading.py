"""Steps of a schedule document straight from its text into columns, a part at a time.

A list of a million steps, each an object with a few keys, costs some hundred bytes and a microsecond a step; here, each
part of the text becomes plain records, the records columns, and then they are gone. Whatever is not as most steps are,
or not a well-formed document without duplicate keys, is left to the ordinary reader, which takes it or says what is
wrong: nothing is accepted here that it would not accept, and the columns are the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import IO, Any, cast, overload

import numpy as np

from remat.documents import QUICK, Unparsed, collector_paused, keys_in, parsed_quickly, read_unparsed
from remat.graph.machine import Machine
from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, TaskGraph
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import LARGEST_SIZE, LARGEST_TOTAL

PART = 1 << 18
"""Characters of a part, but for the step that it ends with."""

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_NUMERIC = np.zeros(256, dtype=bool)
_NUMERIC[list(b"0123456789+-.eE")] = True
_LONG = 2150
"""Half as many characters as a number may have."""


def read_schedule(source: str | os.PathLike[str] | IO[Any]) -> Any:
    """Read a schedule document as `remat.documents.read_document` does; its steps may still be a text (`StepText`)."""
    return opened(read_unparsed(source, "schedule"))


def opened(unparsed: Unparsed) -> Any:
    """Return a schedule document of which the steps may still be a text."""
    data = unparsed.data
    span = _steps_of(data) if len(data) >= QUICK and not _has_long_number(data) else None
    if span is None:
        return unparsed.parse()
    head = parsed_quickly(data[: span[0]] + b"null" + data[span[1] :])
    if not isinstance(head, dict):
        return unparsed.parse()
    return head | {"steps": StepText(unparsed, *span)}


def _steps_of(data: bytes) -> tuple[int, int] | None:
    """Return where the list of steps begins and ends in the text of a document; None if there is none."""
    import msgspec

    try:
        raw = msgspec.json.decode(data, type=_head()).steps
    except (msgspec.MsgspecError, RecursionError):
        return None
    listed = np.frombuffer(raw, dtype=np.uint8)
    if len(listed) < 2 or listed[0] != ord("["):
        return None
    whole = np.frombuffer(data, dtype=np.uint8)
    begin = int(listed.ctypes.data) - int(whole.ctypes.data)
    inside = begin >= 0 and begin + len(listed) <= len(data)
    return (begin, begin + len(listed)) if inside else None


@cache
def _head() -> Any:
    import msgspec

    return msgspec.defstruct("Head", [("steps", msgspec.Raw, msgspec.Raw(b""))])


@cache
def _record() -> Any:
    """Return what each step becomes: None for keys that it does not have."""
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


def _has_long_number(data: bytes) -> bool:
    """Whether some number may have more digits than are read: each such one covers two of these places wholly."""
    text = np.frombuffer(data, dtype=np.uint8)
    places = np.arange(0, max(0, len(text) - 64), _LONG)
    for offset in range(64):
        places = places[_NUMERIC[text[places + offset]]]
        if not len(places):
            return False
    return True


class StepText(Sequence[Any]):
    """The steps of a document that are still a text: a list of objects, once somebody looks at them one by one."""

    def __init__(self, unparsed: Unparsed, begin: int, end: int) -> None:
        self._unparsed, self._begin, self._end = unparsed, begin, end
        self._listed: list[Any] | None = None

    def listed(self) -> list[Any]:
        """Return the steps as `read_document` does, with its errors."""
        if self._listed is None:
            self._listed = cast("list[Any]", self._unparsed.parse()["steps"])
        return self._listed

    def __len__(self) -> int:
        return len(self.listed())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.listed()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.listed())

    def columns(self, graph: TaskGraph, machine: Machine) -> Steps | None:
        """Return the steps as columns, names as indices; None where something is not as usual."""
        import msgspec

        columns = _Columns(graph, machine, self._most())
        decoder = msgspec.json.Decoder(list[_record()])  # type: ignore[misc]
        data = self._unparsed.data
        try:
            with collector_paused():
                for begin, end in self._parts():
                    columns.add(decoder.decode(b"[" + data[begin:end] + b"]"), data, begin, end)
                return columns.build()
        except (msgspec.MsgspecError, _UnusualError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None

    def _most(self) -> int:
        """Return the number of steps, or more: each has a brace."""
        text = np.frombuffer(self._unparsed.data, dtype=np.uint8)
        return int(np.count_nonzero(text[self._begin : self._end] == ord("{")))

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield parts of whole steps. A cut within a string, or within a step, leaves two parts that are no JSON."""
        begin, end = self._begin + 1, self._end - 1
        while begin < end:
            cut = _BETWEEN.search(self._unparsed.data, begin + PART, end)
            if cut is None:
                yield begin, end
                return
            yield begin, cut.start() + 1
            begin = cut.end() - 1


class _UnusualError(Exception):
    """Something that the ordinary reader looks at."""


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

    def add(self, records: list[Any], data: bytes, begin: int, end: int) -> None:
        """Add the steps of ``data[begin:end]``."""
        count, first = len(records), self._count
        rows = slice(first, first + count)
        runs = [record.run for record in records]
        drops = [record.drop for record in records]
        keys = count + count - drops.count(None) + self._add_starts(records)
        item = self._tasks.find_all(runs)
        others = np.flatnonzero(item < 0)
        if len(others):
            keys -= len(others)
            at = others.tolist()
            keys += self._add_others([records[index] for index in at], others, item)
            for index in at:
                if records[index].copy is not None:  # what it frees is its own value
                    drops[index] = _own(drops[index], records[index].copy)
        lists = [drop or () for drop in drops]
        self._item[rows] = item
        self._counts[rows] = np.fromiter(map(len, lists), dtype=np.int64, count=count)
        self._freed.append(_all(self._values, list(chain.from_iterable(lists))))
        colons = int(np.count_nonzero(np.frombuffer(data, dtype=np.uint8, count=end - begin, offset=begin) == ord(":")))
        if colons != keys:
            keys += self._add_rare(records)
            if keys not in (colons, keys_in(data, begin, end)):
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

    def _add_others(self, records: list[Any], at: IntArray, item: IntArray) -> int:
        """Fill in copies and drops, which are to have these items; return how many keys they have, but for `drop`."""
        is_copy = np.array([record.copy is not None for record in records])
        copies = [record for record in records if record.copy is not None]
        drops = [record for record in records if record.copy is None]
        if any(type(record.drop) is not list for record in drops):
            raise _UnusualError
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
        places = [record.memory for record in drops]
        self._source[at[~is_copy]] = [0 if place is None else memories[place] for place in places]
        return 3 * len(copies) + partial + len(places) - places.count(None)

    def _add_rare(self, records: list[Any]) -> int:
        """Take what few steps have; return how many keys that is."""
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


def _own(drop: object, value: str) -> Sequence[str]:
    if drop is True:
        return (value,)
    if drop is not None and drop is not False:
        raise _UnusualError
    return ()
