"""The referee: what a schedule does and costs, from the task graph, the machine and the steps alone.

It shares no code with placement and knows nothing of the zoo. It is the only source of the makespans and
peaks that remat shows.
"""

from __future__ import annotations

from remat.verifier.periodic import Updates, check_beats, check_pattern, check_samples, versioned
from remat.verifier.referee import check, nothing_run
from remat.verifier.report import Peak, Profile, Report, Steady, Violation
from remat.verifier.waits import check_orders

__all__ = [
    "Peak",
    "Profile",
    "Report",
    "Steady",
    "Updates",
    "Violation",
    "check",
    "check_beats",
    "check_orders",
    "check_pattern",
    "check_samples",
    "nothing_run",
    "versioned",
]
