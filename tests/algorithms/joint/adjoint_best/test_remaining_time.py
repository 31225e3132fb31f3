"""Bounds on the time that is left, against the search without them, and loops that only the search with them solves."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best.model import Model
from remat_algorithms.joint.adjoint_best.remaining_time import RemainingTime
from remat_algorithms.joint.adjoint_best.search import Search
from tests.algorithms.joint.adjoint_best.test_capacity_prices import with_limits


def check(seed: int) -> None:
    """Compare in situations on random walks."""
    problem, least = with_limits(seed)
    model = Model.of(problem)
    if least is None or model is None:
        return
    remaining = RemainingTime.of(problem, model, Context())
    draw = random.Random(seed)
    if remaining is None:  # no capacity is limited
        return
    for _ in range(5):
        situation = model.start
        for _ in range(draw.randint(0, 8)):
            moves = list(Search(model, situation).moves(situation)) if situation.back >= 0 else []
            situation = draw.choice(moves)[2] if moves else situation
        found = Search(model, situation).run(limit=100_000)
        if found is not None:
            assert remaining(situation) <= found[0]


@pytest.mark.parametrize("seed", range(12))
def test_never_above_the_shortest_path(seed: int) -> None:
    check(seed)


@pytest.mark.slow
def test_never_above_the_shortest_path_thoroughly() -> None:
    for seed in range(12, 600):
        check(seed)


def three_levels(seed: int) -> dict[str, Any]:
    """Draw 8 steps on three levels, as `benchmarks.adjoint_gap` does."""
    draw = random.Random(seed)
    keys = ("forward_time", "backward_time", "state_size")
    steps = [
        dict(zip(keys, (draw.randint(1, 10), draw.randint(1, 10), draw.randint(1, 4)), strict=True)) for _ in range(8)
    ]
    times = sorted(((draw.randint(1, 10), draw.randint(1, 10)) for _ in range(3)), key=sum)
    total = sum(step["state_size"] for step in steps)
    capacities = [round(total * draw.uniform(0.1, 0.3)), round(total * draw.uniform(0.2, 0.6)), None]
    storage = [
        {"name": f"level{k}", "write_time": write, "read_time": read, "capacity": capacities[k]}
        for k, (write, read) in enumerate(times)
    ]
    units = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": units, "steps": steps, "storage": storage}


@pytest.mark.parametrize("seed", [2, 4])
def test_eight_steps_on_three_levels_are_solved(seed: int) -> None:
    """The search without the bound takes more than 300,000 moves."""
    problem = make_problem(remat.load(three_levels(seed)))
    model = Model.of(problem)
    assert model is not None
    remaining = RemainingTime.of(problem, model, Context())
    found = Search(model, model.start, remaining=remaining).run(limit=10_000)
    assert found is not None
    plain = Search(model, model.start)
    assert plain.run(limit=40_000, below=found[0]) is None
    assert not plain.ended


def test_adjoint_best_proves_eight_steps_on_three_levels() -> None:
    result = remat.solve(three_levels(2), algorithm="adjoint-best", options={"work": 0, "iterations": 0})
    assert result.makespan == 108
    assert result.optimal_within
