"""The digest of an instance: SHA-256 of its canonical JSON.

In canonical JSON, keys are sorted, blanks and defaults are omitted, sizes are integers, and physical times are exact
decimals in seconds. Name, description, source and annotations are excluded. Two documents with one digest describe
the same problem.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remat.instance.base import BaseInstance
    from remat.instance.columns import View
    from remat.units import Number

_SECONDS = {"s": 0, "ms": -3, "us": -6, "ns": -9}
_TIMES = frozenset(
    [
        *("time", "forward_time", "backward_time", "saving_forward_time"),
        *("tape_time", "write_time", "read_time", "latency", "update_time", "weight_time", "paired_time", "delay"),
    ]
)


_KNOWN: dict[int, tuple[weakref.finalize[..., BaseInstance], str]] = {}
"""Digests of live instances, by identity: instances are immutable, and every result names its instance's digest."""


def digest(instance: BaseInstance) -> str:
    """Return ``sha256:`` and the hexadecimal digest; only the first call for an instance takes O(its size)."""
    number = id(instance)
    known = _KNOWN.get(number)
    if known is not None and known[0].alive:
        return known[1]
    found = _digest(instance)
    gone = weakref.finalize(instance, _KNOWN.pop, number, None)
    gone.atexit = False
    _KNOWN[number] = gone, found
    return found


def _digest(instance: BaseInstance) -> str:
    found = hashlib.sha256()
    for text in _canonical_texts(instance):
        found.update(text.encode())
    return "sha256:" + found.hexdigest()


def _canonical_texts(instance: BaseInstance) -> Iterator[str]:
    """Yield the canonical JSON; views of columns are written directly, some entries at a time."""
    lists: dict[str, Any] = {key: getattr(instance, key, ()) for key in instance.annotations}
    views: dict[str, View[Any]] = {key: one for key, one in lists.items() if hasattr(one, "canonical") and len(one)}
    exponent = _SECONDS.get(instance.units.time, 0)

    def text(node: Any) -> str:
        return _json(_numbers(node, exponent))

    known: dict[Number, str] = {}  # many tasks have equal times

    def time_text(time: Number) -> str:
        if type(time) is int and not exponent:
            return str(time)
        if time not in known:
            known[time] = _json(_numbers(time, exponent, "time"))
        return known[time]

    rest = _json(canonical(instance, without=frozenset(views)) | dict.fromkeys(views, _HERE))
    for key in sorted(views):
        before, _, rest = rest.partition(f'"{key}":{_json(_HERE)}')
        yield f'{before}"{key}":['
        separator = ""
        for entries in views[key].canonical(text, time_text):
            yield separator + ",".join(entries)
            separator = ","
        yield "]"
    yield rest


_HERE = "\0here\0"


