"""The verifier: check and measure a schedule from the task graph, the machine and the steps alone.

It shares no code with placement and does not know the zoo. All makespans and peaks that remat shows come from it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remat.verifier.referee import check, nothing_run
from remat.verifier.report import Peak, Profile, Report, Steady, Subject, Violation

if TYPE_CHECKING:
    from remat.verifier.addresses import check_addresses
    from remat.verifier.deadlock import check_orders
    from remat.verifier.modulo import Training, check_beats, check_modulo, versioned
    from remat.verifier.repeated_steps import check_cycle

_HOME = {
    **dict.fromkeys(("Training", "check_beats", "check_modulo", "versioned"), "modulo"),
    "check_addresses": "addresses",
    "check_cycle": "repeated_steps",
    "check_orders": "deadlock",
}
"""Names that only some schedules need, with the modules from which they are imported on first use."""

__all__ = [
    "Peak",
    "Profile",
    "Report",
    "Steady",
    "Subject",
    "Training",
    "Violation",
    "check",
    "check_addresses",
    "check_beats",
    "check_cycle",
    "check_modulo",
    "check_orders",
    "nothing_run",
    "versioned",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'remat.verifier' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"remat.verifier.{home}"), name)
    return value
