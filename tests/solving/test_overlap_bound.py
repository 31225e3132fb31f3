"""Hidden transfers: by hand, and against the schedules of algorithms that only offload."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing.strategies import chains

CHAIN: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 4,
    "stages": [{"forward_time": 1, "backward_time": 2, "output_size": 4, "repeat": 5}],
}
"""Runs hold 8 12 16 20 24 (from 0 1 2 3 4), the loss 28, backwards 32 28 24 20 16 (from 5 7 9 11 13); it ends at 15."""


def machine(out: Any = 2, back: Any = 3, *, channel: str = "bus") -> dict[str, Any]:
    """Build a device and a host; bandwidth None is infinite."""
    ends = (("device", "host", out), ("host", "device", back))
    links = [
        {"source": source, "target": target, "channel": channel} | ({} if rate is None else {"bandwidth": rate})
        for source, target, rate in ends
    ]
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": links,
    }


def hiding(budget: int | None = None, model: dict[str, Any] | None = None) -> remat.solving.overlap_bound.Hiding:
    given = None if budget is None else {"device": budget}
    found = remat.show(CHAIN, machine=machine() if model is None else model, budget=given).hiding
    assert found is not None
    return found


def test_hidden_bytes_are_as_by_hand() -> None:
    """In 24: 4 too many in the loss, 8 from 5 to 7, 4 until 9. So 8 by 5 and 4 by 5; back, 8 after 7 and 4 after 9."""
    found = hiding(24)
    assert found.compute_time == 15
    assert found.movable == {"device->host": 30, "host->device": 45}
    assert (found.budget, found.least, found.away) == (24, False, 8)
    assert found.out_bandwidth == 8 / 5
    assert found.back_bandwidth == 8 / 8
    # In 20: 4 by 4, 12 by 5; back 12 in 8, 8 in 6, 4 in 4.
    found = hiding(20)
    assert (found.away, found.out_bandwidth, found.back_bandwidth) == (12, 12 / 5, 12 / 8)


def test_without_a_budget_at_the_least_one() -> None:
    """16, which each backward needs: 16 too many for B5. Out 4 by 3, 8 by 4, 16 by 5; back 16 in 8, 8 in 4, 4 in 2."""
    found = hiding()
    assert (found.budget, found.least, found.away) == (16, True, 16)
    assert (found.out_bandwidth, found.back_bandwidth) == (16 / 5, 2)
    assert hiding(3) == found  # less is of no use
    assert hiding(32).away == 0
    assert hiding(32).out_bandwidth == 0


def test_links_that_hide_nothing() -> None:
    synchronous = hiding(24, machine(channel="gpu"))
    assert synchronous.movable == {"device->host": 0, "host->device": 0}
    assert math.isinf(synchronous.out_bandwidth)
    infinite = hiding(24, machine(None))
    assert infinite.movable["device->host"] is None
    one_way = machine() | {"links": machine()["links"][:1]}
    found = hiding(24, one_way)
    assert found.out_bandwidth == 8 / 5
    assert math.isinf(found.back_bandwidth)
    assert found.to_dict()["free_back_bandwidth"] is None
    assert remat.show(CHAIN).hiding is None


def test_nothing_can_leave_before_the_first_run_that_takes_time() -> None:
    """Without forward times, B5 starts at once; back as before."""
    stages = [CHAIN["stages"][0] | {"forward_time": 0}]
    found = remat.show(CHAIN | {"stages": stages}, machine=machine(), budget={"device": 24}).hiding
    assert found is not None
    assert math.isinf(found.out_bandwidth)
    assert found.back_bandwidth == 1


@settings(max_examples=40, deadline=None)
@given(chains(plain=True), st.floats(0, 1), st.sampled_from([1, 2, 4]))
def test_below_it_offloading_costs_time(document: dict[str, Any], share: float, rate: int) -> None:
    document.pop("machine", None)
    model = machine(rate, rate)
    facts = remat.show(document, machine=model)
    least, peak = facts.memory_needs["device"].size, facts.no_recompute_peak
    assert peak is not None
    budget = {"device": least + int(share * (peak - least))}
    found = remat.show(document, machine=model, budget=budget).hiding
    assert found is not None
    result = remat.solve(document, algorithm="offload-greedy", machine=model, budget=budget, options={"bound": False})
    if result.makespan is not None and max(found.out_bandwidth, found.back_bandwidth) > rate * (1 + 1e-9):
        assert result.makespan > facts.no_recompute_time


@pytest.mark.parametrize(
    ("model", "budget", "texts"),
    [
        (
            machine(),
            24,
            ["device->host: 30 during 15 of computation", "at the budget of 24 up to 8", "1.6 out and bandwidth 1"],
        ),
        (machine(), 32, ["at the budget of 32 all values fit without it"]),
        (
            machine(None, channel="gpu"),
            None,
            [
                "at the lower bound of 16",
                "always costs time: transfers out and back are synchronous",
                "no bytes, because",
            ],
        ),
    ],
)
def test_facts_describe_hidden_bytes(model: dict[str, Any], budget: int | None, texts: list[str]) -> None:
    from remat.report.text.facts import facts_lines

    facts = remat.show(CHAIN, machine=model, budget=None if budget is None else {"device": budget})
    shown = "\n".join(f"{label} {text}" for label, text in facts_lines(facts))
    for text in texts:
        assert text in shown
