"""Layers that several devices run together (tensor parallelism): each has a share, and they synchronise.

The devices of a group run in lockstep; therefore only the first one is modelled. An all-reduce within a forward or a
backward takes a ring of 2 (t - 1) rounds among neighbours, as part of that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remat.graph.machine import Link, ring_time
from remat.instance.batch_splitting import check_work
from remat.instance.cluster import ClusterModel
from remat.instance.fields import LARGEST_COUNT, fail
from remat.instance.layers import Layer, TensorWork
from remat.messages import brief
from remat.units import Number

WAITS = (("forward_time", "forward_collective_size"), ("backward_time", "backward_collective_size"))


class Degree(NamedTuple):
    """The degree of sharing of a layer.

    Attributes
    ----------
    parts : int
        Number of devices that each run a part of every micro-batch.
    tensor : int
        Number of devices that run every micro-batch together.
    ring : tuple of Link
        Links between these devices: from each to the next, and from the last to the first.
    """

    parts: int = 1
    tensor: int = 1
    ring: tuple[Link, ...] = ()


def check_tensor(layers: Sequence[Layer]) -> None:
    """Reject invalid degrees, and works that do not match their layer."""
    for index, layer in enumerate(layers):
        for key, work in layer.tensor.items():
            at = f".layers[{index}].tensor.{key[:20]}"
            if not key.isdecimal() or str(int(key[:9])) != key or not 2 <= int(key) <= LARGEST_COUNT:
                raise fail(f"{brief(key)} is not a number of devices, such as 2", at)
            check_work(work, layer, at)


def of_group(layer: Layer, degree: Degree) -> Layer:
    """Return a layer as one of the devices that run it together has it, including the time of their collectives.

    Raises
    ------
    KeyError
        If the layer has no work for this degree.
    """
    if degree.tensor == 1:
        return layer
    work = layer.tensor[str(degree.tensor)]
    update = {name: getattr(work, name) for name in TensorWork.model_fields if name in Layer.model_fields}
    for time, size in WAITS:
        update[time] = _later(getattr(work, time), ring_time(degree.ring, degree.tensor, getattr(work, size), turns=2))
    return layer.model_copy(update=update | {"tensor": {}})


def _later(time: Number | dict[str, Number] | None, wait: Number) -> Number | dict[str, Number] | None:
    if isinstance(time, dict):
        return {kind: own + wait for kind, own in time.items()}
    return None if time is None else time + wait


def in_groups(layers: Sequence[Layer], cluster: ClusterModel, count: int) -> tuple[tuple[Layer, ...], ClusterModel]:
    """Return layers and cluster with each group of `count` neighbours as one device that runs everything together.

    Raises
    ------
    ValueError
        If a layer has no work for this degree, or the cluster has no such groups; the message gives the reason.
    """
    for number, layer in enumerate(layers, 1):
        if str(count) not in layer.tensor:
            named = f"layer {layer.name!r}" if layer.name else f"entry {number} of the layers"
            raise ValueError(f"{named} has no entry for {count} devices in `tensor`")
    grouped, machine = cluster.of_groups(count), cluster.build()
    memories = [machine.processors[device].memory for device in range(count)]
    ends = zip(memories, [*memories[1:], memories[0]], strict=True)
    degree = Degree(tensor=count, ring=tuple(machine.links[machine.link_index[pair]] for pair in ends))
    return tuple(of_group(layer, degree) for layer in layers), grouped


def ways_of(layer: Layer) -> list[tuple[int, TensorWork]]:
    """Return the works of all tensor degrees, each with its number of devices; without the time of collectives."""
    return [(int(key), work) for key, work in layer.tensor.items()]
