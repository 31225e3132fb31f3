"""Named orders, one layer a stage, for the tests of the bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import remat
from remat.schedule.orders import Orders, Stage
from remat_algorithms.parallel.pipeline import rules

RULES: dict[str, Callable[[int, int], rules.Lists]] = {
    "gpipe": rules.gpipe,
    "1f1b": rules.one_forward_one_backward,
    "eager": rules.eager_one_forward_one_backward,
    "interleaved": rules.interleaved,
    "chimera": rules.chimera,
    "gems": rules.gems,
    "zb-h1": rules.zb_h1,
    "zb-h2": rules.zb_h2,
    "zb-v": rules.zb_v,
    "v-half": rules.v_half,
    "v-min": rules.v_min,
}


def named(rule: str, devices: int, batches: int) -> Orders:
    """Return the orders of a rule, a layer a part of the model."""
    lists = RULES[rule](devices, batches)
    stages = tuple(Stage((part,), device) for part, device in zip(lists.part, lists.place, strict=True))
    return Orders(stages, lists.lists)


def pipeline(**changes: Any) -> dict[str, Any]:
    """Return a pipeline of four layers, devices and eight micro-batches, of whole backwards."""
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "name": "four",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 8,
        "layers": [{"forward_time": 1, "backward_time": 2, "saved_size": 1, "repeat": 4}],
        "cluster": {"devices": [{"name": "gpu", "count": 4}], "levels": [{"delay": 1}]},
    } | changes


def csv_of(orders: Orders) -> str:
    """Return orders as a CSV without transfers."""
    from remat.bridges.pipelining.actions import csv_lines
    from remat.bridges.pipelining.orders import rows_of

    return "".join(csv_lines(rows_of(orders)))


def instance_of(document: dict[str, Any]) -> remat.PipelineInstance:
    """Load a pipeline."""
    loaded = remat.load(document)
    assert isinstance(loaded, remat.PipelineInstance)
    return loaded
