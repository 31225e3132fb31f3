"""Bounds from prices of memory, against exhaustive search with prices and with limits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import remat
from remat.plugin.context import Context
from remat.plugin.problem import Problem
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best import capacity_prices as prices
from remat_algorithms.joint.adjoint_best import priced_loops_kernel as kernel
from remat_algorithms.joint.adjoint_best.bound import lower_bound
from remat_algorithms.joint.adjoint_best.model import Model
from remat_algorithms.joint.adjoint_best.remaining_time import RemainingTime
from remat_algorithms.joint.adjoint_best.search import Search
from tests.oracles import levels, priced

UNIT = {"time": "unit", "memory": "unit"}
PROPORTIONAL = (0.0, 0.05, 0.2, 1.0, 3.0)


def go_on() -> bool:
    return False


def drawn(seed: int) -> tuple[prices.PricedMemories, list[float], list[float], float]:
    """Draw a loop, the rate of each memory and the profile; return also the optimum of exhaustive search."""
    draw = random.Random(seed)
    count = draw.randint(0, 2)
    n = draw.randint(2, (7, 6, 5)[count])
    forward = [draw.randint(0, 9) for _ in range(n - 1)]
    size = [draw.randint(0, 5) for _ in range(n)]
    storage = []
    for _ in range(count):
        write, read, by_byte = draw.randint(0, 9), draw.randint(0, 9), draw.choice([0, 0, 1, 2])
        storage.append(([write + by_byte * each for each in size], [read + by_byte * each for each in size]))
    rate = [draw.choice(PROPORTIONAL) * draw.random() for _ in range(count + 1)]
    profile = [draw.random() * draw.choice([0, 1, 1, 4]) for _ in range(n)]
    least = priced.least_cost(forward, size, storage, [[each * factor for factor in profile] for each in rate])
    assert least is not None
    nothing = [[0] * n]
    loop = prices.PricedMemories(
        np.array([*forward, 0], float),
        np.array(size, float),
        np.array(nothing + [write for write, _ in storage], float),
        np.array(nothing + [read for _, read in storage], float),
        np.zeros((count + 1, n)),
        list(range(count + 1)),
    )
    return loop, rate, profile, least


def check_priced(seed: int) -> None:
    loop, rate, profile, least = drawn(seed)
    found = prices.PriceTable(loop).cheapest(np.array(rate), np.array(profile), go_on)
    assert found == pytest.approx(least, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_equals_exhaustive_search_with_prices(seed: int) -> None:
    check_priced(seed)


@pytest.mark.slow
def test_equals_exhaustive_search_with_prices_thoroughly() -> None:
    for seed in range(25, 2000):
        check_priced(seed)


def with_limits(seed: int) -> tuple[Problem, float | None]:
    """Draw a loop with capacities; return also the minimum of forward and transfer times, by exhaustive search."""
    draw = random.Random(seed)
    count = draw.randint(0, 2)
    n = draw.randint(2, 5)
    steps = [[draw.randint(0, 9), draw.randint(0, 5), draw.randint(0, 4)] for _ in range(n)]
    forward, state, adjoint = (list(column) for column in zip(*steps, strict=True))
    bandwidth = draw.choice([None, None, 1, 2])
    storage = [(draw.randint(1, 9), draw.randint(0, 9), draw.randint(0, 9), bandwidth) for _ in range(count)]
    working = max(state) + max(adjoint) + draw.randint(0, 4)
    keys = ("forward_time", "state_size", "adjoint_size")
    document: dict[str, Any] = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "backward_time": 0}
    document["steps"] = [dict(zip(keys, step, strict=True)) for step in steps]
    keys = ("capacity", "write_time", "read_time", "bandwidth")
    if count:
        document["storage"] = [{"name": f"l{k}"} | dict(zip(keys, each, strict=True)) for k, each in enumerate(storage)]
    where = draw.choice([None, *range(count)])
    if where is not None:
        document["initial_state"] = f"l{where}"
    least = levels.best_cost(forward[:-1], [0] * n, state, adjoint, working, storage, where)
    return make_problem(remat.load(document), budget={"working": working} if count else working), least


def check_limits(seed: int) -> None:
    problem, least = with_limits(seed)
    if least is None:
        return
    assert prices.capacity_prices(problem, go_on) <= least
    loop = prices.PricedMemories.of(problem)
    assert loop is not None
    table, draw = prices.PriceTable(loop), np.random.default_rng(seed)
    bounded = np.array([bool(np.isfinite(each).all()) for each in loop.capacity])
    for _ in range(4):
        rate = np.where(bounded, draw.choice([0, 0.1, 0.5, 1, 3, 10]) * draw.random(len(bounded)), 0)
        profile = draw.random(len(loop.size)) * draw.choice([0.2, 1, 5])
        cost = table.cheapest(rate, profile, go_on)
        assert cost is not None
        assert cost - (rate[:, None] * np.where(bounded[:, None], loop.capacity, 0) * profile).sum() <= least + 1e-9


@pytest.mark.parametrize("seed", range(16))
def test_never_above_exhaustive_search(seed: int) -> None:
    check_limits(seed)


@pytest.mark.slow
def test_never_above_exhaustive_search_thoroughly() -> None:
    for seed in range(16, 800):
        check_limits(seed)


def test_backwards_beyond_the_integers_of_floats() -> None:
    """The sum of a float and 2**56 + 8 is rounded to a multiple of 16."""
    steps = [{"forward_time": 1 + t % 3, "backward_time": 2**54 + 4, "state_size": 1} for t in range(6)]
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps}
    problem = make_problem(remat.load(document)).with_capacities({"memory": 4})
    model = Model.of(problem)
    assert model is not None
    found = Search(model, model.start).run(limit=10_000)
    assert found is not None
    assert 6 * (2**54 + 4) < prices.capacity_prices(problem, go_on) <= found[0]


def with_a_level_that_is_only_read(seed: int) -> Problem:
    """Draw a loop whose first state is in a level that is only read."""
    draw = random.Random(seed)
    keys = ("forward_time", "backward_time", "state_size")
    steps = [
        dict(zip(keys, (draw.randint(1, 9), 1, draw.randint(1, 3)), strict=True)) for _ in range(draw.randint(3, 5))
    ]
    ends = [("given", "ram"), ("level", "ram"), ("ram", "level")]
    machine = {
        "memories": [
            {"name": "ram", "capacity": draw.randint(4, 9)},
            {"name": "given"},
            {"name": "level", "capacity": draw.randint(0, 4)},
        ],
        "processors": [{"name": "p", "memory": "ram"}],
        "links": [
            {"source": source, "target": target, "latency": draw.randint(1, 4), "channel": "p"}
            for source, target in ends
        ],
    }
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps}
    more = {"storage": [{"name": "given"}, {"name": "level"}], "initial_state": "given"}
    return make_problem(remat.load(document | more), machine=machine)


@pytest.mark.parametrize("seed", [12, 44, 48, 111])
def test_a_level_that_is_only_read(seed: int) -> None:
    problem = with_a_level_that_is_only_read(seed)
    model = Model.of(problem)
    assert model is not None
    least = Search(model, model.start).run(limit=100_000)
    assert least is not None
    assert prices.capacity_prices(problem, go_on) <= least[0]
    remaining = RemainingTime.of(problem, model, Context())
    assert remaining is not None
    found = Search(model, model.start, remaining=remaining).run(limit=100_000)
    assert found is not None
    assert found[0] == least[0]


def long_loop(n: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    steps = [
        {"forward_time": draw.randint(1, 10), "backward_time": draw.randint(1, 10), "state_size": draw.randint(1, 4)}
        for _ in range(n)
    ]
    storage = [
        {"name": "near", "capacity": n // 2, "write_time": 3, "read_time": 4},
        {"name": "far", "write_time": 7, "read_time": 9},
    ]
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps, "storage": storage}


def test_far_above_the_bound_without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots of the smallest state bind only when few bytes are left; prices bind everywhere."""
    problem = make_problem(remat.load(long_loop(40, 3)))
    bound = lower_bound(problem, Context())
    assert bound == prices.capacity_prices(problem, go_on)
    monkeypatch.setattr("remat_algorithms.joint.adjoint_best.bound.capacity_prices", lambda *_: 0)
    assert bound > 1.1 * lower_bound(problem, Context())


def test_compiled_and_plain_kernels_agree() -> None:
    problem = make_problem(remat.load(long_loop(9, 5)))
    loop = prices.PricedMemories.of(problem)
    assert loop is not None
    table, rate, profile = prices.PriceTable(loop), np.array([0.6, 0.05, 0.0]), np.linspace(0.5, 1, 9)
    cost = table.cheapest(rate, profile, go_on)
    live, used = table.record.live.copy(), table.used.copy()
    table.record.live[:] = np.inf
    for j in range(8, -1, -1):
        kernel.FILL.plain(table.record, j)
    kernel.TRACE.plain(table.record)
    assert cost == table.record.live[0, 8, 0]
    assert (live == table.record.live).all()
    assert (used == table.used).all()
    assert table.cheapest(rate, profile, lambda: True) is None
