"""Bounds on classes of schedules, in answers and of saved schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import remat
from remat.plugin.proposal import LAYERS_WHOLE, PARAMETERS_STAY, Bound
from remat.report.text.class_bounds import class_bounds
from remat.report.text.schedule_view import schedule_view
from remat.solving.verifying import examine


def step(**more: Any) -> Any:
    return remat.pipeline(  # whole times, so that equality is a proof
        forward_time=[1] * 4,
        backward_time=2,
        output_size=0,
        saved_size=1,
        devices=4,
        micro_batches=4,
        time_unit="unit",
        **more,
    )


@pytest.mark.parametrize(("more", "scope"), [({}, LAYERS_WHOLE), ({"parameter_size": 1}, PARAMETERS_STAY)])
def test_a_pipeline_has_the_bound_of_layers_on_one_device(more: dict[str, Any], scope: str) -> None:
    result = remat.solve(step(**more), algorithm="pipe-plan", options={"moves": 0})
    assert result.lower_bound == 12  # 4 micro-batches of 3 units
    told = dict(class_bounds(result))
    # The last device waits for the forwards and the backwards of three other layers: 12 + 9.
    assert told["other bounds"].startswith(f"21 for {scope} (")
    assert result.makespan == 21
    assert (result.status, result.optimal_within) == ("feasible", scope)
    assert "stopped" not in result.summary()


def test_a_portfolio_names_the_class_of_the_stages_of_its_schedule() -> None:
    made = remat.solve(step(), algorithm="1f1b")
    bounds = (Bound(20, LAYERS_WHOLE, "words"),)
    auto = replace(made, asked="auto", bounds=bounds)
    assert [text for _, text in class_bounds(auto)] == [f"20 for {LAYERS_WHOLE} (words)"]
    assert made.orders is not None
    twice = replace(made.orders, stages=made.orders.stages * 2)  # each layer on two devices or more
    assert not list(class_bounds(replace(auto, orders=twice)))


def test_show_prints_the_bounds_of_the_file_and_says_so() -> None:
    document = remat.solve(step(), algorithm="pipe-plan", options={"moves": 0}).to_dict()
    told = " ".join(schedule_view(examine(step(), document)).split())
    assert "lower bound 12, as the file states other bounds 21 for schedules that run each layer" in told
    for wrong in ([7], [{"value": "x", "scope": "a"}], "none", [{"value": 99, "scope": LAYERS_WHOLE}]):
        told = " ".join(schedule_view(examine(step(), document | {"bounds": wrong})).split())
        assert "lower bound 12," in told
        assert "other bounds" not in told
