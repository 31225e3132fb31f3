"""Reading Matrix Market files as symmetric patterns."""

from __future__ import annotations

import io
import os
from collections import deque
from typing import NamedTuple

import numpy as np

from remat.documents import read_bytes
from remat.errors import InstanceError
from remat.generate.sparse.pattern import IntArray, Pattern, pattern_of

LARGEST_FILE = 4 * 2**30
"""Maximum number of bytes to read from a matrix, after decompression."""

LARGEST_ORDER = 10_000_000
FEW_ROWS = 20_000
"""Number of rows that every matrix may have; larger matrices need at least one entry for eight rows."""

TOGETHER = 2**20
"""Number of bytes that are parsed together."""

FIELDS = ("real", "integer", "pattern", "double")
SYMMETRIES = ("general", "symmetric", "skew-symmetric")


def read_matrix(path: str | os.PathLike[str]) -> Pattern:
    """Read the pattern of A + A^T, with its diagonal, from a Matrix Market file.

    Parameters
    ----------
    path : path
        ``.mtx``, plain or compressed with gzip (recognised by its content).

    Returns
    -------
    Pattern

    Raises
    ------
    InstanceError
        A file that cannot be read, is damaged or no Matrix Market file; a matrix that is not square, empty, dense or
        complex.

    Notes
    -----
    `scipy.io.mmread` is unsuitable: entries that are not numbers crash the process with a segmentation fault.
    """
    name, data = read_bytes(path, "matrix", LARGEST_FILE)
    head = _check_header(data, name)
    try:
        rows, columns = _entries(data, head)
    except (ValueError, OverflowError) as error:
        raise InstanceError(f"{name}: malformed Matrix Market file: {error}") from None
    return pattern_of(head.order, rows, columns)


class _Head(NamedTuple):
    """Contents of the first lines: matrix order, entries, words per line, and the position of the first entry."""

    order: int
    entries: int
    words: int
    begin: int


def _entries(data: bytes, head: _Head) -> tuple[IntArray, IntArray]:
    """Return the rows and columns of all entries, from 0; `ValueError` unless each entry has one line."""
    rows, columns = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    count, begin = 0, head.begin
    while begin < len(data):
        end = data.find(b"\n", begin + TOGETHER) + 1 or len(data)
        text = data[begin:end]
        words = text.split()
        lines = sum(map(bool, map(bytes.strip, text.split(b"\n"))))
        if len(words) != lines * head.words:
            raise ValueError(f"expected {head.words} words a line")
        for place, parts in ((0, rows), (1, columns)):
            numbers = [*map(int, words[place :: head.words])]
            if numbers and not (min(numbers) >= 1 and max(numbers) <= head.order):
                raise ValueError(f"an entry beyond the {head.order} rows and columns")
            parts.append(np.array(numbers, dtype=np.int64) - 1)
        deque(map(float, words[2 :: head.words] if head.words > 2 else ()), maxlen=0)
        count, begin = count + lines, end
    if count != head.entries:
        raise ValueError(f"{count} entries instead of {head.entries}")
    return np.concatenate(rows), np.concatenate(columns)


def _check_header(data: bytes, name: str) -> _Head:
    """Refuse anything but a square sparse real matrix before parsing."""
    if not data.strip():
        raise InstanceError(f"{name}: the file is empty")
    lines = io.BytesIO(data)
    words = lines.readline(1000).decode("ascii", "replace").lower().split()
    if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
        raise InstanceError(f"{name}: not a Matrix Market file: its first line must begin with '%%MatrixMarket matrix'")
    _, _, layout, field, symmetry = words
    if layout != "coordinate":
        raise InstanceError(f"{name}: a matrix in {layout!r} layout has no sparse pattern; it must be 'coordinate'")
    if field not in FIELDS:
        raise InstanceError(f"{name}: {field!r} entries are not supported; they must be {', '.join(FIELDS[:3])}")
    if symmetry not in SYMMETRIES:
        raise InstanceError(f"{name}: symmetry {symmetry!r} is not one of {', '.join(SYMMETRIES)}")
    line = lines.readline()
    while line and (line.startswith(b"%") or not line.strip()):
        line = lines.readline()
    try:
        rows, columns, entries = (int(word) for word in line.split())
    except ValueError:
        raise InstanceError(f"{name}: malformed Matrix Market file: no line with rows, columns and entries") from None
    if rows != columns:
        raise InstanceError(f"{name}: the matrix is {rows} x {columns}; only square ones have an elimination tree")
    if rows < 1:
        raise InstanceError(f"{name}: the matrix is empty ({rows} x {columns})")
    if entries < 0 or 2 * entries > len(data) or rows > min(LARGEST_ORDER, max(FEW_ROWS, 8 * entries)):
        # Each entry takes a line: claims of more entries (or empty rows) than the file holds must not cause allocation.
        raise InstanceError(f"{name}: malformed Matrix Market file: order {rows}, {entries} entries, {len(data)} bytes")
    return _Head(rows, entries, 2 if field == "pattern" else 3, lines.tell())
