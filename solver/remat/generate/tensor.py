"""Layers of a transformer as each of several devices has them that run them together, as Megatron-LM has it."""

from __future__ import annotations

from typing import Any

from remat.generate import check
from remat.generate.networks.transformer import Architecture
from remat.messages import brief

_TIMES = ("forward_time", "backward_time", "weight_time", "update_time")
_WHOLE = ("output_size", "gradient_size")
_SHARED = (
    *("weight_saved_size", "forward_workspace", "backward_workspace", "parameter_size", "parameter_gradient_size"),
    "optimizer_size",
)


def with_groups(
    layers: list[dict[str, Any]], tensor: str, shape: Architecture, checkpoints: str = "whole"
) -> list[dict[str, Any]]:
    """Return the layers of a transformer with entries for these numbers of devices, for example ``2,4``.

    Parameters, work and workspaces are divided equally (rounded up). Each device also has its share of the saved values
    of a layer. Some saved values are whole on every device: the results of both norms of a block and the input of the
    second norm, and the result of the head's norm. Forwards add up an activation twice per block, and so do backwards;
    the embedding's forward and the head's backward do it once. The head's outputs are divided, too.

    With `checkpoints` ``partitioned``, each device also stores only its share of the activation between two layers, as
    ZeRO partitions activation checkpoints (Rajbhandari et al. 2020). A run needs the whole ones as workspace. Before a
    backward, a gather of its input takes half as many bytes as a sum of it. The gather of a forward after a transfer is
    left out.
    """
    check.choice("checkpoints", checkpoints, ("whole", "partitioned"))
    degrees = [part.strip() for part in tensor.split(",")] if tensor else []
    if not all(part.isdecimal() and int(part[:9]) > 1 for part in degrees):
        raise ValueError(f"tensor is numbers of devices above 1, such as 2,4, not {brief(tensor)}")
    if checkpoints == "partitioned" and not degrees:
        raise ValueError("checkpoints are partitioned over the devices that run a layer together: give tensor, too")
    for count in map(int, degrees):
        if shape.heads % count:
            raise ValueError(f"{count} devices do not divide the {shape.heads} heads")
    activation, last = layers[0]["output_size"], len(layers) - 1
    found: list[dict[str, Any]] = []
    for index, layer in enumerate(layers):
        sums = (1, 0) if index == 0 else (0, 1) if index == last else (2, 2)
        whole = 0 if index == 0 else 1 if index == last else 3
        entries = {
            str(count): _entry(layer, count, min(layer.get("saved_size", 0), whole * activation), is_last=index == last)
            | {
                f"{phase}_collective_size": number * activation
                for phase, number in zip(("forward", "backward"), sums, strict=True)
                if number
            }
            for count in map(int, degrees)
        }
        if checkpoints == "partitioned":
            entries = {
                count: _partitioned(entry, int(count), activation, first=index == 0, last=index == last)
                for count, entry in entries.items()
            }
        found.append(layer | ({"tensor": entries} if entries else {}))
    return found


def _partitioned(entry: dict[str, Any], count: int, activation: int, *, first: bool, last: bool) -> dict[str, Any]:
    """Return an entry whose activations between layers are shared out by bytes."""
    share = -(-activation // count)
    reads, writes = int(not first), int(not last)
    found = entry | ({"output_size": share} if writes else {})
    for phase, whole in (("forward", reads + writes), ("backward", reads)):
        if whole:
            key = f"{phase}_workspace"
            found[key] = found.get(key, 0) + whole * (activation - share)
    if reads:
        key = "backward_collective_size"
        found[key] = found.get(key, 0) + -(-activation // 2)
    return found


def _entry(layer: dict[str, Any], count: int, whole: int, *, is_last: bool) -> dict[str, Any]:
    shared = (*_SHARED, *(_WHOLE if is_last else ()))
    entry = {key: layer[key] / count for key in _TIMES if key in layer}
    entry |= {key: layer[key] for key in _WHOLE if key in layer}
    entry |= {key: -(-layer[key] // count) for key in shared if key in layer}
    if "saved_size" in layer:
        entry["saved_size"] = whole + -(-(layer["saved_size"] - whole) // count)
    return entry
