"""Programs in parts of a share keep every solution; solutions become runs."""

import itertools
import random

import pytest

import remat
from remat.placement import Unplaceable, place
from remat.plugin import run_in_order
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.moments.plan_from_moment import runs_of
from remat_algorithms.dag.moments.program_solution import SHARES, in_shares
from remat_algorithms.kit.programs.program import ProgramBuilder
from tests.algorithms.dag.moments.drawn import chain, graph, setting_of, training

LONG = 10**13


def drawn_program(draw):
    """Return a program of whole columns, shares and times, and a point that fulfils it."""
    program, point = ProgramBuilder(), []
    for _ in range(2):
        program.add_column(cost=draw.randint(0, 9), integer=True)
        point.append(draw.randint(0, 1))
    for _ in range(4):
        program.add_column(upper=1)
        point.append(draw.choice([0, 1, draw.random(), draw.randint(0, SHARES) / SHARES]))
    for _ in range(2):
        program.add_column(cost=draw.randint(0, 1), upper=LONG)
        point.append(draw.choice([0, draw.randint(0, LONG), draw.random()]))
    for number in range(8):
        columns = draw.sample(range(8), draw.randint(1, 5))
        small = number % 2 == 0
        factors = [draw.choice([-1, 1, 1]) if small else draw.choice([-1, 1]) * draw.randint(0, LONG) for _ in columns]
        reached = sum(factor * point[column] for column, factor in zip(columns, factors, strict=True))
        program.add_row(zip(columns, factors, strict=True), lower=int(reached // 1) - draw.choice([0, 0, 3]))
    return program, point


@pytest.mark.parametrize("seed", range(60))
def test_every_solution_remains_one(seed):
    program, point = drawn_program(random.Random(seed))
    scaled, lost = in_shares(program)
    tick = max(1, -(-LONG // int(scaled.upper[-1])))
    rounded = [
        value if program.integer[column] else -(-value * SHARES // 1) if program.upper[column] == 1 else None
        for column, value in enumerate(point)
    ]
    # Times in ticks: the least number of them that is no less.
    for column, value in enumerate(point):
        if rounded[column] is None:
            rounded[column] = -(-value // tick_of(program, scaled, column))
    for (first, last), least in zip(itertools.pairwise(scaled.row_start), scaled.row_lower, strict=True):
        total = sum(scaled.coefficient[e] * int(rounded[scaled.column[e]]) for e in range(first, last))
        assert total >= least
    before = sum(cost * value for cost, value in zip(program.cost, point, strict=True))
    after = sum(cost * int(value) for cost, value in zip(scaled.cost, rounded, strict=True))
    assert after - lost <= before + 1e-3
    assert tick >= 1


def tick_of(program, scaled, column):
    """Return the length of a tick, from what a time costs, or from its longest."""
    if program.cost[column]:
        return scaled.cost[column] // program.cost[column]
    ticks = [c2 // c1 for c1, c2 in zip(program.cost[6:], scaled.cost[6:], strict=True) if c1]
    return ticks[0] if ticks else max(1, LONG >> 30)


def test_whole_programs_stay_as_they_are():
    program = ProgramBuilder()
    program.add_column(cost=1, integer=True)
    assert in_shares(program) == (program, 0)


@pytest.mark.parametrize("seed", range(40))
def test_solutions_become_runs_that_can_be_placed(seed):
    draw = random.Random(seed)
    kinds = [training(draw, 5), graph(draw, 8), graph(draw, 8, alternatives=True), chain(draw, 4)]
    document = kinds[seed % 4]
    problem = make_problem(remat.load(document))
    sizes = problem.graph.size.tolist()
    setting = setting_of(document, draw.randint(max(sizes), sum(sizes)), listed=True)
    for moment in setting.facts.order[:: 1 + seed % 3]:
        answer = setting.ask([moment], stopped=lambda: False)
        for found in (answer.whole, answer.relaxed):
            if not found:
                continue
            runs = runs_of(setting.facts, moment, found[0])
            assert [task for task in dict.fromkeys(runs) if task in setting.facts.order] == setting.facts.order
            steps = run_in_order(problem.graph, problem.machine, runs)
            assert not isinstance(place(problem.graph, problem.machine, steps), Unplaceable)


def test_the_runs_at_the_fullest_moment_are_nearly_the_best():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [
            *({"id": f"f{i}", "time": 3, "size": 4, "reads": [f"f{i - 1}"] if i else []} for i in range(30)),
            *(
                {"id": f"b{i}", "time": 5, "size": 1, "reads": [f"f{i}", *([f"b{i + 1}"] if i < 29 else [])]}
                for i in reversed(range(30))
            ),
        ],
        "outputs": ["b0"],
    }
    setting = setting_of(document, 100, listed=True)
    (moment,) = setting.fullest()
    answer = setting.ask([moment], stopped=lambda: False)
    runs = runs_of(setting.facts, moment, answer.whole[0])
    problem = setting.problem
    placed = place(problem.graph, problem.machine, run_in_order(problem.graph, problem.machine, runs))
    assert not isinstance(placed, Unplaceable)
    assert setting.makespan(answer.bound) == sum(problem.graph.time[task].item() for task in runs)
