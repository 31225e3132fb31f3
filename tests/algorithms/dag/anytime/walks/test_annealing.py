"""Test annealing: incremental states, the verifier's figures, the compiled twin and the quality of results."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.placement import place
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat.testing.cases import moderate
from remat.verifier import check
from remat_algorithms.dag.anytime.local_search import reordering
from remat_algorithms.dag.anytime.local_search.annealer import Annealer, can_anneal
from remat_algorithms.dag.anytime.local_search.reordering import better_start
from remat_algorithms.dag.anytime.local_search.run_sequence import HEIGHT
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.steps import steps_of
from tests.algorithms.dag.graphs import unread_time

SMALL = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def own_memory(document):
    """A drawn graph with one memory."""
    document = {key: value for key, value in document.items() if key != "machine"}
    document["inputs"] = [place if isinstance(place, str) else place["value"] for place in document["inputs"]]
    return remat.load(document)


def peak_of(problem, model, items):
    """Return the verifier's peak and makespan of a sequence."""
    steps = steps_of(problem, model.tasks_of(items, [1] * len(items)))
    placed = steps.placed(place(problem.graph, problem.machine, steps).start)
    report = check(problem.graph, problem.machine, placed, reference_time=problem.no_recompute_time)
    assert not report.violations
    return report.peaks["memory"].size, report.makespan


def forever(annealer, steps):
    annealer.round(steps, float("inf"), lambda: True)


