"""Exact sums of bytes: in int64 if no sum can overflow, else in Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from remat.graph.taskgraph import BoolArray, TaskGraph
from remat.schedule.steps import Steps

LARGEST = 2.0**62
"""Half of int64's range: far more than what float64 may round off an estimate."""


def exact_dtype(graph: TaskGraph, steps: Steps, valid: BoolArray) -> DTypeLike:
    """Return the dtype in which bytes add up exactly: int64, or object if these steps could overflow it.

    A memory holds only its initial values and those that steps add. Therefore no sum over time exceeds the initial
    bytes plus all bytes that the steps write, copy and use as workspace.
    """
    runs = steps.item[(steps.kind == 0) & valid]
    copies = steps.item[(steps.kind == 1) & valid]
    size = graph.size.astype(np.float64)
    of_task = graph.workspace.astype(np.float64)
    np.add.at(of_task, graph.writes.rows, size[graph.writes.items])
    for task, parts in graph.parts.items():
        of_task[task] *= len(parts)  # an upper bound: each part writes a portion
    total = graph.static_memory + sum(size[place.value] for place in graph.inputs)
    total += of_task[runs].sum() + size[copies].sum()
    return np.int64 if total < LARGEST else object


def total(numbers: Any) -> Any:
    """Return the sum of an array; sums of integers are exact at any size."""
    if numbers.dtype == np.int64 and float(np.abs(numbers.astype(np.float64)).sum()) >= LARGEST:
        return sum(numbers.tolist())
    return numbers.sum().item() if numbers.dtype != object else sum(numbers.tolist())
