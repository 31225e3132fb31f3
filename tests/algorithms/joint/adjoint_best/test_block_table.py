"""The table over blocks of steps: against the recurrence by hand, its own schedules, and compiled against plain."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest

import remat
from remat.placement import Placement, place
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best import block_table
from remat_algorithms.joint.adjoint_best.block_table import BlockTable, first_states
from remat_algorithms.joint.adjoint_best.block_table_kernel import fill_block, fill_to
from remat_algorithms.joint.adjoint_best.model import Model, cost, steps_of


def drawn(steps: int, seed: int, share: float, largest: int = 9) -> tuple[remat.Problem, Model]:
    draw = random.Random(f"blocks {seed}")
    loop = [
        {"forward_time": draw.randint(1, 9), "backward_time": 1, "state_size": draw.randint(1, largest)}
        for _ in range(steps)
    ]
    instance = remat.load({"schema": "remat.instance/1", "kind": "adjoint", "steps": loop})
    problem = make_problem(instance, budget=2 * largest + int(share * sum(step["state_size"] for step in loop)))
    model = Model.of(problem)
    assert model is not None
    return problem, model


def optimum(model: Model) -> float:
    """Return R(0, n - 1, M) by the recurrence, over bytes."""

    @cache
    def reverse(i: int, k: int, free: int) -> float:
        above = model.adjoint[k + 1] if k + 1 < model.steps else 0
        if i == k:
            return 0 if free >= above + model.extra[k] else math.inf
        best, peak, moved = math.inf, 0, 0
        for j in range(i + 1, k + 1):
            peak, moved = max(peak, model.state[j]), moved + model.forward[j - 1]
            if free < peak + above:
                break
            best = min(best, moved + reverse(j, k, free - model.state[j]) + reverse(i, j - 1, free))
        return best

    return reverse(0, model.steps - 1, model.capacity[0] - model.state[0])


@pytest.mark.parametrize("seed", range(4))
def test_one_step_a_block_is_the_recurrence(seed: int) -> None:
    problem, model = drawn(14, seed, 0.2)
    table = BlockTable(model)
    assert table.possible
    assert table.whole
    assert table.fill(lambda: False)
    operations = table.operations()
    expected = optimum(model)
    assert (operations is None) == math.isinf(expected)
    assert operations is not None
    assert cost(model, operations) == expected + sum(model.backward)
    assert isinstance(place(problem.graph, problem.machine, steps_of(problem, operations)), Placement)


@pytest.mark.parametrize("blocks", [3, 7, 20])
def test_blocks_of_several_steps(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Schedules of few blocks are valid, take the table's time, and are no better than those of single steps."""
    _, model = drawn(40, 5, 0.1)
    best = BlockTable(model)
    monkeypatch.setattr(block_table, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(block_table, "LEAST_BLOCKS", 1)
    coarse = BlockTable(model)
    assert coarse.blocks <= blocks
    assert not coarse.whole
    makespans = []
    for table in (best, coarse):
        assert table.fill(lambda: False)
        operations = table.operations()
        assert operations is not None
        makespans.append(cost(model, operations))
        width = table.count - int(table.record.state[0])
        assert makespans[-1] == table.record.coarse[0, table.blocks - 1, width] + sum(model.backward)
    assert makespans[0] <= makespans[1]


def test_compiled_equals_plain() -> None:
    _, model = drawn(12, 3, 0.2)
    compiled, plain = BlockTable(model), BlockTable(model)
    assert compiled.fill(lambda: False)
    for t in range(plain.blocks):
        fill_block(plain.record, t)
    for u in range(plain.blocks):
        fill_to(plain.record, u)
    assert np.array_equal(compiled.record.coarse, plain.record.coarse)
    assert not compiled.fill(lambda: True)


def test_blocks_begin_with_small_states() -> None:
    assert first_states([5, 9, 2, 9, 9, 1, 9], 3).tolist() == [0, 2, 5]
    assert first_states([5, 9, 2], 1).tolist() == [0]
    assert first_states([5] * 6, 6).tolist() == [0, 1, 2, 3, 4, 5]


def test_long_loops_of_unequal_steps() -> None:
    """1,200 steps, whose table over single steps would leave 12 units of memory, for 300 bytes."""
    problem, model = drawn(1200, 7, 0.05)
    table = BlockTable(model)
    assert table.fill(lambda: False)
    operations = table.operations()
    assert operations is not None
    largest_states = remat.solve(problem.instance, algorithm="walther-griewank", budget=model.capacity[0])
    assert largest_states.makespan is not None
    assert cost(model, operations) < 0.95 * largest_states.makespan
