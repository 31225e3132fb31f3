"""Reading Matrix Market files as symmetric patterns."""

from __future__ import annotations

import io
import os
import zlib
from gzip import GzipFile
from pathlib import Path
from typing import Any

from remat.errors import InstanceError, MissingExtraError
from remat.generate.sparse.pattern import Pattern, pattern_of

LARGEST_FILE = 4 * 2**30
"""Most bytes of a matrix, after decompression, that are read."""

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
    MissingExtraError
        Without scipy.
    """
    try:
        from scipy.io import mmread
    except ImportError:
        raise MissingExtraError("reading Matrix Market files", "sparse") from None
    name = str(path)
    data = _content(Path(path), name)
    rows, columns, entries = _check_header(data, name)
    try:
        matrix: Any = mmread(io.BytesIO(data))
    except (ValueError, TypeError, OverflowError, EOFError, IndexError, StopIteration) as error:
        raise InstanceError(f"{name}: malformed Matrix Market file: {error}") from None
    if matrix.shape != (rows, columns) or matrix.nnz < entries:
        raise InstanceError(f"{name}: malformed Matrix Market file: {matrix.nnz} entries instead of {entries}")
    return pattern_of(rows, matrix.row, matrix.col)


def _content(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise InstanceError(f"cannot read matrix {name!r}: {getattr(error, 'strerror', None) or error}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            with GzipFile(fileobj=io.BytesIO(data)) as unpacked:
                data = unpacked.read(LARGEST_FILE + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise InstanceError(f"{name}: damaged gzip file ({error})") from None
    if len(data) > LARGEST_FILE:
        raise InstanceError(f"{name}: more than {LARGEST_FILE // 2**30} GiB")
    return data


def _check_header(data: bytes, name: str) -> tuple[int, int, int]:
    """Return rows, columns and entries; refuse what is no square sparse real matrix before it is parsed."""
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
    if entries < 0 or 2 * entries > len(data) or rows > 10_000_000:
        # Each entry takes a line: more than the file holds must not make anybody allocate them.
        raise InstanceError(f"{name}: malformed Matrix Market file: order {rows}, {entries} entries, {len(data)} bytes")
    return rows, columns, entries
