"""Compare rotor's fronts with an independent recursion over budgets: with time limits, without, and thinned."""

from __future__ import annotations

import random
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.rotor import excess_limit as rotor_allowed
from remat_algorithms.chain.rotor import front_table as rotor_cells
from remat_algorithms.chain.rotor import search as rotor_search
from remat_algorithms.chain.rotor.excess_limit import Allowed, Relaxed, _Surroundings
from remat_algorithms.chain.rotor.front import NEVER, Front, Pool, Sums
from remat_algorithms.chain.rotor.front_table import Cells, Thin
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting
from remat_algorithms.chain.rotor.tick_costs import Costs
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Over, Work
from remat_algorithms.chain.segments import Segments
from tests.algorithms.chain.rotor.test_uniform_forms import Document, draw_chain
from tests.oracles.persistent import Recursion
from tests.seeds import seeds


def setting_of(document: Document) -> Setting:
    return Setting(make_problem(remat.load(document)), Context())


def random_chain(seed: int, stages: int) -> Document:
    """Draw a chain whose sizes have no common divisor worth the name."""
    rng = random.Random(seed)
    drawn = [
        {
            "forward_time": rng.randint(1, 100),
            "backward_time": rng.randint(1, 200),
            "output_size": rng.randint(1, 10**6),
            "saved_size": rng.randint(1, 4 * 10**6),
            "forward_workspace": rng.randint(1, 10**6),
            "backward_workspace": rng.randint(1, 10**6),
        }
        for _ in range(stages)
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 1000, "stages": drawn}


def check_curve(seed: int) -> None:
    """The front of the whole chain is the recursion, at every byte where either changes and around."""
    document = draw_chain(seed)
    setting, recursion = setting_of(document), Recursion(document)
    segments, costs, resident = setting.segments, setting.costs, setting.resident
    table = Cells.of(segments, costs, Allowed.all(segments, setting.whole.need), Work())
    need, excess = table.whole
    assert int(need[-1]) <= setting.whole.need
    assert int(excess[-1]) == 0
    assert int(need[0]) == setting.least.least
    reader = Reader(table)
    before: Any = None
    for room, beyond in zip(need.tolist(), excess.tolist(), strict=True):
        assert recursion.least_time(room + resident) == costs.time(beyond), seed
        assert recursion.least_time(room + resident - 1) == before, seed
        before = costs.time(beyond)
        assert setting.time_of(reader.runs(room)) == before


def check_limits(seed: int) -> None:
    """A time limit drops only points that no schedule within it needs; lower and upper bounds hold."""
    document = draw_chain(seed)
    setting, recursion = setting_of(document), Recursion(document)
    segments, costs = setting.segments, setting.costs
    least, most = setting.least.least, setting.whole.need
    rng = random.Random(seed)
    for room in {least, rng.randint(least, most), rng.randint(least, most)}:
        best = recursion.least_time(room + setting.resident)
        assert best is not None
        optimum = int(best) - costs.whole
        relaxed = Relaxed.of(segments, costs, room, Work())
        assert relaxed.least(room) <= optimum, seed
        for slack in (optimum - 1, optimum, optimum + 3):
            _, excess = Cells.of(segments, costs, Allowed.within(relaxed, {room: slack}, Work()), Work()).whole
            assert excess.tolist()[-1:] == ([optimum] if slack >= optimum else []), (seed, room, slack)
        top = Allowed.within(relaxed, {room: optimum + 3}, Work(), deep=False)
        _, excess = Cells.of(segments, costs, top, Work(), once=True).whole
        assert all(value >= optimum for value in excess.tolist()), seed


# In the last two seeds, a stage alone needs less memory than its saving forward.
@pytest.mark.parametrize("seed", [*seeds(20, 98), 664, 707])
def test_the_curve_is_the_recursion(seed: int) -> None:
    check_curve(seed)


