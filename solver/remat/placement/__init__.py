"""Placement: from an ordered list of steps to start times.

Placement is the twin of the verifier, and independent of it on purpose: one chooses start times, the other checks them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remat.placement.minimum_capacity import least_capacity, peak_of
from remat.placement.place import Placement, Unplaceable, place

if TYPE_CHECKING:
    from remat.placement.modulo import modulo_of, place_modulo
    from remat.placement.orders import place_orders
    from remat.placement.rendezvous import Stuck
    from remat.placement.streams import PlacedStream, place_stream

_HOME = {
    "Stuck": "rendezvous",
    "modulo_of": "modulo",
    "place_modulo": "modulo",
    "place_orders": "orders",
    "PlacedStream": "streams",
    "place_stream": "streams",
}
"""Names that only pipelines and streams need, and the modules from which they are imported on first use."""

__all__ = [
    "PlacedStream",
    "Placement",
    "Stuck",
    "Unplaceable",
    "least_capacity",
    "modulo_of",
    "peak_of",
    "place",
    "place_modulo",
    "place_orders",
    "place_stream",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat.placement' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"remat.placement.{home}"), name)
    return value
