"""Chains of rotor: for each stage times of forward and backward, sizes of its input and of what it saves, workspaces.

The text is the output of rotor's ``print(chain)``, or JSON. It is a list of (forward time, backward time, size of the
stage's input, bytes saved before it, workspaces of forward and backward). The last entry is the loss, which has no
forward. Rotor's saved bytes include the output of the stage; those of an instance do not.
"""

from __future__ import annotations

from typing import Any

from remat.documents import read_text
from remat.errors import InstanceError, QuantityError
from remat.messages import brief
from remat.units import LARGEST_SIZE, Number, parse_number

LARGEST = 2**26
FIELDS = ("forward time", "backward time", "size", "saved size", "forward workspace", "backward workspace")


def import_chain(path: str, *, name: str | None = None, time_unit: str = "ms") -> dict[str, Any]:
    """Convert rotor's text to a chain.

    Parameters
    ----------
    path : path
        A file (``.gz`` too), or ``-``.
    name : str, optional
        Default: ``rotor``.
    time_unit : {"s", "ms", "us", "ns"}
        Unit of times; rotor measures milliseconds.

    Returns
    -------
    dict
        An instance of kind ``chain``, in bytes.

    Raises
    ------
    InstanceError
        If the text is not such a list; names the entry.
    """
    file, text = read_text(path, "chain", LARGEST)
    rows = _rows(text, file)
    loss = rows[-1]
    stages = [
        {
            "forward_time": rows[k][0],
            "backward_time": rows[k][1],
            "output_size": rows[k + 1][2],
            "saved_size": _saved(rows, k + 1, file),
            "forward_workspace": rows[k][4],
            "backward_workspace": rows[k][5],
        }
        for k in range(len(rows) - 1)
    ]
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "name": name or "rotor",
        "description": f"{len(stages)} stages measured by rotor",
        "source": f"imported by: remat import rotor {file}",
        "units": {"time": time_unit, "memory": "B"},
        "input_size": rows[0][2],
        "stages": stages,
        "loss": {"time": loss[1], "workspace": loss[5]},
    }


def _saved(rows: list[list[Any]], index: int, file: str) -> int:
    found = rows[index][3] - rows[index][2]
    if found < 0:
        raise InstanceError(
            f"{file}: entry {index}: {rows[index][3]:,} bytes saved include the output, so they are at least "
            f"{rows[index][2]:,}"
        )
    return int(found)


def _rows(text: str, file: str) -> list[list[Any]]:
    """Return the entries with checked numbers."""
    import json

    plain = text.translate(str.maketrans("()", "[]")).replace("None", "null")
    try:
        listed = json.loads(plain)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise InstanceError(f"{file}: expected a list of entries of six numbers{where}") from None
    if not isinstance(listed, list) or len(listed) < 2:
        raise InstanceError(f"{file}: expected a list of at least two entries, not {brief(listed)}")
    rows: list[list[Any]] = []
    for index, entry in enumerate(listed):
        if not isinstance(entry, list) or len(entry) != len(FIELDS):
            raise InstanceError(f"{file}: entry {index}: expected six numbers, not {brief(entry)}")
        last = index == len(listed) - 1
        row: list[Any] = []
        for field, value in enumerate(entry):
            if value is None and last and field in (0, 4):
                row.append(0)
                continue
            row.append(_number(value, field in (0, 1), f"{file}: entry {index}: {FIELDS[field]}"))
        rows.append(row)
    return rows


def _number(value: Any, is_time: bool, where: str) -> Number:
    try:
        found = parse_number(value) if is_time else parse_number(value, largest=LARGEST_SIZE)
    except QuantityError as error:
        raise InstanceError(f"{where}: {error}") from None
    if not is_time and found != int(found):
        raise InstanceError(f"{where}: {found} is not a whole number of bytes")
    return found if is_time else int(found)
