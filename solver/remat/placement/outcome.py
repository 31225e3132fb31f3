"""Results of placement."""

from __future__ import annotations

from typing import NamedTuple

from remat.graph.taskgraph import NumberArray


class Placement(NamedTuple):
    """Start times of all steps."""

    start: NumberArray


class Unplaceable(NamedTuple):
    """A step whose bytes do not fit even when everything issued before it has ended.

    Attributes
    ----------
    step : int
    memory : int
        Index of the memory that is too small.
    needed : int
        Bytes in that memory while the step runs.
    capacity : int
    """

    step: int
    memory: int
    needed: int
    capacity: int
