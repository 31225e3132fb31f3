"""Relaxations: below every solution, for any prices."""

import itertools
import math
import random
from fractions import Fraction

import pytest

from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.kit.programs.relaxation import proved, relaxed


def drawn(seed: int, scale: int = 1) -> ProgramBuilder:
    draw, program = random.Random(seed), ProgramBuilder()
    for _ in range(6):
        program.add_column(cost=scale * draw.randint(0, 30), upper=draw.choice([1, 1, 2]), integer=True)
    for _ in range(5):
        columns = draw.sample(range(6), draw.randint(1, 5))
        terms = [(column, scale * draw.randint(-6, 9) + draw.randint(0, scale - 1)) for column in columns]
        program.add_row(terms, lower=scale * draw.randint(-4, 8))
    return program


def least(program: ProgramBuilder) -> float:
    """Try all whole solutions."""
    rows = list(zip(itertools.pairwise(program.row_start), program.row_lower, strict=True))
    found = math.inf
    for values in itertools.product(*(range(int(upper) + 1) for upper in program.upper)):
        entries = [program.coefficient[e] * values[program.column[e]] for e in range(program.entries)]
        if all(sum(entries[first:last]) >= lower for (first, last), lower in rows):
            found = min(found, sum(cost * value for cost, value in zip(program.cost, values, strict=True)))
    return found


@pytest.mark.parametrize("scale", [1, 2**40 + 7])
@pytest.mark.parametrize("seed", range(30))
def test_bounds_are_below_the_best_solution(seed: int, scale: int) -> None:
    program = drawn(seed, scale)
    best, found = least(program), relaxed(program, stopped=lambda: False)
    assert found.bound <= best
    if found.infeasible:
        assert best == math.inf
    elif found.values:
        value = sum(cost * each for cost, each in zip(program.cost, found.values, strict=True))
        assert found.bound == pytest.approx(value, rel=1e-6, abs=scale)


def test_many_are_met_and_some_are_infeasible() -> None:
    programs = [drawn(seed) for seed in range(60)]
    found = [relaxed(program, stopped=lambda: False) for program in programs]
    assert sum(each.infeasible for each in found) > 5
    assert sum(each.bound == least(program) for each, program in zip(found, programs, strict=True)) > 2


@pytest.mark.parametrize("seed", range(20))
def test_any_prices_prove_something_true(seed: int) -> None:
    program, draw = drawn(seed), random.Random(seed)
    best = least(program)
    for _ in range(20):
        prices = [draw.choice([0.0, draw.random() * 10, -draw.random(), math.inf, math.nan, 1e-300]) for _ in range(5)]
        assert proved(program, prices) <= best
        if proved(program, prices, costs=False) > 0:
            assert best == math.inf


def test_what_is_proved_is_exact() -> None:
    program = ProgramBuilder()
    columns = [program.add_column(cost=3**34, upper=1) for _ in range(2)]
    program.add_row([(column, 10**17) for column in columns], lower=10**17 + 1)
    assert proved(program, []) == 0
    assert proved(program, [0.125]) == Fraction(10**17 + 1, 8)
    assert relaxed(program, stopped=lambda: False).bound >= 3**34


def test_nothing_is_said_where_there_was_no_time() -> None:
    found = relaxed(drawn(0), stopped=lambda: False, work=0.0)
    assert found.bound >= 0
    assert relaxed(ProgramBuilder(), stopped=lambda: False).bound == 0
