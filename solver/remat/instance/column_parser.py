"""Columns of graphs in the usual form: from the text of a document, or from its parsed entries.

The parser checks whole columns, with all checks of the models. If anything is unusual or wrong, it gives up. Then the
models validate the document, so that all error messages come from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, compress, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from remat.graph.names import Names
from remat.graph.taskgraph import IntArray, Ragged
from remat.instance.columns import FLAGS, OPTIONAL, GraphColumns
from remat.instance.fast_validation import plainly, unusual
from remat.instance.fields import LARGEST_COUNT, LONGEST_NAME, current_units
from remat.instance.lazy_text import ListText
from remat.instance.tasks import Task, Value
from remat.units import LARGEST_SIZE, LARGEST_TIME, Number, parse_energy, parse_size, parse_time

TOGETHER = 10_000
"""Number of parsed entries that are converted to records at once."""

LONGEST_TEXT = 100_000

_ORIGIN = ("module", "op", "source")
_FURTHER = ("ratio", "shape", "dtype")


def graph_columns(values: Any, tasks: Any) -> GraphColumns:
    """Convert the lists of a document to columns; the lists are parsed, or `ListText`.

    References between entries are checked, except for the order in which tasks can run: see `can_all_run`.

    Raises
    ------
    Exception
        An exception of any type, if an entry is wrong or unusual.
    """
    reader = _Reader()
    _read(values, _value_record(), reader.add_values)
    reader.listed = len(reader.index)
    _read(tasks, _task_record(), reader.add_tasks)
    return reader.columns()


def can_all_run(columns: GraphColumns, inputs: Sequence[int]) -> bool:
    """Whether every value is an input or written by a task, and every task can eventually run (O(accesses))."""
    count = len(columns.tasks)
    first = np.full(len(columns.values), count + 1, dtype=np.int64)  # the first task that writes each value
    first[columns.writes.items[::-1]] = columns.writes.rows[::-1]
    first[np.asarray(inputs, dtype=np.int64)] = -1
    if (first > count).any():
        return False
    reads = columns.reads
    if (first[reads.items] < reads.rows).all():
        return True
    waiting = reads.transposed(len(first)).to_lists()
    there = (first < 0).tolist()
    missing = (reads.counts - np.bincount(reads.rows[first[reads.items] < 0], minlength=count)).tolist()
    writes = columns.writes.to_lists()
    ready = [task for task, absent in enumerate(missing) if not absent]
    for task in ready:
        for value in writes[task]:
            if not there[value]:
                there[value] = True
                for reader in waiting[value]:
                    missing[reader] -= 1
                    if not missing[reader]:
                        ready.append(reader)
    return len(ready) == count


@cache
def _value_record() -> Any:
    import msgspec

    return msgspec.defstruct(
        "ValueRecord",
        [("id", str), ("size", int | str), *((key, Any, msgspec.UNSET) for key in _FURTHER)],
        forbid_unknown_fields=True,
        gc=False,
    )


@cache
def _task_record() -> Any:
    import msgspec

    absent = msgspec.UNSET
    text, flag = str | msgspec.UnsetType, bool | msgspec.UnsetType
    origin = msgspec.defstruct(
        "OriginRecord", [(key, text, absent) for key in _ORIGIN], forbid_unknown_fields=True, gc=False
    )
    return msgspec.defstruct(
        "TaskRecord",
        [
            ("id", str),
            ("time", int | float | str),
            ("reads", list[str] | msgspec.UnsetType, absent),
            ("writes", list[str] | msgspec.UnsetType | None, absent),
            ("size", int | str | msgspec.UnsetType | None, absent),
            ("workspace", int | str | msgspec.UnsetType, absent),
            *((key, flag, absent) for key in FLAGS),
            ("phase", text, absent),
            ("origin", origin | msgspec.UnsetType, absent),
            ("energy", int | float | msgspec.UnsetType, absent),
        ],
        forbid_unknown_fields=True,
        gc=False,
    )


def _read(listed: Any, record: Any, add: Callable[[list[Any]], int]) -> None:
    """Add the entries of a list, as records if possible, several thousand at a time."""
    if isinstance(listed, ListText):
        for part in listed.parts(record):
            if part.typed:
                if not part.has_keys(add(part.records)):  # a repeated key would be lost
                    unusual()
            else:
                add(_records(part.records, record))
        return
    if type(listed) is not list or len(listed) > LARGEST_COUNT:
        unusual()
    for begin in range(0, len(listed), TOGETHER):
        add(_records(listed[begin : begin + TOGETHER], record))


def _records(entries: list[Any], record: Any) -> list[Any]:
    """Return parsed entries as records; entries that do not fit a record stay as they are."""
    import msgspec

    try:
        converted: list[Any] = msgspec.convert(entries, list[record])
    except msgspec.ValidationError:
        return [_record_of(entry, record) for entry in entries]
    return converted


def _record_of(entry: Any, record: Any) -> Any:
    import msgspec

    try:
        return msgspec.convert(entry, record)
    except msgspec.ValidationError:
        return entry


class _Reader:
    """Collects the columns of values, then those of tasks."""

    def __init__(self) -> None:
        self.units = current_units()
        self.index: dict[str, int] = {}
        """Value -> its index: first the listed values, then the values that tasks declare."""
        self.listed = 0
        self.shown: dict[int, Value] = {}
        self.whole: dict[int, Task] = {}
        self._size: list[IntArray] = []
        self._ids: list[str] = []
        self._time: list[IntArray | list[Number]] = []
        self._accesses: dict[str, list[tuple[IntArray, IntArray, list[str]]]] = {"reads": [], "writes": []}
        self._columns: dict[str, list[IntArray]] = {key: [] for key in ("declares", "workspace", *FLAGS, "given")}
        self._phase: list[str] = []
        self._energy: list[Number] = []
        self._origin: list[Any] = []
        self._texts: dict[str, str] = {}

    def add_values(self, records: list[Any]) -> int:
        """Add listed values; return their number of keys."""
        records, whole = self._stand_ins(records, _value_record(), Value, len(self.index))
        absent, extra = _absent(), 0
        for key in _FURTHER:
            column = list(map(attrgetter(key), records))
            if column.count(absent) < len(records):
                present = [at for at, entry in enumerate(column, len(self.index)) if entry is not absent]
                whole |= {at: _model(Value, records[at - len(self.index)]) for at in present if at not in whole}
                extra += len(present)
        names = [one.id for one in records]
        self._check(names)
        self._declare(names, [one.size for one in records])
        self.shown |= whole
        return 2 * len(records) + extra

    def add_tasks(self, records: list[Any]) -> int:
        """Add tasks; return their number of keys."""
        records, whole = self._stand_ins(records, _task_record(), Task, len(self._ids))
        count, absent = len(records), _absent()
        ids = [one.id for one in records]
        self._check(ids)
        self._time.append(self._times([one.time for one in records]))
        columns = {key: list(map(attrgetter(key), records)) for key in OPTIONAL}
        keys, given = 2 * count, np.zeros(count, dtype=np.int64)
        for bit, column in enumerate(columns.values()):
            present = count - column.count(absent)
            if present:
                keys += present
                everywhere = present == count
                given |= 1 << bit if everywhere else (_mask([entry is not absent for entry in column]) << bit)
        sizes = [None if size is absent else size for size in columns["size"]]
        declares = _mask([size is not None for size in sizes])
        writes = [None if names is absent else names for names in columns["writes"]]
        if (declares == _mask([names is not None for names in writes])).any():
            unusual()
        self._declare(list(compress(ids, declares.tolist())), [size for size in sizes if size is not None])
        own = [[name] if names is None else names for name, names in zip(ids, writes, strict=True)]
        self._access("reads", [names or () for names in columns["reads"]])
        self._access("writes", own)
        self._columns["declares"].append(declares)
        self._columns["workspace"].append(self._sizes([0 if size is absent else size for size in columns["workspace"]]))
        for flag, default in zip(FLAGS, (False, True, True, False), strict=True):
            self._columns[flag].append(_mask([default if one is absent else one for one in columns[flag]]))
        if (self._columns["once"][-1] > self._columns["required"][-1]).any():
            unusual()
        self._columns["given"].append(given)
        energies = columns["energy"]
        none = energies.count(absent) == count
        self._energy += repeat(0, count) if none else [0 if one is absent else parse_energy(one) for one in energies]
        self._add_texts(columns["phase"], columns["origin"])
        if any(origins := self._origin[len(self._ids) :]):
            keys += sum(len(one) - one.count(None) for one in origins if one is not None)
        self.whole |= whole
        self._ids += ids
        return keys

    def _stand_ins(self, records: list[Any], record: Any, model: Any, first: int) -> tuple[list[Any], dict[int, Any]]:
        """Return only records, with stand-ins for entries that are models; and these models by index."""
        whole: dict[int, Any] = {}
        if all(type(one) is record for one in records):
            return records, whole
        found = []
        for index, entry in enumerate(records, first):
            if type(entry) is record:
                found.append(entry)
                continue
            made = plainly(model, entry)
            if made is None:
                unusual()
            whole[index] = made
            found.append(_stand_in(made, record))
        return found, whole

    def _check(self, names: list[str]) -> None:
        """Reject invalid names: one half of a surrogate pair cannot be encoded."""
        if not all(names) or max(map(len, names), default=1) > LONGEST_NAME:
            unusual()
        "".join(names).encode()

    def _declare(self, names: list[str], sizes: list[Any]) -> None:
        before = len(self.index)
        self.index.update(zip(names, range(before, before + len(names)), strict=True))
        if len(self.index) < before + len(names):
            unusual()
        self._size.append(self._sizes(sizes))

    def _sizes(self, sizes: list[Any]) -> IntArray:
        if not set(map(type, sizes)) <= {int}:
            sizes = [parse_size(size, self.units) for size in sizes]
        column = np.array(sizes, dtype=np.int64)
        if len(column) and not (column.min() >= 0 and column.max() <= LARGEST_SIZE):
            unusual()
        return column

    def _times(self, times: list[Any]) -> IntArray | list[Number]:
        if set(map(type, times)) <= {int}:
            return self._sizes(times)  # integer times have the bounds of sizes
        units = self.units
        return [t if type(t) is float and 0 <= t <= LARGEST_TIME else parse_time(t, units) for t in times]

    def _access(self, key: str, names: Sequence[Sequence[str]]) -> None:
        """Record the values that tasks read or write; names of values that come later are resolved later."""
        get = self.index.get
        flat = list(chain.from_iterable(names))
        found = np.fromiter(map(get, flat, repeat(-1)), dtype=np.int64, count=len(flat))
        counts = np.fromiter(map(len, names), dtype=np.int64, count=len(names))
        self._accesses[key].append((counts, found, flat if len(found) and found.min() < 0 else []))

    def _add_texts(self, phases: list[Any], origins: list[Any]) -> None:
        """Add texts for readers; equal texts are stored once."""
        absent, once = _absent(), self._texts.setdefault
        if phases.count(absent) < len(phases):
            longest = max(len(one) for one in phases if one is not absent)
            if longest > LONGEST_TEXT:
                unusual()
            "".join(one for one in phases if one is not absent).encode()
            self._phase += ["" if one is absent else once(one, one) for one in phases]
        else:
            self._phase += repeat("", len(phases))
        if origins.count(absent) == len(origins):
            self._origin += [None] * len(origins)
            return
        for origin in origins:
            if origin is absent:
                self._origin.append(None)
                continue
            texts = [getattr(origin, key) for key in _ORIGIN]
            if any(text is not absent and len(text) > LONGEST_NAME for text in texts):
                unusual()
            kept = tuple([None if text is absent else once(text, text) for text in texts])
            "".join(text for text in kept if text is not None).encode()
            self._origin.append(kept)

    def columns(self) -> GraphColumns:
        """Return all columns."""
        ids, columns = self._ids, {key: np.concatenate(parts) for key, parts in self._columns.items()}
        if len(set(ids)) < len(ids) or len(ids) > LARGEST_COUNT:
            unusual()
        whole = [part for part in self._time if isinstance(part, np.ndarray)]
        times = [part.tolist() if isinstance(part, np.ndarray) else part for part in self._time]
        time = np.concatenate(whole) if len(whole) == len(times) else tuple(chain.from_iterable(times))
        flags = {key: columns[key].astype(bool) for key in ("declares", *FLAGS)}
        return GraphColumns(
            tasks=Names(ids),
            values=Names.indexed(self.index),
            time=time,
            size=np.concatenate(self._size),
            reads=self._ragged("reads"),
            writes=self._ragged("writes"),
            workspace=columns["workspace"],
            given=columns["given"],
            listed=self.listed,
            phase=tuple(self._phase) if any(self._phase) else None,
            energy=tuple(self._energy) if any(self._energy) else None,
            origin=tuple(self._origin) if any(self._origin) else None,
            whole=self.whole,
            shown=self.shown,
            **flags,
        )

    def _ragged(self, key: str) -> Ragged:
        """Return the values that tasks read or write, each once."""
        parts = self._accesses[key]
        for _, found, names in parts:
            if names:
                found[:] = [self.index[name] for name in names]
        counts = np.concatenate([part[0] for part in parts])
        start = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=start[1:])
        rows = Ragged(start, np.concatenate([part[1] for part in parts]))
        codes = np.sort(rows.rows * max(len(self.index), 1) + rows.items)
        if (codes[1:] == codes[:-1]).any():
            unusual()
        return rows


def _absent() -> Any:
    import msgspec

    return msgspec.UNSET


def _mask(flags: list[bool]) -> IntArray:
    return np.fromiter(flags, dtype=np.int64, count=len(flags))


def _model(model: Any, record: Any) -> Any:
    """Return the model of a record."""
    entry = {key: value for key in record.__struct_fields__ if (value := getattr(record, key)) is not _absent()}
    made = plainly(model, entry)
    return unusual() if made is None else made


def _stand_in(model: Any, record: Any) -> Any:
    """Return a record with the columns of a model that has further fields."""
    if "time" not in record.__struct_fields__:
        return record(id=model.id, size=model.size)
    given = {key: getattr(model, key) for key in OPTIONAL if key in model.model_fields_set and key != "origin"}
    if model.parts is not None:
        given = {key: value for key, value in given.items() if key not in ("reads", "writes", "size")}
        given |= {"reads": list(model.read), "writes": list(model.written)}
    if isinstance(model.energy, dict):
        given.pop("energy", None)
    time = 0 if isinstance(model.time, dict) else model.time
    return record(**{"id": model.id, "time": time, **given})
