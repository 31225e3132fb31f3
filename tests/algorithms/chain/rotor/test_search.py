"""Test the memory of rotor's search, and the counting of its work limits."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from remat_algorithms.chain.rotor import search as rotor_search
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.rotor.rotor import RotorOptions, Setting
from remat_algorithms.chain.rotor.search import Found
from remat_algorithms.chain.rotor.work_counter import Over
from tests.algorithms.chain.rotor.test_fronts import random_chain, setting_of
from tests.seeds import seeds


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Short chains are solved as long ones are: within limits, by schedules that recompute at most once."""
    for name in ("SHORT", "FEW", "ONCE_FROM", "MANY_WORK"):
        monkeypatch.setattr(rotor_search, name, 0)
    return monkeypatch


def room_of(setting: Setting, share: int) -> int:
    """Return the memory at `share` ninths between the minimum and the need of saving all."""
    return setting.least.least + (setting.whole.need - setting.least.least) * share // 9


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_fronts_go_once_their_schedule_is_read(seed: int, limited: pytest.MonkeyPatch) -> None:
    setting = setting_of(random_chain(seed, 14))
    fill, made, reported = Cells.of, list[weakref.ref[Cells]](), list[int | None]()

    def alone(*given: Any, **more: Any) -> Cells:
        assert not any(table() for table in made)
        table = fill(*given, **more)
        made.append(weakref.ref(table))
        return table

    def report(found: Found) -> None:
        found.runs()
        reported.append(found.excess)

    limited.setattr(Cells, "of", alone)
    found = setting.search([room_of(setting, 2)], RotorOptions(gap=None), report).found[room_of(setting, 2)]
    assert found.proved
    assert reported
    assert len(made) > 1
    assert not any(table() for table in made)
    assert found.runs() is found.runs()
    assert setting.costs.excess(setting.time_of(found.runs())) == found.excess


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_a_limit_counts_the_work_of_all_passes(seed: int, limited: pytest.MonkeyPatch) -> None:
    setting = setting_of(random_chain(seed, 14))
    fill, counted, before = Cells.of, [], 0

    def noted(segments: Any, costs: Any, allowed: Any, work: Any, **more: Any) -> Cells:
        nonlocal before
        try:
            return fill(segments, costs, allowed, work, **more)
        finally:
            if more["once"]:
                before = work.done
            elif more["thin"] is None:
                counted.append((before, before + work.most))
                before = 0

    limited.setattr(Cells, "of", noted)
    setting.search([room_of(setting, 1)], RotorOptions(gap=None))
    assert any(once > 0 for once, _ in counted)
    assert all(total <= rotor_search.MOST_WORK for _, total in counted)
    # Without remaining work, the search starts no sweep.
    counted.clear()
    limited.setattr(rotor_search, "MOST_WORK", 1)
    setting.search([room_of(setting, 1)], RotorOptions(gap=None))
    assert not counted


def test_higher_limits_are_tried_with_stages_recomputed_once(limited: pytest.MonkeyPatch) -> None:
    """If full fronts cost too much and the limit is too low, once-schedules beat the minimum-memory schedule."""
    setting = setting_of(random_chain(7, 14))
    room = room_of(setting, 1)
    optimum = setting.search([room], RotorOptions(gap=None)).found[room].excess
    fill, onces = Cells.of, list[int]()

    def short_of_work(*given: Any, **more: Any) -> Cells:
        onces.append(more["once"])
        if not more["once"]:
            raise Over
        return fill(*given, **more)

    limited.setattr(Cells, "of", short_of_work)
    found = setting.search([room], RotorOptions(gap=None)).found[room]
    assert onces[:3] == [True, False, True]
    assert not found.least
    assert found.excess is not None
    assert optimum is not None
    assert optimum <= found.excess < setting.costs.excess(setting.time_of(setting.least.runs()))