def _json(node: Any) -> str:
    return json.dumps(node, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(instance: BaseInstance, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the canonical document, without some of its lists."""
    document = instance.model_dump(
        mode="python",
        by_alias=True,
        exclude_defaults=True,
        exclude={"name", "description", "source", "schema_", *without},
    )
    for owner in (document, *document.get("chains", ())):
        for key, names in instance.annotations.items():
            for entry in owner.get(key, ()):
                for name in names:
                    entry.pop(name, None)
    document["kind"] = getattr(instance, "kind")  # noqa: B009 - a default, but it says what the rest means
    units = document.pop("units", {})
    time_unit = units.get("time", "s")
    if units.get("memory", "B") != "B":
        document["memory"] = units["memory"]
    exponent = _SECONDS.get(time_unit)
    if exponent is None:
        document["time_unit"] = time_unit
    for task in document.get("tasks", ()):
        if "on" in task:
            task["on"] = sorted(task["on"])
    _leave_out_derived_defaults(document)
    return _numbers(document, exponent or 0)  # type: ignore[no-any-return]


def _leave_out_derived_defaults(document: dict[str, Any]) -> None:
    """Drop values that equal their derived defaults (for example a stage's saving workspace)."""
    if document["kind"] == "pipeline":
        _of_pipeline(document)
    reads = document.get("backward_reads", ("input", "output", "saved"))
    branches = [stage for chain in document.get("chains", ()) for stage in chain.get("stages", ())]
    for stage in (*document.get("stages", ()), *document.get("layers", ()), *branches):
        _drop_equal(stage, "saving_workspace", stage.get("forward_workspace", 0))
        _drop_equal(stage, "saving_forward_time", stage.get("forward_time", 0))
        _drop_equal(stage, "gradient_size", stage.get("output_size", 0))
        _drop_equal(stage, "backward_reads", reads)
        _drop_equal(stage, "parameter_gradient_size", stage.get("parameter_size", 0))
        for work in stage.get("tensor", {}).values():
            _drop_equal(work, "gradient_size", work.get("output_size", 0))
            _drop_equal(work, "parameter_gradient_size", work.get("parameter_size", 0))
        for variant in stage.get("variants", ()):
            _drop_equal(variant, "saving_workspace", stage.get("saving_workspace", stage.get("forward_workspace", 0)))
            _drop_equal(variant, "saving_forward_time", stage.get("saving_forward_time", stage.get("forward_time", 0)))
            _drop_equal(variant, "backward_time", stage.get("backward_time", 0))
            _drop_equal(variant, "saved_size", stage.get("saved_size", 0))
            _drop_equal(variant, "backward_workspace", stage.get("backward_workspace", 0))
            _drop_equal(variant, "backward_reads", stage.get("backward_reads", reads))
    if "adjoint_size" in document and document["adjoint_size"] == document.get("state_size", 1):
        del document["adjoint_size"]
    for key, fallback in (("workspace", 0), ("time", 1)):
        if document["kind"] == "tree" and key in document and set(document[key]) == {fallback}:
            del document[key]


def _of_pipeline(document: dict[str, Any]) -> None:
    """Normalise a pipeline: reads of saved values are implied, in any order; an unnamed device type is its name."""
    for layer in document["layers"]:
        parts = [layer.get(key, 0) for key in ("forward_time", "backward_time", "weight_time")]
        if not any(isinstance(part, dict) for part in parts):
            _drop_equal(layer, "paired_time", sum(parts))
        if "reads" in layer:
            layer["reads"] = sorted(layer["reads"])
    _drop_equal(document["layers"][0], "reads", ())  # no layer precedes it
    for owner in (document, *document["layers"]):
        if owner.get("backward_reads") is not None:
            owner["backward_reads"] = sorted({*owner["backward_reads"], "saved"})
    _drop_equal(document, "backward_reads", ("input", "output", "saved"))
    for device in document["cluster"]["devices"]:
        _drop_equal(device, "type", device["name"])


def _drop_equal(owner: dict[str, Any], key: str, default: Any) -> None:
    if key in owner and _same(owner[key], default):
        del owner[key]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return sorted(one) == sorted(other)
    return bool(one == other)


def _numbers(node: Any, exponent: int, key: str = "") -> Any:
    if isinstance(node, dict):
        # A time or an energy may also be an object with one entry for each type of device.
        by_type = key in _TIMES or key == "energy"
        return {name: _numbers(child, exponent, key if by_type else name) for name, child in node.items()}
    if isinstance(node, (list, tuple)):
        if not exponent and set(map(type, node)) <= {int}:
            return list(node)  # arrays of plain integers are already canonical
        return [_numbers(child, exponent, key) for child in node]
    if isinstance(node, bool) or not isinstance(node, (int, float)):
        return node
    if key in _TIMES:
        return _decimal(Decimal(repr(node)).scaleb(exponent))
    if key == "energy":
        return _decimal(Decimal(repr(node)))
    if key in ("bandwidth", "codec"):  # per time unit: the exponent has the opposite sign
        return _decimal(Decimal(repr(node)).scaleb(-exponent))
    return node


def _decimal(number: Decimal) -> int | str:
    if number == number.to_integral_value() and abs(number) < 2**63:
        return int(number)
    return str(number.normalize())
