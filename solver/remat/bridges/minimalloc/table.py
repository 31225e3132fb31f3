"""CSV files of minimalloc: ``id,lower,upper,size``, and ``offset`` where addresses are prescribed.

Times are half-open; the last time in a column ``end`` belongs to the lifetime. A column ``alignment`` must have one
value. Gaps in lifetimes are not supported. Columns with other names are ignored.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from remat.errors import InstanceError
from remat.units import LARGEST_SIZE

COLUMNS = ("id", "lower", "upper", "size")

ALIASES = {"buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper"}


DIGITS = 30
"""Digits of a number that are read, with leading zeros."""


class Table(NamedTuple):
    """The rows of a file."""

    names: list[str]
    lower: list[int]
    upper: list[int]
    size: list[int]
    offset: list[int] | None
    alignment: int


def read_table(text: str) -> Table:
    """Read the text of a file.

    Raises
    ------
    InstanceError
        Naming the line, and the column that is missing or is not a whole number.
    """
    reader = csv.reader(io.StringIO(text))
    given = [name.strip() for name in next(reader, [])]
    head = [ALIASES.get(name, name) for name in given]
    for name in COLUMNS:
        if head.count(name) != 1:
            found = f"the head is {','.join(given)[:80]!r}" if head else "the file is empty"
            raise InstanceError(f"column {name!r} is missing or listed twice; {found}")
    place = {name: head.index(name) for name in head}
    closed = given[place["upper"]] == "end"
    wanted = [*COLUMNS[1:], *(name for name in ("offset", "alignment") if name in place)]
    names: list[str] = []
    columns: dict[str, list[int]] = {name: [] for name in wanted}
    for row in reader:
        line = reader.line_num
        if not row:
            continue
        if len(row) != len(head):
            raise InstanceError(f"line {line} has {len(row)} cells, the head has {len(head)}")
        names.append(row[place["id"]].strip())
        for name, column in columns.items():
            column.append(_whole(row[place[name]].strip(), name, line))
        if "gaps" in place and row[place["gaps"]].strip():
            raise InstanceError(f"line {line}: {names[-1]} has gaps in its lifetime, which are not supported")
        first, last = columns["lower"][-1], columns["upper"][-1]
        if closed:
            columns["upper"][-1] = last + 1
        if first >= columns["upper"][-1]:
            raise InstanceError(f"line {line}: {names[-1]} ends at {last}, not after {first}")
    lower, upper, size = (columns[name] for name in COLUMNS[1:])
    return Table(names, lower, upper, size, columns.get("offset"), _alignment(columns))


def _whole(cell: str, name: str, line: int) -> int:
    if not (cell.isascii() and cell.isdecimal()) or len(cell) > DIGITS or int(cell) > LARGEST_SIZE:
        raise InstanceError(f"line {line}: {name} {cell[:40]!r} is not a whole number up to 2^62")
    return int(cell)


def _alignment(columns: dict[str, list[int]]) -> int:
    found = sorted(set(columns.get("alignment", [])) or {1})
    if len(found) > 1:
        raise InstanceError(f"column 'alignment' has the values {found[0]} and {found[1]}; only one is supported")
    return found[0]


def table_lines(
    names: Iterable[str],
    lower: Sequence[int],
    upper: Sequence[int],
    size: Sequence[int],
    offset: Sequence[int] | None,
    *,
    alignment: int = 1,
) -> Iterator[str]:
    """Yield the lines of a file."""
    into = io.StringIO()
    writer = csv.writer(into, lineterminator="\n")
    more: dict[str, Sequence[int]] = {}
    if alignment > 1:
        more["alignment"] = [alignment] * len(size)
    if offset is not None:
        more["offset"] = offset
    writer.writerow([*COLUMNS, *more])
    writer.writerows(zip(names, lower, upper, size, *more.values(), strict=True))
    yield into.getvalue()
