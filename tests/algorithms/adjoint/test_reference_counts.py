"""Compare runs, writes, reads and peaks with published reference points, and with every case up to l = 6."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat_algorithms.adjoint.tapes import bptt, mixed
from remat_algorithms.kit.binomial import advances, repetition
from tests import places
from tests.oracles import search
from tests.oracles.taped import best_forward_steps

REFERENCE = json.loads((places.REFERENCE / "adjoint.json").read_text())["points"]
UNIT = {"time": "unit", "memory": "unit"}
Levels = list[tuple[int | None, float, float]]


def loop(n: int, levels: Levels, **more: Any) -> dict[str, Any]:
    storage = [
        {"name": f"level{k}", "slots": slots, "write_time": write, "read_time": read}
        for k, (slots, write, read) in enumerate(levels)
    ]
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": n, "storage": storage} | more


def counts(result: remat.Result) -> Counter[str]:
    """Count forward runs, and copies to (w) and from (r) each level; assert that storage ends empty."""
    assert result.report is not None
    found: Counter[str] = Counter()
    for step in result.to_dict()["steps"]:
        if str(step.get("run", "")).startswith("F"):
            found["forward"] += 1
        elif "copy" in step:
            found["w " + step["to"] if step["from"] == "working" else "r " + step["from"]] += 1
    for memory in result.machine.memories[1:]:
        assert result.report.profiles[memory.name].size[-1] == 0
    return found


@pytest.mark.parametrize("point", REFERENCE["revolve"], ids=lambda p: f"{p['n']}-{p['snapshots']}")
def test_revolve_runs_steps_as_often_as_the_reference(point: dict[str, Any]) -> None:
    n, slots = point["n"], point["snapshots"]
    assert advances(n, slots) == point["advances"] == point["forward_steps_with_taping"] - n
    assert repetition(n, slots) == point["repetition"]
    if n <= 1000:
        result = remat.solve(loop(n, [(slots, 0, 0)]), algorithm="revolve")
        found = counts(result)
        assert found["forward"] == point["advances"]
        assert result.recompute_time == point["recomputed"]
        assert result.peak_memory["level0"] <= slots
        # Each backward but the first to run begins with a read, unless its state has just been advanced to.
        assert found["w level0"] <= found["r level0"] <= n - 1 or slots == 1 or n == 1


@pytest.mark.slow
def test_a_long_loop_is_executed() -> None:
    result = remat.solve(loop(100_000, [(20, 0, 0)]), algorithm="revolve")
    assert result.makespan == 534_220 + 100_000
    assert result.peak_memory["level0"] == 20


@pytest.mark.parametrize("point", REFERENCE["min_snapshots"], ids=lambda p: str(p["n"]))
def test_least_slots_for_so_many_advances(point: dict[str, Any]) -> None:
    n, most, slots = point["n"], point["max_advances"], point["min_snapshots"]
    assert advances(n, slots) <= most < advances(n, slots - 1)
    enough = remat.solve(loop(n, [(slots, 0, 0)]), algorithm="revolve")
    assert enough.makespan is not None
    assert enough.makespan - n <= most
    fewer = remat.solve(loop(n, [(slots - 1, 0, 0)]), algorithm="revolve")
    assert fewer.makespan is not None
    assert fewer.makespan - n > most


@pytest.mark.parametrize("point", REFERENCE["hrevolve"], ids=lambda p: f"{p['l']}-{p['slots']}-{p['write']}")
def test_h_revolve_copies_as_often_as_the_reference(point: dict[str, Any]) -> None:
    n, levels = point["l"] + 1, list(zip(point["slots"], point["write"], point["read"], strict=True))
    document = loop(n, levels, forward_time=point["uf"], backward_time=point["ub"])
    result = remat.solve(document, algorithm="h-revolve")
    found = counts(result)
    for k, slots in enumerate(point["slots"]):
        assert result.peak_memory[f"level{k}"] <= slots
    peer = point.get("peer_run")
    if peer and point["peer_run_cost"] == point["optimal"]:
        ours = found["forward"] + n, found["w level1"], found["r level1"]
        assert ours == (peer["fwd"], peer["disk_w"], peer["disk_r"])
    elif peer:
        assert result.makespan < point["peer_run_cost"]  # type: ignore[operator]
    if "exhaustive" in point:
        best = remat.solve(document, algorithm="adjoint-best", options={"iterations": 20, "work": 0})
        assert best.makespan <= point["exhaustive"]  # type: ignore[operator]


@pytest.mark.parametrize("point", REFERENCE["disk_revolve"], ids=lambda p: f"{p['l']}-{p['c']}")
def test_disk_revolve_with_one_read_equals_the_reference(point: dict[str, Any]) -> None:
    n, costs = point["l"] + 1, (point["wd"], point["rd"])
    document = loop(n, [(point["c"], 0, 0), (None, *costs)], forward_time=point["uf"], backward_time=point["ub"])
    result = remat.solve(document, algorithm="disk-revolve", options={"one_read": True})
    found, peer = counts(result), point["peer_run"]
    assert found["w level1"] == found["r level1"] == result.peak_memory["level1"]
    # Where several are optimal, another number of disk checkpoints may be as good.
    ours = point["uf"] * (found["forward"] + n) + costs[0] * found["w level1"] + costs[1] * found["r level1"]
    assert ours == point["uf"] * peer["fwd"] + costs[0] * peer["disk_w"] + costs[1] * peer["disk_r"]
    assert result.peak_memory["level0"] <= peer["peak_ram"]


# --- exhaustive search up to l = 6 ------------------------------------------------------------------------------------

COSTS = st.integers(0, 6)


@st.composite
def ordered(draw: st.DrawFn, count: int) -> Levels:
    times = sorted((draw(st.tuples(COSTS, COSTS)) for _ in range(count)), key=sum)
    return [(draw(st.integers(0 if k else 1, 2)), *pair) for k, pair in enumerate(times)]


def check_hierarchical(levels: Levels, forward: int, backward: int, *, exact: bool) -> None:
    best = search.adjoint_best_cost([forward] * 6, [backward] * 7, levels)
    result = remat.solve(loop(7, levels, forward_time=forward, backward_time=backward), algorithm="h-revolve")
    counts(result)
    assert result.makespan == best if exact else result.makespan >= best  # type: ignore[operator]


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(ordered(2), st.integers(1, 3), st.integers(0, 3))
def test_h_revolve_is_optimal_on_two_ordered_levels(levels: Levels, forward: int, backward: int) -> None:
    check_hierarchical(levels, forward, backward, exact=True)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(ordered(3), st.integers(1, 3), st.integers(0, 3))
def test_h_revolve_is_optimal_on_three_ordered_levels(levels: Levels, forward: int, backward: int) -> None:
    check_hierarchical(levels, forward, backward, exact=True)


@settings(max_examples=5, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(1, 2), COSTS, COSTS), min_size=2, max_size=2), st.integers(1, 3))
def test_levels_in_any_order_are_never_below(levels: Levels, forward: int) -> None:
    check_hierarchical(levels, forward, 1, exact=False)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2), COSTS, COSTS, st.integers(1, 3), st.booleans())
def test_disk_and_x0_on_disk(slots: int, write: int, read: int, forward: int, given_there: bool) -> None:
    document = loop(7, [(slots, 0, 0), (None, write, read)], forward_time=forward)
    where = 1 if given_there else None
    expected = search.adjoint_best_cost([forward] * 6, [1] * 7, [(slots, 0, 0), (7, write, read)], where)
    more = {"initial_state": "level1"} if given_there else {}
    result = remat.solve(document | more, algorithm="disk-revolve")
    counts(result)
    assert result.makespan == expected


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(COSTS, COSTS), min_size=7, max_size=7), st.integers(1, 4), COSTS, COSTS)
def test_walther_griewank_is_optimal_for_unequal_times(
    times: list[tuple[int, int]], slots: int, write: int, read: int
) -> None:
    document = loop(7, [(slots, write, read)], steps=[{"forward_time": f, "backward_time": b} for f, b in times])
    forward, backward = [f for f, _ in times[:-1]], [b for _, b in times]
    result = remat.solve(document, algorithm="walther-griewank")
    counts(result)
    assert result.makespan == search.adjoint_best_cost(forward, backward, [(slots, write, read)])


@pytest.mark.parametrize("units", range(1, 8))
def test_adjoint_dp_equals_exhaustive_search(units: int) -> None:
    document = loop(7, [], forward_time=1, backward_time=1, state_size=1)
    del document["storage"]
    result = remat.solve(document, algorithm="adjoint-dp", budget=units)
    assert result.makespan == search.chain_best(document, units)


@pytest.mark.slow
def test_mixed_and_bptt_up_to_eight_steps() -> None:
    for n in (6, 7, 8):
        for units in (1, 2):
            table = mixed.forward_steps(n, units)
            assert table is not None
            assert table[units, n] == best_forward_steps(n, units, 1, 1, None)
        for size in (0, 1, 2, 4):
            for hidden in (None, 1):
                own = bptt.Table.of(n, size, hidden, 2, name="bptt-msm")
                assert own is not None
                if hidden is not None or size % 2 == 0:
                    assert own.value == best_forward_steps(n, size, hidden, None, 2)
