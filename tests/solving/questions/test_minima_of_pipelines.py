"""The smallest budgets of a pipeline that commands name: each works, and all are the same."""

from __future__ import annotations

import random

import pytest

import remat

RESOLUTION = 0.005
"""Share of the budget to which all of them search."""


def named_by_all(instance, low, seconds):
    """Return the budgets that each question names for a pipeline, given too little memory."""
    named = remat.solve(instance, budget=low, time_limit=seconds).least_budget
    planned = remat.plan(instance, budget=low, time_limit=seconds).result.least_budget
    found = remat.least_budget(instance, time_limit=seconds)
    curve = remat.sweep(instance, algorithms=["auto"], points=3, time_limit=seconds).curves[0].least
    assert named is not None
    assert planned is not None
    assert found.report is not None
    assert curve is not None
    return {"solve": named.size, "plan": planned.size, "sweep": curve.size, "least_budget": found.answer.value}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_commands_name_the_same_minimum(seed: int) -> None:
    draw = random.Random(seed)
    layers = draw.choice([4, 6])
    instance = remat.pipeline(
        forward_time=[draw.randint(1, 3) for _ in range(layers)],
        backward_time=3,
        output_size=20,
        saved_size=draw.choice([200, 400]),
        parameter_size=100,
        devices=2,
        micro_batches=4,
        link=100,
        time_unit="unit",
        size_unit="unit",
    )
    sizes = named_by_all(instance, 120, 60)  # less than the parameters of a layer, with their gradients
    least = min(sizes.values())
    assert max(sizes.values()) <= (1 + RESOLUTION) * least, sizes
    for size in set(sizes.values()):
        assert remat.plan(instance, budget=size).result.report is not None
        assert remat.solve(instance, budget=size).report is not None


EIGHT = {"forward_time": 2, "backward_time": 2, "weight_time": 2, "saved_size": 300, "weight_saved_size": 150}
EIGHT |= {"output_size": 20, "parameter_size": 200, "optimizer_size": 1200, "repeat": [16], "devices": 8}


def eight(micro_batches: int = 8):
    """Return the pipeline of the tutorial, with a megabyte as the unit."""
    units = {"time_unit": "unit", "size_unit": "unit"}
    return remat.pipeline(**EIGHT, memory=20_000, link=100, micro_batches=micro_batches, **units)


def test_the_planner_names_the_smallest_budget_at_which_it_has_a_plan() -> None:
    """Two stages per device, one micro-batch at a time, with full recomputation: it needs 3600, and a larger budget."""
    options = {"moves": 0, "zoo": False}
    for budget in (3000, 3500, 3599):
        least = remat.solve(eight(2), algorithm="pipe-plan", budget=budget, options=options).least_budget
        assert least is not None
        assert (least.size, least.sufficient, least.scope) == (3600, True, None)


@pytest.mark.slow
def test_a_larger_budget_is_never_refused_by_the_planner() -> None:
    """The plan for 3700 was once followed by none for 3710 to 3760."""
    options = {"moves": 0, "zoo": False}
    before = None
    for budget in (3600, 3700, 3710, 3740, 3760):
        found = remat.solve(eight(4), algorithm="pipe-plan", budget=budget, options=options)
        assert found.makespan is not None, budget
        assert before is None or found.makespan <= before
        before = found.makespan
