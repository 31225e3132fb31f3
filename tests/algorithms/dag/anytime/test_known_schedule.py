"""Test starts from known schedules: their order, their plan, and what the search makes of them."""

from collections import Counter

import numpy as np
import pytest

import remat
from remat.generate import generate
from remat.plugin import Steps
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.anytime.known_schedule import known_runs
from remat_algorithms.dag.anytime.local_search.annealer import Annealer
from remat_algorithms.dag.anytime.local_search.reordering import IMPROVED, better_start
from remat_algorithms.dag.anytime.local_search.run_sequence import COPIES
from remat_algorithms.dag.plans.model import stage_model

# b and c in any order; d reads both.
DIAMOND = [
    {"id": "a", "time": 1, "size": 2},
    {"id": "b", "time": 1, "size": 2, "reads": ["a"]},
    {"id": "c", "time": 1, "size": 2, "reads": ["a"]},
    {"id": "d", "time": 1, "size": 2, "reads": ["b", "c"]},
]


def problem_of(tasks, budget=None, **more):
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, **more}
    return make_problem(remat.load(document), budget=budget)


def steps_of(*tasks):
    return Steps.of_runs(np.array(tasks))


def test_a_schedule_in_the_order_is_a_plan():
    problem = problem_of(DIAMOND, outputs=["d"])
    model = stage_model(problem)
    known = known_runs(problem, model, steps_of(0, 1, 0, 2, 3))
    assert known.model(problem, model) is model
    plan = known.plan(model)
    assert (plan.item, plan.stage, plan.peak) == ((0, 1, 0, 2, 3), (0, 1, 2, 2, 3), 6)


def test_a_schedule_in_another_order_has_a_model_of_its_own():
    problem = problem_of(DIAMOND, outputs=["d"])
    model = stage_model(problem)
    known = known_runs(problem, model, steps_of(0, 2, 1, 3))
    assert known.plan(model) is None
    other = known.model(problem, model)
    assert other.task == [0, 2, 1, 3]
    assert known.plan(other).item == (0, 1, 2, 3)


@pytest.mark.parametrize("runs", [(0, 1, 3), (1, 0, 2, 3)])
def test_what_is_no_schedule_of_the_tasks_is_not_taken(runs):
    problem = problem_of(DIAMOND, outputs=["d"])
    assert known_runs(problem, stage_model(problem), steps_of(*runs)) is None
    assert known_runs(problem, stage_model(problem), None) is None


def test_a_needed_task_replaces_its_alternative():
    tasks = [
        {"id": "a", "time": 1, "writes": ["x"]},
        {"id": "b", "time": 1, "reads": ["x"], "writes": ["y"], "required": False},
        {"id": "slow", "time": 5, "reads": ["x"], "writes": ["y"], "required": False},
        {"id": "c", "time": 1, "reads": ["y"], "writes": ["z"]},
    ]
    problem = problem_of(tasks, values=[{"id": name, "size": 1} for name in "xyz"], outputs=["z"])
    assert not stage_model(problem).simple
    known = known_runs(problem, stage_model(problem, alternatives=False), steps_of(0, 2, 3))
    assert known.runs == [0, 1, 3]


def test_the_search_is_never_worse_than_what_is_known():
    document = dict(generate("dag", "layered", nodes=60, seed=4))
    peak = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
    found = remat.solve(
        document, algorithm="dag-auto", budget=peak * 6 // 10, options={"iterations": 1, "reorder": True}
    )
    problem = make_problem(remat.load(document), budget=peak * 6 // 10)
    model = stage_model(problem)
    known = known_runs(problem, model, found.columns)
    assert known.order != model.task
    alone = better_start(problem, model, Context(), 1.0, 1)
    assert alone.plan.time * alone.model.time_unit > found.makespan
    start = better_start(problem, model, Context(), 1.0, 1, known)
    assert start.scope == IMPROVED
    assert start.plan.time * start.model.time_unit <= found.makespan


def test_annealing_refuses_what_its_arrays_do_not_hold():
    model = stage_model(problem_of(DIAMOND, budget=100, outputs=["d"]))
    annealer = Annealer(model, 100, 0, compiled=False)
    items = [0, 1, *[0] * COPIES, 2, 3]
    assert max(Counter(items).values()) > COPIES
    assert not annealer.follow(items)
    assert annealer.present == [0, 1, 2, 3]
    assert annealer.follow([0, 2, 1, 3])
