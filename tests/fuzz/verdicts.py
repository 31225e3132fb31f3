"""Findings and answers, and how figures are compared."""

import math
import re
from dataclasses import dataclass, field
from fractions import Fraction

ALL = "all schedules"
TOLERANCE = 1e-9

EXACT = 2**53
"""Smallest whole number next to which are some that no float is."""

WHOLE = 2**62
"""From here on sums of whole times are floats."""

LIMITED = frozenset(["time limit", "interrupted", "patience over"])
"""Terminations after which another run may give another answer."""


@dataclass(frozen=True)
class Finding:
    """A broken rule, and the solves of the case that show it."""

    rule: str
    algorithm: str
    message: str
    solves: tuple = ()

    @property
    def cause(self):
        """Group of a finding: the rule, the algorithm, and for errors the text without figures and names."""
        detailed = self.rule in ("claim", "exception", "member-failed", "command-line")
        told = re.sub(r"[\d.]+|'[^']*'|\b[a-zA-Z]+#?\d[\w.]*", "#", self.message)[:80] if detailed else ""
        return self.rule, self.algorithm, told


@dataclass
class Answer:
    """The outcome of a solve: a result, a refusal, or an error, which is a finding."""

    solve: object
    result: object = None
    refusal: str = ""
    seconds: float = 0.0
    findings: list = field(default_factory=list)

    @property
    def found(self):
        """Whether there is a schedule."""
        return self.result is not None and self.result.columns is not None

    @property
    def excluded(self):
        """The class that the result claims to be empty, or None without a claim."""
        return None if self.result is None or self.found else self.result.scope

    @property
    def limited(self):
        """Whether a limit in seconds may have decided the answer."""
        return self.result is None or str(self.result.termination) in LIMITED

    def blame(self, rule, message):
        """Write down a broken rule."""
        self.findings.append(Finding(rule, self.solve.algorithm, message, (self.solve,)))


def at_most(one, other):
    """Whether a figure is at most another one: exactly, unless the makespan to compare with is fractional.

    Whole times are floats in results, the nearest ones, if they leave int64 or links have fractions. An integer is
    never rounded.
    """
    if isinstance(other, int):
        return Fraction(one) <= other or (other >= EXACT and isinstance(one, float) and one <= float(other))
    return one - other <= TOLERANCE * max(abs(one), abs(other))


def may_stand_beside(figure, steps, other):
    """Whether a bound, or an optimum, of so many steps is no more than a makespan, but for what adding rounds off."""
    rounded = 0 if isinstance(figure, int) else Fraction(steps, 2**52) * Fraction(figure)
    return at_most(figure, other) or Fraction(figure) - Fraction(other) <= rounded


def equal(one, other):
    """Whether two figures are the same, whole ones exactly."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=TOLERANCE)
