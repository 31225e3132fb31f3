"""A lower bound on the peak of every order, from the values that must be resident while a task runs."""

from __future__ import annotations

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.dag.order.model import OrderModel

LARGEST_TABLE = 40_000_000
"""Maximum number of (value, task) pairs for bounds from ancestors; beyond, only the bytes of each task count."""


def residency_bounds(model: OrderModel) -> IntArray:
    """Return, for each task, a lower bound on the bytes held while it runs, in any order.

    The bound counts the reads, writes and workspace of the task, and further values. Their producer must precede the
    task, or they are initial values. They are also kept until the end, or a reader must follow the task.

    Returns
    -------
    (tasks,) int64

    Notes
    -----
    O(values * tasks / 8) operations on bytes, O(edges * tasks / 64) for the ancestors.
    """
    n = len(model)
    inputs = [value for value, readers in enumerate(model.readers) if readers and model.producer[value] < 0]
    for_ever = model.start - sum(model.size[value] for value in inputs)
    bound = np.full(n, for_ever, dtype=np.int64)
    own = np.zeros(n, dtype=np.int64)
    for task in range(n):
        read = sum(model.size[value] for value in model.reads[task])
        added = model.written[task]
        if model.in_place[task]:
            added = max(0, added - read)
        own[task] = read + added + model.workspace[task]
    bound += own
    if n == 0 or n * len(model.size) > LARGEST_TABLE:
        return bound
    ancestors = model.ancestors
    descendants = model.descendants
    everything = (1 << n) - 1
    for value, readers in enumerate(model.readers):
        if not readers or not model.size[value]:
            continue
        after = everything if model.producer[value] < 0 else descendants[model.producer[value]]
        before = 0
        for reader in readers:
            before |= ancestors[reader]
        held = after & before
        for reader in readers:
            held &= ~(1 << reader)
        _add(bound, held, model.size[value])
    for task in range(n):
        if model.kept[task]:
            _add(bound, descendants[task], model.kept[task])
    return bound


def _add(bound: IntArray, mask: int, size: int) -> None:
    """Add a size to the entries whose bit is set."""
    if mask:
        data = np.frombuffer(mask.to_bytes((len(bound) + 7) // 8, "little"), dtype=np.uint8)
        bound[np.unpackbits(data, count=len(bound), bitorder="little").astype(bool)] += size
