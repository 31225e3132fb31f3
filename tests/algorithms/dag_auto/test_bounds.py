"""The programs' bounds: relaxed ones below whole ones, whole ones below what is found."""

import pytest

import remat
from remat.generate import generate
from remat.solving import make_problem
from remat_algorithms.dag_auto.gaps import gap_cover
from remat_algorithms.dag_auto.mip import solve
from remat_algorithms.dag_auto.model import stage_model
from remat_algorithms.dag_auto.state import ALPHAS, Search


@pytest.mark.parametrize("seed", range(4))
def test_relaxation_is_below_the_gap_cover_and_that_below_plans(seed):
    model = stage_model(make_problem(remat.load(dict(generate("dag", "layered", nodes=60, seed=seed)))))
    search = Search(model, 0, 0)
    peak = search.measure(model.tables.first, range(model.stages)).peak
    search.budget = peak * 85 // 100
    program = gap_cover(model, search.budget).program
    relaxed, whole = (solve(program, seconds=None, stopped=lambda: False, relaxed=relaxed) for relaxed in (True, False))
    assert relaxed.finished
    assert whole.finished
    assert 0 < relaxed.bound <= whole.bound
    plans = [search.construct(alpha) for alpha in ALPHAS]
    found = [plan.time - model.once_time for plan in plans if plan is not None]
    assert found
    assert whole.bound <= min(found) * (1 + 1e-9)
