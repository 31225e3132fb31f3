"""A pipeline without a schedule: the activations at the peak, by layers and micro-batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import remat
from remat.plugin.proposal import LeastBudget
from remat.solving.shortfall import shortfall_of
from tests.oracles.training_memory import OF_LETTER, recounted


def pipeline(**more: Any) -> Any:
    sizes: dict[str, Any] = {"saved_size": 40, "parameter_size": 1, "optimizer_size": 6, "output_size": 2} | more
    return remat.pipeline(
        forward_time=[1] * 4,
        backward_time=2,
        devices=2,
        micro_batches=4,
        memory=60,
        time_unit="unit",
        size_unit="unit",
        **sizes,
    )


def test_activations_are_named_by_layer_and_micro_batch() -> None:
    result = remat.solve(pipeline(), algorithm="gpipe")
    assert result.shortfall is not None
    part = result.shortfall.cause
    assert sum(group.size for group in part.layers) == part.size
    assert part.layers
    group = next(iter(part.layers))
    first = min(group.layers) + 1
    assert len(group.micro_batches) > 2
    assert group.size > 40 * len(group.layers)
    told = " ".join(result.summary().split())
    assert "values in memory" not in told
    assert f"of {len(group.micro_batches)} micro-batches ({group.micro_batches[0]}-" in told
    assert f") in layer{'s' if len(group.layers) > 1 else ''} {first}" in told


def test_the_parts_of_a_search_are_those_of_its_schedule() -> None:
    step = pipeline(parameter_size=20)
    options = {"moves": 5}
    result = remat.solve(step, algorithm="pipe-plan", options=options, budget=135)
    found = result.shortfall
    assert found is not None
    assert not found.proved
    task = found.task
    assert task is not None
    fits = remat.solve(step, algorithm="pipe-plan", options=options, budget=found.need)
    told: dict[str, int] = {}
    for part in found.parts:
        if part.what == "read":
            for value in result.graph.reads[task].tolist():
                term = OF_LETTER.get(result.graph.values[value][0], "activations")
                told[term] = told.get(term, 0) + int(result.graph.size[value])
        else:
            term = part.what if part.what in (*OF_LETTER.values(), "workspace") else "activations"
            told[term] = told.get(term, 0) + part.size
    assert found.cause.size < found.need
    assert told == recounted(fits, found.memory)


def test_a_planner_that_asks_for_more_than_its_plan_needs() -> None:
    """The need is that of the plan; the budget is the one at which the planner finds it."""
    few = remat.solve(pipeline(), algorithm="gpipe")
    whole = remat.solve(pipeline(), algorithm="gpipe", budget={"gpu0": 9999, "gpu1": 9999})
    peak = max(whole.peak_memory.values())
    least = LeastBudget(peak + 50, None, True, 0, orders=whole.orders)
    found = shortfall_of(replace(few, algorithm="pipe-plan", least_budget=least, memory_bounds={}))
    assert found is not None
    assert (found.need, found.budget) == (peak, {"": peak + 50})
    assert sum(part.size for part in found.parts) == peak
    assert any(part.layers for part in found.parts)
