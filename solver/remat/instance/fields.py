"""Field types that all instance kinds share: sizes, times, counts, names and whole arrays of them.

Validators run inside `units_scope`, so that strings such as ``"3ms"`` are read in the unit of the instance that
contains them. Arrays are validated as a whole: a tree has millions of entries, and one validator call for each would
dominate loading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from remat.messages import brief
from remat.units import LARGEST_SIZE, Number, Units, parse_bandwidth, parse_energy, parse_size, parse_time

LARGEST_COUNT = 10_000_000
"""Maximum number of stages, tasks, values or tree nodes in one instance (after `repeat`)."""

LONGEST_NAME = 1000

MOST_NAMED = 20
"""Number of errors of a document that are reported one by one."""

MOST_COUNTED = 10_000
"""Number of errors in an array after which validation stops."""

CUSTOM = "remat"
UNCOUNTED = "remat_uncounted"
"""Types of remat's validation errors: a specific error, and the number of unlisted errors."""

_PART = 1000

_SECONDS_AND_BYTES = Units()
_units: ContextVar[Units] = ContextVar("units", default=_SECONDS_AND_BYTES)


class Model(BaseModel):
    """Base of all document models: immutable, and unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)
    since_2: ClassVar[frozenset[str]] = frozenset()
    """Fields that came with `remat.instance/2`."""
    since_3: ClassVar[frozenset[str]] = frozenset()
    """Fields that came with `remat.instance/3`."""

    @classmethod
    def read_lists(cls, document: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a well-formed document that are read together, as columns (see `plainly`)."""
        return {}

    def newer_keys(self, schema: int) -> frozenset[str]:
        """Return the keys that a document with an older schema than `remat.instance/`schema must not have here."""
        return self.since_2 if schema == 2 else self.since_3


@dataclass(frozen=True)
class LazySchema:
    """The JSON Schema of a field, built on demand: building it at import would slow down every start."""

    build: Callable[[], dict[str, Any]]

    def __get_pydantic_json_schema__(self, core_schema: object, handler: object) -> dict[str, Any]:
        """Return the schema (pydantic calls this)."""
        return self.build()


@contextmanager
def units_scope(units: Units) -> Iterator[None]:
    """Read sizes and times in these units within the scope."""
    token = _units.set(units)
    try:
        yield
    finally:
        _units.reset(token)


def current_units() -> Units:
    """Return the units that validators use."""
    return _units.get()


def fail(message: str, at: str = "", others: Sequence[tuple[str, str]] = (), uncounted: int = 0) -> PydanticCustomError:
    """Build the error of a validator.

    `at` is appended to the JSON path (``[5]``). `others` are further errors as (at, message). `uncounted` is the number
    of errors that are not listed.
    """
    context = {"message": message, "at": at, "others": tuple(others), "uncounted": uncounted}
    return PydanticCustomError(CUSTOM, "{message}", context)


