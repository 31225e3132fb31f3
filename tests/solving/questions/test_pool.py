"""Questions of `auto`: one pool of schedules answers every budget, with any limit."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import ANY

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin import registry
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Proposal, Status, Termination
from remat.solving import auto
from remat.solving.problem_setup import Control, make_problem
from remat.solving.questions import prober as module
from remat.solving.questions.pool import Answered, Pool, with_budget
from remat.solving.questions.portfolio_curve import PortfolioCurve, coarse_to_fine
from remat.solving.questions.prober import Effort, Prober
from remat.testing import strategies

UNITS = {"schema": "remat.instance/1", "units": {"time": "unit", "memory": "unit"}}
CHAIN = UNITS | {
    "kind": "chain",
    "input_size": 3,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 6}],
}
# In the listed order 21 bytes are needed, in another one 12.
TWO_ORDERS = UNITS | {
    "kind": "dag",
    "tasks": [
        {"id": "a1", "time": 1, "size": 10, "recomputable": False},
        {"id": "a2", "time": 1, "size": 10, "recomputable": False},
        {"id": "c1", "time": 1, "size": 1, "reads": ["a1"]},
        {"id": "c2", "time": 1, "size": 1, "reads": ["a2"]},
        {"id": "join", "time": 1, "size": 1, "reads": ["c1", "c2"]},
    ],
    "outputs": ["join"],
}


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def prober_of(document: object, algorithm: str = "auto") -> Prober:
    problem = make_problem(remat.load(document))
    effort = Effort.of(algorithm, {}, Control(5))
    return Prober(with_budget(problem, 0, None), 0, effort)


# --- drawn instances of every kind ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "count"), [("chain", 4), ("adjoint", 3), ("dag", 6), ("tree", 4)])
@pytest.mark.parametrize("limit", [0.05, pytest.param(0.6, marks=pytest.mark.slow)])
def test_whatever_the_limit_the_curve_is_one(kind, count, limit):
    @draws(count)
    @given(strategies.documents(kind))
    def check(document):
        try:
            (curve,) = remat.sweep(document, points=4, time_limit=limit).curves
        except remat.OptionError:
            return
        assert all(one.peak < two.peak and one.makespan > two.makespan for one, two in pairwise(curve.points))
        for point in curve.points:
            assert point.lower_bound <= point.makespan * (1 + 1e-9)
        if curve.points:
            assert curve.least.sufficient
            assert curve.least.size == curve.points[0].peak
        if curve.termination is not Termination.COMPLETED or not curve.points:
            return
        if curve.least.proved_within == ALL_SCHEDULES and curve.least.size > 0:
            less = remat.solve(document, budget=curve.least.size - 1, time_limit=limit)
            assert less.makespan is None

    check()


@draws(6)
@given(strategies.dags(largest=5, exact=True), st.integers(1, 4))
def test_no_point_is_worse_than_a_solve(document, place):
    if "machine" in document:
        return
    (curve,) = remat.sweep(document, points=5, time_limit=5).curves
    if curve.termination is not Termination.COMPLETED:
        return
    point = curve.points[min(place, len(curve.points) - 1)]
    alone = remat.solve(document, budget=point.peak, time_limit=5)
    assert point.makespan <= alone.makespan
    assert remat.solve(document, budget=curve.least.size, time_limit=5).makespan is not None


# --- the minimum budget -----------------------------------------------------------------------------------------------


def test_a_class_is_no_minimum():
    """The schedules of one order need 21 bytes; another order that needs 12 is the minimum, for every question."""
    refused = remat.solve(TWO_ORDERS, budget=5)
    assert refused.status is Status.INFEASIBLE
    assert (refused.least_budget.size, refused.least_budget.sufficient) == (12, True)
    (curve,) = remat.sweep(TWO_ORDERS, time_limit=10).curves
    assert curve.least.size == 12
    answer = remat.least_budget(TWO_ORDERS, max_overhead=0, time_limit=10).answer
    assert answer.value == 12


def test_questions_ask_whom_a_solve_asks():
    found = remat.least_budget(CHAIN, max_overhead="40%", time_limit=10)
    size = found.answer.value
    assert found.algorithm != "rotor" or remat.solve(CHAIN, budget=size, time_limit=5).makespan == found.makespan
    limit = 1.4 * found.no_recompute_time
    assert remat.solve(CHAIN, budget=size, time_limit=5).makespan <= limit
    less = remat.solve(CHAIN, budget=size - 1, time_limit=5)
    assert less.makespan is None or less.makespan > limit


# --- the pool ---------------------------------------------------------------------------------------------------------


def test_a_schedule_answers_every_budget_from_its_peak_on():
    prober = prober_of(CHAIN)
    top = prober.at(None)
    low = prober.at(prober.grid.below(top.peak))
    pool = prober.pool
    assert [known.peak for known in pool.front] == [low.peak, top.peak]
    assert pool.fastest(low.peak - 1) is None
    assert pool.fastest(top.peak - 1) is low
    assert pool.fastest(None) is top
    assert pool.best(top.peak).result.makespan == top.result.makespan
    assert pool.best(top.peak).budget == top.peak


def test_bounds_hold_for_smaller_budgets_only():
    prober = prober_of(CHAIN, "rotor")
    top = prober.at(None)
    low = prober.at(30)
    pool = Pool()
    for answer in (low, top):
        pool.note(answer)
    assert low.result.makespan > top.result.makespan
    assert pool.bound(low.budget + 1).value <= top.result.makespan
    lifted = pool.best(low.budget + 1)
    # What rotor proved at its budget is not proved at a larger one.
    assert lifted.result.optimal_within is None
    assert all(bound.value <= top.result.makespan for bound in lifted.result.bounds)
    assert pool.best(low.budget).result.optimal_within == low.result.optimal_within


def test_a_refuted_bound_is_left_out():
    prober = prober_of(CHAIN)
    top = prober.at(None)
    solver = registry.find("keep-all", "chain")
    wrong = Bound(2 * top.result.makespan, ALL_SCHEDULES, "a mistake")
    result = top.result
    pool = Pool()
    pool.note(Answered(memory=0, asked=None, solver=solver, problem=top.problem, proposal=top.proposal, result=result))
    object.__setattr__(result, "bounds", (*result.bounds, wrong))
    assert pool.best(top.peak).result.makespan == result.makespan


def test_infeasible_budgets_are_bounds_on_the_budget():
    prober = prober_of(CHAIN)
    problem: Problem = prober.problem
    least = problem.memory_bounds[0].size
    prober.at(least - 1)
    assert prober.pool.refuted >= least - 1
    assert not math.isinf(prober.pool.refuted)


@given(st.lists(st.integers(), unique=True, max_size=40))
def test_coarse_to_fine(budgets):
    order = coarse_to_fine(budgets)
    assert sorted(order) == sorted(budgets)
    if len(budgets) > 1:
        assert {order[0], order[1]} == {budgets[0], budgets[-1]}


class Descending(PortfolioCurve):
    """A curve whose searches for the minimum budget lower it by given shares."""

    def __init__(self, shares):
        self.shares, self.pool = shares, SimpleNamespace(smallest=SimpleNamespace(peak=1000), answers=())

    def _find_minimum(self, share=0.35):
        self.pool.smallest = SimpleNamespace(peak=self.pool.smallest.peak * self.shares.pop(0))

    def _has_time_for_minimum(self):
        return True


@pytest.mark.parametrize(("shares", "left"), [([0.8] * 9, 6), ([0.9, 0.99, 0.5], 1), ([1.0, 0.5], 1)])
def test_search_goes_on_while_it_finds_smaller_budgets(shares, left):
    """At most three further searches; one that lowers the budget by less than 5 % is the last."""
    curve = Descending(shares)
    curve._find_smaller()
    assert len(curve.shares) == left


class Shared(PortfolioCurve):
    """A curve with given gaps; a limit stops each solve after its share of the time, the first ones after half."""

    def __init__(self, gaps, first):
        self.gaps, self.first, self.seconds, self.shares = gaps, first, 100.0, []
        self.effort = SimpleNamespace(deadline=0.0, gap=None)
        graph = SimpleNamespace(tasks=range(1000))
        self.prober = SimpleNamespace(problem=SimpleNamespace(graph=graph))
        self.pool = SimpleNamespace(gap=self.gaps.get, refuted=-1)

    def _over(self):
        return self.seconds < 1e-9

    def _ask(self, budget, member, left, enough=None):
        share = self.seconds / left
        self.seconds -= share / 2 if len(self.shares) < self.first else share
        self.shares.append((budget, share))
        return SimpleNamespace(result=SimpleNamespace(termination=Termination.TIME_LIMIT))


def test_the_time_goes_where_the_gaps_are():
    curve = Shared({10: None, 20: 0.5, 30: 0.0, 40: 0.01, 50: 0.25}, first=4)
    curve._deepen((50, 40, 30, 20, 10))
    # A settled budget gets no solve. What the first solves leave is divided by the gaps.
    assert curve.shares[:4] == [(50, 25), (10, pytest.approx(87.5 / 3)), (40, ANY), (20, ANY)]
    second = dict(curve.shares[4:])
    assert second.keys() == {10, 20, 40, 50}
    assert curve.seconds == pytest.approx(0)
    left = sum(second.values())
    # No schedule counts as a gap of 100 %; the smallest weight is 2 %.
    weights = {10: 1.0, 20: 0.5, 40: 0.02, 50: 0.25}
    assert second == pytest.approx({budget: left * weight / 1.77 for budget, weight in weights.items()})


def test_coarse_budgets_have_more_time_than_finer_ones():
    """Each has a quarter of what is left, as long as four are left."""
    curve = Shared(dict.fromkeys(range(20), 1.0), first=0)
    curve._deepen(range(20))
    times = [share for _, share in curve.shares]
    assert times[:17] == pytest.approx([25 * 0.75**place for place in range(17)])
    assert times[17:] == pytest.approx([times[16]] * 3)
    assert [budget for budget, _ in curve.shares[:3]] == [0, 19, 16]


# --- orders of pipelines ----------------------------------------------------------------------------------------------


def test_a_solve_starts_from_the_orders_of_both_neighbouring_budgets(monkeypatch):
    """The fastest orders that fit are an incumbent; those of the next larger peak are only a place to start from."""
    layer = {"forward_time": 5, "backward_time": 10, "output_size": 2, "saved_size": 20, "parameter_size": 5}
    cluster = {"devices": [{"name": "gpu", "count": 2}], "levels": [{"bandwidth": 5}]}
    document = {"schema": "remat.instance/3", "units": UNITS["units"], "kind": "pipeline", "cluster": cluster}
    document |= {"layers": [layer | {"repeat": 4}], "micro_batches": 4}
    prober = replace(prober_of(document), effort=Effort.of("pipe-plan", {"moves": 20}, Control()))
    for budget in (None, 130, 110):
        prober.at(budget)
    prober = replace(prober, effort=Effort.of("auto", {}, Control()))
    small, *_, large = prober.pool.front
    assert small.peak is not None
    assert large.peak is not None
    budget = large.peak - 1
    above, fits = prober.pool.next_above(budget), prober.pool.fastest(budget)
    assert above is large
    assert fits is not None
    heard = []

    def propose(problem, solver, chosen, context):
        heard.append((context.known_orders, context.best_makespan))
        return Proposal(orders=context.best_orders, makespan=context.best_makespan), 0.0

    monkeypatch.setattr(module, "propose", propose)
    answer = prober.at(budget, member=auto.QUICK)
    assert heard == [((fits.result.orders, large.result.orders), fits.result.makespan)]
    assert answer.result.algorithm == fits.result.algorithm != "auto"
