"""Test linear programs: bounds proved by duals hold for every feasible point; infeasibility needs a proof."""

import itertools
import math
import random

import numpy as np
import pytest

import remat
from remat_algorithms.kit.programs import duals
from remat_algorithms.kit.programs.duals import dual_bound, solve_linear
from remat_algorithms.kit.programs.program import INFINITY, Program, ProgramBuilder
from remat_algorithms.parallel.placement import block_bound, bounds, fractional_loads


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
    monkeypatch.setattr(duals, "_glop", lambda one, _: (False, None, None) if one is program else before(one))
    assert solve_linear(program).bound == (-math.inf if before(program)[0] else math.inf)


def large(count: int) -> Program:
    """Return a dense transport problem that takes GLOP far longer than a millisecond."""
    draw, program = random.Random(1), ProgramBuilder()
    column = [[program.add_column(cost=draw.random(), upper=count) for _ in range(count)] for _ in range(count)]
    for k in range(count):
        program.add_row([(own[k], 1.0) for own in column], lower=1.0 + draw.random())
        program.add_row([(entry, 1.0) for entry in column[k]], upper=2.0 + draw.random())
    return program.build()


def test_a_program_that_the_time_stops_proves_nothing() -> None:
    program = large(60)
    whole = solve_linear(program)
    assert whole.solution is not None
    assert whole.bound > 0
    for seconds in (0.0, 1e-4):
        assert solve_linear(program, seconds) == duals.Solved(None, -math.inf)
    assert solve_linear(program, 1000.0).bound == whole.bound


@pytest.mark.parametrize("algorithm", ["placement-bound", "placement-replicated"])
def test_linear_programs_end_with_the_time_limit(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """Every program gets the seconds that are left, and none without a time limit."""
    left: list[float | None] = []

    def noted(program: Program, seconds: float | None = None) -> duals.Solved:
        left.append(seconds)
        return solve_linear(program, seconds)

    for module in (bounds, block_bound, fractional_loads):
        monkeypatch.setattr(module, "solve_linear", noted)
    layer = {"forward_time": 3, "output_size": 2, "parameter_size": 5, "repeat": 4}
    cluster = {"devices": [{"name": "gpu", "count": 3}], "levels": [{"bandwidth": 1}]}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": [layer], "cluster": cluster}
    document |= {"micro_batches": 3, "weights": "fixed"}
    remat.solve(document, algorithm=algorithm, time_limit=1000)
    assert left
    assert all(seconds is not None and 0 < seconds <= 1000 for seconds in left)
    left.clear()
    remat.solve(document, algorithm=algorithm)
    assert set(left) == {None}
