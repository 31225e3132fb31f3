"""Pipelines with only forwards: the graph of one micro-batch.

Task ``F{l}`` (layer l from 1) reads ``x{k}`` for each layer k that layer l reads, and the parameters ``w{l}``. It
writes ``x{l}``. The schedule places the input ``w{l}``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import Placeable, Ragged, TaskGraph, number_array
from remat.instance.lowering.chain import with_stage_names

if TYPE_CHECKING:
    from remat.instance.pipeline import PipelineInstance

CANNOT = -1
"""Time of a layer on a type of device that cannot run it."""


def lower_inference(instance: PipelineInstance) -> TaskGraph:
    """Lower one micro-batch of a pipeline whose weights are fixed (O(layers))."""
    layers, sources = instance.each_layer(), instance.sources()
    count = len(layers)
    with_parameters = [index for index, layer in enumerate(layers) if layer.parameter_size]
    weight = {index: count + place for place, index in enumerate(with_parameters)}
    types = tuple(dict.fromkeys(instance.cluster.types))
    rows = [[layer.time_on("forward_time", name) for layer in layers] for name in types]
    least = [min(time for time in column if time is not None) for column in zip(*rows, strict=True)]
    alike = all(row == least for row in rows)
    table = number_array(CANNOT if time is None else time for time in chain.from_iterable(rows))
    done = np.zeros(count, dtype=bool)
    graph = TaskGraph(
        tasks=NumberedNames([("F", 1, count)]),
        values=NumberedNames([("x", 1, count), *(("w", index + 1, 1) for index in with_parameters)]),
        time=number_array(least),
        size=np.array(
            [*(layer.output_size for layer in layers), *(layers[index].parameter_size for index in with_parameters)],
            dtype=np.int64,
        ),
        reads=Ragged.from_lists(
            [[*own, *([weight[index]] if index in weight else [])] for index, own in enumerate(sources)]
        ),
        writes=Ragged.from_lists([[index] for index in range(count)]),
        workspace=np.array([layer.forward_workspace for layer in layers], dtype=np.int64),
        in_place=done,
        required=~done,
        recomputable=~done,
        once=done,
        placeable=tuple(Placeable(value, instance.copies) for value in weight.values()),
        types=() if alike else types,
        times=None if alike else table.reshape(len(types), count),
        units=instance.units.build(),
    )
    return with_stage_names(graph, [instance.layers])
