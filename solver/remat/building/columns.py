"""Columns of rows: arrays, sequences and scalars that broadcast become the entries of a list in a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from remat.errors import InstanceError
from remat.instance.fast_validation import UnusualError, reader_of
from remat.instance.fields import LARGEST_COUNT, units_scope
from remat.instance.native import native, native_key, scalar_or_list
from remat.messages import brief
from remat.units import Units

T = TypeVar("T", bound=BaseModel)

ENTRY = "an entry for all, or a sequence with one for each"


def is_scalar(value: object) -> bool:
    """Whether a value applies to all rows: a number, a text, a truth value, or a numpy scalar."""
    return isinstance(value, (str, bytes)) or getattr(value, "shape", None) == () or not isinstance(value, Iterable)


def entries(argument: str, values: Any) -> list[Any]:
    """Return the entries of a sequence or of an array of one dimension, as plain numbers and texts."""
    dimensions = getattr(values, "ndim", 1)
    if dimensions != 1:
        shape = tuple(getattr(values, "shape", ()))
        raise InstanceError(f"an array of shape {shape}; give one dimension, with an entry for each row", argument)
    if isinstance(values, (Mapping, set, frozenset)):
        raise InstanceError(f"{brief(values)} has no order of entries; give {ENTRY}", argument)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InstanceError(f"expected a sequence or an array, not {brief(values)}", argument)
    listed = scalar_or_list(values)
    listed = native(listed if isinstance(listed, list) else list(values))
    assert isinstance(listed, list)
    if len(listed) > LARGEST_COUNT:
        raise InstanceError(f"{len(listed):,} entries; at most {LARGEST_COUNT:,} are allowed", argument)
    return listed


def common_length(columns: Mapping[str, Any], given: Any = None, *, what: str = "rows") -> int:
    """Return the length that all lists among some columns have, and that `length` has, where it is given.

    Raises
    ------
    InstanceError
        If two of them differ, or there is none.
    """
    found, by = _whole(given), "length"
    for argument, column in columns.items():
        if not isinstance(column, list):
            continue
        if found is None:
            found, by = len(column), argument
        elif len(column) != found:
            raise InstanceError(f"{len(column):,} entries, and {by} has {found:,}", argument)
        if not column:
            raise InstanceError(f"there are no entries; give one for each of the {what}", argument)
    if found is None:
        first = next(iter(columns), "length")
        raise InstanceError(f"the number of {what} is unknown; give a sequence, or length=", first)
    return found


def _whole(length: Any) -> int | None:
    plain = native(length)
    if plain is None:
        return None
    if isinstance(plain, bool) or not isinstance(plain, int) or not 1 <= plain <= LARGEST_COUNT:
        raise InstanceError(f"{brief(plain)} is not a number of rows, 1 to {LARGEST_COUNT:,}", "length")
    return plain


def listed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns as lists, or as plain scalars; those that are None are left out.

    A mapping is one time for each type of processor: type -> column.
    """
    found: dict[str, Any] = {}
    for argument, values in columns.items():
        if values is None:
            continue
        if isinstance(values, Mapping):
            found[argument] = _by_type(argument, values)
        else:
            found[argument] = native(values) if is_scalar(values) else entries(argument, values)
    return found


def _by_type(argument: str, columns: Mapping[Any, Any]) -> list[Any] | dict[str, Any]:
    """Turn type -> column into one column of type -> entry; None says that the type cannot run the row."""
    own = listed({f"{argument}[{key!r}]": columns[key] for key in columns})
    named = dict(zip((native_key(key) for key in columns if columns[key] is not None), own.values(), strict=True))
    if not any(isinstance(column, list) for column in own.values()):
        return named
    count = common_length(own)
    return [
        {
            key: entry
            for key, column in named.items()
            if (entry := column[row] if isinstance(column, list) else column) is not None
        }
        for row in range(count)
    ]


def check_scalars(model: type[BaseModel], columns: Mapping[str, Any], units: Units) -> None:
    """Refuse invalid scalars early, because the document would report each broadcast copy."""
    with units_scope(units):
        for argument, value in columns.items():
            reader = None if isinstance(value, list) else reader_of(model, argument)
            if reader is None:
                continue
            try:
                reader(value)
            except UnusualError:
                raise InstanceError(f"{brief(value)} cannot be used", argument) from None
            except ValueError as error:
                raise InstanceError(str(error), argument) from None


def rows(columns: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return rows of lists and scalars; entries that are None are left out."""
    if not columns:
        return [{} for _ in range(count)]
    keys = tuple(columns)
    every = [column if isinstance(column, list) else [column] * count for column in columns.values()]
    made = [dict(zip(keys, row, strict=True)) for row in zip(*every, strict=True)]
    if any(None in column for column in columns.values() if isinstance(column, list)):
        return [{key: value for key, value in row.items() if value is not None} for row in made]
    return made


def sequence_of(argument: str, values: Any, what: str) -> Sequence[Any]:
    """Return some entries of any kind as a sequence."""
    if isinstance(values, str):
        raise InstanceError(f"expected a sequence of {what}; write [{brief(values)}]", argument)
    if isinstance(values, Mapping) or is_scalar(values):
        raise InstanceError(f"expected a sequence of {what}, not {brief(values)}", argument)
    return values if isinstance(values, Sequence) else list(values)
