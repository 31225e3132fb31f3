"""Shared parts of all builders: common arguments, and errors in terms of arguments instead of a document."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar

from remat.documents import read_document
from remat.errors import InstanceError, checked_call
from remat.instance.base import SCHEMA_3
from remat.instance.loading import instance_from_document
from remat.instance.machine import MachineModel
from remat.instance.native import native
from remat.instance.validation_errors import MISSING
from remat.messages import brief
from remat.units import Units, parse_size

if TYPE_CHECKING:
    from pydantic import BaseModel

    from remat.instance import Instance

Size: TypeAlias = Any
"""A size: a whole number of any integer or float type, or a text such as ``"8GB"``."""

Time: TypeAlias = Any
"""A time: a number of any type in the time unit, or a text such as ``"3ms"``."""

Column: TypeAlias = Any
"""One entry for all (a scalar), or a sequence or array with one entry for each row."""

AnyMachine: TypeAlias = "Mapping[str, Any] | MachineModel | str | os.PathLike[str] | None"

TIME_UNITS = ("s", "ms", "us", "ns", "unit")
SIZE_UNITS = ("B", "unit")

Rule: TypeAlias = tuple[str, str]
"""A pattern of JSON paths, and the argument that they mean."""

_COMMON_RULES: tuple[Rule, ...] = (
    (r"^\$\.units\.time", "time_unit"),
    (r"^\$\.units\.memory", "size_unit"),
    (r"^\$\.", ""),
    (r"^\$$", ""),
)


class Common(TypedDict, total=False):
    """Arguments of every builder.

    Attributes
    ----------
    time_unit : str
        What bare times mean: ``s`` (default), ``ms``, ``us``, ``ns``, or ``unit`` for abstract ones.
    size_unit : str
        What bare sizes mean: ``B`` (default), or ``unit`` for abstract ones.
    machine : dict, MachineModel or path
        Hardware: see `remat.machine` and `remat.device`. Default: one unbounded memory and one processor.
    static_memory : size
        Bytes that always occupy the working memory.
    name, description, source : str
        What results call it; what it is; where it comes from.
    """

    time_unit: Literal["s", "ms", "us", "ns", "unit"]
    size_unit: Literal["B", "unit"]
    machine: AnyMachine
    static_memory: Size
    name: str
    description: str
    source: str


_KEYS = frozenset(Common.__annotations__)

P = ParamSpec("P")
R = TypeVar("R")

_JSON_WORDS = {"null": "None", "true": "True", "false": "False"}
_JSON_WORD = re.compile(r"(?<![\w'.])(?:null|true|false)(?![\w'.])")


def builder(more: type | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for builders that turns every error of a call into an `InstanceError` in terms of Python.

    Parameters
    ----------
    more : type, optional
        The `TypedDict` of the builder's further keyword arguments.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        checked = checked_call(InstanceError, more)(function)

        @wraps(function)
        def build(*arguments: P.args, **keywords: P.kwargs) -> R:
            try:
                return checked(*arguments, **keywords)
            except InstanceError as error:
                refused = _of_python(error)
            raise refused

        if function.__doc__ and more is not None:
            build.__doc__ = _with_arguments(inspect.cleandoc(function.__doc__), more)
        return build

    return decorated


_FURTHER = re.compile(r"^\*\*\w+\n(?: +.*\n)+", re.MULTILINE)
"""The entry of a docstring for further keyword arguments."""


def _with_arguments(text: str, more: type) -> str:
    """Return a docstring that explains the arguments of a `TypedDict` instead of naming it."""
    parts = (more,) if more is Common else (more, Common)
    return _FURTHER.sub("".join(map(_attributes, parts)).replace("\\", r"\\"), text, count=1)


def _attributes(arguments: type) -> str:
    listed = inspect.cleandoc(arguments.__doc__ or "").partition("----------\n")[2]
    return f"{listed.rstrip()}\n" if listed else ""


def _of_python(error: InstanceError) -> InstanceError:
    """Return an error without words that only documents have, such as null."""
    return InstanceError(_words(error.message), error.path, [_words(line) for line in error.more])


def _words(message: str) -> str:
    found = message.replace(MISSING, "there is no value (None), and the field has no default")
    found = re.sub(r"\b(expected|not) an object\b", r"\1 a dict", found)
    return _JSON_WORD.sub(lambda word: _JSON_WORDS[word[0]], found)


def fields_among(
    arguments: type, instance: type[BaseModel], row: type[BaseModel]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which arguments of a builder are fields of the instance, and which of the others are fields of a row.

    Parameters
    ----------
    arguments : type
        A `TypedDict` that continues `Common`, whose keys are left out.
    instance, row : type
        The models of the instance and of its stages or layers.
    """
    own = [key for key in arguments.__annotations__ if key not in _KEYS]
    whole = tuple(key for key in own if key in instance.model_fields)
    return whole, tuple(key for key in own if key in row.model_fields and key not in whole)


def head(kind: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first part of a document."""
    document: dict[str, Any] = {"schema": SCHEMA_3, "kind": kind}
    units = {"time": common.get("time_unit", "s"), "memory": common.get("size_unit", "B")}
    for argument, key, known in (("time_unit", "time", TIME_UNITS), ("size_unit", "memory", SIZE_UNITS)):
        if not isinstance(units[key], str) or units[key] not in known:
            raise InstanceError(f"{brief(units[key])} is none of {', '.join(known)}{_remedy(units[key])}", argument)
    document["units"] = units
    for key in ("name", "description", "source", "static_memory"):
        if key in common:
            document[key] = native(common[key])
    machine = common.get("machine")
    if machine is not None:
        document["machine"] = machine_document(machine)
    return document


def _remedy(unit: object) -> str:
    """Return the remedy for sizes in a unit such as MB; empty for other texts."""
    try:
        factor = parse_size(f"1{unit}")
    except ValueError:
        return ""
    return f"; multiply the sizes by {factor:,} (bytes), or write them as texts such as '8{unit}'"


def units_of(document: Mapping[str, Any]) -> Units:
    """Return the units of a document that `head` made."""
    return Units(document["units"]["time"], document["units"]["memory"])


def machine_document(machine: AnyMachine | IO[Any]) -> dict[str, Any]:
    """Return the `machine` part of a document."""
    if isinstance(machine, MachineModel):
        return machine.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(machine, (str, os.PathLike)):
        machine = read_document(machine, "machine")
    plain = native(machine)
    if not isinstance(plain, dict):
        raise InstanceError(
            f"{brief(machine)} is not a machine; build one with remat.machine or remat.device", "machine"
        )
    return plain


def build(document: dict[str, Any], rules: Sequence[Rule] = ()) -> Instance:
    """Read a document; its errors name arguments, by the first of `rules` that fits their path."""
    try:
        return instance_from_document(document)
    except InstanceError as error:
        raise renamed(error, rules) from None


def renamed(error: InstanceError, rules: Sequence[Rule] = ()) -> InstanceError:
    """Return an error of a document as one of arguments."""
    more = [_argument(line, rules) for line in error.more]
    return InstanceError(error.message, _argument(error.path, rules), more)


def _argument(path: str, rules: Sequence[Rule]) -> str:
    for pattern, argument in (*rules, *_COMMON_RULES):
        found, count = re.subn(pattern, argument, path, count=1)
        if count:
            return found
    return path
