"""Activations of a pipeline at a peak, by layers and micro-batches."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from remat.graph.taskgraph import TaskGraph
from remat.instance.kinds import is_pipeline
from remat.plugin.proposal import LeastBudget
from remat.solving.result import Result

_ACTIVATION = re.compile(r"[a-z]+([0-9]+)\.([0-9]+)")
"""Name of a value of one layer and one micro-batch: ``s3.0``."""


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes of some layers for the same micro-batches.

    Attributes
    ----------
    layers : tuple of int
        Numbers of layers, from 0.
    micro_batches : tuple of int
        Numbers of micro-batches, from 0; each has values of each of these layers.
    size : int
        Bytes (or units) of all these values.
    """

    layers: tuple[int, ...]
    micro_batches: tuple[int, ...]
    size: int


def activations_by_layer(graph: TaskGraph, values: Iterable[int]) -> tuple[LayerActivations, ...]:
    """Group values by the micro-batches of their layer, the largest group first. O(values).

    Values of no layer and micro-batch, such as parameters, are left out.
    """
    batches: defaultdict[int, set[int]] = defaultdict(set)
    sizes: defaultdict[int, int] = defaultdict(int)
    for value in values:
        match = _ACTIVATION.fullmatch(graph.values[value])
        if match is not None:
            layer = int(match[1]) - 1
            batches[layer].add(int(match[2]))
            sizes[layer] += int(graph.size[value])
    layers: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for layer in sorted(batches):
        layers[tuple(sorted(batches[layer]))].append(layer)
    found = [LayerActivations(tuple(own), key, sum(sizes[layer] for layer in own)) for key, own in layers.items()]
    return tuple(sorted(found, key=lambda one: (-one.size, one.layers)))


def result_at(result: Result, least: LeastBudget) -> Result | None:
    """Return the schedule of the orders with which a pipeline fits a budget, in unlimited memory; None if unknown."""
    from remat.solving.orders import Followed, follow
    from remat.verifier import check

    if least.orders is None or result.instance is None or not is_pipeline(result.instance):
        return None
    machine = result.machine.with_capacities({memory.name: None for memory in result.machine.memories})
    followed = follow(result.instance, result.graph, machine, least.orders)
    if not isinstance(followed, Followed):
        return None
    report = check(followed.graph, machine, followed.steps)
    return replace(
        result, graph=followed.graph, machine=machine, columns=followed.steps, report=report, orders=least.orders
    )
