"""Addresses: a layout is judged by the rules alone, and each single corruption is found."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.verifier.findings import Findings
from remat.verifier.layout import Placed, check_layout
from tests.oracles import layouts

SEEDS = st.integers(0, 2**32)


def rules(placed):
    findings = Findings()
    check_layout(placed, findings)
    return {violation.rule for violation in findings.sorted()}


def drawn(seed, *, most=16):
    """Return residencies that are placed first fit by start, which needs no search."""
    draw = random.Random(seed)
    count = draw.randint(1, most)
    first = [draw.randrange(20) for _ in range(count)]
    last = [begin + draw.randint(1, 8) for begin in first]
    size = [draw.randint(1, 9) for _ in range(count)]
    offset = [0] * count
    done = []
    for row in draw.sample(range(count), count):
        low = 0
        while layouts.problems(
            *([column[k] for k in (*done, row)] for column in (first, last, size)), [offset[k] for k in done] + [low]
        ):
            low += 1
        offset[row] = low
        done.append(row)
    columns = (np.array(column, dtype=np.int64) for column in (first, last, size, offset))
    placed = Placed(
        **dict(zip(("first", "last", "size", "offset"), columns, strict=True)), names=[f"v{k}" for k in range(count)]
    )
    return replace(placed, arena=int((placed.offset + placed.size).max()))


def is_wrong(placed):
    columns = (column.tolist() for column in (placed.first, placed.last, placed.size, placed.offset))
    return bool(layouts.problems(*columns, placed.alignment, placed.arena))


@settings(max_examples=120, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_layouts_and_single_corruptions(seed):
    check_corruption(drawn(seed), seed)


def check_corruption(placed, seed):
    assert rules(placed) == set()
    draw = random.Random(seed)
    offset = placed.offset.copy()
    offset[draw.randrange(len(offset))] += draw.choice((-5, -2, -1, 1, 2, 5))
    spoilt = replace(placed, offset=offset)
    assert bool(rules(spoilt)) == is_wrong(spoilt)


@pytest.mark.slow
@settings(max_examples=5000, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_layouts_and_single_corruptions_thoroughly(seed):
    check_corruption(drawn(seed), seed)


@settings(max_examples=80, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_arbitrary_offsets_are_judged_like_the_oracle(seed):
    placed = drawn(seed)
    offset = np.random.default_rng(seed).integers(0, 30, len(placed.offset))
    placed = replace(placed, offset=offset, arena=None)
    assert bool(rules(placed)) == is_wrong(placed)


ONE = Placed(
    first=np.array([0, 5]), last=np.array([6, 9]), size=np.array([8, 4]), offset=np.array([0, 4]), names=("a", "b")
)


def test_a_guest_may_overlap_its_host_and_nothing_else():
    assert rules(ONE) == {"address-overlap"}
    hosted = replace(ONE, hosts=np.array([[1, 0]]))
    assert rules(hosted) == set()
    assert rules(replace(ONE, hosts=np.array([[0, 1]]))) == {"address-overlap"}
    third = {
        "first": np.array([0, 5, 6]),
        "last": np.array([6, 9, 8]),
        "size": np.array([8, 4, 4]),
        "names": ("a", "b", "c"),
    }
    assert rules(replace(hosted, **third, offset=np.array([0, 4, 0]))) == set()
    assert rules(replace(hosted, **third, offset=np.array([0, 4, 2]))) == {"address-overlap"}


def test_a_host_that_outlives_its_guest_is_overlapped():
    assert rules(replace(ONE, hosts=np.array([[1, 0]]), last=np.array([9, 8]))) == {"address-overlap"}


@pytest.mark.parametrize(
    "more",
    [
        {"arena": 7},
        {"alignment": 8},
        {"fixed": np.array([-1, 8])},
        {"reserved": ((9, 12), (3, 4))},
        {"offset": np.array([-1, 9])},
    ],
)
def test_offsets_outside_their_ranges_are_violations(more):
    apart = replace(ONE, offset=np.array([0, 9]), last=np.array([5, 9]))
    assert "address-range" in rules(replace(apart, **more))
    assert rules(replace(apart, arena=13, fixed=np.array([0, -1]), reserved=((8, 9), (13, 20)))) == set()


def test_release_comes_before_acquire():
    assert rules(replace(ONE, last=np.array([5, 9]), offset=np.array([0, 0]))) == set()


def test_nothing_occupies_no_address():
    assert rules(replace(ONE, size=np.array([0, 4]))) == set()


def test_many_ranges_are_kept_in_chunks():
    count = 5000
    offset = np.random.default_rng(0).permutation(count) * 2
    placed = Placed(
        first=np.zeros(count, dtype=np.int64),
        last=np.full(count, 9),
        size=np.full(count, 2),
        offset=offset,
        names=[f"v{k}" for k in range(count)],
    )
    assert rules(placed) == set()
    offset = offset.copy()
    offset[17] += 1
    assert rules(replace(placed, offset=offset)) == {"address-overlap"}


def test_an_end_beyond_the_largest_integer_is_beyond_the_memory():
    """The sum of an offset and a size may exceed int64, although both are legal."""
    largest = 2**62
    placed = Placed(
        first=np.array([0]),
        last=np.array([1]),
        size=np.array([largest]),
        offset=np.array([largest]),
        names=("a",),
        arena=largest,
    )
    assert rules(placed) == {"address-range"}
    assert rules(replace(placed, offset=np.array([0]))) == set()
    two = {"first": np.array([0, 0]), "last": np.array([1, 1]), "names": ("a", "b"), "arena": None}
    same = replace(placed, **two, size=np.array([largest, largest]), offset=np.array([largest, largest]))
    assert "address-overlap" in rules(same)
