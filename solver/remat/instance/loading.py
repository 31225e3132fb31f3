"""Load a validated instance from a file, an open file, a document or a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import ValidationError

from remat.documents import collector_paused, read_document, read_unparsed
from remat.errors import InstanceError, OptionError, RematError, ScheduleForInstanceError, checked_call
from remat.instance.base import SCHEMA, SCHEMA_3, SCHEMAS, BaseInstance
from remat.instance.fast_validation import plainly
from remat.instance.fields import units_scope
from remat.instance.kinds import KINDS, model_of
from remat.instance.lazy_text import ListText, opened
from remat.instance.machine import MachineModel
from remat.instance.native import native
from remat.instance.validation_errors import instance_error, json_type
from remat.messages import brief
from remat.units import Units

if TYPE_CHECKING:
    from remat.instance.kinds import Instance


@checked_call(OptionError)
def load(source: str | os.PathLike[str] | IO[Any] | Mapping[str, Any] | BaseInstance) -> Instance:
    """Load an instance.

    Parameters
    ----------
    source : path, "-", open file, dict or instance
        JSON (gzip is recognised), standard input, a parsed document, or an instance, which is returned unchanged. A
        document may contain numbers of numpy, and arrays instead of lists.

    Returns
    -------
    ChainInstance, AdjointInstance, DagInstance, TreeInstance, PipelineInstance or JoinInstance

    Raises
    ------
    remat.InstanceError
        With the JSON path of the first error; the next errors are notes.
    """
    if isinstance(source, BaseInstance):
        return source  # type: ignore[return-value]
    if isinstance(source, Mapping):
        return instance_from_document(source if isinstance(source, dict) else dict(source))
    if not (isinstance(source, (str, os.PathLike)) or hasattr(source, "read")):
        remedy = (
            "build an instance with remat.chain, remat.dag, remat.tree, remat.adjoint, remat.join or remat.pipeline"
        )
        raise InstanceError(f"expected a path, an open file, a dict or an instance, not {_type_of(source)}; {remedy}")
    with collector_paused():
        return instance_from_document(opened(read_unparsed(source), "values", "tasks"))


def _type_of(source: object) -> str:
    kind = type(source)
    if source is None:
        return "None"
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def instance_from_document(document: Any) -> Instance:
    """Validate a parsed document as an instance; its lists may still be text, and its numbers may be numpy's."""
    try:
        return _from_parts(document)
    except (ValueError, TypeError) as error:
        plain = native(document)
        if plain is document and not isinstance(error, RematError):
            raise InstanceError(f"the document cannot be read: {error}") from error
        if plain is document:
            raise
    return instance_from_document(plain)


def _from_parts(document: Any) -> Instance:
    try:
        return _from_document(document)
    except (InstanceError, _UnusualError):
        texts = [part for part in document.values() if isinstance(part, ListText)] if isinstance(document, dict) else []
        if not texts:
            raise
        # Invalid documents are reported first; unusual ones are then examined entry by entry.
        return _from_document(texts[0].document())


class _UnusualError(Exception):
    """A document whose unparsed lists are not in the usual form."""


def _from_document(document: Any) -> Instance:
    if not isinstance(document, dict):
        raise InstanceError(f"an instance is a JSON object, not {json_type(document)}", "$")
    schema = document.get("schema")
    if schema not in SCHEMAS:
        hint = "the key is missing" if schema is None else f"found {brief(schema)}"
        if isinstance(schema, str) and schema.startswith(("remat.schedule/", "remat.summary/")):
            raise ScheduleForInstanceError(f"this is a schedule, not an instance: {hint}", "$.schema")
        if schema is None and "model_type" in document:
            raise InstanceError("this is the configuration of a model: see remat fit and remat generate", "$.schema")
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
    """Load the `machine` part of an instance from a separate file, in the instance's units."""
    document = native(source) if isinstance(source, dict) else read_document(source, "machine")
    try:
        with units_scope(units):
            made = plainly(MachineModel, document)
            return MachineModel.model_validate(document) if made is None else made
    except ValidationError as error:
        raise instance_error(error) from None


def machine_argument(
    given: str | os.PathLike[str] | dict[str, Any] | MachineModel | None, units: Units
) -> MachineModel | None:
    """Return what a caller gives as the argument `machine`; errors of a dict name the argument."""
    if given is None or isinstance(given, MachineModel):
        return given
    try:
        return load_machine(given, units)
    except InstanceError as error:
        if not isinstance(given, dict):
            raise
        raise InstanceError(error.message, f"machine{error.path.removeprefix('$')}", error.more) from None


@cache
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `remat.instance/3`, which also accepts documents of `/1` and `/2`."""
    from pydantic import Field, TypeAdapter

    from remat.instance.kinds import Instance

    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[Instance, Field(discriminator="kind")])
    schema = adapter.json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA_3,
        **schema,
    }
