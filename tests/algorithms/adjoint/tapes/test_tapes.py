"""`mixed`, `bptt-*` and `treeverse` against reference values, exhaustive search and closed forms."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import remat
from remat_algorithms.adjoint.binomial.treeverse import Split, plan_treeverse
from remat_algorithms.adjoint.tapes import bptt, mixed
from remat_algorithms.kit.binomial import advances, beta
from tests import places
from tests.oracles.taped import best_forward_steps

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]
UNIT = {"time": "unit", "memory": "unit"}


def loop(steps: int, **more: Any) -> dict[str, Any]:
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps} | more


def stored(size: int, **more: Any) -> dict[str, Any]:
    return {"storage": [{"name": "ram", "capacity": size, **more}]}


def solved_everywhere(document: dict[str, Any], algorithm: str, size: int, beside: int) -> set[Any]:
    """Return the makespans with so many bytes of storage, x_0 given there or not, and in one memory."""
    found = set()
    for more in (stored(size), stored(size) | {"initial_state": "ram"}):
        result = remat.solve(document | more, algorithm=algorithm)
        if result.report is not None:
            assert result.report.profiles["ram"].size[-1] == 0
        found.add(result.makespan)
    shared = remat.solve(document, algorithm=algorithm, budget=size + beside)
    found.add(shared.makespan)
    return found


# --- mixed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", REFERENCE["mixed"], ids=lambda p: f"{p['n']}-{p['units']}")
def test_mixed_equals_published_forward_steps(point: dict[str, Any]) -> None:
    n, units = point["n"], point["units"]
    document = loop(n, tape_size=1)
    assert solved_everywhere(document, "mixed", units, 3) == {point["forward_steps"] + n}
    result = remat.solve(document | stored(units), algorithm="mixed")
    assert result.peak_memory["ram"] <= units
    everything = n <= units + 1
    scope = "all schedules" if everything else f"schedules with {units} units for states or tapes"
    assert result.optimal_within == scope


def test_mixed_equals_exhaustive_search() -> None:
    for n in range(1, 6):
        for units in range(min(1, n - 1), 4):
            expected = best_forward_steps(n, units, 1, 1, None)
            table = mixed.forward_steps(n, min(units, n - 1))
            assert table is not None
            assert table[min(units, n - 1), n] == expected


def test_mixed_with_a_larger_tape_and_its_own_times() -> None:
    document = loop(7, tape_size=5, state_size=3, adjoint_size=2, forward_time=2, tape_time=3, backward_time=4)
    # Two units of 5 bytes: 15 forward steps, 7 of which make tapes.
    assert solved_everywhere(document, "mixed", 14, 10) == {2 * (15 - 7) + 3 * 7 + 4 * 7}
    paid = remat.solve(document | stored(14, write_time=1, read_time=1), algorithm="mixed")
    assert paid.optimal_within is None
    assert paid.makespan is not None
    assert paid.makespan > 65


def test_mixed_without_room() -> None:
    answer = remat.solve(loop(4, tape_size=2) | stored(1), algorithm="mixed")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 2
    answer = remat.solve(loop(4, tape_size=2), algorithm="mixed", budget=5)
    assert answer.least_budget is not None
    assert answer.least_budget.size == 6
    assert remat.solve(loop(4, tape_size=2), algorithm="mixed", budget=6).makespan == 4 * 5 // 2 - 1 + 4


def test_mixed_long_chains() -> None:
    assert remat.solve(loop(5000, tape_size=1), algorithm="mixed").recompute_time == 0
    with pytest.raises(remat.OptionError, match="mixed needs"):
        remat.solve(loop(50_000, tape_size=1) | stored(100), algorithm="mixed")


# --- bptt -------------------------------------------------------------------------------------------------------------


@cache
def paper(t: int, m: int, hidden: int | None, internal: int | None) -> int:
    """C(t, m) as it is written."""
    if t == 0:
        return 0
    found = [t + paper(t - 1, m, hidden, internal)]
    if hidden is not None and m >= hidden:
        found += [y + paper(t - y, m - hidden, hidden, internal) + paper(y, m, hidden, internal) for y in range(1, t)]
    if internal is not None and m >= internal:
        found += [
            y + paper(t - y, m - internal, hidden, internal) + paper(y - 1, m, hidden, internal) for y in range(1, t)
        ]
    return min(found)


def test_hidden_states_alone_are_revolve() -> None:
    for t in range(1, 14):
        for slots in range(1, 6):
            assert paper(t, slots - 1, 1, None) == t + advances(t, slots)
    document = loop(10, tape_size=3)
    result = remat.solve(document | stored(3), algorithm="bptt-hsm")
    assert result.makespan == advances(10, 3) + 10 + 10
    assert [bound.source for bound in result.bounds if bound.scope != "all schedules"] == ["bptt-hsm"]
    assert remat.solve(loop(10) | stored(3), algorithm="bptt-hsm").makespan == advances(10, 3) + 10


FEW_SIZES = [(1, 1), (2, 3), (1, 0), (0, 2), (0, 0)]
SIZES = [*FEW_SIZES, *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((1, 4), (3, 1)))]


@pytest.mark.parametrize(("state", "tape"), SIZES)
def test_bptt_equals_its_recurrence(state: int, tape: int) -> None:
    for n in (1, 2, 5, 11):
        document = loop(n, state_size=state, tape_size=tape)
        for size in range(state, 26, 6):
            left = size - (state if n > 1 else 0)
            for name, hidden in (("bptt-ism", None), ("bptt-msm", state)):
                expected = {n + paper(n, left, hidden, state + tape)}
                found = solved_everywhere(document, name, size, 2 * state + tape)
                # Where all tapes take less than the least that the paper counts, they are kept at any size.
                little = (n - 1) * tape <= 2 * state + tape
                assert found == expected or (little and found <= expected | {2 * n})


def test_bptt_equals_exhaustive_search() -> None:
    for n in range(1, 6):
        for size in range(6):
            assert paper(n, size, None, 2) == best_forward_steps(n, size, None, None, 2)
            assert paper(n, size, 1, 2) == best_forward_steps(n, size, 1, None, 2)


def test_boundaries_of_the_paper() -> None:
    for t in range(1, 12):
        # m internal states, the working one among them: t(t+1)/2 with one, t with t.
        assert paper(t, 0, None, 1) == t * (t + 1) // 2
        assert paper(t, t - 1, None, 1) == t


def test_bptt_without_room_and_in_a_table_too_large() -> None:
    answer = remat.solve(loop(4, state_size=3, tape_size=2) | stored(2), algorithm="bptt-msm")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 3
    with pytest.raises(remat.OptionError, match="bptt-msm needs"):
        remat.solve(loop(3000, state_size=1009, tape_size=1013) | stored(10**6), algorithm="bptt-msm")
    assert bptt.MOST_WORK == mixed.MOST_WORK


@pytest.mark.parametrize("name", ["mixed", "bptt-ism", "bptt-msm"])
def test_unsupported_loops_are_refused(name: str) -> None:
    with pytest.raises(remat.OptionError, match="tape_size"):
        remat.solve(loop(4) | stored(9), algorithm=name)
    steps = [{"forward_time": 1}, {"forward_time": 2}]
    with pytest.raises(remat.OptionError, match="equal forward time"):
        remat.solve(loop(2, tape_size=1) | {"steps": steps} | stored(9), algorithm=name)
    small = remat.solve(loop(4, tape_size=4) | stored(9), algorithm=name, budget={"working": 4})
    assert small.columns is None
    assert small.least_budget is not None
    assert small.least_budget.sufficient
    idle = remat.solve(loop(30, tape_size=1) | stored(9), algorithm=name, time_limit=0)
    assert idle.status is remat.Status.UNKNOWN


def test_hidden_states_of_unequal_steps_are_refused() -> None:
    with pytest.raises(remat.OptionError, match="bptt-hsm needs"):
        remat.solve(loop(3) | {"steps": [{"forward_time": i} for i in range(3)]}, algorithm="bptt-hsm")


# --- treeverse --------------------------------------------------------------------------------------------------------


def test_bisection_in_closed_form() -> None:
    for k in range(9):
        for slots in (max(1, k), k + 3):
            assert plan_treeverse(2**k, slots, 1, "bisection").advances == k * 2**k // 2


def test_binomial_split_in_closed_form() -> None:
    for slots in range(1, 6):
        for repeats in range(1, 5):
            n = beta(slots, repeats)
            assert plan_treeverse(n, slots, 1, "binomial").advances == advances(n, slots)


@pytest.mark.parametrize("split", ["binomial", "bisection"])
def test_treeverse_never_beats_revolve(split: Split) -> None:
    for n in range(1, 60):
        for slots in range(1, 8):
            assert plan_treeverse(n, slots, 1, split).advances >= advances(n, slots)


@pytest.mark.parametrize("split", ["binomial", "bisection"])
def test_treeverse_takes_its_planned_advances(split: Split) -> None:
    for n, slots in ((1, 1), (2, 1), (9, 1), (9, 2), (64, 3), (64, 9)):
        for more in ({}, {"initial_state": "ram"}):
            result = remat.solve(loop(n) | stored(slots) | more, algorithm="treeverse", options={"split": split})
            assert result.makespan == plan_treeverse(n, slots, 1, split).advances + n
            assert result.peak_memory["ram"] <= slots
            assert result.report is not None
            assert result.report.profiles["ram"].size[-1] == 0
        shared = remat.solve(loop(n), algorithm="treeverse", budget=slots + 2, options={"split": split})
        assert shared.peak_memory["memory"] <= slots + 2
    assert remat.solve(loop(3) | stored(0), algorithm="treeverse").scope is not None
