"""The largest cause of a shortfall of a drawn graph is resident while the critical task runs, as verified."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from tests.oracles import deciding


def drawn(seed: int) -> dict[str, Any]:
    """Return a graph of a few tasks, some of which run once only."""
    draw = random.Random(seed)
    tasks: list[dict[str, Any]] = []
    for k in range(draw.randint(3, 9)):
        reads = [f"t{j}" for j in sorted(draw.sample(range(k), min(k, draw.randint(0, 3))))]
        task = {"id": f"t{k}", "time": draw.randint(1, 5), "size": draw.choice([1, 5, 10, 20, 65]), "reads": reads}
        if draw.random() < 0.2:
            task["workspace"] = draw.randint(1, 30)
        if draw.random() < 0.3:
            task["recomputable"] = False
        tasks.append(task)
    values = [{"id": f"in{k}", "size": draw.choice([3, 30, 65])} for k in range(draw.randint(0, 2))]
    for value in values:
        draw.choice(tasks)["reads"].insert(0, value["id"])
    used = {read for task in tasks for read in task["reads"]}
    outputs = [task["id"] for task in tasks if task["id"] not in used or draw.random() < 0.15]
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": tasks,
        "outputs": outputs,
        **({"values": values, "inputs": [value["id"] for value in values]} if values else {}),
    }


def check(seed: int) -> None:
    """Compare the causes at no budget, and just below the one that is suggested, with the verified schedule."""
    instance = remat.load(drawn(seed))
    least = remat.solve(instance, budget=0).shortfall
    assert least is not None
    (enough,) = least.budget.values()
    for budget in (0, enough - 1):
        result = remat.solve(instance, budget=budget)
        found = result.shortfall
        assert found is not None
        fits = remat.solve(instance, budget=found.budget)
        assert fits.report is not None
        assert found.need <= max(fits.peak_memory.values())
        assert sum(part.size for part in found.parts) == found.need
        sizes = dict(zip(result.graph.values, result.graph.size.tolist(), strict=True))
        cause = found.cause
        if len(cause.values) < 3 and cause.what in ("read", "written"):
            assert sum(sizes[value] for value in cause.values) == cause.size
        if found.task is not None and found.proved:
            held = deciding.residents(fits, result.graph.tasks[found.task])
            assert any(set(cause.values) <= there for there in held), (cause, held)


@pytest.mark.parametrize("seed", [34, 39, 78])
def test_causes_that_candidates_of_the_reference_order_got_wrong(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_causes_of_drawn_graphs(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed)
