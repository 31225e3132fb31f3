"""Rotor's tables within a limit on the time: what is left out of them is never missed."""

from __future__ import annotations

import math
from typing import Any

import pytest

import remat
from remat.plugin.context import Context
from remat.plugin.proposal import Proposal
from remat.solving.single import make_problem
from remat_algorithms.chain.least_memory import LeastMemory
from remat_algorithms.chain.rotor import slots as rotor_slots
from remat_algorithms.chain.rotor import table as rotor_table
from remat_algorithms.chain.rotor.limit import TimeLimit, once_bound, once_times, quick_bound
from remat_algorithms.chain.rotor.table import Grid, RotorTable, RowLimits
from remat_algorithms.chain.segments import Segments
from tests.algorithms.chain.rotor.test_forms import Document, draw_chain
from tests.algorithms.chain.rotor.test_sweep import proposals, range_of, wide_chain
from tests.seeds import seeds

KERNEL, NUMPY = -1, 10**9


def segments_of(document: Document) -> Segments:
    return Segments.of(make_problem(remat.load(document)).chain)


def grids(segments: Segments, slots: int) -> list[Grid]:
    """Lay rows at a tight, a middling and a wide room, rounded up and down."""
    least, whole = LeastMemory.of(segments).least, segments.states.whole().need
    rooms = {max(1, least + (whole - least) * share // 10) for share in (0, 2, 5, 9)}
    return [Grid.of(segments, room, max(1, -(-room // slots)), up=up) for room in rooms for up in (True, False)]


def filled(segments: Segments, grid: Grid, limit: TimeLimit = math.inf) -> RotorTable:
    table = RotorTable.of(segments, grid, limit=limit)
    assert table is not None
    return table


def check_limited(segments: Segments, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare tables with and without limits; return the number of cells left out."""
    monkeypatch.setattr(rotor_table, "COMPILED_FROM", NUMPY)
    full = filled(segments, grid)
    whole, best, left_out = float(segments.states.whole().time), full.best(), 0
    finite = best if best < math.inf else 2 * whole + 1
    for limit in {whole, finite, finite + 1, (whole + finite) / 2, 1.1 * finite}:
        floors = []
        for compiled_from in (KERNEL, NUMPY):
            monkeypatch.setattr(rotor_table, "COMPILED_FROM", compiled_from)
            table = filled(segments, grid, limit)
            floors.append(table.lowest.tolist())
            for row in range(grid.start + 1):
                if full.best(row) > limit:
                    assert table.best(row) > limit
                    continue
                assert table.best(row) == full.best(row)
                assert table.runs(row) == full.runs(row)
        assert floors[0] == floors[1]
        left_out += floors[0].count(grid.rows)
    return left_out


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_what_is_within_the_limit_is_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = segments_of(draw_chain(seed, most=9))
    for grid in grids(segments, slots=7):
        check_limited(segments, grid, monkeypatch)


def check_several(segments: Segments, grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare tables with and without limits at several budgets, among them some that are no whole slots away."""
    monkeypatch.setattr(rotor_table, "COMPILED_FROM", NUMPY)
    full = filled(segments, grid)
    whole = float(segments.states.whole().time)
    rooms = [grid.budget * share // 7 for share in (7, 6, 4, 3, 1)]
    found = [full.best(max(0, grid.row_above(room))) for room in rooms]
    finite = [time if time < math.inf else 2 * whole + 1 for time in found]
    for factor in (0.5, 1.0, 1.1):
        # Less than each budget's time, that time, or more; and the limit of one budget for another.
        limits = [whole + factor * (time - whole) for time in finite]
        for wanted in (dict(zip(rooms, limits, strict=True)), dict(zip(rooms, [*limits[1:], limits[0]], strict=True))):
            floors = []
            for compiled_from in (KERNEL, NUMPY):
                monkeypatch.setattr(rotor_table, "COMPILED_FROM", compiled_from)
                table = filled(segments, grid, wanted)
                floors.append(table.lowest.tolist())
                for room, limit in wanted.items():
                    for row in range(grid.row_above(room) + 1):
                        if full.best(row) > limit:
                            assert table.best(row) >= full.best(row)
                            continue
                        assert table.best(row) == full.best(row)
                        assert table.runs(row) == full.runs(row)
            assert floors[0] == floors[1]


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_the_row_of_a_limit_is_the_lowest_with_no_fewer_bytes(seed: int) -> None:
    segments = segments_of(draw_chain(seed, most=5))
    for grid in grids(segments, slots=7):
        for room in range(grid.budget - 3 * grid.unit, grid.budget + 1):
            row = grid.row_above(room)
            assert grid.bytes(row) >= room > grid.bytes(row - 1)
            # What is read for the budget is filled for it.
            assert grid.row(room) <= row


@pytest.mark.parametrize("seed", seeds(8, 25))
def test_what_some_budget_needs_is_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = segments_of(draw_chain(seed, most=9))
    for grid in grids(segments, slots=13):
        check_several(segments, grid, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_what_some_budget_needs_is_exact_on_many_chains(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8000 + 30 * chunk, 8030 + 30 * chunk):
        segments = segments_of(draw_chain(seed, most=12))
        for grid in grids(segments, slots=11):
            check_several(segments, grid, monkeypatch)


def test_one_budget_of_several_needs_less() -> None:
    segments = segments_of(wide_chain(3, stages=30))
    *_, grid = grids(segments, slots=40)
    full = filled(segments, grid)
    rooms = [grid.budget, 3 * grid.budget // 4, grid.budget // 2]
    wanted = {room: full.best(grid.row_above(room)) for room in rooms}
    one, all_three = (filled(segments, grid, limits) for limits in ({rooms[0]: wanted[rooms[0]]}, wanted))
    counts = [int((grid.rows - table.lowest).sum()) for table in (one, all_three, full)]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_what_is_within_the_limit_is_exact_on_many_chains(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(9000 + 30 * chunk, 9030 + 30 * chunk):
        segments = segments_of(draw_chain(seed, most=12))
        for grid in grids(segments, slots=11):
            check_limited(segments, grid, monkeypatch)


def test_a_limit_leaves_much_out(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = segments_of(wide_chain(3, stages=30))
    *_, grid = grids(segments, slots=40)
    assert check_limited(segments, grid, monkeypatch) > 30 * 31 // 2


@pytest.mark.parametrize("seed", seeds(10, 60))
def test_the_bounds_enclose_the_table(seed: int) -> None:
    for document in (draw_chain(seed, most=9), wide_chain(seed)):
        segments = segments_of(document)
        for grid in grids(segments, slots=12):
            limits, best = RowLimits.of(segments, grid), filled(segments, grid).best()
            assert quick_bound(limits) <= best <= once_bound(limits)
            assert (filled(segments, grid).whole().time <= once_times(limits)).all()


def test_the_bounds_meet_where_one_level_is_enough() -> None:
    segments = segments_of(wide_chain(5, stages=40))
    room = 2 * segments.states.whole().need // 3
    limits = RowLimits.of(segments, Grid.of(segments, room, room // 200, up=True))
    assert segments.states.whole().time < quick_bound(limits) <= once_bound(limits) < 1.01 * quick_bound(limits)


@pytest.mark.parametrize("certificate", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_solves_are_what_they_are_without_a_limit(
    certificate: bool, threads: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"slots": 12, "certificate": certificate}
    drawn = (draw_chain(number, most=12) for number in range(2 * seed, 2 * seed + 2))
    documents = [wide_chain(seed, stages=16), *drawn]
    for compiled_from in (KERNEL, NUMPY):
        monkeypatch.setattr(rotor_slots, "COMPILED_FROM", compiled_from)
        monkeypatch.setattr(rotor_table, "COMPILED_FROM", compiled_from)
        for document in documents:
            low, high = range_of(document)
            for budget in {low + (high - low) * k // 4 for k in range(4)}:
                answers: list[Any] = []
                for limited_from in (-1, 10**12):
                    monkeypatch.setattr(rotor_slots, "LIMITED_FROM", limited_from)
                    answers.append(
                        remat.solve(document, algorithm="rotor", budget=budget, options=options, threads=threads)
                    )
                with_limit, without = answers
                assert with_limit.makespan == without.makespan
                assert with_limit.bounds == without.bounds
                assert with_limit.notes == without.notes
                assert with_limit.peak_memory == without.peak_memory
                assert with_limit.to_dict()["steps"] == without.to_dict()["steps"]


@pytest.mark.parametrize("slots", [12, 400])
@pytest.mark.parametrize("certificate", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_sweeps_are_what_they_are_without_limits(
    certificate: bool, threads: int, slots: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"slots": slots, "certificate": certificate}
    drawn = (draw_chain(number, most=12) for number in range(4 * seed, 4 * seed + 4))
    documents = [wide_chain(seed, stages=16), *drawn]
    for compiled_from in (KERNEL, NUMPY):
        monkeypatch.setattr(rotor_slots, "COMPILED_FROM", compiled_from)
        monkeypatch.setattr(rotor_table, "COMPILED_FROM", compiled_from)
        for document in documents:
            low, high = range_of(document)
            budgets = tuple(sorted({max(0, low + (high - low) * k // 9) for k in range(-1, 11)}, reverse=True))
            answers: list[Any] = []
            for limited_from in (-1, 10**12):
                monkeypatch.setattr(rotor_slots, "LIMITED_FROM", limited_from)
                found = proposals(document, budgets, Context(threads=threads), **options)
                answers.append([_plain(proposal) for proposal in found])
            assert answers[0] == answers[1]


def _plain(proposal: Proposal) -> tuple[object, ...]:
    """Return what can be compared of a proposal."""
    steps = proposal.steps
    columns = None if steps is None else (steps.item.tolist(), steps.drop.rows.tolist(), steps.drop.items.tolist())
    return (columns, proposal.makespan, proposal.bounds, proposal.optimal_within, proposal.least, proposal.notes)


def test_breakpoints_are_read_off_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    fill, limits = RotorTable.of, []

    def noted(*given: Any, limit: TimeLimit = math.inf, **more: Any) -> RotorTable | None:
        limits.append(limit)
        return fill(*given, limit=limit, **more)

    monkeypatch.setattr(RotorTable, "of", noted)
    monkeypatch.setattr(rotor_slots, "LIMITED_FROM", -1)
    document = wide_chain(2)
    low, high = range_of(document)
    limits.clear()
    proposals(document, (), slots=30)
    assert limits == [math.inf, math.inf]
    limits.clear()
    proposals(document, (high + 1, high - 1, (low + high) // 2, low - 1), slots=30)
    resident = make_problem(remat.load(document)).chain.static_memory + document["input_size"]
    assert [set(limit) for limit in limits] == 2 * [{high - 1 - resident, (low + high) // 2 - resident}]


def test_rungs_without_a_better_schedule_need_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fill, rooms = RotorTable.of, []

    def counted(*given: Any, **more: Any) -> RotorTable | None:
        rooms.append(given[1].budget)
        return fill(*given, **more)

    monkeypatch.setattr(RotorTable, "of", counted)
    document = wide_chain(2, stages=30)
    low, high = range_of(document)
    looked = []
    for limited_from in (10**12, -1):
        monkeypatch.setattr(rotor_slots, "LIMITED_FROM", limited_from)
        rooms.clear()
        remat.solve(document, algorithm="rotor", budget=(low + high) // 2, options={"slots": 20})
        looked.append(len(set(rooms)))
    assert looked[0] > looked[1] >= 1
