"""Conversion of pydantic's validation errors to one `InstanceError`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError

from remat.errors import InstanceError
from remat.instance.fields import MOST_COUNTED, MOST_NAMED, UNCOUNTED, Model
from remat.messages import brief, nearest

MISSING = "the key is missing"
"""The message for a field without a value."""


def instance_error(error: ValidationError) -> InstanceError:
    """Convert pydantic's report: the first error with its JSON path, and up to `MOST_NAMED` others as notes."""
    # A list whose only entry is wrong is also reported as empty.
    try:
        listed = error.errors(include_url=False)
    except UnicodeEncodeError:  # from pydantic, for a key with half of a surrogate pair
        return InstanceError("a key is not valid Unicode text: it has half of a surrogate pair")
    problems = [problem for problem in listed if problem["type"] != "too_short" or not problem.get("input")] or listed
    # The validator of an array reports all errors in it as one problem.
    listed = [problem for problem in problems if problem["type"] != UNCOUNTED]
    found = [(_path_of(problem, at), message) for problem in listed for at, message in _messages_of(problem)]
    unknown = {_path_of(problem, ""): problem["loc"] for problem in listed if problem["type"] == "extra_forbidden"}
    count = len(found) + sum(int(problem.get("ctx", {}).get("uncounted", 0)) for problem in problems)
    (path, message), *others = found[:MOST_NAMED]
    if path in unknown:
        message += _meant(error.title, unknown[path])
    more = [f"{place}: {why}" for place, why in others]
    least = "at least " if count >= MOST_COUNTED else ""
    if count > MOST_NAMED:
        more.append(f"and {least}{_errors(count - MOST_NAMED)}")
    return InstanceError(message + (f" (and {least}{_errors(count - 1)})" if count > 1 else ""), path, more)


def _errors(count: int) -> str:
    return f"{count:,} more error{'s' if count > 1 else ''}"


def _meant(title: str, location: tuple[int | str, ...]) -> str:
    """Return which field of the model there is probably meant by an unknown key."""
    models = {model for model in _models(Model) if model.__name__ == title}
    for part in location[:-1]:
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if fields:  # other parts are positions in lists, and tags of unions
            models = {model for field in fields for model in _models_in(field.annotation)}
    near = nearest(location[-1], sorted({key for model in models for key in model.model_fields}))
    return "" if near is None else f"; did you mean {near!r}?"


def _models(base: type[Model]) -> Iterator[type[Model]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _models_in(annotation: Any) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _path_of(problem: Any, at: str) -> str:
    # Union branches put their tags into the location, but the model's class names are no keys of the document.
    path = "$"
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path + at


def _messages_of(problem: Any) -> Iterator[tuple[str, str]]:
    """Yield (end of the JSON path, message) for each error."""
    context: dict[str, Any] = problem.get("ctx") or {}
    if problem["type"] == "literal_error":
        yield "", f"{brief(problem.get('input'))} is not one of {context.get('expected')}"
        return
    known = {
        "missing": MISSING,
        "extra_forbidden": "unknown key",
        "too_short": "the list is empty",
        "model_type": f"expected an object, not {json_type(problem.get('input'))}",
        "tuple_type": f"expected a list, not {json_type(problem.get('input'))}",
        "string_type": f"expected a text, not {json_type(problem.get('input'))}",
        "string_unicode": "not valid Unicode text",
    }
    yield str(context.get("at") or ""), known.get(problem["type"]) or str(problem["msg"])
    yield from context.get("others", ())


def json_type(value: object) -> str:
    """Return the JSON type of a value, as text."""
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
