"""The list of faults, a file for each part of the source."""

from tests.mutants.faults import (
    bounds,
    journal,
    levels,
    lowering,
    pipelines,
    placement,
    plans,
    ratios,
    rotor,
    schedules,
    units,
    verifier,
)

PARTS = (placement, verifier, lowering, pipelines, bounds, levels, plans, schedules, rotor, journal, units, ratios)
FAULTS = tuple(fault for part in PARTS for fault in part.FAULTS)

EXPLAINED = {
    "chain/rotor/excess_limit: the last bin has no end": "no room of any segment is beyond the upper edge of the last "
    "bin, which the largest room lies in: the text is there for readers, and for rooms that a later relaxation may add",
}
"""Accepted survivors, by name: the reason why no test can, or should, detect them."""
