"""The quick look at steps that follow each other: it accepts what the look at every event accepts, with one report."""

import random
from dataclasses import fields, replace

import numpy as np
import pytest

from remat.placement import place
from remat.verifier import referee, sequential
from tests.placement.step_lists import draw_world
from tests.verifier.judges import Case
from tests.verifier.test_corruptions import mutated


class Spoilable:
    """The attributes of a sample that `mutated` uses."""

    def __init__(self, case, steps):
        self.case, self.steps = case, steps


def same(one, other):
    """Assert that two reports are one, types included."""
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name == "profiles":
            assert a.keys() == b.keys()
            for name in a:
                for mine, theirs in ((a[name].time, b[name].time), (a[name].size, b[name].size)):
                    assert mine.dtype == theirs.dtype
                    assert mine.tolist() == theirs.tolist()
        elif isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.tolist() == b.tolist()
        else:
            assert a == b, field.name
            assert str(a) == str(b)  # 3 is not 3.0


def both(monkeypatch, case, steps):
    """Judge steps on the fast path and in full; return both reports (the fast one may be None)."""
    columns = case.columns(steps)
    quick = (
        referee.check(case.graph, case.machine, columns)
        if sequential.follow_in_turn(case.graph, case.machine, columns)
        else None
    )
    with monkeypatch.context() as patch:
        patch.setattr(referee, "follow_in_turn", lambda *_: None)
        return quick, referee.check(case.graph, case.machine, columns)


def whole_moves(steps):
    return [step for step in steps if "bytes" not in step]


def compare(monkeypatch, chunk, worlds):
    chance = random.Random(f"in turn {chunk}")
    accepted = refused = 0
    for _ in range(worlds):
        world = draw_world(chance, lists=2, sequential=True)
        case = Case(world.document)
        for steps in map(whole_moves, world.lists):
            placed = place(case.graph, case.machine, replace(case.columns(steps), start=None))
            if not hasattr(placed, "start"):
                continue
            timed = [step | {"start": start} for step, start in zip(steps, placed.start.tolist(), strict=True)]
            variants = [timed, *(mutated(chance, Spoilable(case, timed)) for _ in range(4) if timed)]
            for variant in variants:
                quick, careful = both(monkeypatch, case, variant)
                if quick is None:
                    refused += 1
                    continue
                accepted += 1
                assert careful.ok, (world.document, variant, careful.violations)
                same(quick, careful)
    assert accepted > worlds / 2
    assert refused > worlds


@pytest.mark.parametrize("chunk", [0, 1, *(pytest.param(chunk, marks=pytest.mark.slow) for chunk in range(2, 22))])
def test_the_sequential_path_gives_the_same_report(monkeypatch, chunk):
    compare(monkeypatch, chunk, 60 if chunk < 2 else 400)


def test_the_report_does_not_depend_on_the_size_of_parts(monkeypatch):
    for size in (1, 2, 3, 5):
        monkeypatch.setattr(sequential, "CHUNK", size)
        compare(monkeypatch, f"parts {size}", 20)


def test_what_is_plain_is_accepted(monkeypatch):
    """The fast path accepts every valid placed list on one processor."""
    chance = random.Random("plain")
    looked = 0
    for _ in range(80):
        world = draw_world(chance, lists=2, sequential=True)
        case = Case(world.document)
        for steps in map(whole_moves, world.lists):
            placed = place(case.graph, case.machine, replace(case.columns(steps), start=None))
            if not hasattr(placed, "start") or any("drop" in step and "memory" in step for step in steps):
                continue  # drops happen at the earliest times, during runs
            timed = [step | {"start": start} for step, start in zip(steps, placed.start.tolist(), strict=True)]
            quick, careful = both(monkeypatch, case, timed)
            freed = {
                value
                for step in steps
                for value in ([step["copy"]] if step.get("drop") is True else step.get("drop", []))
            }
            if careful.ok and timed and not freed & set(world.document["pinned_inputs"]):
                assert quick is not None, (world.document, timed)
                looked += 1
    assert looked > 30


def test_a_second_run_of_a_task_without_recomputation_is_left_to_the_full_check(monkeypatch):
    case = Case(
        {
            "schema": "remat.instance/1",
            "kind": "dag",
            "values": [{"id": "x", "size": 1}],
            "tasks": [{"id": "t", "time": 1, "writes": ["x"], "recomputable": False}],
        }
    )
    once = [{"run": "t", "start": 0}]
    again = [{"run": "t", "start": 0, "drop": ["x"]}, {"run": "t", "start": 1}]
    quick, careful = both(monkeypatch, case, once)
    assert quick is not None
    assert careful.ok
    quick, careful = both(monkeypatch, case, again)
    assert quick is None
    assert not careful.ok
