"""Plans for PyTorch: the cells of each rank, the layers of each stage, and the recomputations."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remat.bridges.pipelining.actions import Rows
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import rows_of, stage_numbers
from remat.bridges.torch.recording import TorchError
from remat.documents import read_document
from remat.errors import InstanceError, OptionError
from remat.instance.fields import LARGEST_COUNT
from remat.schedule.orders import Orders, Phase, Stage, read_orders
from remat.schedule.recompute import Segments, segments_of
from remat.solving.questions.plan import Planned
from remat.solving.result import Result

_WITHOUT_PLAN = ("infeasible", "unknown")
"""Statuses of documents whose orders, if there are any, were not accepted."""


@dataclass(frozen=True)
class StagePlan:
    """A pipeline's plan, with stages numbered as micro-batches pass them.

    Attributes
    ----------
    layout : Layout
        One row per rank.
    stages : tuple of Stage
    ahead : tuple of tuples
        For each rank: (cell, stage, micro-batch) of each recomputation that runs before a cell, ahead of its backward.
    digest : str
    """

    layout: Layout
    stages: tuple[Stage, ...]
    ahead: tuple[tuple[tuple[int, int, int], ...], ...]
    digest: str

    @property
    def rows(self) -> Rows:
        """The cells of each rank."""
        return self.layout.rows

    def again(self, stage: int, batch: int) -> Segments:
        """Return the segments of layers (from 0) that a micro-batch recomputes in a stage."""
        return segments_of(self.stages[stage].recompute, batch)


def read_plan(plan: Any, layers: int) -> StagePlan:
    """Return the plan in a result, a document or a file, for a module with a number of layers.

    Raises
    ------
    TorchError
        If the plan does not match the layers, or has operations that PyTorch's runtime does not support.
    """
    document = _document_of(plan)
    listed = document.get("orders")
    if str(document.get("status")) in _WITHOUT_PLAN:
        raise TorchError(f"there is no plan: {document['status']}")
    if not isinstance(listed, dict):
        what = "a pattern" if "pattern" in document else "steps"
        raise TorchError(
            f"the plan has {what}, and PyTorch runs orders: plan without a host, for updates between steps"
        )
    if "samples" in document:
        raise TorchError("the plan chose the size of micro-batches: give the instance one size")
    try:
        orders = read_orders(dict(document), list(listed), layers, LARGEST_COUNT)
        _check(orders, layers)
        layout = check_layout(tuple(filter(None, rows_of(orders))), "the plan")
    except (InstanceError, OptionError) as error:
        raise TorchError(f"the plan is not for {layers} layers in stages: {error}") from None
    if len(layout.copies) > 1:
        raise TorchError(f"the plan has {len(layout.copies)} copies of the model, and PyTorch runs one")
    number = stage_numbers(orders)
    stages = tuple(orders.stages[stage] for stage in sorted(number, key=number.__getitem__))
    ahead = tuple(_ahead(orders, device, number) for device, cells in enumerate(orders.lists) if cells)
    told = json.dumps([document["stages"], listed], sort_keys=True)
    return StagePlan(layout, stages, ahead, hashlib.sha256(told.encode()).hexdigest())


def _document_of(plan: Any) -> Mapping[str, Any]:
    if isinstance(plan, Planned):
        plan = plan.result
    if isinstance(plan, Result):
        return plan.to_dict()
    return plan if isinstance(plan, Mapping) else read_document(os.fspath(plan))


def _check(orders: Orders, layers: int) -> None:
    for number, stage in enumerate(orders.stages):
        if stage.of > 1 or stage.tensor > 1:
            raise TorchError(
                f"stage {number} is one of several that share micro-batches or layers; PyTorch runs whole ones"
            )
    held = {layer for stage in orders.stages for layer in stage.layers}
    if len(held) != layers:
        raise TorchError(f"the plan has {len(held)} layers, and the module {layers} blocks")


def _ahead(orders: Orders, device: int, number: Mapping[int, int]) -> tuple[tuple[int, int, int], ...]:
    found, cell = [], 0
    for unit in orders.listed(device):
        if unit[0].phase is Phase.R:
            found.append((cell, number[unit[0].stage], unit[0].batch))
        else:
            cell += 1
    return tuple(found)
