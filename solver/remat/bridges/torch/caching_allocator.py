"""The memory that PyTorch's caching allocator reserves for a plan, as the allocator model `caching` predicts."""

from __future__ import annotations

from remat.solving.questions.layout import layout
from remat.solving.result import Result

NO_CACHE = "cpu"
"""Devices of this type free memory immediately."""


def reserved_bytes(result: Result, device: str) -> int:
    """Return the peak bytes that the allocator of a device reserves for a schedule; 0 if it caches nothing.

    The parameters, states and inputs count as one segment. The context of the device is not included.
    """
    if device == NO_CACHE:
        return 0
    return layout(result, algorithm="caching").reserved or 0


def is_better(one: Result, other: Result, device: str) -> bool:
    """Whether a schedule is faster than another one, or as fast with fewer reserved bytes."""
    if other.makespan is None or one.makespan is None:
        return one.makespan is not None
    if one.makespan != other.makespan:
        return one.makespan < other.makespan
    return reserved_bytes(one, device) < reserved_bytes(other, device)
