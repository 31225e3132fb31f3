"""Test guarantees of `offload-greedy`, `offload-dp`, `pofo` and `remat-offload-best` against each other."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import remat
from remat.testing.strategies import chains
from tests.algorithms.offload.machines import assert_ways_are_needed, two_memories

ALL = ("offload-greedy", "offload-dp", "pofo", "remat-offload-best")
FEW = {"remat-offload-best": {"iterations": 40}, "offload-dp": {"slots": 12}, "pofo": {"slots": 12}}
"""Enough for chains of a few stages."""


def solve(document: dict[str, Any], algorithm: str, budget: int, machine: dict[str, Any]) -> remat.Result:
    return remat.solve(
        document, algorithm=algorithm, budget={"device": budget}, machine=machine, options=FEW.get(algorithm)
    )


def plain(document: dict[str, Any]) -> dict[str, Any]:
    assume("variants" not in str(document))
    document.pop("machine", None)
    return document


def range_of(document: dict[str, Any], machine: dict[str, Any]) -> tuple[int, int]:
    """Return the minimum budget and the peak of `keep-all`."""
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    tight = solve(document, "offload-greedy", 0, machine)
    return (tight.least_budget.size if tight.least_budget is not None else peak), peak


@settings(max_examples=12, derandomize=True, database=None, deadline=None)
@given(chains(plain=True), st.floats(0, 1))
def test_infinite_bandwidth_costs_nothing(document: dict[str, Any], share: float) -> None:
    """At any budget above the least working set."""
    document, machine = plain(document), two_memories(None)
    least, peak = range_of(document, machine)
    budget = least + int(share * (peak - least))
    time = remat.solve(document, algorithm="keep-all").makespan
    for algorithm in ALL:
        assert solve(document, algorithm, budget, machine).makespan == pytest.approx(time), algorithm


@settings(max_examples=12, derandomize=True, database=None, deadline=None)
@given(chains(plain=True), st.floats(0, 1))
def test_without_a_link_the_answer_is_that_of_rotor(document: dict[str, Any], share: float) -> None:
    document = plain(document)
    peak = remat.solve(document, algorithm="keep-all").peak_memory["memory"]
    budget = int(share * peak)
    rotor = remat.solve(document, algorithm="rotor", budget=budget)
    for algorithm in ("pofo", "remat-offload-best"):
        found = remat.solve(document, algorithm=algorithm, budget=budget)
        assert (found.status, found.makespan) == (rotor.status, rotor.makespan)
    for algorithm in ("offload-greedy", "offload-dp"):
        with pytest.raises(remat.OptionError, match="needs a second memory"):
            remat.solve(document, algorithm=algorithm, budget=budget)


ON_LINKS = (chains(plain=True), st.floats(0, 1), st.sampled_from([1, 3, 10]), st.booleans())


@pytest.mark.slow
@settings(max_examples=10, derandomize=True, database=None, deadline=None)
@given(*ON_LINKS)
def test_best_is_never_slower(document: dict[str, Any], share: float, bandwidth: int, half: bool) -> None:
    check_best(document, share, bandwidth, half)


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(*ON_LINKS)
def test_best_is_never_slower_thoroughly(document: dict[str, Any], share: float, bandwidth: int, half: bool) -> None:
    check_best(document, share, bandwidth, half)


def check_best(document: dict[str, Any], share: float, bandwidth: int, half: bool) -> None:
    """Than any other; and no schedule is quicker than the bounds."""
    document = plain(document)
    machine = two_memories(bandwidth, channels=("bus", "bus") if half else ("out", "in"))
    least, peak = range_of(document, machine)
    budget = least + int(share * (peak - least))
    results = {name: solve(document, name, budget, machine) for name in (*ALL, "rotor")}
    best = results.pop("remat-offload-best")
    for name, result in results.items():
        if result.makespan is not None:
            assert best.makespan is not None
            assert best.makespan <= result.makespan * (1 + 1e-9), name
            assert (result.lower_bound or 0) <= result.makespan * (1 + 1e-9)
    bounds = [bound.value for bound in results["offload-greedy"].bounds]
    for name in ("offload-greedy", "offload-dp"):
        if results[name].makespan is not None:
            assert all(value <= results[name].makespan * (1 + 1e-9) for value in bounds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, pytest.param(0, marks=pytest.mark.slow)])
def test_more_memory_and_quicker_links_never_hurt(seed: int) -> None:
    """`remat-offload-best` searches, so that this is no theorem; it holds where the walk is long enough."""
    draw = random.Random(seed)
    stages = [
        {
            "forward_time": draw.randint(1, 6),
            "backward_time": draw.randint(1, 8),
            "output_size": draw.randint(1, 6),
            "saved_size": draw.choice([0, 0, 2, 5]),
        }
        for _ in range(5)
    ]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 3, "stages": stages}
    least, peak = range_of(document, two_memories(1))
    budgets = [least + (peak - least) * share // 4 for share in range(5)]

    def best(budget: int, bandwidth: int) -> float:
        made = remat.solve(
            document,
            algorithm="remat-offload-best",
            budget={"device": budget},
            machine=two_memories(bandwidth),
            options={"iterations": 300},
        ).makespan
        assert made is not None
        return made

    rows = [[best(budget, bandwidth) for budget in budgets] for bandwidth in (1, 2, 4)]
    for row in rows:
        assert all(after <= before for before, after in pairwise(row))
    for slower, quicker in pairwise(rows):
        assert all(after <= before for before, after in zip(slower, quicker, strict=True))


@pytest.mark.parametrize("algorithm", ALL)
def test_what_the_host_cannot_hold_goes_on(algorithm: str) -> None:
    """Values that exceed the host move on to a disk; the host holds at most two at a time."""
    stages = [{"forward_time": 4, "backward_time": 6, "output_size": 2, "repeat": 6}]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 2, "stages": stages}
    machine = two_memories(1)
    ends = (("host", "disk"), ("disk", "host"))
    machine["memories"] = [{"name": "device"}, {"name": "host", "capacity": 4}, {"name": "disk"}]
    machine["links"] += [{"source": source, "target": target, "bandwidth": 1} for source, target in ends]
    result = solve(document, algorithm, 10, machine)
    assert result.makespan is not None
    assert result.peak_memory["host"] <= 4
    if algorithm.startswith("offload"):
        assert result.peak_memory["disk"] > 0
    bare = machine | {"memories": machine["memories"][:2], "links": machine["links"][:2]}
    alone = solve(document, algorithm, 10, bare)
    assert alone.makespan is None or alone.makespan >= result.makespan


@pytest.mark.parametrize("algorithm", ["offload-greedy", "offload-dp"])
def test_machines_without_links_are_refused(algorithm: str) -> None:
    document = {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "unit", "memory": "unit"},
        "input_size": 2,
        "stages": [{"forward_time": 1, "backward_time": 2, "output_size": 2, "repeat": 5}],
    }
    assert_ways_are_needed(document, algorithm)
    small = two_memories(1) | {"memories": [{"name": "device"}, {"name": "host", "capacity": 1}]}
    result = remat.solve(document, algorithm=algorithm, machine=small, budget={"device": 10})
    assert str(result.status) == "unknown"
    assert "other memories" in " ".join(result.notes)
    with pytest.raises(remat.RematError, match="bandwidth"):
        remat.solve(document, algorithm=algorithm, machine=two_memories(0), budget={"device": 10})