@settings(max_examples=40, **SMALL)
@given(strategies.dags(largest=8), st.integers(0, 9), st.integers(30, 99))
def test_walks_agree_with_the_verifier(document, seed, share):
    problem = make_problem(own_memory(document))
    model = stage_model(problem)
    # Without a value there is nothing to anneal: such a graph fits, or is refuted by its static memory.
    assume(model.simple and model.stages > 1 and len(problem.graph.values) > 0)
    here = model.tables.static[0] + sum(
        size for size, initial in zip(model.tables.size, model.tables.initial, strict=True) if initial
    )
    peak, _ = peak_of(problem, model, model.tables.first)
    annealer = Annealer(model, peak * share // 100, seed, compiled=False)
    forever(annealer, 150)
    items = annealer.present
    assert set(items) == set(range(model.stages))
    peak, makespan = peak_of(problem, model, items)
    time = sum(model.tables.time[item] for item in items)
    unread = unread_time(model, model.tasks_of(items, [1] * len(items)))
    assert (time + unread) * model.time_unit == pytest.approx(makespan)
    # The walk that has grown step by step is the one that is built at once, and each is what the verifier sees.
    excess = annealer.excess
    again = Annealer(model, annealer.budget, seed, compiled=False)
    assert again.follow(items) == (excess == 0.0)
    assert again.excess == excess
    assert (excess > 0.0) == (peak > max(here, annealer.budget)) or here > annealer.budget
    if annealer.best is not None:
        peak, makespan = peak_of(problem, model, annealer.best)
        assert peak <= max(here, annealer.budget)
        unread = unread_time(model, model.tasks_of(annealer.best, [1] * len(annealer.best)))
        assert (annealer.time + unread) * model.time_unit == pytest.approx(makespan)


@settings(max_examples=40, **SMALL)
@given(strategies.dags(largest=8), st.integers(0, 9))
def test_bytes_at_the_highest_run(document, seed):
    problem = make_problem(own_memory(document))
    model = stage_model(problem)
    assume(model.simple and model.stages > 1 and not any(model.tables.in_place))
    annealer = Annealer(model, 0, seed, compiled=False)
    forever(annealer, 60)
    walk = annealer._walk
    levels = [model.tables.static[0] + held for held in walk.held[1 : walk.state.length]]
    assert annealer.excess == sum(levels) + HEIGHT * max(levels)


@pytest.mark.parametrize("in_place", [False, True])
def test_compiled_equals_interpreted(in_place):
    document = moderate("dag")
    for task in document["tasks"]:
        task["in_place"] = in_place
    model = stage_model(make_problem(remat.load(document)))
    assert model.simple
    peak = max(held for held in Annealer(model, 0, 0, compiled=False)._walk.held)
    twins = [Annealer(model, peak * 8 // 10, 3, compiled=compiled) for compiled in (False, True)]
    for annealer in twins:
        forever(annealer, 3000)
    assert twins[0].present == twins[1].present
    assert twins[0].best == twins[1].best
    assert twins[0].excess == twins[1].excess
    assert twins[0].present != list(model.tables.first)


def solved(document, budget, **options):
    return remat.solve(remat.load(document), algorithm="dag-auto", budget=budget, options=options)


@pytest.mark.slow
def test_order_and_reruns_together():
    document = dict(generate("dag", "layered", nodes=60, seed=4))
    keep = solved(document, None)
    budget = next(iter(keep.peak_memory.values())) * 6 // 10
    alone = solved(document, budget, iterations=50)
    together = solved(document, budget, iterations=50, reorder=True)
    # The reference order adds 17 % to the time, the minimum-peak order alone 10 %.
    assert keep.makespan < together.makespan < 1.06 * keep.makespan < alone.makespan
    again = solved(document, budget, iterations=50, reorder=True)
    assert list(again.steps) == list(together.steps)


def test_an_interrupted_start_is_the_order_itself():
    document = dict(generate("dag", "layered", nodes=60, seed=4))
    budget = next(iter(solved(document, None).peak_memory.values())) * 6 // 10
    problem = make_problem(remat.load(document), budget=budget)
    context = Context()
    context.interrupted = True
    start = better_start(problem, stage_model(problem), context, 10.0, None)
    assert (start.plan, start.steps) == (None, None)
    context.interrupted = False
    assert better_start(problem, stage_model(problem), context, 1.0, 50).plan is not None


@settings(max_examples=30, **SMALL)
@given(strategies.dags(largest=9), st.integers(20, 100))
def test_reordered_schedules_are_never_worse_than_the_claims_of_others(document, share):
    check_reordered(document, share)


@pytest.mark.slow
@settings(max_examples=300, **SMALL)
@given(strategies.dags(largest=9), st.integers(20, 100))
def test_reordered_schedules_are_never_worse_than_the_claims_of_others_thoroughly(document, share):
    check_reordered(document, share)


def check_reordered(document, share):
    instance = own_memory(document)
    keep = remat.solve(instance, algorithm="keep-all")
    assume(keep.makespan is not None)
    budget = keep.peak_memory[next(iter(keep.peak_memory))] * share // 100
    alone = remat.solve(instance, algorithm="dag-auto", budget=budget)
    together = remat.solve(instance, algorithm="dag-auto", budget=budget, options={"reorder": True})
    # Each schedule has passed the verifier; what is claimed of all schedules holds for both.
    for one, other in ((alone, together), (together, alone)):
        bounds = [bound.value for bound in one.bounds if bound.scope == "all schedules"]
        assert other.makespan is None or all(other.makespan >= bound for bound in bounds)
        assert other.makespan is None or one.status != "infeasible" or one.scope != "all schedules"


def test_sums_that_may_overflow_are_not_annealed():
    document = dict(generate("dag", "layered", nodes=40))
    assert can_anneal(stage_model(make_problem(remat.load(document))))
    document = dict(generate("dag", "layered", nodes=40, min_size=2**53, max_size=2**53))
    assert not can_anneal(stage_model(make_problem(remat.load(document))))


def test_a_schedule_in_the_listed_order_comes_first(monkeypatch):
    # Time enough on any machine; in another order it fits without reruns.
    monkeypatch.setattr(reordering, "FIRST_SHARE", 0.5)
    document = dict(generate("dag", "layered", nodes=60, seed=0))
    keep = solved(document, None)
    costs = []

    def note(progress):
        costs.append(progress.makespan)

    budget = next(iter(keep.peak_memory.values())) * 8 // 10
    options = {"reorder": True}
    result = remat.solve(
        document, algorithm="dag-auto", budget=budget, time_limit=60, threads=2, options=options, progress=note
    )
    assert result.makespan == keep.makespan
    assert costs[0] > keep.makespan
