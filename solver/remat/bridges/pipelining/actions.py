"""The cells of a CSV schedule: reading and writing them.

A cell has a stage, an action, and usually a micro-batch: ``0F0``, ``3I2``, ``1SEND_F0``, ``0UNSHARD``. An empty cell
is idle time; ``(0F1;1B0)OVERLAP_F_B`` is two concurrent operations.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, Any

from remat.documents import read_text
from remat.errors import InstanceError
from remat.instance.cluster import MOST_DEVICES
from remat.messages import brief

LARGEST_FILE = 2**26
MOST_CELLS = 2_000_000
"""Bounds on what is read: bytes, and cells (idle ones, too)."""


class Kind(StrEnum):
    """Kinds of actions, as spelt in cells."""

    FORWARD = "F"
    INPUT = "I"
    WEIGHT = "W"
    BACKWARD = "B"
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    REDUCE_GRAD = "REDUCE_GRAD"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"


COMPUTING = frozenset({Kind.FORWARD, Kind.INPUT, Kind.WEIGHT, Kind.BACKWARD})
TRANSFERS = frozenset({Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B})
OF_STAGES = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD})
"""Actions on the parameters of a stage, for no micro-batch."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a rank: its kind, stage and micro-batch (both from 0)."""

    kind: Kind
    stage: int
    batch: int | None = None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.value}{'' if self.batch is None else self.batch}"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two concurrent operations."""

    first: Action
    second: Action

    def __str__(self) -> str:
        return f"({self.first};{self.second})OVERLAP_F_B"


Cell = Action | Overlap | None
"""Contents of a cell; None: idle time."""

Rows = tuple[tuple[Cell, ...], ...]
"""One row a rank."""


@dataclass(frozen=True, slots=True)
class Place:
    """Row and cell of an action, from 0."""

    row: int
    cell: int

    def __str__(self) -> str:
        return f"row {self.row + 1}, cell {self.cell + 1}"


def each_action(rows: Rows) -> Iterator[tuple[Place, Action]]:
    """Yield all actions, row by row; those of an overlap one after the other."""
    for row, cells in enumerate(rows):
        for index, cell in enumerate(cells):
            for action in (cell.first, cell.second) if isinstance(cell, Overlap) else (cell,):
                if action is not None:
                    yield Place(row, index), action


def read_csv(source: str | os.PathLike[str] | IO[Any]) -> Rows:
    """Read the cells of a CSV schedule; gzip is recognised by its content.

    Empty rows at the end are dropped: an idle rank needs no row.

    Raises
    ------
    InstanceError
        For a file that cannot be read or is too large, and for cells that are no action, by row and cell from 1.
    """
    name, text = read_text(source, "schedule", LARGEST_FILE)
    if text.count(",") + text.count("\n") >= MOST_CELLS:
        raise InstanceError(f"{name}: more than {MOST_CELLS:,} cells")
    rows: list[tuple[Cell, ...]] = []
    empty = 0
    lines = csv.reader(io.StringIO(text, newline=None))
    try:
        for row, listed in enumerate(lines):
            cells = tuple(_read_cell(cell, name, Place(row, index)) for index, cell in enumerate(listed))
            if not any(cells):
                empty += 1
                continue
            if row >= MOST_DEVICES:
                raise InstanceError(f"{name}: row {row + 1}: a cluster has at most {MOST_DEVICES} devices, one a row")
            rows += [()] * empty + [cells]
            empty = 0
    except csv.Error as error:
        raise InstanceError(f"{name}: row {len(rows) + empty + 1}: malformed CSV: {error}") from None
    if not rows:
        raise InstanceError(f"{name}: no row has an operation such as 0F0")
    return tuple(rows)


def csv_lines(rows: Sequence[Sequence[Cell]]) -> Iterable[str]:
    """Yield the text of a CSV schedule, one line per row."""
    return (",".join("" if cell is None else str(cell) for cell in cells) + "\n" for cells in rows)


_ACTION = re.compile(rf"(0|[1-9][0-9]{{0,6}})({'|'.join(kind.value for kind in Kind)})(0|[1-9][0-9]{{0,6}})?")
_OVERLAP = re.compile(r"\(([^;()]{1,40});([^;()]{1,40})\)OVERLAP_F_B")


def _read_cell(text: str, name: str, place: Place) -> Cell:
    text = text.strip()
    if not text:
        return None
    pair = _OVERLAP.fullmatch(text)
    if pair is None:
        return _read_action(text, text, name, place)
    first, second = (_read_action(part.strip(), text, name, place) for part in pair.groups())
    if first.kind not in COMPUTING or second.kind not in COMPUTING:
        raise InstanceError(f"{name}: {place}: {text!r}: only a forward and a backward can overlap")
    return Overlap(first, second)


def _read_action(text: str, cell: str, name: str, place: Place) -> Action:
    found = _ACTION.fullmatch(text)
    if found is None:
        known = ", ".join(kind.value for kind in Kind)
        raise InstanceError(
            f"{name}: {place}: {brief(cell)} is not an action such as 0F0 (stage, one of {known}, micro-batch)"
        )
    kind = Kind(found[2])
    if kind in OF_STAGES and found[3] is not None:
        raise InstanceError(f"{name}: {place}: {text!r}: {kind.value} is of a stage, and has no micro-batch")
    if kind not in OF_STAGES and found[3] is None:
        raise InstanceError(f"{name}: {place}: {text!r}: the micro-batch is missing")
    return Action(kind, int(found[1]), None if found[3] is None else int(found[3]))
