"""CSV files of minimalloc: ``id,lower,upper,size``, with ``offset`` where buffers have addresses.

Times are half-open, as ours. ``alignment`` may be a column, too, if it is one number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from remat.errors import InstanceError
from remat.units import LARGEST_SIZE

COLUMNS = ("id", "lower", "upper", "size")


class Table(NamedTuple):
    """The rows of a file."""

    names: list[str]
    lower: list[int]
    upper: list[int]
    size: list[int]
    offset: list[int] | None


def read_table(text: str) -> Table:
    """Read the text of a file.

    Raises
    ------
    InstanceError
        Naming the line, and the column that is missing or is no whole number.
    """
    reader = csv.reader(io.StringIO(text))
    head = [name.strip() for name in next(reader, [])]
    for name in COLUMNS:
        if head.count(name) != 1:
            found = f"the head is {','.join(head)[:80]!r}" if head else "the file is empty"
            raise InstanceError(f"column {name!r} is missing, or is there twice; {found}")
    place = {name: head.index(name) for name in head}
    names: list[str] = []
    numbers: list[list[int]] = [[] for _ in range(4)]
    wanted = ["lower", "upper", "size", *(["offset"] if "offset" in place else [])]
    for line, row in enumerate(reader, 2):
        if not row:
            continue
        if len(row) != len(head):
            raise InstanceError(f"line {line} has {len(row)} cells, the head has {len(head)}")
        names.append(row[place["id"]].strip())
        for name, column in zip(wanted, numbers, strict=False):
            cell = row[place[name]].strip()
            if not cell.isdecimal() or int(cell) > LARGEST_SIZE:
                raise InstanceError(f"line {line}: {name} {cell[:40]!r} is no whole number up to 2^62")
            column.append(int(cell))
        if numbers[0][-1] >= numbers[1][-1]:
            raise InstanceError(f"line {line}: {names[-1]} ends at {numbers[1][-1]}, not after {numbers[0][-1]}")
    lower, upper, size, offset = numbers
    return Table(names, lower, upper, size, offset if "offset" in place else None)


def table_lines(
    names: Iterable[str], lower: Sequence[int], upper: Sequence[int], size: Sequence[int], offset: Sequence[int] | None
) -> Iterator[str]:
    """Yield the lines of a file."""
    into = io.StringIO()
    writer = csv.writer(into, lineterminator="\n")
    writer.writerow([*COLUMNS, *([] if offset is None else ["offset"])])
    columns = [names, lower, upper, size, *([] if offset is None else [offset])]
    writer.writerows(zip(*columns, strict=True))
    yield into.getvalue()
