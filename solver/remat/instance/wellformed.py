"""Tasks and values of a `dag` document that are written as most are, made without a validator's call for each field.

Whatever is not: None, and the models judge the whole list, so that they alone say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from remat.instance.fields import LARGEST_COUNT, LONGEST_NAME, current_units
from remat.units import LARGEST_SIZE, Units, parse_size, parse_time

M = TypeVar("M", bound=BaseModel)

_set = object.__setattr__


class _Unusual(Exception):
    """Something that the model is asked about."""


def _unusual() -> NoReturn:
    raise _Unusual


class _Reader:
    """Reads the fields of entries in the units of their instance."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self.names: set[str] = set()
        """Names that were looked at and are good."""

    def name(self, name: Any) -> str:
        """Return a name that was not seen yet."""
        if type(name) is not str or not 0 < len(name) <= LONGEST_NAME or not name.isascii():
            _unusual()
        self.names.add(name)
        return name

    def listed(self, names: Any) -> tuple[str, ...]:
        """Return a list of names."""
        if type(names) is not list:
            _unusual()
        if not self.names.issuperset(names):
            for name in names:
                self.name(name)
        return tuple(names)

    def size(self, size: Any) -> int:
        return size if type(size) is int and 0 <= size <= LARGEST_SIZE else parse_size(size, self._units)

    def time(self, time: Any) -> int | float:
        return time if type(time) is int and 0 <= time <= LARGEST_SIZE else parse_time(time, self._units)


def _flag(value: Any) -> bool:
    return value if value is True or value is False else _unusual()


def _phase(value: Any) -> str:
    return value if type(value) is str and len(value) <= LONGEST_NAME and value.isascii() else _unusual()


def _made(made: M, fields: dict[str, Any], given: set[str]) -> M:
    """Give a model its fields, all valid; those with the same keys share one set of them (models are frozen)."""
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


_OF_VALUES = frozenset(["id", "size"])


def _tasks(model: type[M], entries: Iterable[Any], units: Units) -> Iterable[M]:
    reader = _Reader(units)
    readers: dict[str, Callable[[Any], Any]] = {
        "id": reader.name,
        "time": reader.time,
        "reads": reader.listed,
        "writes": lambda names: None if names is None else reader.listed(names),
        "size": lambda size: None if size is None else reader.size(size),
        "workspace": reader.size,
        **dict.fromkeys(("in_place", "required", "recomputable", "once"), _flag),
        "phase": _phase,
    }
    new = model.__new__
    defaults = {key: field.default for key, field in model.model_fields.items()}  # all keys, in the fields' order
    plans: dict[tuple[str, ...], tuple[set[str], list[tuple[str, Callable[[Any], Any]]]] | None] = {}
    for entry in entries:
        if type(entry) is not dict:
            _unusual()
        keys = tuple(entry)
        if keys not in plans:
            usual = readers.keys() >= entry.keys() >= {"id", "time"}
            plans[keys] = (set(keys), [(key, readers[key]) for key in keys]) if usual else None
        plan = plans[keys]
        if plan is None or type(entry["time"]) is dict:
            yield model.model_validate(entry)
            continue
        given, readings = plan
        fields = defaults.copy()
        for key, read in readings:
            fields[key] = read(entry[key])
        yield _made(new(model), fields, given)


def _values(model: type[M], entries: Iterable[Any], units: Units) -> Iterable[M]:
    reader = _Reader(units)
    given = set(_OF_VALUES)
    for entry in entries:
        if type(entry) is not dict:
            _unusual()
        if entry.keys() == _OF_VALUES:
            fields = {"id": reader.name(entry["id"]), "size": reader.size(entry["size"]), "shape": None, "dtype": ""}
            yield _made(model.__new__(model), fields, given)
        else:
            yield model.model_validate(entry)


def _first_tried(
    make: Callable[[type[Any], Iterable[Any], Units], Iterable[Any]], model: Callable[[], type[BaseModel]]
) -> WrapValidator:
    def validate(entries: object, handler: ValidatorFunctionWrapHandler) -> Any:
        if type(entries) is list and 0 < len(entries) <= LARGEST_COUNT:
            try:
                return tuple(make(model(), entries, current_units()))
            except (_Unusual, ValidationError, ValueError, TypeError, KeyError):
                pass  # the models say what is wrong, if anything is
        return handler(entries)

    return WrapValidator(validate)


def quick_tasks(model: Callable[[], type[BaseModel]]) -> WrapValidator:
    """Return the validator of a list of tasks."""
    return _first_tried(_tasks, model)


def quick_values(model: Callable[[], type[BaseModel]]) -> WrapValidator:
    """Return the validator of a list of values."""
    return _first_tried(_values, model)
