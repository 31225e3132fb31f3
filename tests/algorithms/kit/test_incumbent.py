"""Test the incumbent: it accepts and reports improvements only."""

from __future__ import annotations

import math

import numpy as np
import pytest

from remat.plugin import ALL_SCHEDULES, Bound, Context, Steps
from remat.plugin.context import Progress
from remat_algorithms.kit.incumbent import Incumbent


def steps_of(tasks: list[int]) -> Steps:
    return Steps.of_runs(np.array(tasks))


def test_only_what_is_better_is_taken_and_reported() -> None:
    heard: list[Progress] = []
    context = Context(listener=heard.append)
    best: Incumbent[list[int]] = Incumbent(context, steps_of, scope=ALL_SCHEDULES)
    assert (best.best, best.steps, best.least, best.makespan) == (None, None, None, math.inf)
    assert best.take([0, 1], 9, bound=12, message="first")
    assert not best.take([1, 0], 9)
    assert not best.take([2], 10)
    assert best.take([2], 8)
    assert (best.best, best.makespan, best.least) == ([2], 8, 8)
    assert best.steps is not None
    assert best.steps.runs.tolist() == [2]
    assert [(said.makespan, said.bound, said.message) for said in heard] == [(9, 9, "first"), (8, 9, "")]
    assert context.best_steps is not None
    assert context.best_steps.runs.tolist() == [2]


def test_ranks_and_comparisons_of_their_own() -> None:
    best: Incumbent[list[int]] = Incumbent(Context(), steps_of)
    assert best.take([0], 9, rank=(9, 5))
    assert best.take([1], 9, rank=(9, 4))
    assert not best.take([2], 9, rank=(9, 4))
    rough: Incumbent[list[int]] = Incumbent(Context(), steps_of, better=lambda one, other: one < 0.9 * other)
    assert rough.take([0], 10)
    assert not rough.take([1], 9.5)
    assert rough.makespan == 10


def test_bounds_rise_up_to_what_is_known() -> None:
    context = Context()
    best: Incumbent[list[int]] = Incumbent(context, steps_of, scope=ALL_SCHEDULES, known=20)
    assert best.take_bound(3)
    assert not best.take_bound(2)
    assert best.take_bound(100)
    assert best.bound == context.best_bound == best.least == 20
    assert best.bounds("me") == (Bound(20, ALL_SCHEDULES, "me"),)
    free: Incumbent[list[int]] = Incumbent(Context(), steps_of, scope=ALL_SCHEDULES)
    assert free.take_bound(100)
    assert free.bound == 100


def test_a_bound_of_a_class_is_reported_as_one() -> None:
    context = Context()
    best: Incumbent[list[int]] = Incumbent(context, steps_of, scope="some class")
    assert best.take([0], 9, bound=5)
    assert best.take_bound(7)
    assert context.best_bound is None
    assert best.bounds("me") == (Bound(7, "some class", "me"),)


def test_without_a_scope_there_are_no_bounds() -> None:
    best: Incumbent[list[int]] = Incumbent(Context(), steps_of)
    with pytest.raises(ValueError, match="scope"):
        best.take_bound(3)
    assert best.bounds("me") == ()
