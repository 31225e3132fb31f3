"""What the referee has found, rule by rule."""

from __future__ import annotations

from remat.verifier.report import Violation

MOST_VIOLATIONS = 100
"""Most violations of one rule that a report lists."""


class Findings:
    """Collects violations, at most `MOST_VIOLATIONS` per rule."""

    def __init__(self) -> None:
        self._found: dict[str, list[Violation]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._found)

    def add(self, step: int | None, rule: str, message: str) -> None:
        """Note one violation."""
        found = self._found.setdefault(rule, [])
        if len(found) < MOST_VIOLATIONS:
            found.append(Violation(step, rule, message))

    def sorted(self) -> tuple[Violation, ...]:
        """Return all violations by step; those of the schedule as a whole come last."""
        everything = [violation for found in self._found.values() for violation in found]
        return tuple(sorted(everything, key=lambda v: (v.step is None, v.step or 0, v.rule)))
