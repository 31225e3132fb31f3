"""Recomputed layers of a stage: the key `recompute` of a stage of `remat.schedule/2`.

A *segment* is a run of consecutive layers. For a micro-batch that recomputes a segment, the values that its forwards
save are dropped immediately. Right before the backward of its last layer, all its forwards run a second time, from the
input of the first one. An operation ``R2.0`` in a device's order recomputes all segments of the stage ahead of the
backward. It begins after the values that it recomputes have arrived at all their earlier destinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remat.errors import InstanceError


class Segment(NamedTuple):
    """Layers that are recomputed together (from 0, in order), and the micro-batches (None: all)."""

    layers: tuple[int, ...]
    batches: tuple[int, ...] | None = None


Segments = tuple[tuple[int, ...], ...]


def segments_of(recompute: Sequence[Segment], batch: int) -> Segments:
    """Return the layers of each segment that a micro-batch recomputes, ascending."""
    return tuple(sorted(one.layers for one in recompute if one.batches is None or batch in one.batches))


def read_recompute(listed: object, layers: Sequence[int], path: str) -> tuple[Segment, ...]:
    """Read `recompute` of a stage that holds these layers (counted from 0).

    Raises
    ------
    InstanceError
        If the segments do not consist of these layers, or overlap for one micro-batch.
    """
    if not isinstance(listed, list) or not listed:
        raise InstanceError('expected a list of segments, such as [{"layers": [2]}]', path)
    found: list[Segment] = []
    for index, entry in enumerate(listed):
        at = f"{path}[{index}]"
        if not isinstance(entry, dict) or "layers" not in entry or entry.keys() - {"layers", "micro_batches"}:
            raise InstanceError("a segment is an object with the key layers, and perhaps micro_batches", at)
        held = tuple(number - 1 for number in _numbers(entry["layers"], 1, f"{at}.layers"))
        place = list(layers).index(held[0]) if held[0] in layers else len(layers)
        if tuple(layers[place : place + len(held)]) != held:
            raise InstanceError("a segment is layers of its stage that follow each other there", f"{at}.layers")
        batches = None
        if "micro_batches" in entry:
            batches = _numbers(entry["micro_batches"], 0, f"{at}.micro_batches")
        for other in found:
            shared = None in (other.batches, batches) or not set(other.batches or ()).isdisjoint(batches or ())
            if shared and not set(other.layers).isdisjoint(held):
                raise InstanceError("two segments of one micro-batch hold the same layer", at)
        found.append(Segment(held, batches))
    return tuple(found)


def _numbers(listed: object, least: int, path: str) -> tuple[int, ...]:
    """Read ``{"from": 2, "to": 5}`` or an ascending list of numbers that are at least `least`."""
    if isinstance(listed, dict) and listed.keys() == {"from", "to"}:
        ends = (listed["from"], listed["to"])
        if all(type(end) is int for end in ends) and least <= ends[0] <= ends[1] < 10**8:
            return tuple(range(ends[0], ends[1] + 1))
    elif isinstance(listed, list) and listed and all(type(one) is int and least <= one < 10**8 for one in listed):
        ordered = tuple(sorted(set(listed)))
        if list(ordered) == listed:
            return ordered
    raise InstanceError(f'expected {{"from": {least}, "to": 5}} or a list of numbers from {least} on, in order', path)


def recompute_document(recompute: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return the key `recompute` of a stage."""
    return [
        {"layers": shown([layer + 1 for layer in one.layers])}
        | ({} if one.batches is None else {"micro_batches": shown(one.batches)})
        for one in recompute
    ]


def shown(numbers: Sequence[int]) -> Any:
    """Return ascending numbers in document form: a range from .. to, or a list."""
    if len(numbers) > 1 and tuple(numbers) == tuple(range(numbers[0], numbers[-1] + 1)):
        return {"from": numbers[0], "to": numbers[-1]}
    return list(numbers)
