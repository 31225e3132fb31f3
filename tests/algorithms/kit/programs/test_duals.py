"""Test linear programs: bounds proved by duals hold for every feasible point; infeasibility needs a proof."""

import itertools
import math
import random

import numpy as np
import pytest

from remat_algorithms.kit.programs import duals
from remat_algorithms.kit.programs.duals import dual_bound, solve_linear
from remat_algorithms.kit.programs.program import INFINITY, Program, ProgramBuilder


def drawn(seed: int) -> Program:
    draw, program = random.Random(seed), ProgramBuilder()
    for _ in range(4):
        lower = draw.choice([0, 0, 1])
        program.add_column(cost=draw.randint(-5, 20) / 10, lower=lower, upper=lower + draw.choice([1, 2]))
    for _ in range(4):
        terms = [(column, draw.randint(-6, 9) / 10) for column in draw.sample(range(4), draw.randint(1, 4))]
        side = draw.randint(-8, 12) / 10
        least, most = draw.choice([(side, INFINITY), (-INFINITY, side), (side, side + 0.8)])
        program.add_row(terms, lower=least, upper=most)
    return program.build()


def points(program: Program) -> list[float]:
    """Return the costs of the feasible points of a grid."""
    grid = [np.linspace(lower, upper, 5) for lower, upper in zip(program.lower, program.upper, strict=True)]
    found = []
    for values in itertools.product(*grid):
        activity = program.activity(np.array(values))
        if (activity >= program.row_lower).all() and (activity <= program.row_upper).all():
            found.append(float(program.cost @ np.array(values)))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_nothing_feasible_costs_less(seed: int) -> None:
    program, draw = drawn(seed), random.Random(seed)
    least, found = min(points(program), default=math.inf), solve_linear(program)
    assert found.bound <= least + 1e-12
    if found.solution is not None:
        assert found.bound == pytest.approx(float(program.cost @ found.solution), abs=1e-9)
    for _ in range(20):
        assert dual_bound(program, np.array([draw.uniform(-3, 3) for _ in range(4)])) <= least + 1e-12


def test_many_have_points_and_some_are_proved_to_have_none() -> None:
    found = [solve_linear(drawn(seed)) for seed in range(60)]
    assert all((one.solution is None) == (one.bound == math.inf) for one in found)
    assert 5 < sum(one.bound == math.inf for one in found) < 50


@pytest.mark.parametrize("seed", range(30))
def test_a_solver_that_errs_excludes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver's wrong claim of infeasibility is rejected, because its proof is missing."""
    program = drawn(seed)
    before = duals._glop
    monkeypatch.setattr(duals, "_glop", lambda one: (False, None, None) if one is program else before(one))
    assert solve_linear(program).bound == (-math.inf if before(program)[0] else math.inf)
