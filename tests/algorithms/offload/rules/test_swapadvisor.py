"""Test `swapadvisor`: its first individual by hand, gains of the search, and machines without offload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing.strategies import dags
from tests.algorithms.offload.machines import assert_ways_are_needed, two_memories
from tests.algorithms.offload.timelines import EQUAL, starts, timeline

# EQUAL in 20, at 1 a unit of time; the first individual. Fe5 (24) sends x0 away, which is needed last; the loss, with
# 28 - 4, x1; B5, with 32 - 8, x2. They leave one by one, 0-4, 4-8, 8-12: Fe5 starts when x0 has gone, the loss when x1
# has, B5 when x2 has.
#   B4 holds x3 x4 y4 y3, so x2 fits: 14-18. With B3 (x2 x3 y3 y2), x1 fits, and the channel is free for it at 18:
#   18-22. B2 for x0, 22-26.
FIRST = """
    0   Fe1, x0 out
    1   Fe2
    2   Fe3
    3   Fe4
    4   Fe5, x1 out
    8   loss, x2 out
    12  B5
    14  B4, x2 back
    18  B3, x1 back
    22  B2, x0 back
    26  B1
"""

BRANCHES = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "values": [{"id": name, "size": size} for name, size in (("A", 4), ("B", 4), ("a", 1), ("b", 1), ("end", 1))],
    "tasks": [
        {"id": "a1", "time": 1, "writes": ["A"]},
        {"id": "b1", "time": 1, "writes": ["B"]},
        {"id": "a2", "time": 1, "reads": ["A"], "writes": ["a"]},
        {"id": "b2", "time": 1, "reads": ["B"], "writes": ["b"]},
        {"id": "join", "time": 1, "reads": ["a", "b"], "writes": ["end"]},
    ],
    "outputs": ["end"],
}
"""In the listed order, A and B are there at once: 9 with a2. One branch after the other: a, B and b, 6."""


def test_first_individual_equals_the_timeline_by_hand() -> None:
    result = remat.solve(
        EQUAL, algorithm="swapadvisor", machine=two_memories(1), budget={"device": 20}, options={"iterations": 0}
    )
    assert starts(result) == timeline(FIRST)
    assert result.makespan == 28


def test_search_is_reproducible() -> None:
    """Never slower than the first individual, and the same again for the same seed."""
    results = [
        remat.solve(
            EQUAL,
            algorithm="swapadvisor",
            machine=two_memories(2),
            budget={"device": 20},
            options={"iterations": count},
            seed=3,
        )
        for count in (0, 60, 60)
    ]
    first, found, again = (result.makespan for result in results)
    assert first is not None
    assert found is not None
    assert found <= first
    assert starts(results[1]) == starts(results[2])
    assert found == again


def test_order_of_a_graph() -> None:
    """In the listed order, A leaves 1-5 for b1 (5-6), B 6-10 for a2, A back 10-14, a2, B back 15-19, b2, join until 21.

    If one branch follows the other, no value has to leave.
    """
    given: dict[str, Any] = {"algorithm": "swapadvisor", "machine": two_memories(1), "budget": {"device": 6}}
    listed = remat.solve(BRANCHES, **given, options={"iterations": 0})
    assert listed.makespan == 21
    found = remat.solve(BRANCHES, **given)
    assert found.makespan == 5
    assert {what for _, what in starts(found)} == {"a1", "a2", "b1", "b2", "join"}


@settings(max_examples=20, deadline=None)
@given(dags(plain=True), st.floats(0, 1))
def test_search_is_never_slower_than_its_first_individual(document: dict[str, Any], share: float) -> None:
    """Never slower than the first individual, wherever that one fits."""
    document.pop("machine", None)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    given: dict[str, Any] = {"algorithm": "swapadvisor", "machine": machine, "budget": {"device": int(share * peak)}}
    first = remat.solve(document, **given, options={"iterations": 0})
    found = remat.solve(document, **given, options={"iterations": 25})
    if first.makespan is not None:
        assert found.makespan is not None
        assert found.makespan <= first.makespan


def test_machines_without_enough_links_or_memory_have_no_schedule() -> None:
    machine = two_memories(1)
    assert_ways_are_needed(EQUAL, "swapadvisor")
    small = machine | {"memories": [{"name": "device"}, {"name": "host", "capacity": 3}]}
    result = remat.solve(EQUAL, algorithm="swapadvisor", machine=small, budget={"device": 24})
    assert str(result.status) == "unknown"
    assert "other memories" in " ".join(result.notes)
    tight = remat.solve(EQUAL, algorithm="swapadvisor", machine=machine, budget={"device": 15})
    assert str(tight.status) == "infeasible"
    assert tight.least_budget is not None
    assert tight.least_budget.size == 16


@pytest.mark.parametrize("more", [{"channels": ("bus", "bus")}, {"channels": ("gpu", "gpu")}, {"latency": 1}])
def test_a_synchronous_channel_takes_longer(more: dict[str, Any]) -> None:
    given: dict[str, Any] = {"algorithm": "swapadvisor", "budget": {"device": 24}, "options": {"iterations": 20}}
    result = remat.solve(EQUAL, machine=two_memories(4, **more), **given)
    assert result.makespan == (19 if "gpu" in more.get("channels", ()) else 15)
