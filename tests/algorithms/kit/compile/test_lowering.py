"""Test the small compiler: compiled code matches the interpreter, and unsupported code is rejected."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import remat
from remat_algorithms.kit.compile.lowering import Kernel, checked_indices
from remat_algorithms.kit.compile.records import cells

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
    return (function(one, *arguments), *one), (Kernel(function).bind(two)(*arguments), *two)


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
        Kernel(function).bind(box())


# --- records --------------------------------------------------------------------------------------------------------


@cells
class Count(ctypes.Structure):
    steps: int
    level: float


class Shelf(NamedTuple):
    cube: Array
    flags: Array
    real: Array
    width: int
    share: float
    wide: bool
    count: Count


def shelf(kind=np.float64):
    cube = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    real = np.arange(6).reshape(2, 3).astype(kind)
    return Shelf(cube, np.array([True, False, True]), real, 7, 0.25, True, Count(steps=3, level=1.5))


def least_of(row: Array, other: Array) -> float:
    least = math.inf
    for place in range(len(row)):
        for across in range(other.shape[0] - 1, -1, -1):
            least = min(least, row[place], other[across, 0])
    return least


def tick(count: Count, by: int) -> int:
    count.steps += by
    return count.steps


def mixes(shelf: Shelf, start: int) -> float:
    plane = shelf.cube[1]
    total = 0.0
    for row in range(start, -1, -2):
        total = total * shelf.share + plane[row, 3] + len(plane)
        shelf.flags[row] = not shelf.flags[row]
        shelf.count.level += total
    if shelf.wide and shelf.flags[1]:
        total += shelf.width
    return total + tick(shelf.count, shelf.cube.shape[0]) + least_of(shelf.real[1], shelf.real)


def mixed_bits(shelf: Shelf, bits: int) -> int:
    bits ^= (bits >> 12) & 4503599627370495
    bits ^= (bits << 25) & 18446744073709551615
    return (bits * 2685821657736338717 & 18446744073709551615) >> 11 & 9007199254740991


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("start", [2, 1, -1])
def test_records_of_arrays_numbers_and_cells(kind, start):
    one, two = shelf(kind), shelf(kind)
    assert mixes(one, start) == Kernel(mixes).bind(two)(start)
    assert (one.flags == two.flags).all()
    assert (one.count.steps, one.count.level) == (two.count.steps, two.count.level) != (3, 1.5)


def chooses(shelf: Shelf, number: int) -> float:
    if not shelf.wide:
        return float(sorted([number])[0])
    share = shelf.width if shelf.wide and number > 2 else 1
    if shelf.wide or sorted([number]):
        share += number
    return share + (shelf.share if shelf.wide else sorted([number])[0])


@pytest.mark.parametrize("number", [1, 5])
def test_a_truth_value_of_a_record_is_a_constant(number):
    """Code for the other value is not compiled: here, the compiler would reject it."""
    assert chooses(shelf(), number) == Kernel(chooses).bind(shelf())(number)
    with pytest.raises(TypeError, match=r"cannot compile sorted\(\[number\]\)"):
        Kernel(chooses).bind(shelf()._replace(wide=False))


def turns(shelf: Shelf, number: int) -> int:
    if shelf.wide:
        number += 10
    while shelf.wide and number < 20:
        number += 3
    return number if not shelf.wide else -number


def test_a_kernel_is_compiled_for_each_truth_value():
    kernel = Kernel(turns)
    for wide in (True, False, True):
        kept = shelf()._replace(wide=wide)
        assert kernel.bind(kept)(4) == turns(kept, 4) == (-20 if wide else 4)


@pytest.mark.parametrize("bits", [1, 12345, 2**62 + 17, 2**63 - 5])
def test_compiled_integers_wrap_like_interpreted_ones(bits):
    assert mixed_bits(shelf(), bits) == Kernel(mixed_bits).bind(shelf())(bits)


def test_cells_are_one_memory():
    kept = shelf()
    bound = Kernel(mixes).bind(kept)
    kept.count.steps = 100
    assert bound(-1) == 102.0
    assert kept.count.steps == 102


def test_cells_hold_numbers_alone():
    class Named(ctypes.Structure):
        name: str

    with pytest.raises(TypeError, match="Named"):
        cells(Named)


def ignores(shelf: Shelf) -> None:
    shelf.width = 3


@pytest.mark.parametrize(
    "field", [{"cube": np.zeros(3, dtype=np.int32)}, {"real": np.zeros((4, 4)).T[1:]}, {"width": "a"}]
)
def test_what_has_no_type_is_refused(field):
    with pytest.raises(TypeError, match=next(iter(field))):
        Kernel(mixes).bind(shelf()._replace(**field))


def test_numbers_of_a_named_tuple_do_not_change():
    with pytest.raises(TypeError, match=r"test_lowering.py:\d+: cannot compile shelf.width"):
        Kernel(ignores).bind(shelf())


def second(shelf: Shelf, other: Shelf) -> int:
    return other.width


def test_records_of_one_annotation_are_of_one_kind():
    assert Kernel(second).bind(shelf(), shelf()._replace(width=9))() == 9
    with pytest.raises(TypeError, match="Shelf"):
        Kernel(second).bind(shelf(), shelf(np.int64))


# --- the check of indices -------------------------------------------------------------------------------------------


def deeper(row: Array, place: int) -> int:
    return row[place]


def reads(box: Box, place: int, count: int) -> int:
    total = 0
    while count > 0:
        total += deeper(box.table[1], place)
        count -= 1
    return total


def writes(box: Box, row: int, column: int) -> None:
    box.table[row, column] = 5


@pytest.mark.parametrize("place", [-1, 4, 2**40])
def test_an_index_out_of_range_is_named(place):
    with checked_indices():
        bound = Kernel(reads).bind(box())
    assert bound(3, 2) == 14
    line = deeper.__code__.co_firstlineno + 1
    # A loop that would go on for ever ends, too.
    with pytest.raises(IndexError, match=rf"deeper, line {line}: row\[place\]: index {place} of 4"):
        bound(place, 2**60)
    assert bound(0, 1) == 4


@pytest.mark.parametrize(("row", "column"), [(3, 0), (-1, 0), (0, 4), (0, -1)])
def test_each_dimension_is_checked(row, column):
    boxes = box()
    with checked_indices():
        bound = Kernel(writes).bind(boxes)
    with pytest.raises(IndexError, match="writes"):
        bound(row, column)
    assert (boxes.table == box().table).all()


def test_the_check_is_off_by_default():
    kernel, boxes = Kernel(writes), box()
    kernel.bind(boxes)(0, 5)  # within the array, beyond the row
    assert boxes.table[1, 1] == 5
    with checked_indices():
        bound = kernel.bind(boxes)
    with pytest.raises(IndexError):
        bound(0, 5)


@pytest.fixture
def interpreted(monkeypatch):
    """Let kernels be interpreted, as where LLVM is not installed."""
    monkeypatch.setattr("remat_algorithms.kit.compile.lowering.can_compile", lambda: False)


@pytest.mark.parametrize(
    ("name", "algorithm", "budget"),
    [
        pytest.param("resnet50", "chain-best", "1GiB", marks=pytest.mark.slow),
        ("unet_joint", "dag-auto", "60%"),
        ("heterogeneous", "walther-griewank", 20),
        ("uniform_p4_m8", "pipe-search", "75%"),
        ("random_n200", "liu", None),
    ],
)
def test_without_llvm_the_answers_are_the_same(name, algorithm, budget, request):
    instance = remat.example(name)
    options = {"chain-best": {"iterations": 20}, "dag-auto": {"iterations": 5}, "pipe-search": {"moves": 50}}.get(
        algorithm
    )
    compiled = remat.solve(instance, algorithm=algorithm, budget=budget, options=options)
    request.getfixturevalue("interpreted")
    plain = remat.solve(instance, algorithm=algorithm, budget=budget, options=options)
    assert (plain.makespan, plain.peak_memory, plain.lower_bound) == (
        compiled.makespan,
        compiled.peak_memory,
        compiled.lower_bound,
    )
    assert list(plain.steps) == list(compiled.steps)


def test_without_llvm_nothing_of_it_is_imported():
    code = (
        "import sys; sys.modules['llvmlite'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'llvmlite' else real(name, *a)\n"
        "import remat; r = remat.solve(remat.example('resnet50'), budget='80%', algorithm='chain-best',"
        " options={'iterations': 2})\n"
        "print(r.status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip() in ("optimal", "feasible"), done.stderr) == (True, "")