def _part_by_part(values: object, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate a long list in parts, to limit the number of errors for a list with millions of wrong entries."""
    if not isinstance(values, (list, tuple)) or len(values) <= _PART:
        return handler(values)
    parts: list[Any] = []
    kept: list[InitErrorDetails] = []
    count = 0
    for begin in range(0, len(values), _PART):
        try:
            parts.extend(handler(values[begin : begin + _PART]))
        except ValidationError as error:
            count += error.error_count()
            if len(kept) <= MOST_NAMED:
                kept += _moved(error, begin)
            if count >= MOST_COUNTED:
                break
    if kept:
        rest = PydanticCustomError(UNCOUNTED, "more", {"uncounted": count - len(kept)})
        kept.append(InitErrorDetails(type=rest, loc=(), input=None))
        raise ValidationError.from_exception_data("list", kept)
    return tuple(parts)


def _moved(error: ValidationError, begin: int) -> list[InitErrorDetails]:
    found = []
    for problem in error.errors(include_url=False)[: MOST_NAMED + 1]:
        kind = str(problem["type"])
        context = problem.get("ctx", {})
        wrong = PydanticCustomError(kind, "{message}", context) if kind == CUSTOM else kind
        index, *rest = problem["loc"]
        place = (int(index) + begin, *rest)
        found.append(InitErrorDetails(type=wrong, loc=place, input=problem["input"], ctx=context))
    return found


Many = WrapValidator(_part_by_part)
"""Validator of lists that may be long."""


def _in_units(parse: Callable[[object, Units], Any]) -> Callable[[object], Any]:
    def validate(value: object) -> Any:
        try:
            return parse(value, _units.get())
        except ValueError as error:
            raise fail(str(error)) from None

    return validate


def _array_of(parse: Callable[[object, Units], Any], largest: int) -> Callable[[object], tuple[Any, ...]]:
    def validate(values: object) -> tuple[Any, ...]:
        items = _as_list(values, "expected a list of numbers")
        if len(items) > LARGEST_COUNT:
            raise fail(f"{len(items):,} entries; at most {LARGEST_COUNT:,} are allowed")
        # Plain integers in range are by far the usual case: check them without one call each.
        if set(map(type, items)) <= {int} and (not items or (min(items) >= 0 and max(items) <= largest)):
            return tuple(items)
        units = _units.get()
        result = []
        wrong: list[tuple[str, str]] = []
        count = 0
        for index, item in enumerate(items):
            try:
                result.append(parse(item, units))
            except ValueError as error:
                count += 1
                if count <= MOST_NAMED:
                    wrong.append((f"[{index}]", str(error)))
                elif count == MOST_COUNTED:
                    break
        if wrong:
            (at, message), *others = wrong
            raise fail(message, at, others, count - len(wrong))
        return tuple(result)

    return validate


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise fail(f"expected a whole number, not {brief(value)}")
    if not 1 <= value <= LARGEST_COUNT:
        shown = value if abs(value) < 10**30 else "a number of more than 30 digits"
        raise fail(f"{shown} is out of range; a count lies between 1 and {LARGEST_COUNT:,}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise fail(f"expected a name in quotes, not {brief(value)}")
    if not value:
        raise fail("a name must not be empty")
    if len(value) > LONGEST_NAME:
        raise fail(f"a name of {len(value)} characters; at most {LONGEST_NAME} are allowed")
    try:
        value.encode()
    except UnicodeEncodeError:  # one half of a surrogate pair
        raise fail("a name that is not valid Unicode text") from None
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise fail(f"expected true or false, not {brief(value)}")
    return value


def _speed(value: object) -> Number:
    return _share(value, ", as of the reference processor")


def _ratio(value: object) -> Number:
    return _share(value)


def _share(value: object, why: str = "") -> Number:
    if isinstance(value, Decimal):  # decimal numbers in text are read as Decimal
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise fail(f"expected a number, not {brief(value)}")
    if not 0 < value <= 1:
        raise fail(f"{brief(value)} is out of range; it is more than 0 and at most 1{why}")
    return 1 if value == 1 else value


_SIZE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": LARGEST_SIZE},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)? *([kKMGTPE]i?)?B?$"},
    ]
}
_TIME_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)? *(s|ms|us|ns)?$"},
    ]
}
_RATE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^.+/(s|ms|us|ns)$"},
        {"type": "null"},
    ]
}
_ENERGY_SCHEMA: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": LARGEST_SIZE}
_SPEED_SCHEMA: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
_COUNT_SCHEMA: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT}


def _as_list(values: object, wrong: str) -> list[Any]:
    """Return the entries of a list, tuple or array."""
    if isinstance(values, list):
        return values
    if isinstance(values, tuple):
        return list(values)
    to_list = getattr(values, "tolist", None)
    listed = to_list() if callable(to_list) else None
    if not isinstance(listed, list):
        raise fail(wrong)
    return listed


def _parent_array(values: object) -> tuple[int, ...]:
    items = _as_list(values, "expected a list of node numbers")
    count = len(items)
    if count > LARGEST_COUNT:
        raise fail(f"{count:,} nodes; at most {LARGEST_COUNT:,} are allowed")
    if set(map(type, items)) <= {int} and (not items or (min(items) >= -1 and max(items) < count)):
        return tuple(items)
    for index, item in enumerate(items):
        if type(item) is not int or not -1 <= item < count:
            raise fail(
                f"{brief(item)} is not a node number (0 to {count - 1}, the root's parent -1)",
                f"[{index}]",
            )
    return tuple(items)


# Plain validators bypass pydantic's coercions: "8" is no count, and 1 is no flag.
def _by_type(what: str, parse: Callable[[object, Units], Number]) -> Callable[[object], Number | dict[str, Number]]:
    """Return the function that reads a number, or an object that maps device types to numbers."""

    def read(value: object) -> Number | dict[str, Number]:
        if not isinstance(value, dict):
            number: Number = _in_units(parse)(value)
            return number
        if not value:
            raise fail(f"an object without any type of device; write {what}, or one for each type that can run it")
        found = {}
        for key, one in value.items():
            name = _name(key)
            try:
                found[name] = parse(one, _units.get())
            except ValueError as error:
                raise fail(str(error), f".{name}") from None
        return found

    return read


def _energy(value: object, units: Units) -> Number:
    return parse_energy(value)


Size = Annotated[int, PlainValidator(_in_units(parse_size)), WithJsonSchema(_SIZE_SCHEMA)]
Time = Annotated[Number, PlainValidator(_in_units(parse_time)), WithJsonSchema(_TIME_SCHEMA)]
TimeByType = Annotated[
    Number | dict[str, Number],
    PlainValidator(_by_type("a time", parse_time)),
    WithJsonSchema({"anyOf": [*_TIME_SCHEMA["anyOf"], {"type": "object", "additionalProperties": _TIME_SCHEMA}]}),
]
Energy = Annotated[Number, PlainValidator(_in_units(_energy)), WithJsonSchema(_ENERGY_SCHEMA)]
EnergyByType = Annotated[
    Number | dict[str, Number],
    PlainValidator(_by_type("an energy", _energy)),
    WithJsonSchema({"anyOf": [_ENERGY_SCHEMA, {"type": "object", "additionalProperties": _ENERGY_SCHEMA}]}),
]
Bandwidth = Annotated[Number | None, PlainValidator(_in_units(parse_bandwidth)), WithJsonSchema(_RATE_SCHEMA)]
Count = Annotated[int, PlainValidator(_count), WithJsonSchema(_COUNT_SCHEMA)]
Speed = Annotated[Number, PlainValidator(_speed), WithJsonSchema(_SPEED_SCHEMA)]
Ratio = Annotated[Number, PlainValidator(_ratio), WithJsonSchema(_SPEED_SCHEMA)]


def _names(value: object) -> str | tuple[str, ...]:
    """Read a name, or a list of at least two distinct names."""
    if not isinstance(value, (list, tuple)):
        return _name(value)
    names = tuple(_name(one) for one in value)
    if len(names) < 2 or len(set(names)) < len(names):
        raise fail("expected a name, or a list of at least two different ones")
    return names


_NAME_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
NameOrNames = Annotated[
    str | tuple[str, ...],
    PlainValidator(_names),
    PlainSerializer(lambda names: names if isinstance(names, str) else list(names)),
    WithJsonSchema({"anyOf": [_NAME_SCHEMA, {"type": "array", "minItems": 2, "items": _NAME_SCHEMA}]}),
]
Flag = Annotated[bool, PlainValidator(_flag), WithJsonSchema({"type": "boolean"})]
Name = Annotated[
    str, PlainValidator(_name), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_NAME})
]
SizeArray = Annotated[
    tuple[int, ...],
    PlainValidator(_array_of(parse_size, LARGEST_SIZE)),
    PlainSerializer(list),
    WithJsonSchema({"type": "array", "items": _SIZE_SCHEMA}),
]
TimeArray = Annotated[
    tuple[Number, ...],
    PlainValidator(_array_of(parse_time, LARGEST_SIZE)),
    PlainSerializer(list),
    WithJsonSchema({"type": "array", "items": _TIME_SCHEMA}),
]
ParentArray = Annotated[
    tuple[int, ...],
    PlainValidator(_parent_array),
    PlainSerializer(list),
    WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": -1}}),
]


def check_total(sizes: int, what: str) -> None:
    """Reject a total of sizes beyond 2^62, the largest that all later sums can hold."""
    if sizes > LARGEST_SIZE:
        raise fail(f"{what} add up to {sizes}, more than the largest total, 2^62")
