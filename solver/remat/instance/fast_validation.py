"""Models from valid documents without pydantic's validators, because building those slows down every start.

Our models have few types of fields: texts, choices, models, lists, tables, and fields with a `PlainValidator`, which
is one of our functions. This module reads them as pydantic does. Anything else in a model or a document gives None;
then pydantic validates the document and reports the errors. This module accepts nothing that pydantic would reject.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, PlainValidator

from remat.instance.base import UnitsModel
from remat.instance.fields import Many, Model, units_scope
from remat.units import Units

M = TypeVar("M", bound=BaseModel)
Reader = Callable[[Any], Any]

_set = object.__setattr__
_OF_NO_ACCOUNT = frozenset(["Strict", "WithJsonSchema", "PlainSerializer", "WrapSerializer", "LazySchema"])


class UnusualError(Exception):
    """An unusual case that only pydantic can decide."""


def plainly(model: type[M], document: Any) -> M | None:
    """Create a model from a parsed document; None if pydantic has to validate it."""
    try:
        made: M = _made(model, document)
    except (UnusualError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        return None
    return made


def reader_of(model: type[BaseModel], key: str) -> Reader | None:
    """Return the function that reads a field of a model, given its key; None if only pydantic can."""
    plan = _plan(model)
    return None if plan is None or key not in plan.name_of else plan.readers[plan.name_of[key]]


def filled(model: type[M], values: dict[str, Any], given: set[str]) -> M:
    """Return a model with these values, which are valid and in the order of its fields.

    Models with the same keys may share one set `given`: models are frozen.
    """
    made = model.__new__(model)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", given)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


def unusual() -> NoReturn:
    """Leave the document to pydantic."""
    raise UnusualError


class _Plan:
    """Readers of a model's fields: the name, the reader and the default of each."""

    def __init__(self, model: type[BaseModel]) -> None:
        decorators = model.__pydantic_decorators__
        if decorators.validators or decorators.field_validators or decorators.root_validators:
            unusual()
        self.after = [name for name, one in decorators.model_validators.items() if one.info.mode == "after"]
        wraps = [name for name, one in decorators.model_validators.items() if one.info.mode != "after"]
        self.has_units = wraps == ["_read_in_own_units"]
        if (wraps and not self.has_units) or not issubclass(model, Model):
            unusual()
        self.name_of: dict[str, str] = {}
        self.readers: dict[str, Reader] = {}
        self.defaults: dict[str, Any] = {}
        self.required: set[str] = set()
        for name, field in model.model_fields.items():
            self.name_of[field.alias or name] = name
            self.readers[name] = _reader(field.annotation, field.metadata)
            self.defaults[name] = None
            if field.is_required():
                self.required.add(name)
            elif field.default_factory is not None:
                unusual()
            else:
                self.defaults[name] = field.default


@cache
def _plan(model: type[BaseModel]) -> _Plan | None:
    try:
        return _Plan(model)
    except (UnusualError, AttributeError):  # another release of pydantic may store these elsewhere
        return None


def _made(model: type[M], document: Any) -> M:
    plan = _plan(model)
    if plan is None or type(document) is not dict:
        unusual()
    given = {plan.name_of[key] for key in document}
    if not given >= plan.required or len(given) < len(document):
        unusual()
    if not plan.has_units:
        return _read(model, plan, document, given)
    units = _made(UnitsModel, document["units"]).build() if "units" in document else Units()
    with units_scope(units):
        return _read(model, plan, document, given)


def _read(model: type[M], plan: _Plan, document: dict[str, Any], given: set[str]) -> M:
    values = plan.defaults.copy()
    together = model.read_lists(document) if issubclass(model, Model) else {}
    for key, value in document.items():
        name = plan.name_of[key]
        values[name] = together[name] if name in together else plan.readers[name](value)
    made = filled(model, values, given)
    for name in plan.after:
        getattr(made, name)()
    return made


def _reader(annotation: Any, metadata: list[Any]) -> Reader:
    """Return the function that reads values of a type; `UnusualError` if only pydantic can."""
    for one in metadata:
        if isinstance(one, PlainValidator):
            return one.func  # type: ignore[return-value]
        if isinstance(one, Special):
            return one.read
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _reader(inner, [*_flat(more), *metadata])
    before = [one for one in metadata if isinstance(one, BeforeValidator)]
    if before:
        first: Reader = before[0].func  # type: ignore[assignment]
        rest = _reader(annotation, [one for one in metadata if one not in before]) if len(before) == 1 else unusual()
        return lambda value: rest(first(value))
    least, most = _bounds(metadata)
    if annotation is str:
        return _text(most)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return lambda value: _made(annotation, value)
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Literal:
        return _choice(frozenset(arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _many(_reader(arguments[0], []), least, most)
    if origin is dict and arguments[0] is str:
        return _named(_text(None), _reader(arguments[1], []), least, most)
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        inner_reader = _reader(arguments[0], metadata)
        return lambda value: None if value is None else inner_reader(value)
    unusual()


class Special:
    """Field metadata: the function that reads the field here, in addition to pydantic's validators."""

    def __init__(self, read: Reader) -> None:
        self.read = read


def _flat(metadata: list[Any]) -> list[Any]:
    """Return metadata with the contents of each `Field` unpacked."""
    return [one for each in metadata for one in (each.metadata if hasattr(each, "metadata") else [each])]


def _bounds(metadata: list[Any]) -> tuple[int, int | None]:
    """Return the minimum and maximum number of entries or letters; any other constraint is unusual."""
    least, most = 0, None
    for one in metadata:
        kind = type(one).__name__
        if kind == "MinLen":
            least = one.min_length
        elif kind == "MaxLen":
            most = one.max_length
        elif one is not Many and kind not in _OF_NO_ACCOUNT:
            unusual()
    return least, most


def _text(most: int | None) -> Reader:
    def read(value: Any) -> str:
        if type(value) is not str or (most is not None and len(value) > most):
            unusual()
        if not value.isascii():
            value.encode()  # one half of a surrogate pair is not a text
        return value

    return read


def _choice(choices: frozenset[Any]) -> Reader:
    if not all(type(choice) is str for choice in choices):
        unusual()

    def read(value: Any) -> str:
        if type(value) is not str or value not in choices:
            unusual()
        return value

    return read


def _named(name: Reader, read: Reader, least: int, most: int | None) -> Reader:
    def read_all(values: Any) -> dict[str, Any]:
        if type(values) is not dict or len(values) < least or (most is not None and len(values) > most):
            unusual()
        return {name(key): read(value) for key, value in values.items()}

    return read_all


def _many(read: Reader, least: int, most: int | None) -> Reader:
    def read_all(values: Any) -> tuple[Any, ...]:
        if type(values) is not list or len(values) < least or (most is not None and len(values) > most):
            unusual()
        return tuple([read(value) for value in values])

    return read_all
