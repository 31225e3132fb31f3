"""A tree as an icicle: one row per depth; a node's width is the total output of its subtree.

Children hang below their parent, from left to right in order of execution. The rest of its width is its own output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.taskgraph import IntArray
from remat.report.views.task_index_ranges import TreeLayout
from remat.schedule.steps import StepKind
from remat.solving.result import Result

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Icicle:
    """Position, execution order and spilled share of each node.

    Attributes
    ----------
    left, right : (nodes,) float64
        Shares of the width.
    depth : (nodes,) int64
    order : (nodes,) int64
        Position in the order of execution.
    spilled : (nodes,) float64
        Share of the node's output that leaves the working memory.
    volume : int
        Bytes that leave the working memory.
    """

    left: FloatArray
    right: FloatArray
    depth: IntArray
    order: IntArray
    spilled: FloatArray
    volume: int

    @property
    def depths(self) -> int:
        """Rows."""
        return int(self.depth.max(initial=0)) + 1


def icicle_of(result: Result, layout: TreeLayout) -> Icicle:
    """Lay a tree out (O(nodes)).

    Parameters
    ----------
    result : Result
        The result of a tree, with a schedule.
    layout : TreeLayout
    """
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    sequence = steps.item[runs[np.argsort(report.start[runs], kind="stable")]]
    order = np.empty(len(sequence), dtype=np.int64)
    order[sequence] = np.arange(len(sequence))
    left, right, depth = _lay_out(layout, sequence, result.graph.size)
    spilled, volume = _spilled(result)
    return Icicle(left=left, right=right, depth=depth, order=order, spilled=spilled, volume=volume)


def _lay_out(layout: TreeLayout, sequence: IntArray, size: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    parent = layout.parent.tolist()
    upwards = (sequence if layout.inward else sequence[::-1]).tolist()  # children before their parents
    # One extra byte each makes nodes without output visible.
    width = (size.astype(np.float64) + max(1.0, float(size.mean()) / 100)).tolist()
    for node in upwards:
        if parent[node] >= 0:
            width[parent[node]] += width[node]
    count = len(parent)
    depth, left, free = [0] * count, [0.0] * count, [0.0] * count
    # From the root on: in an in-tree, the children that run last come first, so its picture is mirrored.
    taken = [0.0] * count
    for node in reversed(upwards):
        above = parent[node]
        if above >= 0:
            depth[node] = depth[above] + 1
            left[node] = left[above] + taken[above]
            taken[above] += width[node]
        free[node] = left[node] + width[node]
    whole = max(free, default=1.0)
    starts, ends = np.array(left) / whole, np.array(free) / whole
    if layout.inward:
        starts, ends = 1.0 - ends, 1.0 - starts
    return starts, ends, np.array(depth, dtype=np.int64)


def _spilled(result: Result) -> tuple[FloatArray, int]:
    steps, graph = result.columns, result.graph
    assert steps is not None
    out = np.flatnonzero((steps.kind == StepKind.COPY) & (steps.source == result.machine.processors[0].memory))
    value = steps.item[out]
    moved = np.where(steps.amount[out] < 0, graph.size[value], steps.amount[out])
    volume = np.zeros(len(graph.values), dtype=np.int64)
    np.add.at(volume, value, moved)
    share = np.minimum(1.0, volume / np.maximum(graph.size, 1))
    return share, int(moved.sum())
