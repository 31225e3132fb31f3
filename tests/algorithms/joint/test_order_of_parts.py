"""`remat-offload-best` tries first what gains most for its work, and continues from a known schedule."""

import remat
import remat_algorithms.joint.remat_offload_best as module
from benchmarks.drawn import FORMS, Draw
from remat.plugin import Context
from remat.solving.problem_setup import make_problem


def _chain():
    """Return a chain of 60 stages with a host, and its budget."""
    return FORMS["chain-host"](Draw("portfolio/chain-host/6110", (60,), ()))


def test_plans_for_larger_budgets_come_before_the_algorithms_for_one_memory(monkeypatch):
    for name in ("modelled", "alone", "rules", "walk"):
        monkeypatch.setattr(module._Search, name, lambda search, *_, **__: setattr(search.context, "interrupted", True))
    case = _chain()
    found = remat.solve(case.document, budget=case.budget, algorithm="remat-offload-best", options={"work": 0})
    assert found.makespan <= 9700  # 9,637; without these plans 11,009


def test_these_budgets_come_from_coarse_to_fine():
    order = sorted(range(module.BETWEEN), key=module._by_halves)
    assert order[:8] == [0, 16, 8, 24, 4, 20, 12, 28]
    assert sorted(order) == list(range(module.BETWEEN))


def test_it_continues_from_a_known_schedule(monkeypatch):
    case, context = _chain(), Context()
    known = remat.solve(case.document, budget=case.budget, algorithm="offload-greedy")
    context.report(known.columns, makespan=known.makespan)
    # Without its other parts.
    for name in ("rotor_plan", "greedy_plan"):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(module._Search, "relax", lambda search: setattr(search.context, "interrupted", True))
    problem = make_problem(remat.load(case.document), budget=case.budget)
    found = module.solve(problem, module.OffloadBestOptions(work=0), context)
    assert found.makespan is not None
    assert found.makespan <= known.makespan
