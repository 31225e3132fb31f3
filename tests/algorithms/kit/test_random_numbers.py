"""Test the random numbers of kernels against the published generator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.random_numbers import next_state, number_of

FIRST = 5_180_492_295_206_395_165
"""First output of xorshift64* for state 1."""


class Nothing(NamedTuple):
    zero: int


def advanced(nothing: Nothing, state: int) -> int:
    return next_state(state) + nothing.zero


def drawn(nothing: Nothing, state: int) -> float:
    return number_of(state) + nothing.zero


def test_first_number_equals_the_published_one():
    assert number_of(next_state(1)) == (FIRST >> 11) / 2**53


def test_generators_equal_the_published_one():
    """Unsigned arithmetic of numpy, the plain functions and the compiled ones agree."""
    go, number = Kernel(advanced).bind(Nothing(0)), Kernel(drawn).bind(Nothing(0))
    state, signed, other = 12345, 12345, np.array([12345], dtype=np.uint64)
    for _ in range(200):
        other ^= other >> np.uint64(12)
        other ^= other << np.uint64(25)
        other ^= other >> np.uint64(27)
        state, signed = next_state(state), go(signed)
        assert state == int(other[0]) == signed % 2**64
        wanted = int((other * np.uint64(2_685_821_657_736_338_717))[0]) >> 11
        assert number_of(state) == number(signed) == wanted / 2**53
