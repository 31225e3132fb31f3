"""`walther-griewank` against reference values, exhaustive search and Revolve."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.graph.machine import Link, Machine, Memory, Processor
from remat.plugin.problem import Problem
from remat_algorithms.adjoint.transfer_times import state_transfer_times
from remat_algorithms.adjoint.unequal import walther_griewank
from remat_algorithms.adjoint.unequal.splits_kernel import monotone_level
from remat_algorithms.adjoint.unequal.walther_griewank import Splits
from remat_algorithms.kit.binomial import advances
from tests import places
from tests.oracles import search

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]
EXAMPLES = places.INSTANCES / "adjoint"
UNIT = {"time": "unit", "memory": "unit"}
TIMES = st.integers(0, 9)


def loop(forward: list[int], backward: list[int], **more: Any) -> dict[str, Any]:
    steps = [{"forward_time": f, "backward_time": b} for f, b in zip([*forward, 1], backward, strict=True)]
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps} | more


def level(slots: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "ram", "slots": slots, **more}]


@pytest.mark.parametrize("point", REFERENCE["heterogeneous_time"], ids=lambda p: f"{p['l']}-{p['c']}")
def test_makespans_equal_published_optima(point: dict[str, Any]) -> None:
    document = loop(point["uf"], point["ub"])
    stored = remat.solve(document | {"storage": level(point["c"])}, algorithm="walther-griewank")
    assert stored.makespan == point["optimal"]
    assert isinstance(stored.makespan, int)
    assert stored.peak_memory["ram"] <= point["c"]
    assert stored.report is not None
    assert stored.report.profiles["ram"].size[-1] == 0
    shared = remat.solve(document, algorithm="walther-griewank", budget=point["c"] + 2)
    assert shared.makespan == point["optimal"]
    assert shared.peak_memory["memory"] <= point["c"] + 2


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.data())
def test_equals_exhaustive_search_with_transfer_times(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    forward = data.draw(st.lists(TIMES, min_size=n - 1, max_size=n - 1))
    backward = data.draw(st.lists(TIMES, min_size=n, max_size=n))
    slots, write, read = data.draw(st.integers(1, 4)), data.draw(TIMES), data.draw(TIMES)
    stored = data.draw(st.booleans())
    document = loop(forward, backward, storage=level(slots, write_time=write, read_time=read))
    if stored:
        document["initial_state"] = "ram"
    result = remat.solve(document, algorithm="walther-griewank")
    expected = search.adjoint_best_cost(forward, backward, [(slots, write, read)], 0 if stored else None)
    assert result.makespan == expected
    assert result.lower_bound <= expected


def test_equal_steps_are_revolve() -> None:
    for n in range(1, 25):
        for slots in range(1, 7):
            table = Splits.of(np.ones(n - 1, dtype=np.int64), slots)
            assert table is not None
            assert table.value == advances(n, slots)


def test_ranges_of_a_full_table() -> None:
    forward = np.array([5, 1, 4, 2, 7, 3, 3, 1])
    full = Splits.of(forward, 3, all_levels=True)
    assert full is not None
    for i in range(9):
        for k in range(i, 9):
            for slots in (1, 2, 3, 9):
                own = Splits.of(forward[i:k], min(slots, 3))
                assert own is not None
                assert full.range_value(i, k, slots) == own.value


def test_fractional_times_are_supported() -> None:
    document = loop([1] * 9, [1] * 10) | {"storage": level(2, write_time=0.25, read_time=0.5)}
    document["steps"][3]["forward_time"] = 0.1
    result = remat.solve(document, algorithm="walther-griewank")
    assert isinstance(result.makespan, float)
    assert result.optimal_within == "checkpointing schedules with 2 slots"


def test_states_of_different_sizes() -> None:
    document = loop([3, 1, 4, 1, 5, 9], [1] * 7)
    for index, step in enumerate(document["steps"]):
        step["state_size"] = 2 + 2 * (index % 2)
    wide = document | {"storage": [{"name": "ram", "capacity": 9, "bandwidth": 4}]}
    result = remat.solve(wide, algorithm="walther-griewank")
    assert result.report is not None
    assert result.optimal_within is None
    assert result.peak_memory["ram"] <= 8
    shared = remat.solve(document, algorithm="walther-griewank", budget=16)
    assert shared.optimal_within == "checkpointing schedules with 2 slots"
    assert shared.peak_memory["memory"] <= 16


def test_tapes_are_remade_right_before_each_backward() -> None:
    document = loop([3, 1, 4, 1, 5], [2] * 6) | {"tape_size": 2}
    result = remat.solve(document | {"storage": level(2)}, algorithm="walther-griewank")
    assert result.makespan == search.adjoint_best_cost([3, 1, 4, 1, 5], [2] * 6, [(2, 0, 0)]) + 3 + 1 + 4 + 1 + 5 + 1


def test_asynchronous_storage_is_no_proof() -> None:
    document = loop([3, 1, 4, 1, 5], [2] * 6)
    result = remat.solve(
        document | {"storage": level(2, write_time=1, read_time=1, channel="dma")}, algorithm="walther-griewank"
    )
    assert result.optimal_within is None
    assert result.makespan is not None


def test_no_slot_is_infeasible() -> None:
    answer = remat.solve(loop([1, 2], [1, 1, 1], storage=level(0)), algorithm="walther-griewank")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 1


def test_everything_stored_needs_no_table() -> None:
    n = 5000
    document = loop([1 + i % 7 for i in range(n - 1)], [1] * n)
    result = remat.solve(document, algorithm="walther-griewank")
    assert result.recompute_time == 0


def test_a_table_that_is_too_large_is_refused() -> None:
    document = loop([1 + i % 7 for i in range(9999)], [1] * 10_000, storage=level(20))
    with pytest.raises(remat.OptionError, match="walther-griewank needs a table of"):
        remat.solve(document, algorithm="walther-griewank")


def test_how_much_working_memory_is_enough_is_named() -> None:
    document = loop([1, 2, 3], [1] * 4, storage=level(2)) | {"tape_size": 4}
    named = {}
    for budget in range(7):
        answer = remat.solve(document, algorithm="walther-griewank", budget={"working": budget})
        named[budget] = None if answer.least_budget is None else answer.least_budget.size
    assert named == dict.fromkeys(range(6), 6) | {6: None}


def test_an_interrupted_table_answers_nothing() -> None:
    document = loop([1 + i % 7 for i in range(30)], [1] * 31, storage=level(5))
    result = remat.solve(document, algorithm="walther-griewank", time_limit=0)
    assert result.status is remat.Status.UNKNOWN


def test_makespan_of_the_shipped_example() -> None:
    result = remat.solve(EXAMPLES / "heterogeneous_n200.json", algorithm="walther-griewank")
    assert result.makespan == 9712


def test_transfer_times_depend_on_sizes_and_channels() -> None:
    document = loop([1], [1, 1]) | {"storage": [{"name": "ram", "slots": 2}]}
    document["steps"][1]["state_size"] = 2
    instance = remat.load(document)

    def times(bandwidth: float | None, channel: str = "processor") -> Any:
        links = tuple(
            Link(source=source, target=1 - source, bandwidth=bandwidth, latency=1, channel=channel) for source in (0, 1)
        )
        machine = Machine((Memory("working", 9), Memory("ram", 9)), (Processor("processor", 0),), links)
        found = state_transfer_times(Problem(instance, machine), 1)
        return None if found is None else [array.tolist() for array in found]

    assert times(None) == [[1, 1], [1, 1]]
    assert times(1) == [[2, 3], [2, 3]]
    assert times(4) == [[1.25, 1.5], [1.25, 1.5]]
    assert times(1, "dma") is None
    assert walther_griewank.MOST_BYTES == 2 * 10**9


def test_slots_that_do_not_run_out_and_cost_time() -> None:
    forward, backward = [5, 1, 4, 2, 7], [1] * 6
    for write, read in ((0, 3), (2, 0), (2, 3), (9, 9)):
        document = loop(forward, backward, storage=level(9, write_time=write, read_time=read))
        result = remat.solve(document, algorithm="walther-griewank")
        assert result.makespan == search.adjoint_best_cost(forward, backward, [(6, write, read)])
    n = 300
    document = loop([1 + i % 7 for i in range(n - 1)], [1] * n, storage=[{"name": "disk", "write_time": 3}])
    result = remat.solve(document, algorithm="walther-griewank")
    fewer = remat.solve(document, algorithm="walther-griewank", budget=20)
    assert result.makespan is not None
    assert fewer.makespan is not None
    assert result.makespan <= fewer.makespan


@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(st.lists(st.integers(2**53, 2**56), min_size=2, max_size=6), st.integers(1, 3), st.booleans())
def test_sums_beyond_floating_point_are_exact_or_rounded_down(forward: list[int], slots: int, stored: bool) -> None:
    more = {"storage": level(slots)} if stored else {}
    document = loop([time | 1 for time in forward], [2**53 + 1] * (len(forward) + 1), **more)
    budget = None if stored else slots + 2
    exact = remat.solve(document, algorithm="walther-griewank", budget=budget)
    assert exact.makespan is not None
    own = [bound for bound in exact.bounds if bound.source == "walther-griewank"]
    assert [(type(bound.value), bound.value) for bound in own] == [(int, exact.makespan)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walther_griewank, "MOST_EXACT", 0)
        rounded = remat.solve(document, algorithm="walther-griewank", budget=budget)
        whole = remat.solve(document, algorithm="adjoint-dp", budget=slots + 2) if not stored else rounded
    (bound,) = (bound.value for bound in rounded.bounds if bound.source == "walther-griewank")
    assert type(bound) is int
    assert exact.makespan * (1 - 1e-12) < bound <= exact.makespan
    assert whole.lower_bound <= exact.makespan


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9) | st.integers(0, 10**6), max_size=30), st.integers(2, 5))
def test_monotone_splits_give_the_same_table(forward: list[int], slots: int) -> None:
    times = np.array(forward, dtype=np.int64)
    full = Splits.of(times, slots, all_levels=True)
    assert full is not None
    lower = full.levels[0]
    for level in full.levels[1:]:
        found = monotone_level(lower, full.ends, None)
        assert found is not None
        for i in range(len(full.ends)):
            assert found[i, : len(full.ends) - i].tolist() == level[i, : len(full.ends) - i].tolist()
        lower = level


def test_long_ranges_take_the_compiled_table(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.arange(40, dtype=np.int64) % 7
    plain = Splits.of(times, 5)
    monkeypatch.setattr(walther_griewank, "COMPILED_FROM", 0)
    monkeypatch.setattr(walther_griewank, "_level", None)
    found = Splits.of(times, 5)
    assert plain is not None
    assert found is not None
    assert found.top.tolist() == plain.top.tolist()
