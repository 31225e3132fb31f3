"""Profiles of layers for tensor-parallel pipelines, as the public repository piper has them, become pipelines.

The format has unordered `nodes`, `edges` with bytes per sample, the bandwidth in bytes per second, the number of
devices and the bytes of each. For each tensor degree (``TMPCs``), a node has one or more options to run the layer
(``vanilla``, ``activation recomp``). An option has seconds per sample (forward and backward together) and bytes of
parameters. It also has the bytes that a stage holds per sample in flight (``memoryUsageA``) and throughout
(``memoryUsageB``).

A layer of the instance is one option of a node on one device. The profile does not split its time, so the forward gets
a given share. The bytes in flight become the output and the saved bytes. The bytes held throughout become parameters,
gradients of equal size, and optimizer states (the rest). For several devices that run a layer together, the importer
uses the figures of their degree; these times include communication. The additional gathers where an edge leaves the
stage (``syncTimeFw``, ``syncTimeBw``) are ignored.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from remat.bridges.placement_profiles.reading import Source, count, listed, name_of, number, read_source, size, text
from remat.errors import InstanceError
from remat.instance import PipelineInstance, instance_from_document
from remat.messages import elided

FORWARD = 1 / 3
"""Share of a layer's time that its forward takes, by default."""


@dataclass(frozen=True, slots=True)
class ImportedLayers:
    """A pipeline made from a profile, with notes on what it does not express."""

    instance: PipelineInstance
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options of the import.

    Attributes
    ----------
    devices : int or None
        Number of devices; None: from the profile.
    memory : int or str or None
        Bytes of each; None: from the profile.
    bandwidth : str or None
        Between any two devices; None: from the profile.
    micro_batches : int
        Number of micro-batches, of one sample each.
    forward_share : float
        Share of the forward in a layer's time.
    way : str
        Option to run a layer on one device.
    weights : str
        As of a pipeline.
    tensor : tuple of int or None
        Numbers of devices, other than one, that may run a layer together; None: all degrees of the profile.
    """

    devices: int | None = None
    memory: int | str | None = None
    bandwidth: str | None = None
    micro_batches: int = 16
    forward_share: float = FORWARD
    way: str = "vanilla"
    weights: str = "flush"
    tensor: tuple[int, ...] | None = None


def import_layers(source: Source, chosen: Chosen | None = None, *, name: str | None = None) -> ImportedLayers:
    """Make a pipeline of a profile.

    Raises
    ------
    InstanceError
        If the profile is invalid, its layers have no topological order, or several layers have no reader.
    """
    document, chosen = read_source(source), chosen or Chosen()
    nodes: dict[int, tuple[int, dict[str, Any]]] = {}
    for index, entry in enumerate(listed(document, "nodes")):
        own = count(entry, "id", f"$.nodes[{index}]")
        if own in nodes:
            raise InstanceError(f"a second node {own}", f"$.nodes[{index}].id")
        nodes[own] = index, entry
    reads, sent, notes = _edges(document, set(nodes))
    order = _order(nodes.keys(), reads)
    layers = [_layer(*nodes[own], own, sent.get(own, 0), chosen) for own in order]
    place = {own: index for index, own in enumerate(order)}
    for index, own in enumerate(order):
        before = sorted(place[other] for other in reads[own])
        if before != [index - 1]:
            layers[index]["reads"] = ["previous" if other == index - 1 else layers[other]["name"] for other in before]
        if index == 0:
            layers[index].pop("reads", None)
    bandwidth = chosen.bandwidth or number(document, "bandwidth", "$")
    memory = size(document, "maxMemoryPerDevice", "$") if chosen.memory is None else chosen.memory
    devices = count(document, "maxDevices", "$") if chosen.devices is None else chosen.devices
    instance = instance_from_document(
        {
            "schema": "remat.instance/3",
            "kind": "pipeline",
            "name": name or name_of(source, "profile"),
            "source": "imported from a profile of piper",
            "layers": layers,
            "micro_batches": chosen.micro_batches,
            "cluster": {
                "devices": [{"name": "gpu", "count": devices, "memory": memory}],
                "levels": [{"bandwidth": bandwidth}],
            },
            "weights": chosen.weights,
            **({"update_every": chosen.micro_batches} if chosen.weights == "double" else {}),
        }
    )
    assert isinstance(instance, PipelineInstance)
    return ImportedLayers(instance, notes)


def _edges(document: dict[str, Any], known: set[int]) -> tuple[dict[int, list[int]], dict[int, int], tuple[str, ...]]:
    """Return the inputs of each node, the bytes of each output, and notes."""
    reads: dict[int, list[int]] = defaultdict(list)
    sent: dict[int, set[int]] = defaultdict(set)
    for index, entry in enumerate(listed(document, "edges")):
        path = f"$.edges[{index}]"
        ends = [count(entry, key, path) for key in ("sourceId", "destId")]
        for key, end in zip(("sourceId", "destId"), ends, strict=True):
            if end not in known:
                raise InstanceError(f"no node {end}", f"{path}.{key}")
        if ends[0] not in reads[ends[1]]:
            reads[ends[1]].append(ends[0])
        sent[ends[0]].add(size(entry, "communicationCost", path))
    several = [own for own, sizes in sent.items() if len(sizes) > 1]
    notes = []
    if several:
        listed_ = ", ".join(map(str, several[:5]))
        notes.append(f"edges from node {listed_} differ in bytes: its output has the most of them")
    return reads, {own: max(sizes) for own, sizes in sent.items()}, tuple(notes)


def _order(nodes: Any, reads: dict[int, list[int]]) -> list[int]:
    """Return the nodes in topological order, each as early as possible, ties by number."""
    following: dict[int, list[int]] = defaultdict(list)
    missing = {own: len(reads[own]) for own in nodes}
    for own in nodes:
        for before in reads[own]:
            following[before].append(own)
    ready = sorted(own for own, left in missing.items() if not left)
    found = []
    while ready:
        own = heapq.heappop(ready)
        found.append(own)
        for other in following[own]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, other)
    if len(found) < len(missing):
        raise InstanceError("the edges have a cycle", "$.edges")
    last = [own for own in found if not following[own]]
    if last != found[-1:]:
        own = next(own for own in last if own != found[-1])
        raise InstanceError(
            f"nodes {own} and {found[-1]} have no reader, but only the last layer may have none", "$.edges"
        )
    return found


def _works(index: int, entry: dict[str, Any], output: int, chosen: Chosen) -> dict[str, Any]:
    """Return the figures of several devices that run a node together; empty unless `weights` is ``flush``."""
    degrees = entry["TMPCs"]
    listed_ = degrees if chosen.tensor is None else map(str, chosen.tensor)
    wanted = [degree for degree in listed_ if degree != "1" and degree in degrees]
    found: dict[str, Any] = {}
    for degree in wanted if chosen.weights == "flush" else ():
        path = f"$.nodes[{index}].TMPCs.{elided(degree, 20)}"
        ways = degrees[degree]
        if not isinstance(ways, list):
            raise InstanceError("expected a list of execution variants for this number of devices", path)
        for place, way in enumerate(ways):
            if isinstance(way, dict) and way.get("id") == chosen.way:
                found[degree] = _work(way, f"{path}[{place}]", output, chosen)
    return found


def _layer(index: int, entry: dict[str, Any], own: int, output: int, chosen: Chosen) -> dict[str, Any]:
    path = f"$.nodes[{index}].TMPCs"
    degrees = entry.get("TMPCs")
    ways = degrees.get("1") if isinstance(degrees, dict) else None
    if not isinstance(ways, list) or not ways:
        raise InstanceError("expected a list of execution variants for one device", f"{path}.1")
    place = next((k for k, way in enumerate(ways) if isinstance(way, dict) and way.get("id") == chosen.way), None)
    if place is None:
        known = ", ".join(str(way.get("id")) for way in ways if isinstance(way, dict))
        raise InstanceError(f"unknown variant {chosen.way!r}; the node has {known}", f"{path}.1")
    together = _works(index, entry, output, chosen)
    return {
        "name": f"{text(entry, 'name', f'$.nodes[{index}]') or 'layer'}{own}",
        **_work(ways[place], f"{path}.1[{place}]", output, chosen),
        **({"tensor": together} if together else {}),
    }


def _work(way: dict[str, Any], path: str, output: int, chosen: Chosen) -> dict[str, Any]:
    """Return the times and sizes of an option to run a node on one device."""
    time, share = number(way, "timePerSample", path), chosen.forward_share
    parameters, always = size(way, "parameterSize", path), size(way, "memoryUsageB", path)
    gradients = min(parameters, max(0, always - parameters))
    return {
        "forward_time": time * share,
        "backward_time": time * (1 - share),
        "output_size": output,
        "saved_size": max(0, size(way, "memoryUsageA", path) - output),
        "parameter_size": parameters,
        "parameter_gradient_size": gradients,
        "optimizer_size": max(0, always - parameters - gradients),
    }
