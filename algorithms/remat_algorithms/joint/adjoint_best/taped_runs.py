"""A lower bound on the forward runs of a loop whose tapes can be stored, by counting the steps with few runs.

Let s be the number of states other than the live one that a schedule holds at most while a backward runs. Without
tapes, at most beta(s, q) = C(s + q, s) steps advance at most q times (Griewank 1992); the loss after the last step is
one of them, with q = 0. A step that advances more often can be left out: then its two states are one.

Now consider a schedule that stores tapes. Let r be the number of times that a step runs, with or without a tape. Split
each step whose tape is made before its backward is due into p parts, and hold the p states before its parts in place
of its tape. Each of its parts then advances r times. Replace every other step's tape by the state before it; such a
step advances r - 1 times. The result is a schedule without tapes, so for each q

    1 + number of other steps with r <= q + 1 + p * number of split steps with r <= q  <=  beta(s, q).

By linear programming duality, the runs of n steps are at least, for each number L,

    n L - sum over q >= 1 of beta(s - 1, q) max(L - q - 1, (L - q) / p, 0),

which is largest at a multiple of 1 or at 1 / (p - 1) above one. Both have closed forms.

Let M be the bytes of all memories, and u the smaller one of a state's size and a tape's pth part. Then s is at most
M / u - 1. The backward of a step needs its tape and an adjoint; the loss needs neither, and may write the adjoint over
the last state. So the backwards of the steps alone leave M bytes less a tape and an adjoint for others: s is at most
that number of states, and p - 1 more. Without the loss, this bounds the runs of all steps but the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

from remat_algorithms.kit.binomial import beta, repetition

MOST_PARTS = 64
"""Maximum number of parts that are all tried."""

NEAR = 2
"""Distance of the tried values of L from the number of repetitions."""


def least_runs(steps: int, size: int, state: int, tape: int, adjoint: int) -> int:
    """Return a bound on the runs of all steps in memories of `size` bytes; states and tapes have at least one byte."""
    best = steps
    for parts in _parts(tape / state):
        unit = min(Fraction(state), Fraction(tape, parts))
        best = max(best, _runs(steps, floor(size / unit) - 1, parts))
        others = floor(max(0, size - tape - adjoint) / unit)
        best = max(best, 1 + _runs(steps - 1, others + parts - 1, parts))
    return best


def _parts(ratio: float) -> Iterator[int]:
    """Yield numbers of parts of a tape that is so many times as large as a state."""
    yield from range(1, min(MOST_PARTS, ceil(ratio)) + 1)
    if ratio > MOST_PARTS:
        yield from (floor(ratio), ceil(ratio))


def _runs(steps: int, slots: int, parts: int) -> int:
    """Return the dual bound on the runs of steps before another one, with so many slots."""
    slots = max(1, slots)
    if steps < 1:
        return 0
    repeats = repetition(steps + 1, slots)
    bounds = [_dual(steps, slots, parts, level) for level in range(max(1, repeats - NEAR), repeats + NEAR + 1)]
    return max(steps, ceil(max(bounds)))


def _dual(steps: int, slots: int, parts: int, level: int) -> Fraction:
    """Return the larger one of the dual values at L = `level` and 1 / (parts - 1) above it."""
    if parts == 1:
        return Fraction(steps * level - beta(slots + 1, level - 1) + level)
    fixed = steps * level - beta(slots + 1, level - 2) + level - 1
    more = Fraction(1, parts - 1)
    whole = fixed - Fraction(beta(slots - 1, level - 1), parts)
    above = fixed + more * (steps + 1 - beta(slots, level - 1) - Fraction(beta(slots - 1, level), parts))
    return max(whole, above)
