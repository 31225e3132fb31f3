"""What a portfolio would also run within a time limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import remat
from remat.plugin import selection
from remat.plugin.selection import Candidate
from remat.solving import portfolio_untried
from remat.solving.portfolio_untried import untried
from remat.solving.problem_setup import make_problem

STEP = remat.pipeline(forward_time=[1, 1], backward_time=2, output_size=1, devices=2, micro_batches=2, memory=9)


def test_only_algorithms_that_have_not_run_are_left() -> None:
    problem = make_problem(STEP)
    every = selection.candidates(problem).every
    assert untried(problem, {one.key for one in every}, []).others == ()
    left = untried(problem, {one.key for one in every[1:]}, [])
    assert left.others == (every[0].algorithm.name,)
    assert left.longer == ()


def test_a_search_is_left_until_its_work_is_the_largest() -> None:
    problem = make_problem(STEP)
    asked = {one.key for one in selection.candidates(problem).every}
    planner = next(one for one in selection.candidates(problem).every if one.algorithm.name == "pipe-plan")

    def left(candidate: Candidate) -> tuple[str, ...]:
        return untried(problem, asked, [SimpleNamespace(candidate=candidate)]).longer  # type: ignore[list-item]

    assert left(planner) == ("pipe-plan",)
    assert left(planner.with_work(10**9)) == ()


def test_algorithms_for_other_instances_are_left_only_where_they_would_run(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(STEP)
    asked = {one.key for one in selection.candidates(problem).asked}
    assert untried(problem, asked, []).others
    monkeypatch.setattr(portfolio_untried, "MOST_ASKED_OTHERS", 1)
    assert untried(problem, asked, []).others == ()
