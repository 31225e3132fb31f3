"""Arguments as arrays: sizes, times, flags and lists of indices, checked as a whole; errors name index and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from remat.building.columns import entries, is_scalar
from remat.errors import InstanceError
from remat.graph.names import Names
from remat.graph.taskgraph import BoolArray, IntArray, Ragged
from remat.instance.native import native
from remat.messages import brief, nearest
from remat.units import LARGEST_SIZE, LARGEST_TIME, SIZE_ROUNDING, Number, Units, parse_energy, parse_size, parse_time


def sizes(argument: str, values: Any, count: int, units: Units) -> IntArray:
    """Return sizes as int64."""
    array = _numeric(argument, values, count)
    if array is None:
        found = _parsed(argument, values, count, lambda value: parse_size(value, units))
        return np.full(count, found, dtype=np.int64) if isinstance(found, int) else np.array(found, dtype=np.int64)
    with np.errstate(invalid="ignore"):
        good, whole = (array >= 0) & (array <= LARGEST_SIZE), array
        if array.dtype.kind == "f":
            whole = np.rint(array)
            good &= np.abs(array - whole) <= SIZE_ROUNDING * array
    _refuse(argument, array, good, lambda value: parse_size(value, units), "is no size")
    rounded: IntArray = whole.astype(np.int64)
    return rounded


def times(argument: str, values: Any, count: int, units: Units) -> IntArray | tuple[Number, ...]:
    """Return times: whole ones as int64, others as a tuple."""
    return _numbers(argument, values, count, lambda value: parse_time(value, units), LARGEST_TIME, "is no time")


def energies(argument: str, values: Any, count: int) -> IntArray | tuple[Number, ...]:
    """Return energies: whole ones as int64, others as a tuple."""
    return _numbers(argument, values, count, parse_energy, LARGEST_SIZE, "is no energy")


def _numbers(
    argument: str, values: Any, count: int, parse: Callable[[Any], Number], largest: float, wrong: str
) -> IntArray | tuple[Number, ...]:
    """Return whole numbers as int64, others, up to `largest`, as a tuple."""
    array = _numeric(argument, values, count)
    if array is None:
        found = _parsed(argument, values, count, parse)
        every = found if isinstance(found, list) else [found] * count
        return np.array(every, dtype=np.int64) if set(map(type, every)) <= {int} else tuple(every)
    fractions = array.dtype.kind == "f"
    with np.errstate(invalid="ignore"):
        good = (array >= 0) & (array <= (largest if fractions else LARGEST_SIZE))
    _refuse(argument, array, good, parse, wrong)
    return tuple(array.astype(np.float64).tolist()) if fractions else array.astype(np.int64)


def flags(argument: str, values: Any, count: int) -> BoolArray:
    """Return truth values as an array."""
    found = native(values) if is_scalar(values) else entries(argument, values)
    if isinstance(found, bool):
        return np.full(count, found)
    if not isinstance(found, list):
        raise InstanceError(f"expected true or false, not {brief(found)}", argument)
    check_count(argument, len(found), count)
    for index, flag in enumerate(found):
        if not isinstance(flag, bool):
            raise InstanceError(f"expected true or false, not {brief(flag)}", f"{argument}[{index}]")
    return np.array(found, dtype=bool)


def indices_of(argument: str, given: Any, names: Names) -> Any:
    """Return lists whose items may be names with the indices of these; anything else unchanged."""
    if not isinstance(given, (list, tuple)) or not any(
        isinstance(item, str) for row in given if isinstance(row, (list, tuple)) for item in row
    ):
        return given
    found = []
    for at, row in enumerate(given):
        own = entries(f"{argument}[{at}]", row)
        for place, item in enumerate(own):
            index = names.find(item) if isinstance(item, str) else item
            if index is None:
                near = nearest(item, names)
                remedy = f"did you mean {near!r}?" if near else "give value_names, or a mapping as size"
                raise InstanceError(f"{brief(item)} is not a value; {remedy}", f"{argument}[{at}][{place}]")
            own[place] = index
        found.append(own)
    return found


def ragged(argument: str, given: Any, count: int | None, limit: int) -> Ragged:
    """Return lists of indices below a limit: CSR arrays (start, items), a sparse matrix, or a sequence of sequences.

    A tuple of two lists is a pair of CSR arrays, too, unless there may be two rows.
    """
    pair = _pair_of(given)
    if _is_csr(pair, count):
        rows = Ragged(_indices(f"{argument}[0]", pair[0], None), _indices(f"{argument}[1]", pair[1], limit))
        _check_start(f"{argument}[0]", rows)
    else:
        listed = entries(argument, given)
        for index, row in enumerate(listed):
            if not isinstance(row, list):
                raise InstanceError(f"expected a list of indices, not {brief(row)}", f"{argument}[{index}]")
        lengths = np.fromiter(map(len, listed), dtype=np.int64, count=len(listed))
        flat = [item for row in listed for item in row]
        start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        if flat and set(map(type, flat)) != {int}:
            at = next(k for k, item in enumerate(flat) if type(item) is not int)
            raise InstanceError(f"{brief(flat[at])} is not an index", f"{argument}{_place(start, at)}")
        wide = next((k for k, item in enumerate(flat) if not 0 <= item < limit), None)
        if wide is not None:
            raise InstanceError(_out_of_range(flat[wide], limit), f"{argument}{_place(start, wide)}")
        rows = Ragged(start, np.array(flat, dtype=np.int64))
    if count is not None and len(rows) != count:
        raise InstanceError(f"{len(rows):,} rows, and there are {count:,} tasks", argument)
    check_once(argument, rows, limit)
    return rows


def _pair_of(given: Any) -> Any:
    """Return the CSR arrays of a sparse matrix of any format; anything else unchanged."""
    converted = given.tocsr() if callable(getattr(given, "tocsr", None)) else given
    if hasattr(converted, "indptr") and hasattr(converted, "indices"):
        return converted.indptr, converted.indices
    return given


def _is_csr(given: Any, count: int | None) -> bool:
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    if all(hasattr(one, "dtype") for one in given):
        return True
    return count not in (None, 2) and all(isinstance(one, (list, tuple)) or hasattr(one, "dtype") for one in given)


def check_once(argument: str, rows: Ragged, limit: int) -> None:
    """Refuse rows that have an item twice."""
    codes = rows.rows * max(limit, 1) + rows.items
    order = np.argsort(codes, kind="stable")
    twice = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(twice):
        at = int(order[twice[0] + 1])
        raise InstanceError(f"{int(rows.items[at])} is listed twice", f"{argument}[{int(rows.rows[at])}]")


def _numeric(argument: str, values: Any, count: int) -> Any:
    """Return numbers of one type as an array; None for all else."""
    if isinstance(values, (list, tuple)) and len(types := set(map(type, values))) == 1 and types <= {int, float}:
        try:
            values = np.array(values, dtype=np.int64 if types == {int} else np.float64)
        except OverflowError:
            return None
    if not (hasattr(values, "dtype") and hasattr(values, "__array__")) or is_scalar(values):
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        return None
    if array.ndim != 1:
        raise InstanceError(f"an array of shape {array.shape}; give one dimension", argument)
    check_count(argument, len(array), count)
    return array


def _parsed(argument: str, values: Any, count: int, parse: Callable[[Any], Any]) -> Any:
    """Return a scalar or entries after parsing."""
    if is_scalar(values):
        try:
            return parse(native(values))
        except ValueError as error:
            raise InstanceError(str(error), argument) from None
    listed = entries(argument, values)
    check_count(argument, len(listed), count)
    found = []
    for index, value in enumerate(listed):
        try:
            found.append(parse(value))
        except ValueError as error:
            raise InstanceError(str(error), f"{argument}[{index}]") from None
    return found


def check_count(argument: str, found: int, count: int) -> None:
    """Refuse a column of another length."""
    if found != count:
        raise InstanceError(f"{found:,} entries, and {count:,} are expected", argument)


def _refuse(argument: str, array: Any, good: BoolArray, parse: Callable[[Any], Any], wrong: str) -> None:
    if good.all():
        return
    index = int(np.argmin(good))
    value = native(array[index])
    message = f"{brief(value)} {wrong}"
    try:
        parse(value)
    except ValueError as error:
        message = str(error)
    raise InstanceError(message, f"{argument}[{index}]")


def _indices(argument: str, values: Any, limit: int | None) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise InstanceError(f"an array of shape {array.shape} and type {array.dtype}; give whole numbers", argument)
    good = (array >= 0) & (array < (2**62 if limit is None else limit))
    if not good.all():
        index = int(np.argmin(good))
        value = int(array[index])
        raise InstanceError(_out_of_range(value, limit or 2**62), f"{argument}[{index}]")
    return array.astype(np.int64)


def _out_of_range(value: int, limit: int) -> str:
    return f"{brief(value)} is out of range; an index lies between 0 and {limit - 1:,}"


def _check_start(argument: str, rows: Ragged) -> None:
    start, items = rows.start, len(rows.items)
    if not len(start) or start[0] != 0:
        raise InstanceError("the first entry of a row start is 0", f"{argument}[0]")
    falling = np.flatnonzero(start[1:] < start[:-1])
    if len(falling):
        at = int(falling[0]) + 1
        raise InstanceError(f"{int(start[at])} after {int(start[at - 1])}; row starts never fall", f"{argument}[{at}]")
    if start[-1] != items:
        raise InstanceError(f"{int(start[-1])}, and there are {items:,} items", f"{argument}[{len(start) - 1}]")


def _place(start: IntArray, at: int) -> str:
    row = int(np.searchsorted(start, at, side="right")) - 1
    return f"[{row}][{at - int(start[row])}]"
