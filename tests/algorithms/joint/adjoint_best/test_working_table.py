"""The table over bytes of the working memory: its schedules fit, and are as good as those of the table of levels."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.placement import Placement, place
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best import working_table
from remat_algorithms.joint.adjoint_best.model import Model, cost, steps_of
from remat_algorithms.joint.adjoint_best.persistent_table import LevelTable, stores
from remat_algorithms.joint.adjoint_best.working_table import WorkingTable
from tests.oracles import levels

UNIT = {"time": "unit", "memory": "unit"}
KEYS = ("forward_time", "backward_time", "state_size", "adjoint_size")


def go_on() -> bool:
    return False


def loop(n: int, seed: int, *capacities: int | None, **more: Any) -> dict[str, Any]:
    draw = random.Random(seed)
    figures = ((draw.randint(1, 9), 1, draw.randint(1, 4), draw.randint(1, 3)) for _ in range(n))
    steps = [dict(zip(KEYS, each, strict=True)) for each in figures]
    storage = [
        {"name": f"level{k}", "capacity": capacity, "write_time": draw.randint(0, 3), "read_time": draw.randint(0, 5)}
        for k, capacity in enumerate(capacities)
    ]
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps, "storage": storage}
    return document | more


def solved(document: dict[str, Any]) -> tuple[Model, float | None]:
    """Return the time of the table's schedule, placed; None if it has none."""
    problem = make_problem(remat.load(document))
    model = Model.of(problem)
    assert model is not None
    operations = WorkingTable(model).best(go_on)
    if operations is None:
        return model, None
    placed = place(problem.graph, problem.machine, steps_of(problem, operations))
    assert isinstance(placed, Placement)
    return model, cost(model, operations)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("capacities", [(5,), (6, None), (4, 9)])
def test_at_least_as_good_as_the_table_of_levels(capacities: tuple[int | None, ...], seed: int) -> None:
    more = {"initial_state": "level0"} if seed % 3 == 2 else {}
    model, found = solved(loop(12, seed, *capacities, **more))
    places = stores(model)
    assert places
    table = LevelTable(model, places)
    assert table.fill(go_on)
    operations = table.operations()
    if operations is not None:
        assert found is not None
        assert found <= cost(model, operations) + 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_never_below_the_optimum(seed: int) -> None:
    document = loop(4, seed, 4, 6)
    figures = [[step[key] for step in document["steps"]] for key in KEYS]
    forward, backward, state, adjoint = figures
    storage = [(level["capacity"], level["write_time"], level["read_time"], None) for level in document["storage"]]
    least = levels.best_cost(forward[:-1], backward, state, adjoint, max(state) + max(adjoint), storage)
    _, found = solved(document)
    assert found is not None
    assert least is not None
    assert found >= least


def test_states_stay_in_the_working_memory() -> None:
    """Next to small states, the working memory for a large one holds others; a level costs 20 for each state."""
    document = loop(6, 0, None)
    document["steps"] = [dict(zip(KEYS, (3, 1, size, 1), strict=True)) for size in (1, 1, 1, 1, 1, 4)]
    document["storage"] = [{"name": "disk", "write_time": 10, "read_time": 10}]
    model, found = solved(document)
    # 5 advances with x0 kept, 4 from x0 to x4 with x1 and x2 kept, 1 from x2 to x3; no transfer.
    assert found == 3 * (5 + 4 + 1) + 6
    places = stores(model)
    assert places
    table = LevelTable(model, places)
    assert table.fill(go_on)
    operations = table.operations()
    assert operations is not None
    assert found < cost(model, operations)


def test_prices_of_levels_that_have_no_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """With prices, schedules still fit, and are nearly as good."""
    documents = [loop(20, seed, 9) for seed in range(3)]
    exact = [solved(document)[1] for document in documents]
    monkeypatch.setattr(working_table, "MOST_CELLS", 20 * 20 * 4 * 8)
    for document, best in zip(documents, exact, strict=True):
        model, found = solved(document)
        assert WorkingTable(model).priced
        assert found is not None
        assert best is not None
        assert best <= found <= 1.25 * best
