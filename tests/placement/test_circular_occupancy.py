"""The first gap modulo a period, against trying every instant."""

import random

import pytest

from remat.placement.circular_occupancy import Circle
from remat.placement.streams import ROUNDING


def tried(busy, period, when, length):
    """Return the first integer instant that conflicts with no interval of `busy` in any period, or None."""
    for at in range(when, when + period + 1):
        spans = [(begin + turn * period, end + turn * period) for begin, end in busy for turn in range(-6, 7)]
        if not any(begin < at + length and at < end for begin, end in spans):
            return at
    return None


@pytest.mark.parametrize("unit", [1, 0.1, 1 / 3])
@pytest.mark.parametrize("seed", range(25))
def test_equal_to_trying_every_instant(unit, seed):
    draw = random.Random(seed)
    period = draw.randint(1, 24)
    circle = Circle(period * unit, 0 if unit == 1 else ROUNDING * period * unit)
    busy, found = [], 0
    for _ in range(40):
        when, length = draw.randint(0, 3 * period), draw.choice([0, 1, 1, 2, 3, 7])
        first = tried(busy, period, when, length) if length <= period else None
        told = circle.first_free(when * unit, length * unit) if length <= period else None
        if first is None:
            assert told is None
            continue
        found += 1
        assert told == (first if unit == 1 else pytest.approx(first * unit, abs=1e-9))
        if draw.random() < 0.6:
            circle.add(told, told + length * unit)
            busy.append((first, first + length))
    assert found