@pytest.mark.parametrize("seed", seeds(20, 200, start=100))
def test_limits_spare_only_what_nobody_needs(seed: int) -> None:
    check_limits(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_the_curve_is_the_recursion_on_2000_chains(chunk: int) -> None:
    for seed in range(1000 + 100 * chunk, 1100 + 100 * chunk):
        check_curve(seed)
        check_limits(seed)


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_several_rooms_share_one_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One search for all budgets finds the same optima with limits, once-schedules, coarse bins and small batches."""
    for document in (random_chain(seed, 11), draw_chain(seed, most=9)):
        setting = setting_of(document)
        least, most = setting.least.least, setting.whole.need
        rooms = sorted({least - 1, *(least + (most - 1 - least) * k // 5 for k in range(6))})
        plain = setting.search(rooms, RotorOptions(gap=None)).found
        with monkeypatch.context() as patched:
            patched.setattr(rotor_search, "SHORT", 0)
            patched.setattr(rotor_search, "FEW", 0)
            patched.setattr(rotor_search, "ONCE_FROM", 0)
            patched.setattr(rotor_allowed, "BINS", 8)
            patched.setattr(rotor_cells, "BATCH", 7)
            limited = setting.search(rooms, RotorOptions(gap=None)).found
        for room in rooms:
            assert plain[room].proved
            assert limited[room].proved
            assert plain[room].excess == limited[room].excess, (seed, room)
            if (excess := limited[room].excess) is not None:
                assert setting.costs.excess(setting.time_of(limited[room].read())) == excess


@pytest.mark.parametrize("taken", [-19, -16, -1, 0, 1, 7, 8, 13, 40, 200])
def test_rooms_of_a_bin_come_from_two_bins(taken: int) -> None:
    """The value of a bin is a lower bound for every free-memory size in it; the last bin is unbounded."""
    bins, shift = 8, 3
    around = np.array([[90, 70, 50, 30, 20, 10, 5, 0]])
    moved = _Surroundings._moved(SimpleNamespace(bins=bins, shift=shift), around, taken)[0]  # type: ignore[arg-type]
    for room in range(120):
        before = room + taken
        least = around[0, min(before >> shift, bins - 1)] if before >= 0 else NEVER
        assert moved[min(room >> shift, bins - 1)] <= least, room


@pytest.mark.parametrize("seed", seeds(2, 10))
def test_relaxed_fronts_may_be_rounded_down(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of(random_chain(seed, 16))
    room = (setting.least.least + setting.whole.need) // 2
    exact = Relaxed.of(setting.segments, setting.costs, room, Work()).least(room)
    monkeypatch.setattr(rotor_allowed, "MOST_POINTS", 8)
    monkeypatch.setattr(rotor_search, "SHORT", 0)
    monkeypatch.setattr(rotor_search, "FEW", 0)
    assert Relaxed.of(setting.segments, setting.costs, room, Work()).least(room) <= exact
    found = setting.search([room], RotorOptions(gap=None)).found[room]
    monkeypatch.setattr(rotor_search, "SHORT", 99)
    assert found.proved
    assert found.excess == setting.search([room], RotorOptions(gap=None)).found[room].excess


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_thinned_fronts_bracket_the_optimum(seed: int) -> None:
    setting = setting_of(random_chain(seed, 14))
    segments, costs = setting.segments, setting.costs
    everything = Allowed.all(segments, setting.whole.need)
    exact, high, low = (
        Front(*Cells.of(segments, costs, everything, Work(), thin=thin).whole)
        for thin in (None, Thin(6, up=True), Thin(6, up=False))
    )
    assert len(high.need) <= 6 < len(exact.need)
    rooms = np.unique(np.concatenate((exact.need, high.need, low.need)))
    assert (low.at(rooms) <= exact.at(rooms)).all()
    assert (exact.at(rooms) <= high.at(rooms)).all()
    assert low.need[0] == exact.need[0] == high.need[0]


def test_too_long_fronts_are_thinned_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    document = random_chain(2, 14)
    setting = setting_of(document)
    room = setting.least.least + (setting.whole.need - setting.least.least) // 9
    exact = remat.solve(document, algorithm="rotor", budget=room + setting.resident)
    monkeypatch.setattr(rotor_search, "SHORT", 0)
    monkeypatch.setattr(rotor_search, "FEW", 0)
    monkeypatch.setattr(rotor_search, "THIN", (2,))
    fill, works = Cells.of, []

    def short_of_work(*given: Any, thin: Thin | None = None, **more: Any) -> Cells:
        works.append(thin)
        if thin is None:
            raise Over
        return fill(*given, thin=thin, **more)

    monkeypatch.setattr(Cells, "of", short_of_work)
    result = remat.solve(document, algorithm="rotor", budget=room + setting.resident)
    assert works[0] is None
    assert set(works[1:-1]) == {Thin(2, up=True)}
    assert works[-1] == Thin(2, up=False)
    assert exact.makespan is not None
    assert result.makespan is not None
    (bound,) = (bound for bound in result.bounds if bound.source == "rotor")
    assert bound.value <= exact.makespan <= result.makespan
    assert bound.value < result.makespan
    assert any("above the optimum of its class" in note for note in result.notes)


def test_work_is_counted() -> None:
    setting = setting_of(random_chain(1, 12))
    everything, work = Allowed.all(setting.segments, setting.whole.need), Work()
    Cells.of(setting.segments, setting.costs, everything, work)
    assert work.done > 1000
    with pytest.raises(Over):
        Cells.of(setting.segments, setting.costs, everything, Work(most=work.done / 2))
    looks = []
    with suppress(Over):
        Cells.of(setting.segments, setting.costs, everything, Work(stopped=lambda: len(looks) > 3 or looks.append(0)))  # type: ignore[func-returns-value]
    assert len(looks) == 4


@pytest.mark.parametrize("seed", range(10))
def test_sums_of_fronts(seed: int) -> None:
    """Sums and minima against what they are at each number of bytes; numbers near 2^62, too."""
    rng = random.Random(seed)
    wide = seed % 2
    pool, fronts = Pool(), []
    for _ in range(6):
        count = rng.randint(1, 5)
        need = np.array(sorted(rng.sample(range(30), count))) << (40 * wide)
        excess = np.array(sorted(rng.sample(range(30), count), reverse=True)) << (50 * wide)
        begin = pool.append(need, excess)
        fronts.append((Front(need, excess), begin, begin + count))
    pairs = [(rng.choice(fronts), rng.choice(fronts)) for _ in range(5)]
    cell = np.sort(np.array([rng.randrange(3) for _ in pairs]))
    beside = np.array([[rng.randrange(9) << (40 * wide), 0] for _ in pairs])
    least = [
        max(int(a.need[0]) + int(extra), int(b.need[0]))
        for ((a, *_), (b, *_)), (extra, _) in zip(pairs, beside, strict=True)
    ]
    begin = np.array([[a[1], b[1]] for a, b in pairs])
    end = np.array([[a[2], b[2]] for a, b in pairs])
    low = np.array(least)
    first = pool.beyond(begin.ravel(), end.ravel(), (low[:, None] - beside).ravel()).reshape(-1, 2) - 1
    sums = Sums(cell, first, end, beside, low, np.full(len(pairs), 7))
    points, starts = sums.points(pool).fronts(3)
    for number in range(3):
        got = Front(
            points.need[starts[number] : starts[number + 1]], points.excess[starts[number] : starts[number + 1]]
        )
        assert (np.diff(got.need) > 0).all()
        assert (np.diff(got.excess) < 0).all()
        for room in np.arange(45) << (40 * wide):
            wanted = [
                int(a.at(np.array([room - extra]))[0] + b.at(np.array([room]))[0]) + 7
                for ((a, *_), (b, *_)), (extra, _), own in zip(pairs, beside, cell, strict=True)
                if own == number and room - extra >= a.need[0] and room >= b.need[0]
            ]
            assert not wanted or int(got.at(np.array([room]))[0]) == min(wanted)


@pytest.mark.parametrize("scale", [1e-12, 0.1, 3e5])
def test_times_that_are_no_whole_numbers(scale: float) -> None:
    """Ticks are fine enough that optima are those of the whole times, and times as claimed."""
    document = random_chain(8, 9)
    scaled = random_chain(8, 9)
    for stage in scaled["stages"]:
        stage |= {key: time * scale for key, time in stage.items() if key.endswith("_time")}
    setting = setting_of(document)
    costs = Costs.of(Segments.of(make_problem(remat.load(scaled)).chain))
    assert not costs.exact
    assert setting.costs.exact
    for share in (1, 4, 7):
        budget = setting.resident + setting.least.least + (setting.whole.need - setting.least.least) * share // 9
        one, other = (remat.solve(each, algorithm="rotor", budget=budget) for each in (document, scaled))
        assert one.makespan is not None
        assert other.makespan == pytest.approx(one.makespan * scale, rel=1e-12)
        assert other.optimal_within == one.optimal_within
