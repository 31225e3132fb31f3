"""The bound on forward runs with stored tapes: no schedule beats it, and it says more than counting tapes as states."""

from __future__ import annotations

import random
from typing import Any

import pytest

import remat
from remat.plugin import ALL_SCHEDULES, Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.adjoint_best.adjoint_best import AdjointBestOptions, solve
from remat_algorithms.joint.adjoint_best.bound import lower_bound
from remat_algorithms.joint.adjoint_best.taped_runs import least_runs
from tests.oracles.taped import best_forward_steps
from tests.seeds import seeds

UNIT = {"time": "unit", "memory": "unit"}


def test_no_order_of_storing_and_restarting_takes_fewer_runs():
    """The search has a live state and a live tape in addition to the stored items."""
    met = 0
    for state, tape in ((1, 2), (1, 3), (2, 3), (3, 2)):
        for steps in range(1, 5):
            for size in range(5):
                runs = best_forward_steps(steps, size, state, tape, None)
                if runs is not None:
                    bound = least_runs(steps, size + state + tape, state, tape, 0)
                    assert bound <= runs, (state, tape, steps, size)
                    met += bound == runs > steps
    assert met


def loop(draw: random.Random) -> tuple[dict[str, Any], range]:
    """Draw a loop of up to nine steps, and budgets from less than its minimum on."""
    count, state, tape, adjoint = draw.randint(1, 9), draw.randint(1, 2), draw.randint(1, 5), draw.randint(0, 2)
    document: dict[str, Any] = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "adjoint_size": adjoint}
    if draw.random() < 0.4:
        document["steps"] = [
            {
                "forward_time": draw.randint(1, 3),
                "backward_time": draw.randint(0, 2),
                "state_size": state + draw.randint(0, 1),
                "tape_size": tape + draw.randint(0, 2),
            }
            for _ in range(count)
        ]
    else:
        document |= {"steps": count, "forward_time": draw.randint(1, 3), "backward_time": draw.randint(0, 2)}
        document |= {"state_size": state, "tape_size": tape, "tape_time": draw.randint(0, 1)}
    least = 2 * state + tape + adjoint - 2
    return document, range(least, least + 14, 3)


@pytest.mark.parametrize("seed", seeds(12, 500))
def test_the_optimum_is_never_below(seed: int) -> None:
    document, budgets = loop(random.Random(seed))
    for budget in budgets:
        best = remat.solve(document, algorithm="dag-exact", budget=budget)
        if best.makespan is not None and best.optimal_within == ALL_SCHEDULES:
            problem = make_problem(remat.load(document), budget=budget)
            assert lower_bound(problem, Context()) <= best.makespan, budget


def test_tapes_that_are_larger_than_states_count_as_several() -> None:
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": 100, "tape_size": 3}
    problem = make_problem(remat.load(document | {"storage": [{"name": "ram", "slots": 10}]}))
    # 398 exists. With tapes as small as states, 286 would be all that can be said.
    assert 350 < lower_bound(problem, Context()) <= 398
    disk = {"name": "disk", "slots": 20, "write_time": 2, "read_time": 1}
    problem = make_problem(remat.load(document | {"storage": [{"name": "ram", "slots": 5}, disk]}))
    assert 300 < lower_bound(problem, Context()) <= 420


def test_the_bound_of_equal_steps_needs_no_time() -> None:
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": 100, "tape_size": 3}
    problem = make_problem(remat.load(document | {"storage": [{"name": "ram", "slots": 10}]}))
    context = Context()
    context.interrupted = True
    found = solve(problem, AdjointBestOptions.model_validate({}), context)
    assert max(bound.value for bound in found.bounds if bound.scope == ALL_SCHEDULES) > 350
