"""Arguments of kernels: records of arrays and numbers, and cells, which are numbers that a kernel may change."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

OUTSIDE: dict[str, Any] = {"int": ctypes.c_int64, "float": ctypes.c_double}
"""C types of the numbers in `cells`."""

ELEMENTS = {np.dtype(np.int64): "int", np.dtype(np.float64): "float", np.dtype(np.bool_): "bool"}

Structure = TypeVar("Structure", bound=ctypes.Structure)


class Kind(NamedTuple):
    """Type of one field.

    Attributes
    ----------
    name : str
    type : str
        Type of a number or of an array's elements: ``int``, ``float`` or ``bool``. Otherwise the name of a class of
        cells.
    dimensions : int
        0 if the field is not an array.
    value : bool, optional
        Value of a ``bool``, which is a constant of the compiled code.
    """

    name: str
    type: str
    dimensions: int
    value: bool | None = None


def cells(kind: type[Structure]) -> type[Structure]:
    """Give a class of annotated numbers one memory for Python and for compiled code.

    Each side immediately sees what the other writes, including from another thread. Integers have 64 bits and wrap.

    Raises
    ------
    TypeError
        If an annotation is not the text ``int`` or ``float``.
    """
    fields = cell_kinds(kind)
    if not {field.type for field in fields} <= OUTSIDE.keys():
        raise TypeError(f"{kind.__name__} holds more than int and float")
    kind._fields_ = [(field.name, OUTSIDE[field.type]) for field in fields]
    return kind


def cell_kinds(kind: type[ctypes.Structure]) -> tuple[Kind, ...]:
    """Return the fields of a class of cells."""
    notes = inspect.get_annotations(kind)
    return tuple(Kind(name, str(note), 0) for name, note in notes.items() if name != "_fields_")


def kinds_of(record: Any) -> tuple[Kind, ...]:
    """Return the fields of a record; for a named tuple, according to its values.

    Raises
    ------
    TypeError
        If compiled code has no matching type.
    """
    if isinstance(record, ctypes.Structure):
        return cell_kinds(type(record))
    return tuple(_kind_of(name, value) for name, value in zip(record._fields, record, strict=True))


def _kind_of(name: str, value: Any) -> Kind:
    if isinstance(value, np.ndarray):
        if value.dtype not in ELEMENTS or not value.flags.c_contiguous or not value.ndim:
            raise TypeError(f"{name} is an array of {value.dtype}, of strides {value.strides}")
        return Kind(name, ELEMENTS[value.dtype], value.ndim)
    if isinstance(value, bool):
        return Kind(name, "bool", 0, value)
    for number in (int, float):
        if isinstance(value, number):
            return Kind(name, number.__name__, 0)
    if isinstance(value, ctypes.Structure):
        return Kind(name, type(value).__name__, 0)
    raise TypeError(f"{name} is a {type(value).__name__}")


def cells_within(records: Iterable[Any]) -> dict[str, tuple[Kind, ...]]:
    """Return the classes of cells in some records, by name."""
    found = [value for record in records for value in record if isinstance(value, ctypes.Structure)]
    return {type(value).__name__: kinds_of(value) for value in found}


def layout(record: Any) -> Any:
    """Return the integers that represent a named tuple: addresses and shapes of arrays, and numbers.

    The caller must keep the result and the arrays alive while compiled code uses them.
    """
    parts: list[int] = []
    for value in record:
        if isinstance(value, np.ndarray):
            parts += [value.ctypes.data, *value.shape]
        elif isinstance(value, ctypes.Structure):
            parts.append(ctypes.addressof(value))
        elif isinstance(value, float):
            parts.append(int(np.float64(value).view(np.int64)))
        else:
            parts.append(int(value))
    return np.array(parts, dtype=np.int64)


def address_of(record: Any) -> tuple[int, Any]:
    """Return a record's address, and the objects that must stay alive while it is used."""
    if isinstance(record, ctypes.Structure):
        return ctypes.addressof(record), record
    table = layout(record)
    return int(table.ctypes.data), (table, record)
