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
    """Further arguments of `remat.pipeline`, in addition to those of every builder.

    Attributes
    ----------
    weight_time : column
        Time of the half of the backward for the gradients of the parameters; `backward_time` is then the other half.
        Default: 0, the backward is not divided.
    weight_saved_size : column
        Bytes kept from the first half of the backward to the second. Default: 0.
    paired_time : column
        Time of a forward and the whole backward of another micro-batch at once. Default: the sum.
    gradient_size : column
        Bytes of the gradient of the output. Default: as the output.
    forward_workspace, backward_workspace : column
        Bytes of extra memory during a forward, or a backward. Default: 0.
    parameter_size, parameter_gradient_size, bucket_size : column
        Bytes of the parameters (default: 0), of their gradient (as the parameters), and of the gradient as the backward
        creates it (as the gradient).
    optimizer_size, update_time : column
        Bytes of the optimizer's state, and time of the update at the end of a step. Default: 0.
    discrepancy_size : column
        Bytes in addition to the versions of the parameters, to correct for staleness or to predict. Default: 0.
    repeat : column
        Number of equal layers that each entry stands for.
    reads : sequence of lists of str
        Whose outputs each layer reads; None for the layer before.
    backward_reads : sequence of str
        What backwards read in addition to the gradient: any of ``input``, ``output``, ``saved``.
    layer_backward_reads : sequence of sequences of str
        The same for each layer. Default, and for None: as `backward_reads`.
    tensor : sequence of dict
        Times and sizes of each layer on 2, 4, ... devices that share it: ``{"2": {"forward_time": 6,
        "backward_time": 12}}``.
    levels : sequence of dict
        Links from the smallest group of devices to all: ``[{"devices": 8, "bandwidth": "300GB/s"}, {"bandwidth":
        "25GB/s"}]``.
    transfers : str
        What transfers block: ``overlap`` (default: nothing), ``blocking``, ``rendezvous`` or ``grouped``.
    host : dict
        A host memory of all devices, and the links to it.
    weights : str
        When parameters change: ``flush`` (default: between steps), ``stash``, ``double``, ``single`` or ``predicted``;
        ``fixed``: never, there are forwards only.
    update_every : int
        Micro-batches from one change of the parameters to the next, for ``double``. Default: 1.
    copies : int
        Maximum number of devices that hold a layer at the same time. Default: 1.
    exchange : str
        How copies sum their gradients at the end of a step: ``none`` (default) or ``ring``.
    sharding, samples, sizes, parts, tokens
        Ranks, and divisions of the batch, as in documents: see docs/reference/pipelines.md.
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
    tensor: Sequence[Mapping[str, Any]]
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
    """Build a pipeline: layers on several devices, and micro-batches that pass them.

    Parameters
    ----------
    forward_time, backward_time : column
        Times of one micro-batch: an entry for all layers, or a sequence or array with one for each. A mapping has one
        column for each type of device: ``{"a100": [1, 1], "v100": [2, 2]}``; None says that the type cannot run the
        layer.
    devices : int or sequence
        How many equal devices, called gpu0, gpu1, ...; or a list of capacities (``["80GB", "40GB"]``); or of dicts as
        in documents: ``{"name": "a", "type": "a100", "count": 4, "memory": "80GB"}``.
    micro_batches : int
        Number of micro-batches of one step.
    output_size : column, optional
        Bytes of the input of the next layer, for one micro-batch. Default: 0.
    saved_size : column, optional
        Bytes that a backward needs in addition to the layer's input and output. Default: 0.
    names : sequence of str, optional
    length : int, optional
        Number of layers, if all columns are scalars.
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
        raise InstanceError("None is not a column; give an entry for all, or one for each layer", "forward_time")
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
