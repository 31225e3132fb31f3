"""Options of algorithms: frozen pydantic models, filled from text or from Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from remat.errors import OptionError
from remat.messages import brief, listing, nearest
from remat.plugin.registry import Algorithm


class Options(BaseModel):
    """Base of all option models; each field carries its help text as `description`.

    Attributes
    ----------
    gone : mapping of str to str
        Options that the previous release had, and why they were removed.
    """

    gone: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def make_options(algorithm: Algorithm, given: Mapping[str, Any]) -> Any:
    """Validate options for an algorithm; text values (from a command line) are converted.

    Returns
    -------
    Options or None
        None for an algorithm without options.

    Raises
    ------
    OptionError
        Names the option and its permitted values.
    """
    model = algorithm.load_options()
    if model is None:
        if given:
            raise OptionError(f"{algorithm.name} has no options, so {min(given)!r} has no effect", argument="options")
        return None
    if not given and _plain(model):
        return model.model_construct()
    for name in given:
        if name in (gone := getattr(model, "gone", {})):
            raise OptionError(f"{algorithm.name}'s option {name!r} is gone: {gone[name]}", argument="options")
        if name not in model.model_fields:
            near = nearest(name, model.model_fields)
            hint = f"did you mean {near!r}?" if near else f"it has {listing(model.model_fields)}"
            raise OptionError(f"{algorithm.name} has no option {name!r}; {hint}", argument="options")
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        shown = f", not {brief(first.get('input'))}" if first["loc"] else ""
        if first["type"] == "string_pattern_mismatch" and name in model.model_fields:
            # The description explains a regular expression in words.
            first["msg"] = (model.model_fields[name].description or first["msg"]).rstrip(".")
        raise OptionError(f"{first['msg']}{shown}", option=name) from None


def largest_values(model: type[BaseModel] | None) -> dict[str, float]:
    """Return the largest permitted values of options that have one."""
    found: dict[str, float] = {}
    for name, field in ({} if model is None else model.model_fields).items():
        limits = [limit.le for limit in field.metadata if getattr(limit, "le", None) is not None]
        if limits:
            found[name] = min(limits)
    return found


def _plain(model: type[BaseModel]) -> bool:
    """Whether a model's defaults need no validator; then its schema need not be built."""
    decorators = model.__pydantic_decorators__
    free = not decorators.validators and not decorators.field_validators and not decorators.model_validators
    lenient = not model.model_config.get("validate_default") and not decorators.root_validators
    return free and lenient and not any(field.is_required() for field in model.model_fields.values())
