"""Binomial checkpointing in closed form: numbers of advances, and split positions.

Griewank & Walther 2000, "Algorithm 799: Revolve". Let beta(s, r) = C(s+r, s), and let r be the smallest number with n
<= beta(s, r). The minimum number of advances that reverse n steps with s slots is

    t(n, s) = r*n - beta(s+1, r-1),    t(1, s) = 0,    t(n, 1) = n(n-1)/2.

A split of n steps at m stores x_m, reverses the n-m steps after it with s-1 slots, and then the m steps before it. It
is optimal exactly for max(beta(s, r-2), n - beta(s-1, r)) <= m <= min(beta(s, r-1), n - beta(s-1, r-1)). Of the two
ends, the smaller m stores fewer checkpoints.
"""

from __future__ import annotations

from math import comb


def beta(slots: int, repeats: int) -> int:
    """Maximum number of steps that `slots` checkpoints reverse if no step advances more than `repeats` times."""
    return comb(slots + repeats, slots) if repeats >= 0 else 0


def repetition(steps: int, slots: int) -> int:
    """Return the smallest r with steps <= beta(slots, r)."""
    if slots == 1:
        return steps - 1
    high = 1
    while beta(slots, high) < steps:
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        if beta(slots, middle) < steps:
            low = middle
        else:
            high = middle
    return high


def advances(steps: int, slots: int) -> int:
    """Return t(steps, slots), the minimum number of advances (exact, O(log steps))."""
    if steps == 1:
        return 0
    r = repetition(steps, slots)
    return r * steps - beta(slots + 1, r - 1)


def first_split(steps: int, slots: int) -> int:
    """Return the smallest optimal position of the second checkpoint, for steps >= 2 and slots >= 2."""
    r = repetition(steps, slots)
    return max(1, beta(slots, r - 2), steps - beta(slots - 1, r))
