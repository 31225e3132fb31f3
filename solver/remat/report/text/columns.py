"""Tables that fit a terminal of 60 to 200 columns."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

NARROWEST, WIDEST = 60, 200
"""Columns that tables fit; in narrower terminals they are as for the narrowest."""

Rows = Sequence[Sequence[str]]


def terminal_columns() -> int:
    """Return the columns of the terminal on standard output; 0 if it is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return 0


def room() -> int | None:
    """Return the available columns, from `COLUMNS` or the terminal; None if output goes elsewhere."""
    said = os.environ.get("COLUMNS", "")
    columns = (int(said) if said.isdecimal() and len(said) < 6 else 0) or terminal_columns()
    return max(NARROWEST, min(columns, WIDEST)) if columns else None


def text_width(most: int) -> int:
    """Return the columns of running text: the default, or fewer if the terminal is narrower."""
    return min(most, room() or most)


def fitted(rows: Rows, *, left: int, between: int, width: int | None) -> list[list[tuple[str, ...]]]:
    """Split a table into several that fit, one below the other, each with the first `left` columns.

    Parameters
    ----------
    rows : sequence of rows
        Rows of equal length, the header first.
    left : int
        Columns that identify a row. If splitting does not suffice, texts are shortened, these to half the width.
    between : int
        Characters between two columns.
    width : int or None
        Available columns; None: unlimited.
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    if width is None or sum(widths) + between * (len(widths) - 1) <= width:
        return [[tuple(row) for row in rows]]
    widest = max(widths[left:], default=0) + between
    most = max(width // 2, width - widest) - between * (left - 1)
    names = [_shortened(row[:left], widths[:left], most) for row in rows]
    taken = sum(max(len(name[k]) for name in names) for k in range(left)) + between * (left - 1)
    widths = [min(size, width - taken - between) for size in widths]
    groups: list[list[int]] = [[]]
    used = taken
    for k in range(left, len(widths)):
        if groups[-1] and used + between + widths[k] > width:
            groups.append([])
            used = taken
        groups[-1].append(k)
        used += between + widths[k]
    return [
        [(*name, *(_short(row[k], widths[k]) for k in group)) for name, row in zip(names, rows, strict=True)]
        for group in groups
        if any(row[k].strip() for row in rows for k in group)
    ]


def _shortened(cells: Sequence[str], widths: Sequence[int], most: int) -> tuple[str, ...]:
    """Shorten the longest columns of a row until all fit."""
    limits = list(widths)
    while sum(limits) > most and max(limits) > 8:
        limits[limits.index(max(limits))] -= 1
    return tuple(map(_short, cells, limits))


def _short(cell: str, limit: int) -> str:
    return cell if len(cell) <= limit else f"{cell[: limit - 1]}…"


def aligned(rows: Rows, *, left: Sequence[int], keep: int = 1, width: int | None = None) -> str:
    """Return a table as text, two spaces between columns; `left` columns are left-aligned, the others right-aligned.

    Parameters
    ----------
    rows : sequence of rows
        The header first.
    left : sequence of int
        Indices of columns of words.
    keep : int
        Leading columns that each part of a split table repeats.
    width : int or None
        Available columns.
    """
    words = set(left)
    whole = [*range(len(rows[0]))]
    tables = []
    taken = keep
    for part in fitted(rows, left=keep, between=2, width=width):
        index = whole[:keep] + whole[taken : taken + len(part[0]) - keep]
        taken += len(part[0]) - keep
        widths = [max(len(row[k]) for row in part) for k in range(len(index))]
        lines = [
            "  ".join(
                cell.ljust(size) if k in words else cell.rjust(size)
                for cell, size, k in zip(row, widths, index, strict=True)
            ).rstrip()
            for row in part
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)
