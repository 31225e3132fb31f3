"""Budgets as floats are shares between 0 and 1, everywhere in the library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import remat
from remat import OptionError
from remat.solving.relative_budget import plain_budget, share_of

CHAIN = remat.chain(forward_time=[3, 1, 2, 4], backward_time=2, output_size=[40, 30, 20, 10], saved_size=5)
RANKS = remat.pipeline(forward_time=[1] * 4, backward_time=2, devices=2, micro_batches=3, output_size=10, saved_size=20)
REMEDY = "between 0 and 1; for a size, write 8000000000, or a text such as '8GB'"


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_float_is_the_share_of_its_digits(share):
    assert float(share_of(plain_budget(share))) == pytest.approx(share, rel=1e-15, abs=0)
    assert plain_budget(np.float64(share)) == plain_budget(share)


@pytest.mark.parametrize("share", [0.8, np.float64(0.8), {"": 0.8}, {"memory": 0.8}])
def test_a_share_of_a_solve_is_a_percentage(share):
    found, named = remat.solve(CHAIN, budget=share), remat.solve(CHAIN, budget="80%")
    assert found.machine == named.machine
    assert found.makespan == named.makespan


def test_shares_are_read_wherever_budgets_are():
    whole = remat.solve(CHAIN, budget=np.int64(100)).machine.memories[0].capacity
    assert whole == 100
    curve = remat.sweep(CHAIN, "rotor", budgets=[0.8, 0.9])
    named = remat.sweep(CHAIN, "rotor", budgets=["80%", "90%"])
    assert [point.budget for point in curve.curves[0].points] == [point.budget for point in named.curves[0].points]
    assert str(remat.show(CHAIN, budget=0.5)) == str(remat.show(CHAIN, budget="50%"))
    pipeline = remat.solve(RANKS, algorithm="1f1b", budget=0.9)
    assert pipeline.machine == remat.solve(RANKS, algorithm="1f1b", budget="90%").machine


@pytest.mark.parametrize("budget", [8e9, np.float32(8e9), {"memory": 8e9}])
@pytest.mark.parametrize("ask", [remat.solve, remat.show, remat.largest_batch])
def test_other_floats_name_the_remedy(ask, budget):
    with pytest.raises(OptionError, match=REMEDY):
        ask(CHAIN, budget=budget)


@pytest.mark.parametrize("budget", [1.0, 0.0, -0.5, float("nan"), float("inf"), 1e300])
def test_floats_that_are_no_share_are_refused(budget):
    with pytest.raises(OptionError, match="as a float, a budget lies between 0 and 1"):
        remat.solve(CHAIN, budget=budget)
    with pytest.raises(OptionError, match=r"^budgets: .* as a float, a budget lies between 0 and 1"):
        remat.compare(CHAIN, budgets=[budget])
    with pytest.raises(OptionError, match=r"^budgets: .* as a float, a budget lies between 0 and 1"):
        remat.sweep(CHAIN, "rotor", budgets=[budget])


def test_the_least_budget_without_a_limit_is_that_of_any_schedule():
    found = remat.least_budget(CHAIN, algorithm="chain-exact")
    assert found.answer.proved
    assert found.answer.question == "the minimum budget of memory for any schedule"
    assert remat.solve(CHAIN, algorithm="chain-exact", budget=found.answer.value).makespan == found.makespan
    assert remat.solve(CHAIN, algorithm="chain-exact", budget=found.answer.value - 1).makespan is None
