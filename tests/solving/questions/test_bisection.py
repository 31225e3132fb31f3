"""The search for the minimum budget with `auto`, whose solves a time limit stops."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

import remat
from remat.plugin.proposal import Proposal, Termination
from remat.solving import auto
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import Control, make_problem
from remat.solving.questions.bisection import LONGER, Limit, search_least
from remat.solving.questions.pool import Answered, with_budget
from remat.solving.questions.portfolio_curve import PROGRESS, PortfolioCurve
from remat.solving.questions.prober import Effort, Prober

CHAIN = {
    "schema": "remat.instance/1",
    "units": {"time": "unit", "memory": "unit"},
    "kind": "chain",
    "input_size": 3,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 12}],
}


class Clock:
    """A clock that only `Slow` moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Slow(Prober):
    """A prober without a schedule below its first one: each solve of a smaller budget is stopped after .1 s."""

    clock: Clock = field(default_factory=Clock)
    asked: list[tuple[int | None, bool, float]] = field(default_factory=list)

    def at(self, budget, left=1, *, member=None, enough=None):
        allowed = self.effort.allowed(left)
        assert member is not None
        assert allowed is not None
        self.asked.append((budget, member is auto.QUICK, allowed))
        self.clock.now += 0.1
        problem = with_budget(self.problem, self.memory, budget)
        proposal = Proposal(termination=Termination.TIME_LIMIT)
        result = conclude(problem, member, proposal, {}, seed=0, solve_seconds=0.1)
        answer = Answered(
            memory=0, asked=budget, solver=member, problem=problem, proposal=proposal, result=result, allowed=allowed
        )
        self.pool.note(answer)
        return answer


@pytest.fixture
def slow(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    problem = with_budget(make_problem(remat.load(CHAIN)), 0, None)
    known = Prober(problem, 0, Effort.of("auto", {}, Control(30))).at(None, member=auto.QUICK)
    return Slow(problem, 0, Effort.of("auto", {}, Control(30)), clock=clock), known


@pytest.mark.parametrize("again", [False, True])
def test_a_budget_is_asked_again_only_with_a_multiple_of_the_time(slow, again):
    prober, known = slow
    search = search_least(prober, Limit(), top=known, resolution=0.005, again=again)
    assert search.best is not None
    assert search.best.peak == known.peak
    by_budget = {}
    for budget, quick, allowed in prober.asked:
        by_budget.setdefault((budget, quick), []).append(allowed)
    assert len(by_budget) > 3
    assert any(len(times) > 1 for times in by_budget.values())
    assert all(after >= LONGER * before for times in by_budget.values() for before, after in pairwise(times))
    assert not prober.effort.stopped


@pytest.mark.parametrize(("member", "searches"), [(auto.QUICK, 0), (auto.ALONE, 1)])
def test_the_search_of_a_curve_goes_on_where_all_members_find_less_than_the_quick_ones(
    slow, monkeypatch, member, searches
):
    prober, known = slow
    prober.pool.note(known)
    problem = with_budget(prober.problem, 0, None)
    found = Prober(problem, 0, Effort.of("auto", {}, Control(30))).at(known.peak // 2, member=member)
    assert found.solved
    assert found.peak < PROGRESS * known.peak
    prober.pool.note(found)
    curve = PortfolioCurve(prober, None, None, lambda answer: None)
    asked = []
    monkeypatch.setattr(curve, "_find_minimum", lambda: asked.append(prober.pool.smallest.peak))
    monkeypatch.setattr(PortfolioCurve, "_has_time_for_minimum", lambda self: True)
    curve._find_smaller()
    assert len(asked) == searches
