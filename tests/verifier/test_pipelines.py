"""Pipelines before both judges: drawn plans, as orders and as steps, and the two textbook schedules."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remat.testing.strategies import pipelines
from tests.verifier.judges import same_figures
from tests.verifier.plans import both, draw_plan, has_instants, placed, played, same_verdict

SEEDS = st.integers(0, 2**32 - 1)


def judge(document, seed):
    """Put one drawn plan before both judges: the orders, and either one's steps of them."""
    plan = draw_plan(random.Random(seed), document)
    report, verdict = both(document, plan)
    peaks = not has_instants(document, plan)
    same_verdict(report, verdict, peaks=peaks)
    for steps in (played(document, plan), placed(document, plan)):
        again, judged = both(document, steps)
        same_figures(again, judged)
        same_verdict(again, verdict, peaks=peaks)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(largest=3), SEEDS)
def test_drawn_plans(document, seed):
    judge(document, seed)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(), SEEDS)
def test_many_drawn_plans(document, seed):
    judge(document, seed)
