"""The smallest budgets of a pipeline that commands name: each works, and those of `auto` differ little."""

from __future__ import annotations

import random

import pytest

import remat


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_commands_name_about_the_same_minimum(seed: int) -> None:
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
    low = 120  # less than the parameters of a layer, with their gradients
    named = remat.solve(instance, budget=low).least_budget
    planned = remat.plan(instance, budget=low).result.least_budget
    assert named is not None
    assert planned is not None
    found = remat.least_budget(instance, time_limit=60)
    curve = remat.sweep(instance, algorithms=["auto"], points=3, time_limit=60).curves[0].least
    assert found.report is not None
    assert curve is not None
    sizes = [named.size, max(found.peak_memory.values()), curve.size]
    assert max(sizes) <= 1.01 * min(sizes), sizes
    assert planned.size >= min(sizes)  # of one planner
    assert remat.plan(instance, budget=planned.size).result.report is not None
    for size in set(sizes):
        assert remat.solve(instance, budget=size).report is not None
