"""Recomputation that gains nothing is kept."""

import random

import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.pipe_plan.needless import kept, recomputed, without_needless
from remat_algorithms.parallel.pipeline.stages import placed
from tests.seeds import seeds


def drawn(seed):
    draw = random.Random(seed)
    document = generate(
        "pipeline", "uniform", devices=draw.randint(2, 4), layers=8, micro_batches=draw.randint(3, 6), activation=4
    )
    return document, f"{draw.choice([40, 55, 70, 85])}%"


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), *seeds(2, 4, start=1)])
def test_no_stage_recomputes_what_fits_in_the_same_time(seed):
    document, budget = drawn(seed)
    result = remat.solve(document, algorithm="pipe-plan", budget=budget, options={"moves": 300})
    if result.orders is None:
        return
    limit = max(result.peak_memory.values())
    problem = make_problem(remat.load(document), budget=budget)
    capacity = problem.machine.memories[0].capacity
    assert limit <= capacity
    for stage in range(len(result.orders.stages)):
        batches = recomputed(result.orders, stage)
        if batches:
            _, makespan, peaks = placed(problem, kept(result.orders, stage, batches))
            assert max(peaks) > capacity or makespan > result.makespan


def test_what_is_recomputed_for_nothing_is_kept():
    """With the memory of 1F1B, no layer needs recomputation; if only half of a stage fits, that half is kept."""
    document = generate("pipeline", "uniform", devices=2, layers=4, micro_batches=4, activation=4)
    short = remat.solve(document, algorithm="pipe-plan", budget="60%", options={"moves": 300})
    assert any(recomputed(short.orders, stage) for stage in range(len(short.orders.stages)))
    problem = make_problem(remat.load(document))
    orders, makespan = without_needless(problem, short.orders, short.makespan, lambda: False)
    assert not any(recomputed(orders, stage) for stage in range(len(orders.stages)))
    assert makespan < short.makespan
    assert without_needless(problem, short.orders, short.makespan, lambda: True)[0] is short.orders
