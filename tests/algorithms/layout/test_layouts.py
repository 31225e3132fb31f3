"""The algorithms that give buffers addresses, against exhaustive search and against each other."""

import csv
import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.plugin import THIS_SCHEDULE, Buffers, Context, OptionError, arena_of
from remat.plugin.registry import find
from remat_algorithms.kit.compile.lowering import checked_indices
from remat_algorithms.layout import (
    beam,
    beam_kernel,
    ejection_kernel,
    gaps_kernel,
    reinsertion,
    reinsertion_kernel,
    section_floors,
    section_floors_kernel,
)
from remat_algorithms.layout.beam import Beams
from remat_algorithms.layout.best_fit import ORDERS, Gaps, best_fit
from remat_algorithms.layout.ejection import Ejections
from remat_algorithms.layout.live_bytes import arena_bound
from remat_algorithms.layout.order_search import reordered
from remat_algorithms.layout.reinsertion import Reinsertions
from tests.algorithms.layout.drawn import planted, random_buffers
from tests.oracles import layouts
from tests.seeds import seeds

SEEDS = st.integers(0, 2**32)
MIB = 1 << 20


def solved(name, buffers, **options):
    algorithm = find(name, "layout")
    model = algorithm.load_options()
    return algorithm.load()(buffers, model(**options) if model else None, Context())


def check(buffers, offset):
    columns = (column.tolist() for column in (buffers.start, buffers.end, buffers.size, offset))
    assert layouts.problems(*columns, buffers.alignment, buffers.capacity) == []
    if buffers.fixed is not None:
        assert (offset[buffers.is_fixed] == buffers.fixed[buffers.is_fixed]).all()
    for low, high in buffers.reserved:
        assert not ((offset < high) & (offset + buffers.size > low)).any()


def check_exact(buffers):
    least = layouts.smallest_arena(
        buffers.start.tolist(), buffers.end.tolist(), buffers.size.tolist(), buffers.alignment
    )
    found = solved("layout-exact", buffers)
    check(buffers, found.offset)
    assert arena_of(buffers, found.offset) == found.bound == least
    assert arena_bound(buffers) <= least
    found = solved("layout-exact", buffers.with_capacity(least))
    check(buffers.with_capacity(least), found.offset)
    found = solved("layout-exact", buffers.with_capacity(least - 1))
    assert found.offset is None
    assert found.infeasible_within == THIS_SCHEDULE
    assert found.bound == least or found.bound <= least


