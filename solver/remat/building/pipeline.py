"""`remat.pipeline`: layers, devices and micro-batches of one training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, cast

from remat.building.columns import check_scalars, common_length, is_scalar, listed, rows, sequence_of
from remat.building.common import Column, Common, Rule, Size, build, builder, fields_among, head, units_of
from remat.errors import InstanceError
from remat.instance.layers import Layer
from remat.instance.native import native
from remat.instance.pipeline import PipelineInstance

_KEYS = {"names": "name", "layer_backward_reads": "backward_reads"}
"""Columns that have another name than their field of a layer."""

_OF_LAYERS: tuple[Rule, ...] = (
    (r"^\$\.layers\[(\d+)\]\.name\b", r"names[\1]"),
    (r"^\$\.layers\[(\d+)\]\.backward_reads", r"layer_backward_reads[\1]"),
    (r"^\$\.layers\[(\d+)\]\.(\w+)", r"\2[\1]"),
)


class PipelineArguments(Common, total=False):
    """Further arguments of `remat.pipeline`, beside those of every builder.

    Attributes
    ----------
    weight_time, weight_saved_size, paired_time, gradient_size, forward_workspace, backward_workspace : column
    parameter_size, parameter_gradient_size, bucket_size, optimizer_size, update_time, discrepancy_size : column
        As in documents: see docs/reference/pipelines.md.
    repeat : column
        Each entry stands for so many equal layers.
    reads : sequence of lists of str
        Whose outputs each layer reads; None for the layer before.
    backward_reads : sequence of str
        What backwards read beside the gradient: any of ``input``, ``output``, ``saved``.
    layer_backward_reads : sequence of sequences of str
        The same for each layer by itself; None for what `backward_reads` says.
    levels : sequence of dict
        From the smallest group to all: ``[{"devices": 8, "bandwidth": "300GB/s"}, {"bandwidth": "25GB/s"}]``.
    transfers, host, weights, update_every, copies, exchange, sharding, samples, sizes, parts, tokens
        As in documents.
    """

    weight_time: Column
    weight_saved_size: Column
    paired_time: Column
    gradient_size: Column
    forward_workspace: Column
    backward_workspace: Column
    parameter_size: Column
    parameter_gradient_size: Column
    bucket_size: Column
    optimizer_size: Column
    update_time: Column
    discrepancy_size: Column
    repeat: Column
    reads: Sequence[Sequence[str] | None] | None
    backward_reads: Sequence[str]
    layer_backward_reads: Sequence[Sequence[str] | None]
    levels: Sequence[Mapping[str, Any]] | None
    transfers: Literal["overlap", "blocking", "rendezvous", "grouped"]
    host: Mapping[str, Any] | None
    weights: Literal["flush", "stash", "double", "single", "predicted", "fixed"]
    update_every: int | None
    copies: int
    exchange: Literal["none", "ring"]
    sharding: Mapping[str, Any] | None
    samples: int | None
    sizes: Sequence[Mapping[str, Any]]
    parts: Sequence[Mapping[str, Any]]
    tokens: Mapping[str, Any] | None


_OF_PIPELINES, _LAYER_COLUMNS = fields_among(PipelineArguments, PipelineInstance, Layer)


@builder(PipelineArguments)
def pipeline(
    *,
    forward_time: Column,
    backward_time: Column = None,
    devices: int | Sequence[Any],
    micro_batches: int,
    output_size: Column = None,
    saved_size: Column = None,
    names: Sequence[str] | None = None,
    length: int | None = None,
    memory: Size = None,
    link: Any = None,
    **more: Unpack[PipelineArguments],
) -> PipelineInstance:
    """Build a pipeline: layers that lie on several devices, and micro-batches that pass them.

    Parameters
    ----------
    forward_time, backward_time : column
        Of one micro-batch: an entry for all layers, or a sequence or array with one for each. A mapping has one column
        for each type of device: ``{"a100": [1, 1], "v100": [2, 2]}``; None says that the type cannot run the layer.
    devices : int or sequence
        How many equal devices, called gpu0, gpu1, ...; or a list of capacities (``["80GB", "40GB"]``); or of dicts as
        in documents: ``{"name": "a", "type": "a100", "count": 4, "memory": "80GB"}``.
    micro_batches : int
    output_size, saved_size : column, optional
    names : sequence of str, optional
    length : int, optional
        Number of entries, where all columns are scalars.
    memory : size, optional
        Capacity of each device, where `devices` is a number.
    link : bandwidth, optional
        Between any two devices, such as ``"100GB/s"``. For groups of devices, give `levels` instead.
    **more
        See `remat.building.pipeline.PipelineArguments` and `remat.building.common.Common`.

    Returns
    -------
    PipelineInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> remat.pipeline(forward_time=[1] * 8, backward_time=2, devices=4, micro_batches=6, output_size=10).length
    8
    """
    given = dict(more)
    times = {"forward_time": forward_time, "backward_time": backward_time}
    columns = _columns(
        times
        | {"output_size": output_size, "saved_size": saved_size, "names": names}
        | {key: given.pop(key) for key in (*_LAYER_COLUMNS, "layer_backward_reads") if key in given}
    )
    own = {key: given.pop(key, None) for key in _OF_PIPELINES}
    own["micro_batches"] = micro_batches
    cluster, rules = _cluster(devices, memory, link, given.pop("levels", None))
    cluster |= {key: native(value) for key in ("transfers", "host") if (value := given.pop(key, None)) is not None}
    document = head("pipeline", given)
    count = common_length(columns, length, what="layers")
    check_scalars(Layer, columns, units_of(document))
    document["layers"] = rows({_KEYS.get(key, key): one for key, one in columns.items()}, count)
    document |= {key: native(value) for key, value in own.items() if value is not None}
    document["cluster"] = cluster
    return cast(PipelineInstance, build(document, (*_OF_LAYERS, *rules)))


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    found = listed(given)
    if "forward_time" not in found:
        raise InstanceError("None is no column; give an entry for all, or one for each layer", "forward_time")
    if not isinstance(found.get("reads", []), list):
        raise InstanceError("give a list of names for each layer, or None for the layer before", "reads")
    return found


def _cluster(devices: Any, memory: Any, link: Any, levels: Any) -> tuple[dict[str, Any], list[Rule]]:
    """Return the cluster of a document, and what its paths mean."""
    rules: list[Rule] = [
        (r"^\$\.cluster\.devices\[(\d+)\]\.memory", r"devices[\1]"),
        (r"^\$\.cluster\.levels\[0\]\.bandwidth", "link") if levels is None else (r"^\$\.cluster\.levels", "levels"),
        (r"^\$\.cluster\.", ""),
        (r"^\$\.cluster\b", "devices"),
    ]
    plain = native(devices)
    if is_scalar(plain):
        rules[0] = (r"^\$\.cluster\.devices\[0\]\.memory", "memory")
        rules.insert(0, (r"^\$\.cluster\.devices\[0\]\.count", "devices"))
        entry = {"name": "gpu", "count": plain}
        listed_devices = [entry if memory is None else entry | {"memory": native(memory)}]
    elif memory is not None:
        raise InstanceError("the devices are listed with their capacities; leave this out", "memory")
    else:
        listed_devices = [
            one if isinstance(one, dict) else {"name": f"gpu{number}", "type": "gpu", "memory": one}
            for number, one in enumerate(sequence_of("devices", plain, "capacities or dicts"))
        ]
        if any(isinstance(one, dict) for one in plain):
            rules[0] = (r"^\$\.cluster\.devices", "devices")
    if link is not None and levels is not None:
        raise InstanceError("give either link or levels", "link")
    if link is not None:
        levels = [{"bandwidth": link}]
    return {"devices": listed_devices, "levels": native(() if levels is None else levels)}, rules
