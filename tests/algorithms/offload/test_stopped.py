"""Planners that send values away, when they are stopped: one schedule in hand, and no further work."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

import remat
from remat.plugin import Context, Problem, Termination, make_options
from remat.solving.problem_setup import make_problem
from remat_algorithms.offload.offload_greedy import greedy_plans, rankings
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order
from tests.algorithms.offload.machines import two_memories
from tests.algorithms.offload.timelines import EQUAL


def problem() -> Problem:
    return make_problem(remat.load(EQUAL), machine=two_memories(1), budget={"device": 20})


def test_rankings_are_tried_until_it_is_stopped_and_one_at_least() -> None:
    given = problem()
    choice = Choice(given, Order.of(given), routes(given.machine))
    assert len(list(greedy_plans(choice, lambda: False))) == len(rankings(choice))
    assert len(list(greedy_plans(choice, lambda: True))) == 1
    answers = chain([False, True], repeat(True))
    assert len(list(greedy_plans(choice, lambda: next(answers)))) == 2


@pytest.mark.parametrize("name", ["capuchin", "offload-greedy", "offload-dp", "pofo", "remat-offload-best"])
def test_a_stopped_planner_answers_with_what_it_has(name: str) -> None:
    entry = next(entry for entry in remat.algorithms("chain") if entry.name == name)
    proposal = entry.load()(problem(), make_options(entry, {}), Context(deadline=0.0))
    assert proposal.steps is not None
    assert proposal.termination is Termination.TIME_LIMIT
