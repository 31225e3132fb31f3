"""The model of PyTorch's caching allocator, by its rules and against a plain list of blocks."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.plugin import Buffers, Context, OptionError
from remat_algorithms.layout import caching
from remat_algorithms.layout.caching import Allocator
from tests.algorithms.layout.drawn import random_buffers
from tests.oracles import layouts
from tests.oracles.caching_allocator import Blocks

SEEDS = st.integers(0, 2**32)
MIB = 1 << 20


def solved(buffers):
    return caching.solve(buffers, None, Context())


def test_caching_allocator_reserves_by_its_rules():
    allocator = Allocator()
    small = allocator.allocate(100)
    assert (small, allocator.reserved) == (0, 2 * MIB)
    assert allocator.allocate(1) == 512
    medium = allocator.allocate(5 * MIB)
    assert (medium, allocator.reserved) == (2 * MIB, 22 * MIB)
    large = allocator.allocate(10 * MIB + 1)  # 15 MiB of the 20 are free, and larger than what is asked for
    assert (large, allocator.reserved) == (7 * MIB, 22 * MIB)
    assert allocator.allocate(10 * MIB + 1) == 22 * MIB
    assert allocator.reserved == 34 * MIB
    allocator.free(medium)
    assert allocator.allocate(3 * MIB) == 17 * MIB + 512  # of two free blocks the smaller one
    assert allocator.allocate(5 * MIB) == medium
    allocator.free(small)
    assert allocator.allocate(512) == small


def test_caching_allocator_keeps_a_small_rest_of_a_large_block():
    allocator = Allocator()
    first = allocator.allocate(12 * MIB)
    allocator.free(first)
    assert allocator.allocate(11 * MIB) == first  # the rest of 1 MiB is not split off
    assert allocator.allocate(MIB + 1) == 12 * MIB


def test_caching_allocator_gives_free_segments_back_before_it_fails():
    allocator = Allocator(40 * MIB)
    first = allocator.allocate(30 * MIB)
    allocator.free(first)
    assert allocator.allocate(36 * MIB) is not None
    assert allocator.reserved == 36 * MIB
    assert allocator.allocate(5 * MIB) is None


SIZES = (1, 511, 512, 100_000, MIB, MIB + 1, 3 * MIB, 9 * MIB + 5, 10 * MIB - 512, 10 * MIB, 11 * MIB + 1, 33 * MIB)


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_caching_allocator_equals_a_plain_list_of_blocks(seed):
    draw = random.Random(seed)
    capacity = draw.choice((None, 60 * MIB, 100 * MIB, 200 * MIB + 1))
    allocator, blocks, held = Allocator(capacity), Blocks(capacity), []
    for _ in range(60):
        if held and draw.random() < 0.45:
            address = held.pop(draw.randrange(len(held)))
            allocator.free(address)
            blocks.free(address)
        else:
            size = draw.choice(SIZES) + draw.choice((0, 0, 1, 700, 70_000))
            address = allocator.allocate(size)
            assert address == blocks.allocate(size)
            if address is not None:
                held.append(address)
        assert allocator.reserved == blocks.reserved
    assert len(set(held)) == len(held)


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_caching_layouts_are_valid(seed):
    buffers = random_buffers(seed, most=40, times=20, alignments=(1,))
    sized = Buffers(buffers.start, buffers.end, buffers.size * 700_001)
    columns = (sized.start, sized.end, sized.size, solved(sized).offset)
    assert layouts.problems(*(column.tolist() for column in columns)) == []


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_caching_layouts_reserve_what_a_plain_list_of_blocks_does(seed):
    """The buffers in execution order, frees first at one instant."""
    draw = random.Random(seed)
    start = [draw.randrange(20) for _ in range(40)]
    end = [first + draw.randint(1, 8) for first in start]
    size = [draw.choice(SIZES) + draw.choice((0, 1, 700, 70_000)) for _ in start]
    capacity = draw.choice((None, None, 150 * MIB, 250 * MIB))
    found = solved(Buffers.of(start, end, size, capacity=capacity))
    blocks, address, most = Blocks(capacity), [None] * len(start), 0
    for time in range(max(end) + 1):
        for row in range(len(start)):
            if end[row] == time:
                blocks.free(address[row])
        for row in range(len(start)):
            if start[row] == time:
                address[row] = blocks.allocate(size[row])
                if address[row] is None:
                    assert found.offset is None
                    return
        most = max(most, blocks.reserved)
    assert found.offset.tolist() == address
    assert found.reserved == most


def test_caching_keeps_the_block_of_an_output_in_place():
    buffers = Buffers.of(
        [0, 2, 0, 2],
        [2, 4, 2, 4],
        [12 * MIB, 11 * MIB, 12 * MIB, 13 * MIB],
        group=np.array([0, 0, 2, 2]),
        shift=np.zeros(4, dtype=np.int64),
    )
    found = solved(buffers)
    first, smaller, second, larger = found.offset.tolist()
    assert smaller == first
    assert larger != second
    assert found.reserved == (12 + 12 + 14) * MIB
    later = Buffers.of([0, 2, 3], [2, 3, 4], [12 * MIB, 11 * MIB, 12 * MIB], group=np.array([0, 0, 2]), shift=[0, 0, 0])
    assert solved(later).reserved == 12 * MIB


def test_caching_reserves_static_bytes_first():
    buffers = Buffers.of([0], [1], [3 * MIB], reserved=((0, 5),))
    found = solved(buffers)
    assert (found.offset.tolist(), found.reserved) == ([2 * MIB], 22 * MIB)
    with pytest.raises(OptionError, match="does not support fixed or reserved"):
        solved(Buffers.of([0], [1], [5], reserved=((1, 5),)))
