"""The small compiler: what it compiles computes what the interpreter does, and what it cannot is refused."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from remat_algorithms.kit.compile.lowering import compiled, layout

STEPS = (3, -2, 5)
SCALE = 2.5
Array = Any


class Box(NamedTuple):
    table: Array
    row: Array
    real: Array


def box():
    return Box(np.arange(12, dtype=np.int64).reshape(3, 4), np.arange(5, dtype=np.int64), np.linspace(0.5, 2.5, 5))


def both(function, *arguments):
    """Call the interpreted and the compiled function; return what they return, and leave, in each case."""
    one, two = box(), box()
    table = layout(two)
    call = compiled(function, {"Box": two})
    return (function(one, *arguments), *one), (call(table.ctypes.data, *arguments), *two)


def division(box: Box, left: int, right: int) -> int:
    return 1000 * (left // right) + left % right


def reals(box: Box, left: float, right: float) -> float:
    total = 0.0
    for place in range(len(box.real)):
        total += math.pow(box.real[place], left) - math.exp(right * SCALE) / (1 + place)
    return -total if total > 3.0 else total + box.table[1, 2]


def loops(box: Box, start: int, stop: int) -> int:
    found = 0
    for place in range(start, stop):
        if place % 3 == 0:
            continue
        for step in STEPS:
            found += step * place
            if found > 50:
                break
        while found > 20 and not found % 2:
            found -= 7
    return found


def guarded(box: Box, place: int, other: int) -> bool:
    inside = 0 <= place < len(box.row) and box.row[place] == place
    return inside or (other > box.table.shape[1] and 1 << other > 100)


def set_first(row: Array, value: int) -> None:
    if value < 0:
        return
    row[0] = value


def stores(box: Box, value: int, real: float) -> int:
    line, row = box.table[1], box.row
    set_first(line, value)
    box.table[2, 3] += value
    box.real[1] -= real
    low, high = min(value, row[3]), max(value, 3)
    row[4] = int(real) + abs(value)
    box.real[2] = float(high)
    return 100 * low + high


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *((division, pair) for pair in ((7, 3), (-7, 3), (7, -3), (-7, -3), (-6, 3), (0, -5))),
        *((reals, pair) for pair in ((0.7, 0.1), (1.0, -3.0), (-2.0, 0.0))),
        *((loops, pair) for pair in ((0, 9), (4, 4), (-5, 3), (7, 40))),
        *((guarded, pair) for pair in ((2, 0), (5, 6), (-1, 7), (9, 3))),
        *((stores, pair) for pair in ((4, 1.5), (-2, -1.5), (0, 2.99))),
    ],
)
def test_compiled_equals_interpreted(function, arguments):
    interpreted, machine = both(function, *arguments)
    assert interpreted[0] == machine[0]
    for left, right in zip(interpreted[1:], machine[1:], strict=True):
        assert (left == right).all()


def lists(box: Box) -> int:
    return sum([1, 2])


def narrows(box: Box, value: float) -> int:
    whole = 1
    whole = value
    return whole


def unknown(box: Box, value: complex) -> int:
    return 1


@pytest.mark.parametrize("function", [lists, narrows, unknown])
def test_what_it_does_not_know_is_refused(function):
    with pytest.raises(TypeError):
        compiled(function, {"Box": box()})
