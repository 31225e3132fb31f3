"""`adjoint-dp` against the lecture's counts, its recurrence, and exhaustive search over all schedules."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat_algorithms.adjoint.unequal.adjoint_dp import first_sweep, least_advances
from tests import places
from tests.oracles import search

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())
UNIT = {"time": "unit", "memory": "unit"}
INFINITE = float("inf")


def loop(steps: int | list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps}
    return document | {"forward_time": 1, "backward_time": 1, "state_size": 1} | more


@cache
def reverse(d: int, k: int) -> float:
    """R(d, k) as it is written."""
    if d <= 1 and k >= 1:
        return 0
    if k < 2:
        return INFINITE
    return min(j + reverse(d - j, k - 1) + reverse(j, k) for j in range(1, d))


@cache
def sweep(d: int, k: int) -> float:
    """P(d, k) as it is written."""
    if d == 0:
        return 0
    if k < 2:
        return INFINITE
    return min(j + sweep(d - j, k - 1) + reverse(j, k - 1) for j in range(1, d + 1))


def test_closed_form_equals_the_recurrence() -> None:
    for length in range(26):
        for units in range(min(3, length + 1), length + 2):
            lengths = first_sweep(length, units)
            assert sum(lengths) == length
            assert least_advances(lengths, units) == sweep(length, units)


@pytest.mark.parametrize("point", REFERENCE["points"]["slides_exact_memory"], ids=lambda p: f"{p['l']}-{p['peak']}")
def test_recompute_time_equals_published_optima(point: dict[str, Any]) -> None:
    result = remat.solve(loop(point["l"] + 1), algorithm="adjoint-dp", budget=point["peak"])
    if point["feasible"]:
        assert result.status is remat.Status.OPTIMAL
        assert result.recompute_time == point["min_recompute"]
        assert result.peak_memory["memory"] <= point["peak"]
    else:
        assert result.status is remat.Status.INFEASIBLE
        assert result.scope == "all schedules"


def test_recompute_time_equals_the_optima_of_the_lecture() -> None:
    for peak, recompute in REFERENCE["slides_example"]["exact_peak_optimum"].items():
        result = remat.solve(loop(6), algorithm="adjoint-dp", budget=int(peak))
        assert (None if result.makespan is None else result.recompute_time) == recompute


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=5), st.integers(1, 3))
def test_equals_exhaustive_search_for_unequal_times(times: list[tuple[int, int]], unit: int) -> None:
    document = loop([{"forward_time": f, "backward_time": b} for f, b in times], state_size=unit, static_memory=2)
    for units in range(len(times) + 2):
        result = remat.solve(document, algorithm="adjoint-dp", budget=2 + units * unit)
        assert result.makespan == search.chain_best(document, 2 + units * unit)
        if result.makespan is None:
            assert result.least_budget is not None
            assert result.least_budget.size == search.chain_least_budget(document)


@pytest.mark.parametrize("n", range(1, 7))
def test_equals_exhaustive_search_for_equal_times(n: int) -> None:
    for units in range(n + 2):
        result = remat.solve(loop(n), algorithm="adjoint-dp", budget=units)
        assert result.makespan == search.chain_best(loop(n), units)


def test_never_worse_than_revolve_with_its_slots() -> None:
    for n in (20, 100, 333):
        for budget in (3, 4, 7, 20):
            best = remat.solve(loop(n), algorithm="adjoint-dp", budget=budget)
            classical = remat.solve(loop(n), algorithm="revolve", budget=budget)
            assert best.makespan is not None
            assert classical.makespan is not None
            assert best.makespan <= classical.makespan
            assert best.peak_memory["memory"] <= budget


def test_unequal_times_within_the_budget() -> None:
    document = loop([{"forward_time": 1 + i * 7 % 11, "backward_time": 2} for i in range(60)])
    found = [remat.solve(document, algorithm="adjoint-dp", budget=budget) for budget in (3, 4, 6, 10, 30, 60, 61)]
    spans = [result.makespan for result in found]
    assert spans == sorted(spans, reverse=True)  # type: ignore[type-var]
    assert found[-1].recompute_time == 0
    equal = loop([{"forward_time": 3}] * 40)
    table = remat.solve(
        equal | {"steps": [*equal["steps"][:-1], {"forward_time": 4}]}, algorithm="adjoint-dp", budget=6
    )
    assert table.makespan == remat.solve(equal, algorithm="adjoint-dp", budget=6).makespan


def test_units_without_bytes_all_fit() -> None:
    result = remat.solve(loop(9, state_size=0), algorithm="adjoint-dp", budget=0)
    assert result.recompute_time == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"adjoint_size": 2}, "one size, not from 1 to 2"),
        ({"tape_size": 1}, "without tape_size"),
        ({"storage": [{"name": "disk", "slots": 2}]}, "one memory"),
    ],
)
def test_unsupported_loops_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(remat.OptionError, match=message):
        remat.solve(loop(4, **more), algorithm="adjoint-dp")
