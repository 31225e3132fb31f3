"""Violations that the verifier found, by rule."""

from __future__ import annotations

from remat.verifier.report import Violation

MOST_VIOLATIONS = 100
"""Maximum number of violations of one rule in a report."""


class Findings:
    """Collects violations, at most `MOST_VIOLATIONS` per rule."""

    def __init__(self) -> None:
        self._found: dict[str, list[Violation]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any violations."""
        return bool(self._found)

    def add(self, step: int | None, rule: str, message: str) -> None:
        """Record one violation."""
        found = self._found.setdefault(rule, [])
        if len(found) < MOST_VIOLATIONS:
            found.append(Violation(step, rule, message))

    def include(self, other: Findings) -> None:
        """Record all violations of another collection."""
        for rule, violations in other._found.items():
            for violation in violations:
                self.add(violation.step, rule, violation.message)

    def sorted(self) -> tuple[Violation, ...]:
        """Return all violations, sorted by step; those of the whole schedule come last."""
        everything = [violation for found in self._found.values() for violation in found]
        return tuple(sorted(everything, key=lambda v: (v.step is None, v.step or 0, v.rule)))
