"""Random numbers for kernels: xorshift64* (Vigna 2016), with the same numbers in compiled and in interpreted code."""

from __future__ import annotations

LAST_64, LAST_53, LAST_52, LAST_37 = (2**count - 1 for count in (64, 53, 52, 37))
MULTIPLIER = 2685821657736338717
PARTS = 2.0**53


def next_state(state: int) -> int:
    """Return the state after another one; both are nonzero."""
    state ^= (state >> 12) & LAST_52
    state = (state ^ (state << 25)) & LAST_64
    state ^= (state >> 27) & LAST_37
    return state


def number_of(state: int) -> float:
    """Return the number in [0, 1) of a state."""
    return float(((state * MULTIPLIER >> 11) & LAST_53) / PARTS)
