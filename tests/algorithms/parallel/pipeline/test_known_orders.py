"""Pipeline searches start from known orders: the best ones so far, and those of other budgets."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.plugin import Context, Orders, Problem
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.pipe_plan import pipe_plan
from remat_algorithms.joint.pipe_plan.encoding import Outline
from remat_algorithms.joint.pipe_plan.pipe_plan import PlanOptions
from remat_algorithms.joint.pipe_plan.recompute_options import StageCosts
from remat_algorithms.parallel.pipeline import order_search
from remat_algorithms.parallel.pipeline.order_search import ExactOptions, SearchOptions
from remat_algorithms.parallel.pipeline.stages import placed, staging


def pipeline(seed: int, share: float) -> dict[str, Any]:
    """Return a pipeline of unequal layers whose devices have a share of what GPipe takes."""
    draw = random.Random(seed)
    document = generate("pipeline", "uniform", devices=4, micro_batches=6, layers=8)
    document["layers"] = [
        {"forward_time": draw.randint(5, 20), "backward_time": draw.randint(10, 40), "output_size": 3}
        | {"saved_size": draw.randint(20, 60), "parameter_size": 5}
        for _ in range(8)
    ]
    document["cluster"]["devices"][0]["memory"] = int(60 + share * 6 * 2 * 46)
    return document


def orders_of(document: dict[str, Any], algorithm: str) -> Orders:
    orders = remat.solve(document, algorithm=algorithm).orders
    assert orders is not None
    return orders


def told(problem: Problem, orders: Orders) -> Context:
    """Return a context that knows orders which fit."""
    found = placed(problem, orders)
    assert found is not None
    context = Context()
    context.report(found[0], orders=orders, makespan=found[1])
    return context


def figure(found: remat.Result | Any) -> float:
    return math.inf if found.makespan is None else float(found.makespan)


SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_without_a_search_is_no_slower_than_the_known_one(seed: int) -> None:
    document = pipeline(seed, 0.6)
    problem, known = make_problem(remat.load(document)), orders_of(document, "pipe-plan")
    options = PlanOptions(moves=0, zoo=False)
    alone, warm = (pipe_plan.solve(problem, options, one) for one in (Context(), told(problem, known)))
    found = placed(problem, known)
    assert found is not None
    assert figure(warm) <= found[1] < figure(alone)


@pytest.mark.parametrize("seed", SEEDS)
def test_known_orders_only_add_to_the_search(seed: int) -> None:
    """All searches without known orders run with them, too."""
    problem, options = make_problem(remat.load(pipeline(seed, 0.6))), PlanOptions(moves=400)
    known = orders_of(pipeline(seed, 0.4), "pipe-plan")
    alone, warm = (pipe_plan.solve(problem, options, one) for one in (Context(), told(problem, known)))
    assert figure(warm) <= figure(alone)


def test_orders_that_need_more_memory_are_fitted() -> None:
    options, gained = PlanOptions(moves=0, zoo=False, placement="v"), 0.0
    for seed in SEEDS:
        problem = make_problem(remat.load(pipeline(seed, 0.6)))
        context = Context()
        context.neighbours = (orders_of(pipeline(seed, 0.75), "pipe-plan"),)
        alone, warm = (pipe_plan.solve(problem, options, one) for one in (Context(), context))
        assert figure(warm) <= figure(alone)
        gained += figure(alone) - figure(warm)
    assert gained > 0


@pytest.mark.parametrize("algorithm", ["pipe-search", "pipe-exact"])
def test_a_search_of_one_move_is_no_slower_than_the_known_orders(algorithm: str) -> None:
    document = pipeline(1, 0.5)
    problem, known = make_problem(remat.load(document)), orders_of(document, "pipe-search")
    if algorithm == "pipe-exact":
        result = remat.solve(document, algorithm="pipe-search", options={"placement": "chain"})
        assert result.orders is not None
        known = result.orders
    best = placed(problem, known)
    assert best is not None

    def solved(context: Context) -> Any:
        if algorithm == "pipe-search":
            return order_search.solve_search(problem, SearchOptions(moves=1), context)
        return order_search.solve_exact(problem, ExactOptions(moves=1, work=1e-6), context)

    assert figure(solved(told(problem, known))) <= best[1] < figure(solved(Context()))


def test_orders_as_lists_and_levels() -> None:
    """What orders recompute is a level of each stage and micro-batch, and their lists build the same orders."""
    document = pipeline(2, 0.4)
    problem, known = make_problem(remat.load(document)), orders_of(document, "pipe-plan")
    assert any(stage.recompute for stage in known.stages)
    instance: Any = problem.instance
    costs = StageCosts(instance, instance.each_layer(), instance.device_types, "any")
    outline = Outline.of(problem, costs, known.stages, "known")
    level = outline.levels_of(known)
    assert level is not None
    again = outline.orders(outline.lists(known), level, 0 * level)
    ours, theirs = placed(problem, again), placed(problem, known)
    assert ours is not None
    assert theirs is not None
    assert sorted(again.stages[0].recompute) == sorted(known.stages[0].recompute)
    assert ours[2] == theirs[2] or known.ahead


def test_orders_of_other_stages_are_no_start() -> None:
    document = pipeline(1, 1.0)
    problem = make_problem(remat.load(document))
    chain, v = (staging(problem, shape) for shape in ("chain", "v"))
    orders = chain.orders(chain.starts[0])
    assert chain.lists(orders) == chain.starts[0]
    assert v.lists(orders) is None
    assert v.with_starts([orders]) is v
    assert chain.with_starts([orders]).starts == (chain.starts[0], *chain.starts)