@settings(max_examples=10, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_exact_equals_exhaustive_search(seed):
    check_exact(random_buffers(seed))


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_exact_equals_exhaustive_search_thoroughly(seed):
    check_exact(random_buffers(seed, most=8))


def check_constrained(seed):
    """Compare with exhaustive search: alignment, fixed addresses and reserved ranges, at and below the least arena."""
    draw = random.Random(seed)
    count, times, alignment = draw.randint(1, 6), draw.randint(2, 6), draw.choice((1, 1, 2, 4))
    start = [draw.randrange(times) for _ in range(count)]
    end = [draw.randint(first + 1, times) for first in start]
    size = [draw.randint(1, draw.choice((2, 3, 5))) for _ in range(count)]
    lows = [draw.randrange(8) for _ in range(draw.choice((0, 1, 1, 2)))]
    reserved = tuple((low, low + draw.randint(1, 3)) for low in lows)
    fixed = [alignment * draw.randrange(4) if draw.random() < 0.2 else -1 for _ in range(count)]
    least = layouts.smallest_constrained_arena(start, end, size, alignment, fixed, reserved, 48)
    try:
        buffers = Buffers.of(start, end, size, alignment=alignment, fixed=np.array(fixed), reserved=reserved)
    except OptionError:
        assert least is None
        return
    assert arena_bound(buffers) <= least
    for name in ("layout-exact", "layout-auto"):
        found = solved(name, buffers)
        check(buffers, found.offset)
        assert arena_of(buffers, found.offset) == found.bound == least
        assert solved(name, buffers.with_capacity(least)).offset is not None
        found = solved(name, buffers.with_capacity(least - 1))
        assert (found.offset, found.infeasible_within) == (None, THIS_SCHEDULE)


@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_constrained_layouts_equal_exhaustive_search(seed):
    check_constrained(seed)


@pytest.mark.slow
@settings(max_examples=2000, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_constrained_layouts_equal_exhaustive_search_thoroughly(seed):
    check_constrained(seed)


# Buffers whose smallest arena is above the most that lives at one time: start, end, size, the least arena.
ABOVE_THE_PEAK = [
    ([4, 4, 4, 2, 4, 2, 1, 3], [5, 5, 5, 3, 5, 5, 5, 4], [7, 4, 9, 7, 9, 5, 6, 9], 40),
    ([0, 0, 2, 1, 3, 1], [1, 3, 4, 2, 4, 4], [2, 2, 2, 2, 4, 2], 8),
]


@pytest.mark.parametrize(("start", "end", "size", "least"), ABOVE_THE_PEAK)
def test_known_arenas_are_optimal(start, end, size, least):
    assert layouts.smallest_arena(start, end, size) == least
    assert solved("layout-exact", Buffers.of(start, end, size)).bound == least


def test_small_gap_below_a_fixed_buffer():
    """The gap is smaller than any buffer, so that nothing but the fixed offset explains it."""
    start, end, size, _ = ABOVE_THE_PEAK[0]
    buffers = Buffers.of(start, end, size, fixed=np.array([-1, -1, -1, -1, -1, -1, 3, -1]))
    found = solved("layout-exact", buffers)
    check(buffers, found.offset)
    assert arena_of(buffers, found.offset) == found.bound == 43


def test_the_gap_below_the_first_buffer_counts():
    buffers = Buffers.of([0, 1, 2], [2, 3, 4], [100, 80, 60])
    for order in ("size", "lifetime", "area", "weight", "start"):
        assert arena_of(buffers, best_fit(buffers, order)) == 180


def draw_with_constraints(seed):
    buffers = random_buffers(seed, most=30, times=12)
    fixed = np.full(len(buffers), -1)
    if seed % 3 == 0:
        fixed[seed % len(buffers)] = buffers.alignment * (seed % 7)
    reserved = ((seed % 5, seed % 5 + 2),) if seed % 4 == 0 else ()
    try:
        return Buffers(
            buffers.start, buffers.end, buffers.size, alignment=buffers.alignment, fixed=fixed, reserved=reserved
        )
    except OptionError:  # the two collide
        return buffers


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_layouts_are_valid_and_above_the_bound(seed):
    buffers = draw_with_constraints(seed)
    bound = arena_bound(buffers)
    for name, options in [*(("best-fit", {"order": order}) for order in ORDERS), ("layout-auto", {"work": 1_000_000})]:
        found = solved(name, buffers, **options)
        check(buffers, found.offset)
        assert bound <= found.bound <= arena_of(buffers, found.offset)


def groups_of(seed):
    """Buffers of which some are followed by another one in the same place, or in a part of it."""
    buffers = random_buffers(seed, most=20, times=12, alignments=(1,))
    draw = np.random.default_rng(seed)
    guests = np.flatnonzero(draw.random(len(buffers)) < 0.5)
    start = np.concatenate((buffers.start, buffers.end[guests]))
    end = np.concatenate((buffers.end, buffers.end[guests] + draw.integers(1, 4, len(guests))))
    size = np.concatenate((buffers.size, draw.integers(1, buffers.size[guests] + 1)))
    shift = np.concatenate((np.zeros(len(buffers), dtype=np.int64), buffers.size[guests] - size[len(buffers) :]))
    group = np.concatenate((np.arange(len(buffers)), guests))
    return Buffers(start, end, size, group=group, shift=shift)


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_groups_stay_together(seed):
    buffers = groups_of(seed)
    for name in ("best-fit", "layout-auto", "layout-exact", "online-best-fit"):
        found = solved(name, buffers, **({"work": 1_000_000} if name.startswith("layout") else {}))
        check(buffers, found.offset)
        base = found.offset - buffers.shift
        assert (base == base[buffers.group]).all()


@pytest.mark.parametrize("make", [lambda seed: planted(seed, count=80), groups_of])
def test_other_orders_of_best_fit_need_less(make):
    better = 0
    for seed in range(4):
        buffers = make(seed).with_capacity(None)
        greedy = min(arena_of(buffers, best_fit(buffers, order)) for order in ORDERS)
        arenas = []
        for offset in reordered(buffers, Context(seed=seed), 5_000_000):
            check(buffers, offset)
            arenas.append(arena_of(buffers, offset))
        assert arenas == sorted(set(arenas), reverse=True)
        assert all(arena_bound(buffers) <= arena < greedy for arena in arenas)
        better += bool(arenas)
    assert better > 0


@pytest.mark.parametrize("helper", [Beams, Ejections])
def test_helpers_need_less_than_best_fit(helper):
    better = 0
    for seed in range(4):
        buffers = planted(seed, count=60).with_capacity(None)
        greedy = min(arena_of(buffers, best_fit(buffers, order)) for order in ORDERS)
        arenas = range(arena_bound(buffers), greedy)
        offset = helper(buffers, Context(seed=seed)).below(arenas, 100_000_000) if len(arenas) else None
        if offset is not None:
            check(buffers, offset)
            assert arena_of(buffers, offset) in arenas
            better += 1
    assert better > 0


@pytest.mark.parametrize("helper", [Beams, Ejections])
def test_helpers_respect_constraints(helper):
    found = 0
    for seed in range(80):
        buffers = draw_with_constraints(seed)
        most = min(arena_of(buffers, best_fit(buffers, order)) for order in ORDERS) + buffers.alignment
        offset = helper(buffers, Context(seed=seed)).below(range(most, most + 1), 1_000_000)
        if offset is not None:
            check(buffers, offset)
            assert arena_of(buffers, offset) <= most
            found += 1
    assert found > 60


def irregular(seed, lanes=10, times=60):
    """Return buffers of irregular sizes, as many at a time as there are lanes."""
    draw, ends, rows = random.Random(seed), [0] * lanes, []
    while min(ends) < times:
        begin = min(ends)
        end = begin + draw.choice((1, 2, 3, 4, 6, 20))
        rows.append((begin, end, draw.randint(3000, 5000)))
        ends[ends.index(begin)] = end
    return Buffers.of(*zip(*rows, strict=True))


def test_ejections_fill_an_arena_whose_sizes_rarely_add_up():
    """Ten irregular buffers at a time: best-fit needs a sixth more than the bound, a fiftieth is enough."""
    buffers = irregular(1)
    bound = arena_bound(buffers)
    assert min(arena_of(buffers, best_fit(buffers, order)) for order in ORDERS) > 1.15 * bound
    most = int(1.02 * bound)
    offset = Ejections(buffers, Context()).below(range(most, most + 1), 300_000_000)
    assert offset is not None
    check(buffers.with_capacity(most), offset)


@pytest.mark.parametrize("count", [100, 120])
def test_search_over_floors_continues_where_it_ended(count):
    """Many short calls find the layout that one call finds, with the same work."""
    buffers = planted(0, count=count)
    whole = section_floors.FloorSearch(buffers, MIB, 1).go_on(10_000_000_000, lambda: False)
    parts = section_floors.FloorSearch(buffers, MIB, 1)
    found, work, calls = parts.go_on(1, lambda: False), 0, 1
    while found.status == section_floors_kernel.LIMIT:
        work, calls = work + found.work, calls + 1
        found = parts.go_on(1, lambda: False)
    assert calls > 1
    assert (found.offset.tolist(), work + found.work) == (whole.offset.tolist(), whole.work)


def best_greedy(buffers):
    return min((best_fit(buffers, order) for order in ORDERS), key=lambda offset: arena_of(buffers, offset))


def test_reinsertion_improves_a_layout_of_irregular_sizes():
    """From the best greedy layout, one run more than halves the distance to the bound, twice the same way."""
    buffers = irregular(1)
    bound, offset, found = arena_bound(buffers), best_greedy(irregular(1)), []
    for _ in range(2):
        search = Reinsertions(buffers, Context())
        better = search.below(range(bound, arena_of(buffers, offset)), 50_000_000, offset)
        check(buffers, better)
        assert search.work > 0
        found.append(better.tolist())
    assert found[0] == found[1]
    assert 2 * (arena_of(buffers, better) - bound) < arena_of(buffers, offset) - bound


def test_reinsertion_respects_constraints():
    """Improvements keep fixed addresses, reserved ranges and the alignment, also without a layout to begin with."""
    found = 0
    for seed in range(60):
        buffers = draw_with_constraints(seed)
        offset = max((best_fit(buffers, order) for order in ORDERS), key=lambda offset: arena_of(buffers, offset))
        arenas = range(arena_bound(buffers), arena_of(buffers, offset))
        for best in (offset, None):
            better = Reinsertions(buffers, Context()).below(arenas, 1_000_000, best) if len(arenas) else None
            if better is not None:
                check(buffers, better)
                assert arena_of(buffers, better) in arenas
                found += 1
    assert found > 40


def test_reinsertion_moves_nothing_that_is_fixed():
    """A buffer that is pushed above its fixed offset is no layout, even if the arena does not grow."""
    buffers = Buffers.of([0, 0, 0], [2, 1, 2], [3, 2, 4], fixed=np.array([2, -1, -1]), reserved=((20, 25),))
    worse = np.array([2, 9, 5])
    better = Reinsertions(buffers, Context()).below(range(9, 11), 1_000_000, worse)
    assert better.tolist() == [2, 0, 5]
    held = Buffers.of([0, 0], [1, 1], [3, 2], fixed=np.array([2, 7]))
    search = Reinsertions(held, Context())
    assert (search.below(range(5, 9), 1_000_000, held.fixed), search.work) == (None, 0)


def test_reinsertion_leaves_large_problems_alone(monkeypatch):
    monkeypatch.setattr(reinsertion, "MOST_PLACES", 5)
    buffers = irregular(1)
    search = Reinsertions(buffers, Context())
    assert search.below(range(arena_of(buffers, best_fit(buffers, "size"))), 400_000_000) is None
    assert search.work == 0


@pytest.mark.parametrize("seed", range(4))
def test_reinsertion_updates_paths_as_if_computed_anew(seed, monkeypatch):
    """After each turn, every path equals that of the same order, linked row by row."""
    turns, bind = 0, reinsertion_kernel.RUN.bind

    def checked(*records):
        rows, now, _, state = records
        run = bind(*records)

        def turn(work):
            nonlocal turns
            turns += 1
            run(work)
            anew = reinsertion_kernel.Layout(now.order.copy(), *(np.full_like(column, -1) for column in now[1:]))
            reinsertion_kernel.PREPARE.plain(rows, anew, state)
            for column, other in zip(now, anew, strict=True):
                assert column.tolist() == other.tolist()

        return turn

    monkeypatch.setattr(reinsertion_kernel.RUN, "bind", checked)
    monkeypatch.setattr(reinsertion, "SLICE", 1)
    buffers = irregular(seed, times=30)
    if seed % 2:
        fixed = np.full(len(buffers), -1)
        fixed[seed] = 3500
        buffers = Buffers(buffers.start, buffers.end, buffers.size, fixed=fixed, reserved=((8000, 8500),))
    Reinsertions(buffers, Context(seed=seed)).below(range(arena_bound(buffers), 1 << 40), 800_000)
    assert turns > 10


def test_ejections_without_a_place_end():
    """A fixed buffer in the middle leaves no gap for a larger one."""
    buffers = Buffers.of([0, 0], [1, 1], [7, 2], fixed=np.array([-1, 4]))
    ejections = Ejections(buffers, Context())
    assert ejections.below(range(10, 11), 10_000_000) is None
    assert ejections.work >= 10_000_000
    check(buffers, Ejections(buffers, Context()).below(range(13, 14), 10_000_000))
    large = Buffers.of([0], [1], [12])
    assert Ejections(large, Context()).below(range(11, 12), 1_000_000) is None


def test_beams_that_end_at_once_use_up_the_work(monkeypatch):
    """Three buffers of 5 bytes live together; in 12 bytes, the third does not fit."""
    turns = 0

    class Counted(beam._Run):
        def __init__(self, *arguments):
            nonlocal turns
            turns += 1
            assert turns < 1000, "the work hardly grows"
            super().__init__(*arguments)

    monkeypatch.setattr(beam, "_Run", Counted)
    beams = Beams(Buffers.of([0, 0, 0], [1, 1, 1], [5, 5, 5]), Context())
    assert beams.below(range(12, 13), 10_000_000) is None
    assert beams.work >= 10_000_000


@pytest.mark.parametrize("seed", range(10))
def test_planted_layouts_are_found(seed):
    buffers = planted(seed, count=60 + 20 * seed)
    found = solved("layout-exact", buffers, work=20_000_000_000)
    check(buffers, found.offset)


def test_shipped_sizes_of_the_challenge():
    """The eleven instances of minimalloc, if they are at hand."""
    if "REMAT_DATA" not in os.environ:
        pytest.skip("REMAT_DATA is not set")
    for path in sorted((Path(os.environ["REMAT_DATA"]) / "layout").glob("*.1048576.csv")):
        with open(path) as file:
            rows = list(csv.DictReader(file))
        columns = ([int(row[key]) for row in rows] for key in ("lower", "upper", "size"))
        buffers = Buffers.of(*columns, capacity=MIB)
        check(buffers, solved("layout-exact", buffers, work=60_000_000_000).offset)


# Twins.


def runs(monkeypatch, plain):
    if plain:
        kernels = section_floors_kernel.RUN, gaps_kernel.FIT, beam_kernel.EXPAND, beam_kernel.KEEP, ejection_kernel.RUN
        for kernel in (*kernels, reinsertion_kernel.PREPARE, reinsertion_kernel.RUN):
            monkeypatch.setattr(kernel, "bind", lambda *records, kernel=kernel: partial(kernel.plain, *records))


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_compiled_and_plain_twins_agree(seed, monkeypatch):
    buffers = planted(seed, count=40)

    def answers():
        gaps = Gaps(buffers)
        placed = [gaps.place(order).tolist() for order in ORDERS]
        found = section_floors.FloorSearch(buffers, MIB, seed).go_on(100_000, lambda: False)
        offset = None if found.offset is None else found.offset.tolist()
        beams = Beams(buffers, Context(seed=seed))
        packed = beams.below(range(MIB, MIB + 1), 3_000_000)
        ejections = Ejections(buffers, Context(seed=seed))
        repaired = [ejections.below(range(most, most + 1), 150_000) for most in (MIB, 3 * MIB // 2, 5 * MIB // 4)]
        search = Reinsertions(buffers, Context(seed=seed))
        inserted = search.below(range(arena_bound(buffers), 2 * MIB), 200_000)
        more = [None if layout is None else layout.tolist() for layout in (packed, *repaired, inserted)]
        return placed, found.status, found.work, offset, beams.work, ejections.work, search.work, more

    with checked_indices():
        compiled = answers()
    runs(monkeypatch, plain=True)
    assert answers() == compiled


# Allocators.


def test_online_best_fit_knows_no_future():
    buffers = planted(1, count=50)
    whole = best_fit(buffers, "start")
    early = buffers.start <= np.median(buffers.start)
    some = Buffers(buffers.start[early], buffers.end[early], buffers.size[early])
    assert (best_fit(some, "start") == whole[early]).all()


# What makes no sense.


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"alignment": 24}, "align: 24 is not a power of two"),
        ({"fixed": np.array([0, 4])}, "fixed: buffer 0 and buffer 1 are fixed at 0 and 4, where they overlap"),
        ({"alignment": 8, "fixed": np.array([4, -1])}, "fixed: buffer 0 is fixed at 4, which is not a multiple of 8"),
        (
            {"fixed": np.array([4, -1]), "reserved": ((0, 5),)},
            "fixed: buffer 0 is fixed at 4, in the reserved range 0-5",
        ),
        ({"reserved": ((5, 5),)}, "reserved: 5-5 is not a range of addresses"),
        ({"names": ("a", "b"), "fixed": np.array([0, 4])}, "fixed: a and b are fixed at 0 and 4"),
    ],
)
def test_problems_without_a_layout_are_named(more, message):
    with pytest.raises(OptionError, match=message):
        Buffers.of([0, 1], [2, 3], [5, 5], **more)


@pytest.mark.parametrize(
    ("start", "end", "size", "message"), [([1], [1], [5], "starts when"), ([0], [1], [0], "has no")]
)
def test_rows_without_sense_are_named(start, end, size, message):
    with pytest.raises(OptionError, match=message):
        Buffers.of(start, end, size)


def test_layouts_are_listed():
    names = {algorithm.name for algorithm in remat.algorithms(kind="layout")}
    assert names == {"best-fit", "layout-exact", "layout-auto", "online-best-fit", "caching"}
    assert not any(algorithm.accepts("chain") for algorithm in remat.algorithms(kind="layout"))


def test_allocators_accept_an_empty_list_of_buffers():
    buffers = Buffers.of([], [], [])
    for name in ("best-fit", "layout-exact", "layout-auto", "online-best-fit", "caching"):
        assert solved(name, buffers).offset.tolist() == []
