"""From a CSV schedule and the times of its stages to an instance: `remat import pipeline-csv`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import IO, Any

from remat.bridges.pipelining.actions import Action, Kind, Place, each_action, read_csv
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import notes_on, orders_of, schedule_document
from remat.documents import read_document
from remat.errors import InstanceError
from remat.instance import Layer, PipelineInstance, digest, instance_from_document
from remat.messages import brief, listing

_KEYS = {"F": "forward_time", "B": "backward_time", "I": "backward_time", "W": "weight_time", "F&B": "paired_time"}
_SIZES = tuple(key for key in Layer.model_fields if key.endswith(("_size", "_workspace")))
_HOP = ("bandwidth", "latency", "delay")


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import: an instance, its schedule document, and notes on what they do not express."""

    instance: PipelineInstance
    schedule: dict[str, Any]
    notes: tuple[str, ...]


def import_csv(
    source: str | os.PathLike[str] | IO[Any],
    times: str | os.PathLike[str] | dict[str, Any],
    *,
    name: str | None = None,
) -> Imported:
    """Convert a CSV schedule to an instance of kind `pipeline` with one layer per stage, and a schedule for it.

    Parameters
    ----------
    source : path or open file
        The CSV.
    times : path or dict
        ``{"stages": [{"F": 1, "B": 2}, ...]}``, or one such object for all stages; ``I`` and ``W`` instead of ``B`` for
        backwards in halves, and the sizes that layers of an instance have. Beside it ``hop`` (`bandwidth`, `latency`,
        `delay` between any two devices) and ``units`` (as of an instance).
    name : str, optional
        Default: the CSV's.

    Raises
    ------
    InstanceError
        For an unreadable or inconsistent CSV or times document.
    """
    named = os.fspath(source) if isinstance(source, (str, os.PathLike)) else str(getattr(source, "name", "schedule"))
    layout = check_layout(read_csv(source), named)
    given = times if isinstance(times, dict) else read_document(times)
    where = "times" if isinstance(times, dict) else os.fspath(times)
    depths = sorted({len(own) for own in layout.copies})
    if len(depths) > 1:
        raise InstanceError(f"{named}: copies of the model are cut into {depths[0]} and {depths[-1]} stages")
    try:
        layers = _layers(given, depths[0])
    except InstanceError as error:
        raise InstanceError(f"{where}: {error}") from None
    stem = os.path.basename(named).removesuffix(".gz").removesuffix(".csv")
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "name": name or stem,
        "source": f"imported from {os.path.basename(named)}",
        **({"units": given["units"]} if "units" in given else {}),
        "micro_batches": layout.batches,
        "layers": layers,
        "cluster": {
            "devices": [{"name": "gpu", "count": len(layout.rows)}],
            **({"levels": [given["hop"]]} if "hop" in given else {}),
            **({"transfers": given["transfers"]} if "transfers" in given else {}),
        },
        "copies": max(len({layout.home[stage] for stage in same}) for same in zip(*layout.copies, strict=True)),
    }
    try:
        instance = instance_from_document(document)
    except InstanceError as error:
        told = [_of_times(line, layers) for line in (str(error), *error.more)]
        raise InstanceError(f"{where}: {told[0]}", more=told[1:]) from None
    assert isinstance(instance, PipelineInstance)
    _check_halves(layout, instance, named)
    devices = instance.cluster.names
    schedule = schedule_document(orders_of(layout, instance, len(devices)), devices)
    about = {"instance": {"name": instance.name, "digest": digest(instance)}}
    return Imported(instance, {"schema": schedule["schema"], **about, **schedule}, tuple(notes_on(layout, instance)))


def _layers(given: Any, depth: int) -> list[dict[str, Any]]:
    """Return the layers of a times document; a single object applies to all stages."""
    example = '{"stages": [{"F": 1, "B": 2}, ...]}'
    if not isinstance(given, dict):
        raise InstanceError(f"expected an object such as {example}", "$")
    _check_keys(given, ("stages", "hop", "transfers", "units"), "$")
    listed = given.get("stages")
    if "hop" in given:
        if not isinstance(given["hop"], dict):
            raise InstanceError("expected an object with some of the keys bandwidth, latency, delay", "$.hop")
        _check_keys(given["hop"], _HOP, "$.hop")
    if isinstance(listed, dict):
        return [_layer(listed, "$.stages") | {"repeat": depth}]
    if not isinstance(listed, list):
        raise InstanceError(f"expected the times of the stages, such as {example}", "$.stages")
    if len(listed) != depth:
        raise InstanceError(f"{len(listed)} stages, and the CSV has {depth} one after the other", "$.stages")
    return [_layer(one, f"$.stages[{index}]") for index, one in enumerate(listed)]


def _layer(given: Any, path: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InstanceError("expected an object with the keys F and B (or I and W)", path)
    _check_keys(given, (*_KEYS, *_SIZES), path)
    for wanted in ("F", *(("B",) if "I" not in given and "W" not in given else ("I", "W"))):
        if wanted not in given:
            raise InstanceError(f"the time {wanted} is missing: F and B, or F, I and W", path)
    if "B" in given and "I" in given:
        raise InstanceError(
            "B is the time of a whole backward, I and W are those of its halves: give the one or the others", path
        )
    return {_KEYS.get(str(key), str(key)): value for key, value in given.items()}


def _check_keys(given: dict[str, Any], known: tuple[str, ...], path: str) -> None:
    for key in given:
        if key not in known:
            raise InstanceError(f"unknown key {brief(key)}; known are {listing(known)}", path)


def _check_halves(layout: Layout, instance: PipelineInstance, name: str) -> None:
    """Refuse split backwards if only the time of the whole is known."""
    part = {stage: index for own in layout.copies for index, stage in enumerate(own)}
    whole = [not layer.is_split for layer in instance.each_layer()]

    def is_half(found: tuple[Place, Action]) -> bool:
        return found[1].kind in (Kind.INPUT, Kind.WEIGHT) and whole[part[found[1].stage]]

    found = next(filter(is_half, each_action(layout.rows)), None)
    if found is not None:
        place, action = found
        raise InstanceError(
            f"{name}: {place}: {action} is half a backward, but the times of stage {action.stage} know no halves; "
            "give it I and W instead of B"
        )


def _of_times(text: str, layers: list[dict[str, Any]]) -> str:
    """Translate paths in the instance to paths in the times document."""
    stage = "$.stages" if "repeat" in layers[0] else r"$.stages[\1]"
    text = re.sub(r"^\$\.layers\[(\d+)\]", stage, text).replace("$.cluster.levels[0]", "$.hop")
    halves = any("weight_time" in layer for layer in layers)
    names = {"forward_time": "F", "backward_time": "I" if halves else "B", "weight_time": "W", "paired_time": "F&B"}
    for key, value in names.items():
        text = re.sub(rf"^(\$\.stages(?:\[\d+\])?)\.{key}\b", rf"\1.{value}", text)
    return text
