"""Task trees: task T{i} and value v{i} for node i, every task exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remat.graph.names import NumberedNames
from remat.graph.taskgraph import Ragged, Resident, TaskGraph, number_array

if TYPE_CHECKING:
    from remat.instance import TreeInstance


def lower_tree(instance: TreeInstance) -> TaskGraph:
    """Lower a `tree` instance.

    In-tree: T{i} reads its children's values and writes v{i}; the root's value is the output. Out-tree:
    T{i} reads v{i} and writes its children's values; the root's value is resident at the start.
    `names` are labels for readers; tasks keep their numbers.
    """
    parent = np.array(instance.parent, dtype=np.int64)
    n = len(parent)
    node = np.arange(n, dtype=np.int64)
    root = int(np.flatnonzero(parent == -1)[0])
    order = np.argsort(parent, kind="stable")[1:]  # children grouped by parent, without the root (-1)
    counts = np.bincount(parent[order], minlength=n)
    children = Ragged(np.concatenate(([0], np.cumsum(counts))), order)
    own = Ragged(np.arange(n + 1, dtype=np.int64), node)
    inward = instance.orientation == "in"
    parallel = instance.parallel
    yes = np.ones(n, dtype=bool)
    return TaskGraph(
        tasks=NumberedNames([("T", 0, n)]),
        values=NumberedNames([("v", 0, n)]),
        time=np.ones(n, dtype=np.int64) if instance.time is None else number_array(instance.time),
        size=np.array(instance.output_size, dtype=np.int64),
        reads=children if inward else own,
        writes=own if inward else children,
        workspace=np.array(instance.workspace, dtype=np.int64) if instance.workspace else np.zeros(n, dtype=np.int64),
        in_place=np.zeros(n, dtype=bool),
        required=yes,
        recomputable=np.zeros(n, dtype=bool),
        once=yes,
        inputs=() if inward else (Resident(root),),
        outputs=(Resident(root),) if inward else (),
        static_memory=instance.static_memory,
        parallel_max=np.full(n, parallel.max, dtype=np.int64) if parallel else None,
        parallel_alpha=np.full(n, parallel.alpha) if parallel else None,
        modules=instance.names,
        units=instance.units.build(),
    )
