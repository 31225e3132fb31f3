"""Placement: from an ordered list of steps to start times.

The twin of the verifier, and independent of it on purpose: one chooses start times, the other judges them.
"""

from __future__ import annotations

from remat.placement.least import least_capacity
from remat.placement.meeting import Stuck
from remat.placement.orders import place_orders
from remat.placement.patterns import place_pattern
from remat.placement.place import Placement, Unplaceable, place
from remat.placement.samples import place_samples
from remat.placement.streams import PlacedStream, place_stream

__all__ = [
    "PlacedStream",
    "Placement",
    "Stuck",
    "Unplaceable",
    "least_capacity",
    "place",
    "place_orders",
    "place_pattern",
    "place_samples",
    "place_stream",
]
