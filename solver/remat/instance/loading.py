"""From a file, an open file, a document or a model to a validated instance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import ValidationError

from remat.documents import collector_paused, read_document, read_unparsed
from remat.errors import InstanceError, ScheduleForInstanceError
from remat.instance.base import SCHEMA, SCHEMA_3, SCHEMAS, BaseInstance
from remat.instance.fields import MOST_COUNTED, MOST_NAMED, UNCOUNTED, units_scope
from remat.instance.kinds import KINDS, model_of
from remat.instance.machine import MachineModel
from remat.instance.plainly import plainly
from remat.messages import brief
from remat.texts import ListText, opened
from remat.units import Units

if TYPE_CHECKING:
    from remat.instance.kinds import Instance


def load(source: str | os.PathLike[str] | IO[Any] | dict[str, Any] | BaseInstance) -> Instance:
    """Load an instance.

    Parameters
    ----------
    source : path, "-", open file, dict or instance
        JSON (gzip is recognised), standard input, a parsed document, or an instance, returned as it is.

    Returns
    -------
    ChainInstance, AdjointInstance, DagInstance, TreeInstance, PipelineInstance or JoinInstance

    Raises
    ------
    remat.InstanceError
        With the JSON path of the first thing wrong, and the next ones as notes.
    """
    if isinstance(source, BaseInstance):
        return source  # type: ignore[return-value]
    with collector_paused():
        document = source if isinstance(source, dict) else opened(read_unparsed(source), "values", "tasks")
        return instance_from_document(document)


def instance_from_document(document: Any) -> Instance:
    """Validate a parsed document as an instance; lists of it may still be text."""
    try:
        return _from_document(document)
    except (InstanceError, _UnusualError):
        texts = [part for part in document.values() if isinstance(part, ListText)] if isinstance(document, dict) else []
        if not texts:
            raise
        # What is no document at all is said first, and what is unusual is looked at entry by entry.
        return _from_document(texts[0].document())


class _UnusualError(Exception):
    """A document with lists that are still text, and that are not as most are."""


def _from_document(document: Any) -> Instance:
    if not isinstance(document, dict):
        raise InstanceError(f"an instance is a JSON object, not {_json_type(document)}", "$")
    schema = document.get("schema")
    if schema not in SCHEMAS:
        hint = "the key is missing" if schema is None else f"found {brief(schema)}"
        if isinstance(schema, str) and schema.startswith(("remat.schedule/", "remat.summary/")):
            raise ScheduleForInstanceError(f"an instance is wanted, and this is a schedule: {hint}", "$.schema")
        raise InstanceError(f"expected {SCHEMA!r} to {SCHEMA_3!r}: {hint}", "$.schema")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        found = "the key is missing" if kind is None else f"unknown kind {brief(kind)}"
        raise InstanceError(f"{found}; it is one of {', '.join(KINDS)}", "$.kind")
    try:
        with collector_paused():
            model = model_of(kind)
            made: Instance | None = plainly(model, document)
            if made is None and any(isinstance(part, ListText) for part in document.values()):
                raise _UnusualError
            loaded: Instance = model.model_validate(document) if made is None else made
            return loaded
    except ValidationError as error:
        raise instance_error(error) from None


def load_machine(source: str | os.PathLike[str] | IO[Any] | dict[str, Any], units: Units) -> MachineModel:
    """Load the `machine` part of an instance from a file of its own, in the instance's units."""
    document = source if isinstance(source, dict) else read_document(source, "machine")
    try:
        with units_scope(units):
            made = plainly(MachineModel, document)
            return MachineModel.model_validate(document) if made is None else made
    except ValidationError as error:
        raise instance_error(error) from None


def instance_error(error: ValidationError) -> InstanceError:
    """Turn pydantic's report into the first error, with its JSON path, and `MOST_NAMED` of the others as its notes."""
    # A list whose only entry is wrong is reported as empty, too.
    listed = error.errors(include_url=False)
    problems = [problem for problem in listed if problem["type"] != "too_short" or not problem.get("input")] or listed
    # The validator of an array reports all that is wrong in it as one problem.
    listed = [problem for problem in problems if problem["type"] != UNCOUNTED]
    found = [(_path_of(problem, at), message) for problem in listed for at, message in _messages_of(problem)]
    count = len(found) + sum(int(problem.get("ctx", {}).get("uncounted", 0)) for problem in problems)
    (path, message), *others = found[:MOST_NAMED]
    more = [f"{place}: {why}" for place, why in others]
    least = "at least " if count >= MOST_COUNTED else ""
    if count > MOST_NAMED:
        more.append(f"and {least}{count - MOST_NAMED:,} more")
    return InstanceError(message + (f" (and {least}{count - 1:,} more)" if count > 1 else ""), path, more)


def _path_of(problem: Any, at: str) -> str:
    # Union branches put their tags into the location: the model's class names are no keys of the document.
    path = "$"
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path + at


def _messages_of(problem: Any) -> Iterator[tuple[str, str]]:
    """Yield (what the JSON path ends in, message) for each thing wrong."""
    context: dict[str, Any] = problem.get("ctx") or {}
    if problem["type"] == "literal_error":
        yield "", f"{brief(problem.get('input'))} is not one of {context.get('expected')}"
        return
    known = {
        "missing": "the key is missing",
        "extra_forbidden": "unknown key",
        "too_short": "the list is empty",
        "model_type": f"expected an object, not {_json_type(problem.get('input'))}",
        "tuple_type": f"expected a list, not {_json_type(problem.get('input'))}",
        "string_type": f"expected a text, not {_json_type(problem.get('input'))}",
        "string_unicode": "not valid Unicode text",
    }
    yield str(context.get("at") or ""), known.get(problem["type"]) or str(problem["msg"])
    yield from context.get("others", ())


def _json_type(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


@cache
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `remat.instance/3`, which reads documents of `/1` and `/2`, too."""
    from pydantic import Field, TypeAdapter

    from remat.instance.kinds import Instance

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Instance, Field(discriminator="kind")])
    schema = adapter.json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA_3,
        **schema,
    }
