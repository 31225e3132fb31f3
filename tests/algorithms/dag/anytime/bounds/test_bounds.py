"""Test the order `stopped bound <= finished bound <= makespan`, and programs against all their solutions."""

import itertools
import math
import random

import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.anytime.bounds.block_bound import Blocks, facts_of
from remat_algorithms.dag.anytime.bounds.gap_cover_bound import gap_cover, lives_of
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.plans.search_state import ALPHAS, Search
from remat_algorithms.kit.programs.cp_sat import LARGEST_ROW, solve
from remat_algorithms.kit.programs.program import ProgramBuilder


def never() -> bool:
    return False


def drawn_program(seed: int, scale: int = 1) -> ProgramBuilder:
    draw = random.Random(seed)
    program = ProgramBuilder()
    for _ in range(7):
        cost = draw.choice([0.0, 0.25, 1.0, draw.randint(1, 30)])
        program.add_column(cost=cost, upper=draw.choice([1, 1, 1, 2]), integer=True)
    for _ in range(5):
        numbers = draw.sample(range(7), draw.randint(1, 5))
        terms = [(number, scale * draw.randint(-6, 9) + draw.randint(0, min(5, scale - 1))) for number in numbers]
        program.add_row(terms, lower=scale * draw.randint(-4, 8))
    return program


def least_cost(program: ProgramBuilder) -> float:
    """Try all solutions."""
    ends = itertools.pairwise(program.row_start)
    rows = [
        (list(zip(program.column[first:last], program.coefficient[first:last], strict=True)), least)
        for (first, last), least in zip(ends, program.row_lower, strict=True)
    ]
    costs = [
        sum(cost * value for cost, value in zip(program.cost, values, strict=True))
        for values in itertools.product(*(range(int(upper) + 1) for upper in program.upper))
        if all(sum(factor * values[number] for number, factor in terms) >= least for terms, least in rows)
    ]
    return min(costs, default=math.inf)


@pytest.mark.parametrize("seed", range(25))
def test_least_cost_of_small_programs(seed: int) -> None:
    program = drawn_program(seed)
    best = least_cost(program)
    answer = solve(program, seconds=None, stopped=never, step=0.25)
    assert answer.ended
    assert answer.bound == best
    if best < math.inf:
        assert sum(cost * value for cost, value in zip(program.cost, answer.values, strict=True)) == best
    rounded = solve(program, seconds=None, stopped=never)
    assert rounded.bound == pytest.approx(best, abs=1e-2)
    assert rounded.bound <= best


@pytest.mark.parametrize("seed", range(25))
def test_rows_too_large_for_the_solver_keep_all_solutions(seed: int) -> None:
    program = drawn_program(seed, scale=7 * LARGEST_ROW + 12345)
    best = least_cost(program)
    assert solve(program, seconds=None, stopped=never, step=0.25).bound <= best


def test_a_row_without_terms_may_be_out_of_reach() -> None:
    program = ProgramBuilder()
    program.add_column(cost=1.0, integer=True)
    program.add_row([], lower=1)
    assert solve(program, seconds=None, stopped=never).bound == math.inf


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_bounds_are_below_plans_and_grow_with_work(seed: int) -> None:
    model = stage_model(make_problem(remat.load(dict(generate("dag", "layered", nodes=40, seed=seed)))))
    search = Search(model, 0, 0)
    peak = search.measure(model.tables.first, range(model.stages)).peak
    search.budget = peak * 90 // 100
    lives = lives_of(model)
    over = [stage for stage, level in enumerate(lives.memory) if level > search.budget]
    plans = [search.construct(alpha) for alpha in ALPHAS]
    found = [plan for plan in plans if plan is not None]
    assert found
    best = min(found, key=lambda plan: plan.time)
    least = best.time - model.once_time
    gaps = gap_cover(model, search.budget)
    assert gaps is not None
    assert gap_cover(model, search.budget, most=3) is None
    cover = gaps.program
    few, all_over = (Blocks.build(facts_of(model, lives), search.budget, points, []) for points in (over[:3], over))
    seen: list[float] = []
    bounds = []
    for program, hint in (
        (cover, ()),
        (few.program, few.hint(best.item, best.stage)),
        (all_over.program, all_over.hint(best.item, best.stage)),
    ):
        short = solve(program, seconds=None, stopped=never, step=model.time_step, hint=hint, work=1e-4)
        whole = solve(program, seconds=None, stopped=never, step=model.time_step, hint=hint, raised=seen.append)
        assert short.bound <= whole.bound * (1 + 1e-9)
        assert 0 < whole.bound <= least * (1 + 1e-9)
        assert max(seen, default=0.0) <= least * (1 + 1e-9)
        bounds.append(whole.bound)
    assert bounds[1] <= bounds[2] * (1 + 1e-9)
