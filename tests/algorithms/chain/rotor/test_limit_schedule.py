"""Rotor's rising limits, and tracebacks of several schedules at once, which equal single ones."""

from __future__ import annotations

import pytest

from remat_algorithms.chain.rotor import limit_schedule as rotor_rising
from remat_algorithms.chain.rotor import search as rotor_search
from remat_algorithms.chain.rotor import traceback as rotor_runs
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.rotor.limit_schedule import DEAR, LEAST, LONGER, MOST, Rising
from remat_algorithms.chain.rotor.rotor import RotorOptions
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Work
from tests.algorithms.chain.rotor.test_fronts import random_chain, setting_of
from tests.algorithms.chain.rotor.test_uniform_forms import draw_chain
from tests.seeds import seeds


def test_the_next_limit_makes_so_much_more_work() -> None:
    rising = Rising(100, 0.1)
    assert rising.rooms([9, 7]) == ([9, 7], 0.1)
    rising.failed([7], [9, 7], 0.1, 1000)  # less than any pass takes
    assert rising.rooms([7]) == ([7], pytest.approx(MOST * 0.1))
    rising.failed([7], [7], 0.4, 400_000)
    assert rising.rooms([7]) == ([7], pytest.approx(LEAST * 0.4))
    rising.failed([7], [7], 0.64, 640_000)  # as the factor grows
    assert rising.rooms([7]) == ([7], pytest.approx(LONGER * 0.64))
    rising.failed([7], [7], 1.6, 640_000)  # whole fronts
    assert rising.rooms([7]) == ([7], pytest.approx(MOST * 1.6))


def test_limits_rise_by_less_where_passes_are_dear() -> None:
    rising = Rising(2000, 0.01)
    rising.failed([7], [7], 0.01, DEAR // 4)
    rising.failed([7], [7], 0.04, DEAR // 2)  # as the root of the factor
    assert rising.rooms([7]) == ([7], pytest.approx(2.0**2 * 0.04, rel=1e-3))
    for factor, work in ((0.01, DEAR // 5), (0.04, 3 * DEAR // 5), (0.08, 2 * DEAR)):
        rising.failed([7], [7], factor, work)
    assert rising.rooms([7]) == ([7], pytest.approx(LEAST * 0.08))


def test_larger_rooms_tell_the_factor_of_smaller_ones() -> None:
    rising = Rising(100, 0.01, least=1000)
    for room, factor in ((2100, 0.1), (1500, 0.2), (1300, 0.3)):
        rising.settled(room, factor)
    rising.failed([1100, 1010], [1300, 1100, 1010], 0.02, 10**9)
    (room,), factor = rising.rooms([1010, 1100])
    assert room == 1100  # the other one's is too far above to be asked about in one pass
    assert factor == pytest.approx(1.1 * 0.3 * 2 ** (0.405465 / 0.405465), rel=1e-4)
    _, higher = rising.rooms([1010])
    assert higher > 1.6 * factor


def test_the_least_memory_is_asked_about_by_itself_while_nothing_is_told() -> None:
    rising = Rising(100, 0.01)
    assert not rising.looks
    rising.failed([1000, 1100], [1000, 1100, 2000], 0.01, 10)
    assert rising.looks
    rising.least = 1000
    assert not rising.looks
    assert rising.rooms([1100, 1000]) == ([1000], 0.0)
    rising.settled(2000, 0.005)
    assert rising.rooms([1100, 1000])[0] == [1100, 1000]


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_limits_that_larger_rooms_tell_change_no_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for document in (random_chain(seed, 11), draw_chain(seed, most=9)):
        setting = setting_of(document)
        least, most = setting.least.least, setting.whole.need
        rooms = sorted({least - 1, *(least + (most - 1 - least) * k**2 // 81 for k in range(10))})
        plain = setting.search(rooms, RotorOptions(gap=None)).found
        with monkeypatch.context() as patched:
            patched.setattr(rotor_search, "SHORT", 0)
            patched.setattr(rotor_search, "FEW", 0)
            patched.setattr(rotor_search, "MANY_FROM", 0)
            patched.setattr(rotor_rising, "COMPILED_FROM", 0)
            patched.setattr(rotor_rising, "CHEAP", 0)
            patched.setattr(rotor_rising, "MODEST", 0)
            for asked in (rooms, [least]):
                limited = setting.search(asked, RotorOptions(gap=None)).found
                for room in asked:
                    assert limited[room].proved
                    assert plain[room].excess == limited[room].excess, (seed, room)
                    assert plain[room].read() == limited[room].read()


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_schedules_are_read_together_as_they_are_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotor_runs, "FEW", 1)
    for document in (random_chain(seed, 11), draw_chain(seed, most=9)):
        setting = setting_of(document)
        table = Cells.of(setting.segments, setting.costs, Allowed.all(setting.segments, setting.whole.need), Work())
        rooms = table.whole[0].tolist()
        together, alone = Reader(table, list(rooms)), Reader(table)
        for room in rooms:
            assert together.runs(room) == alone.runs(room)
            assert together._known.keys() >= alone._known.keys()
