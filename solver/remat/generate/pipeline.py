"""Pipelines: equal layers as in the papers, and transformers from published formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import SECONDS_AND_BYTES, UNITLESS, Document, document
from remat.generate.networks.operations import BYTES
from remat.generate.networks.parameters import States
from remat.generate.networks.transformer import PRESETS, SHAPE, Architecture, architecture
from remat.generate.networks.transformer import transformer as chain_of_transformer
from remat.generate.tensor import with_groups
from remat.messages import brief
from remat.units import parse_bandwidth, parse_size, parse_time

MOST_PARTS = 64
"""Parts of a sequence at whose ends it may be cut: there are half the square of it slices."""

_OF_LAYERS = (
    *("name", "forward_time", "output_size", "saved_size", "forward_workspace", "backward_workspace", "gradient_size"),
    *("parameter_size", "parameter_gradient_size", "bucket_size", "optimizer_size", "repeat"),
)
_OF_WORK = (
    *("forward_time", "backward_time", "weight_time", "output_size", "saved_size", "weight_saved_size"),
    *("forward_workspace", "backward_workspace", "gradient_size"),
)


def uniform(
    *,
    devices: int = 4,
    micro_batches: int = 8,
    layers: int | None = None,
    skips: bool = False,
    branches: int = 1,
    forward_time: int = 1,
    backward_time: int = 2,
    weight_time: int = 0,
    paired_time: int | None = None,
    activation: int = 1,
    kept: int = 0,
    parameters: int = 0,
    hop: int = 0,
    copies: int = 1,
    exchange: str = "none",
    transfers: str = "overlap",
    weights: str = "flush",
    update_every: int | None = None,
) -> Document:
    """Return equal layers on equal devices: the setting in which schedules are compared.

    Parameters
    ----------
    devices, micro_batches : int
    layers : int, optional
        Default: one a device.
    skips : bool
        Whether the layers of the second half read what those of the first half make, as in a U-Net: the last one that
        of the first.
    branches : int
        Towers of layers, each with an input of its own, that meet in the last layer.
    forward_time, backward_time, weight_time : int
        Times of a layer and micro-batch; with a weight time the backward is in two halves.
    paired_time : int, optional
        Time of a simultaneous forward and whole backward of two micro-batches; default: the sum.
    activation, kept : int
        What a forward saves, and what of it stays from the first to the second half of the backward.
    parameters : int
        Size of a layer's parameters.
    hop : int
        Time between two devices: a delay, any number of transfers being under way; where transfers hold devices up,
        for so long.
    copies, exchange : int, str
        Devices on which a layer may lie, and how these add up their gradients: ``none``, not counted, or ``ring``.
    transfers : str
        What they hold up: ``overlap``, ``blocking``, ``rendezvous`` or ``grouped`` (docs/reference/pipelines.md).
    weights : str
        When parameters change: ``flush``, ``stash``, ``double`` or ``single`` (docs/reference/pipelines.md).
    update_every : int, optional
        For ``double``: micro-batches between two changes; default: twice the devices.

    Returns
    -------
    dict
        Kind ``pipeline``; ValueError for a parameter out of range.
    """
    count = check.integer("devices", devices, minimum=1)
    depth = count if layers is None else check.integer("layers", layers, minimum=1)
    layer: dict[str, Any] = {
        "forward_time": check.integer("forward_time", forward_time, minimum=0),
        "backward_time": check.integer("backward_time", backward_time, minimum=0),
        "saved_size": check.integer("activation", activation, minimum=0),
        "repeat": depth,
    }
    optional = {"weight_time": weight_time, "weight_saved_size": kept, "parameter_size": parameters}
    layer |= {key: value for key, value in optional.items() if check.integer(key, value, minimum=0)}
    layer |= {} if paired_time is None else {"paired_time": check.integer("paired_time", paired_time, minimum=0)}
    batches = check.integer("micro_batches", micro_batches, minimum=1)
    return document(
        kind="pipeline",
        name=f"uniform_p{count}_m{batches}" + (f"_l{depth}" if depth != count else "") + (f"_c{hop}" if hop else ""),
        description=f"{depth} equal layers on {count} devices, {batches} micro-batches",
        units=UNITLESS,
        micro_batches=batches,
        layers=_arranged(layer, skips, check.integer("branches", branches, minimum=1)),
        cluster=_equal_devices(count, hop, transfers),
        **(_copied(copies, exchange) | _changing(weights, update_every, count)),
    ) | {"schema": "remat.instance/3"}


def _equal_devices(count: int, hop: int, transfers: str) -> dict[str, Any]:
    cluster: dict[str, Any] = {"devices": [{"name": "gpu", "count": count}]}
    if check.integer("hop", hop, minimum=0):
        cluster["levels"] = [{"delay" if transfers == "overlap" else "latency": hop}]
    return cluster | ({} if transfers == "overlap" else {"transfers": transfers})


def _arranged(layer: dict[str, Any], skips: bool, branches: int) -> list[dict[str, Any]]:
    if skips and branches > 1:
        raise ValueError("either skips or branches")
    if branches > 1:
        return _drawn_together(layer, branches)
    return _mirrored(layer) if skips else [layer]


def _mirrored(layer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return equal layers one by one; those of the second half also read the mirrored layer of the first half."""
    count = layer["repeat"]
    each = [{"name": f"layer{k}"} | layer | {"repeat": 1} for k in range(1, count + 1)]
    for k in range(count // 2 + 1, count):
        if k - (count - 1 - k) > 1:
            each[k]["reads"] = ["previous", f"layer{count - k}"]
    return each


def _drawn_together(layer: dict[str, Any], branches: int) -> list[dict[str, Any]]:
    """Return towers of equal layers, the first ones a layer longer if necessary, and the layer that joins them."""
    count = layer["repeat"] - 1
    if count < branches:
        raise ValueError(f"{branches} branches and the layer that reads them are at least {branches + 1} layers")
    towers = [
        {"name": f"tower{k + 1}"} | layer | {"repeat": count // branches + (k < count % branches), "reads": []}
        for k in range(branches)
    ]
    reads = [*(tower["name"] for tower in towers[:-1]), "previous"]
    return [*towers, {"name": "head"} | layer | {"repeat": 1, "reads": reads}]


def transformer(
    *,
    preset: str = "gpt2-small",
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    feedforward: int | None = None,
    key_heads: int | None = None,
    dropout: bool | None = None,
    devices: int = 4,
    micro_batches: int = 8,
    batch: int = 1,
    link: str = "300GB/s",
    latency: str = "0s",
    node: int | None = None,
    network: str = "25GB/s",
    memory: str | None = None,
    split: bool = True,
    copies: int = 1,
    exchange: str = "none",
    transfers: str = "overlap",
    dtype: str = "bf16",
    flash: bool = True,
    optimizer: str = "adam",
    master: bool | None = None,
    accumulation: str = "same",
    data: int = 1,
    zero: int = 0,
    keep: bool = False,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
    weights: str = "flush",
    update_every: int | None = None,
    sizes: str = "",
    slices: int = 0,
    tensor: str = "",
    checkpoints: str = "whole",
) -> Document:
    """Return one training step of a transformer on a cluster.

    Parameters
    ----------
    preset to dropout, dtype, flash, optimizer, master, accumulation, flops, bandwidth, device
        As of the chain.
    devices, micro_batches, batch, data, zero, keep : int, int, int, int, int, bool
        Devices in all, micro-batches of a step (of a rank), and sequences in each. Ranks, neighbours among the devices;
        stage of ZeRO, and whether what is gathered and reduced stays for the step.
    link, network, latency, node, memory : str, str, str, int, str
        As of `Cluster`.
    split : bool
        Whether the backward is in two halves. That of parameters takes as long as the forward, at most half, and keeps
        half of what the forward saved.
    copies, exchange, transfers, weights, update_every : int, str, str, str, int
        As of the instance; of ``double`` weights, parameters change after twice the devices by default.
    sizes, slices, tensor, checkpoints : str, int, str, str
        Other numbers of sequences that micro-batches may have, such as ``2,4``; there are as many sequences in all.
        Equal parts of a sequence at whose ends it may be cut; 0: it stays whole. Devices that may run a layer together,
        such as ``2,4``, and whether each has ``whole`` or ``partitioned`` activations (see `tensor.with_groups`).

    Returns
    -------
    dict
        Kind ``pipeline`` (docs/reference/pipelines.md), seconds and bytes; ValueError for a parameter out of range.
    """
    check.choice("preset", preset, tuple(PRESETS))
    given = dict(zip(SHAPE, (layers, hidden, heads, sequence, vocabulary, feedforward, key_heads), strict=True))
    shape = architecture(preset, given, dropout)
    model: dict[str, Any] = {"preset": preset, **given, "dropout": dropout, "batch": batch, "dtype": dtype}
    model |= {"flash": flash, "optimizer": optimizer, "parameters": "device"}
    model |= {"device": device, "flops": flops, "bandwidth": bandwidth}
    chain = chain_of_transformer(**model, master=master, accumulation=accumulation)
    cluster = Cluster(devices, link, latency, network, node, memory, transfers)
    made = pipeline_of(chain, cluster, micro_batches, split=split)
    ranks = _ranks(devices, data, zero, keep=keep)
    made["layers"] = with_groups(_with_updates(made["layers"], chain, there=bool(ranks)), tensor, shape, checkpoints)
    made |= _copied(copies, exchange) | ranks | _changing(weights, update_every, devices)
    return made | _in_sizes(model, sizes, split=split) | _in_slices(model, shape, slices, split=split)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal devices and the links between them.

    Attributes
    ----------
    devices : int
    link, latency, network : str
        Bandwidth each way between devices of a node, what each transfer takes beside, and bandwidth between nodes.
    node, memory : int or None, str or None
        Devices of a node (None: all are of one), and memory of each (None: unbounded).
    transfers : str
        As of the instance.
    """

    devices: int
    link: str
    latency: str
    network: str
    node: int | None
    memory: str | None
    transfers: str

    def document(self) -> dict[str, Any]:
        """Return the cluster of an instance; ValueError for a field out of range."""
        count = check.integer("devices", self.devices, minimum=1)
        levels = _levels(self.link, self.latency, self.network, self.node, count)
        return _cluster(count, self.memory, levels, self.transfers)


def pipeline_of(chain: Document, cluster: Cluster, micro_batches: int, *, split: bool) -> Document:
    """Return the pipeline whose layers are the stages of a chain (`name`, `description`, `stages`, `loss`)."""
    batches = check.integer("micro_batches", micro_batches, minimum=1)
    where = cluster.document()
    made = document(
        kind="pipeline",
        name=f"{chain['name']}_p{cluster.devices}_m{batches}",
        description=f"{chain['description']}; {batches} micro-batches on {cluster.devices} devices, "
        f"{cluster.link} between them",
        units=SECONDS_AND_BYTES,
        micro_batches=batches,
        layers=_layers(chain, split=split),
        cluster=where,
    )
    return made | {"schema": "remat.instance/3"}


def _cluster(count: int, memory: str | None, levels: list[dict[str, Any]], transfers: str) -> dict[str, Any]:
    device: dict[str, Any] = {"name": "gpu", "count": count}
    if memory is not None:
        device["memory"] = check.text("memory", memory, parse_size)
    return {"devices": [device], "levels": levels} | ({} if transfers == "overlap" else {"transfers": transfers})


def _levels(link: str, latency: str, network: str, node: int | None, count: int) -> list[dict[str, Any]]:
    """Return the levels of a cluster: links within a node, where there are several, and those between all."""
    level = {
        "bandwidth": check.text("link", link, parse_bandwidth),
        "latency": check.text("latency", latency, parse_time),
    }
    check.text("network", network, parse_bandwidth)
    if node is None or node >= count:
        return [level]
    return [{"devices": check.integer("node", node, minimum=1), **level}, {"bandwidth": network, "latency": latency}]


def _layers(chain: Document, *, split: bool) -> list[dict[str, Any]]:
    """Return the layers of a chain; the last one's backward includes the loss."""
    layers = [_layer(stage, split=split) for stage in chain["stages"]]
    layers[-1]["backward_workspace"] = max(layers[-1].get("backward_workspace", 0), chain["loss"]["workspace"])
    layers[-1]["backward_time"] += chain["loss"]["time"]
    return layers


def _works(chain: Document, *, split: bool) -> list[dict[str, Any]]:
    """Return the times and sizes of a chain's layers, without permanent bytes."""
    return [{key: layer[key] for key in _OF_WORK if key in layer} for layer in _layers(chain, split=split)]


def _in_sizes(model: dict[str, Any], sizes: str, *, split: bool) -> dict[str, Any]:
    """Return the keys that leave the size of micro-batches open."""
    if not sizes:
        return {}
    listed = [part.strip() for part in sizes.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in listed):
        raise ValueError(f"sizes are numbers of sequences, such as 2,4, not {brief(sizes)}")
    rows = [
        {"samples": size, "layers": _works(chain_of_transformer(**dict[str, Any](model, batch=size)), split=split)}
        for size in map(int, listed)
    ]
    return {"samples": model["batch"], "sizes": rows}


def _in_slices(model: dict[str, Any], shape: Architecture, slices: int, *, split: bool) -> dict[str, Any]:
    """Return the key that leaves open into which slices sequences are cut."""
    if not check.integer("slices", slices, minimum=0, maximum=MOST_PARTS):
        return {}
    if shape.sequence % slices:
        raise ValueError(f"slices {slices} do not divide the {shape.sequence} tokens of a sequence")
    part = shape.sequence // slices
    rows: list[dict[str, Any]] = []
    for size in range(1, slices + 1):
        for first in range(slices - size + 1):
            own: dict[str, Any] = {**model, "sequence": size * part, "before": first * part}
            works = _works(chain_of_transformer(**own), split=split)
            for work in works[1:-1]:  # of a block: the gradients of keys and values
                work["cache_gradient_size"] = 2 * model["batch"] * size * part * shape.key_width * BYTES[model["dtype"]]
            rows.append({"tokens": size * part, "before": first * part, "layers": works})
    return {"tokens": {"length": shape.sequence, "slices": rows}}


def _copied(copies: int, exchange: str) -> dict[str, Any]:
    """Return the keys that say how often a layer is there."""
    more = {} if check.integer("copies", copies, minimum=1) == 1 else {"copies": copies}
    return more | ({} if exchange == "none" else {"exchange": exchange})


def _ranks(devices: int, data: int, zero: int, *, keep: bool) -> dict[str, Any]:
    """Return the key `sharding` for several ranks; empty for one."""
    States(data=data, zero=zero, parameters="device")
    if devices % data:
        raise ValueError(f"data {data} does not divide the {devices} devices")
    if keep and zero < 2:
        raise ValueError("keep is of stages 2 and 3 of ZeRO: the others gather and reduce once a step anyway")
    if data == 1:
        return {}
    return {"sharding": {"data": data, "zero": zero} | ({"keep": True} if keep else {})}


def _with_updates(layers: list[dict[str, Any]], chain: Document, *, there: bool) -> list[dict[str, Any]]:
    """Return layers with the times of their updates, if a step has such an end."""
    times = [
        {"update_time": stage["update_time"]} if there and "update_time" in stage else {} for stage in chain["stages"]
    ]
    return [layer | time for layer, time in zip(layers, times, strict=True)]


def _changing(weights: str, update_every: int | None, devices: int) -> dict[str, Any]:
    """Return the keys that say when parameters change."""
    if update_every is not None and weights != "double":
        raise ValueError("update_every is for weights double")
    if weights == "flush":
        return {}
    every = 2 * devices if update_every is None else check.integer("update_every", update_every, minimum=1)
    return {"weights": weights} | ({"update_every": every} if weights == "double" else {})


def _layer(stage: dict[str, Any], *, split: bool) -> dict[str, Any]:
    layer = {key: stage[key] for key in _OF_LAYERS if key in stage}
    whole = stage["backward_time"]
    weight = min(stage["forward_time"], whole / 2) if split and stage.get("parameter_size") else 0
    layer["backward_time"] = whole - weight
    if weight:
        layer["weight_time"] = weight
        layer["weight_saved_size"] = math.ceil(stage.get("saved_size", 0) / 2)
    return layer
