"""The list of faults, a file for each part of the source."""

from tests.mutants.faults import bounds, journal, levels, lowering, placement, plans, rotor, schedules, units, verifier

PARTS = (placement, verifier, lowering, bounds, levels, plans, schedules, rotor, journal, units)
FAULTS = tuple(fault for part in PARTS for fault in part.FAULTS)

EXPLAINED = {}
"""Survivors that are accepted, by name: why no test can, or should, tell them from the right text."""
