"""The search: its replay against the verifier, its compiled twin against the interpreted one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.placement import place
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat.testing.cases import moderate
from remat.verifier import check
from remat_algorithms.dag.plans import search_state
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.dag.plans.search_state import ALPHAS, Search
from remat_algorithms.dag.steps import steps_of
from tests.algorithms.dag.graphs import unread_time

SMALL = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def all_reruns(model, chance, draw):
    """Draw a plan: each earlier item again in each stage, with some chance."""
    tables = model.tables
    first = set(tables.first)
    runs = []
    for stage, last in enumerate([*tables.first, len(model.task)]):
        optional = [k for k in range(last) if tables.repeat[k]]
        runs += [(stage, k) for k in optional if draw(st.integers(0, 99)) < chance]
        if last < len(model.task):
            runs.append((stage, last))
    assert first <= {k for _, k in runs}
    return [k for _, k in runs], [stage for stage, _ in runs]


@settings(max_examples=60, **SMALL)
@given(strategies.dags(largest=7), st.integers(0, 60), st.data())
def test_replay_agrees_with_the_verifier(document, chance, data):
    document = {key: value for key, value in document.items() if key != "machine"}
    document["inputs"] = [place if isinstance(place, str) else place["value"] for place in document["inputs"]]
    replay(document, chance, data)


@settings(max_examples=60, **SMALL)
@given(strategies.documents("chain"), st.integers(0, 60), st.data())
def test_replay_of_forwards_that_save_less(document, chance, data):
    """In place, a forward that stands in for one that saves takes over no more bytes than it writes itself."""
    stages = [stage | {"repeat": 1} for stage in document["stages"][:4]]
    document = {key: value for key, value in document.items() if key != "machine"}
    replay(document | {"stages": stages, "in_place": True}, chance, data)


def test_replay_of_a_small_forward_in_the_place_of_a_large_input():
    """The forward that stands in writes two bytes, the one that saves three; eight are given back."""
    stage = {"forward_time": 1, "backward_time": 1, "saved_size": 1}
    stages = [stage | {"output_size": 8}, stage | {"output_size": 2, "forward_workspace": 6}]
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": 9, "in_place": True, "stages": stages}
    problem = make_problem(remat.load(document | {"backward_reads": ["saved"]}))
    compare(problem, stage_model(problem), [1, 1, 3, 1, 4, 1, 5, 0, 3, 6, 1], [0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5])


def replay(document, chance, data):
    """Draw a plan for an instance, and compare."""
    problem = make_problem(remat.load(document))
    model = stage_model(problem)
    compare(problem, model, *all_reruns(model, chance, data.draw))


def test_replay_of_a_value_that_is_written_back():
    """In place or not, the old copy is there until the new one is."""
    tasks = [
        {"id": "make", "time": 1, "writes": ["x"]},
        {"id": "turn", "time": 1, "reads": ["x"], "writes": ["x"], "in_place": True},
        {"id": "use", "time": 1, "reads": ["x"], "writes": []},
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "values": [{"id": "x", "size": 4}], "tasks": tasks}
    problem = make_problem(remat.load(document))
    compare(problem, stage_model(problem), [0, 1, 2], [0, 1, 2])


def compare(problem, model, item, stage):
    """Compare the replay of a plan with the verifier's report on the same steps."""
    plan = Search(model, 0, 0).measure(item, stage)
    tasks = model.tasks_of(plan.item, plan.full)
    report = verified(problem, steps_of(problem, tasks))
    # The instance determines the bytes that are resident before the first drop.
    here = model.tables.static[0] + sum(
        size for size, initial in zip(model.tables.size, model.tables.initial, strict=True) if initial
    )
    assert report.peaks["memory"].size == max(plan.peak, here)
    assert report.makespan == pytest.approx((plan.time + unread_time(model, tasks)) * model.time_unit)
    # Without the runs that nobody has any use for, no more of anything, and what nobody reads runs once.
    kept = model.runs_of(plan.item, plan.full)
    less = verified(problem, steps_of(problem, kept))
    assert less.peaks["memory"].size <= report.peaks["memory"].size
    assert model.makespan(kept) <= (plan.time + model.free_time) * model.time_unit * (1 + 1e-9)


def verified(problem, steps):
    placed = steps.placed(place(problem.graph, problem.machine, steps).start)
    report = check(problem.graph, problem.machine, placed, reference_time=problem.no_recompute_time)
    assert not report.violations
    return report


@pytest.mark.parametrize(("reads", "stands_in"), [([], True), (["y"], False)])
def test_a_twin_reads_nothing_else(reads, stands_in):
    tasks = [
        {"id": "start", "time": 1, "writes": ["y"]},
        {"id": "heavy", "time": 2, "writes": ["x", "tape"]},
        {"id": "light", "time": 1, "reads": reads, "writes": ["x"], "required": False},
    ]
    values = [{"id": name, "size": 1} for name in ("y", "x", "tape")]
    document = {"schema": "remat.instance/1", "kind": "dag", "values": values, "tasks": tasks}
    model = stage_model(make_problem(remat.load(document)))
    assert (model.twin[model.task.index(1)] == 2) == stands_in


def test_what_is_required_runs_itself():
    """The required task runs once although `light` needs less memory; recomputation uses `light`."""
    tasks = [
        {"id": "heavy", "time": 2, "writes": ["x", "tape"]},
        {"id": "light", "time": 1, "writes": ["x"], "required": False},
        {"id": "use", "time": 1, "reads": ["x"], "writes": ["y"]},
        {"id": "again", "time": 1, "reads": ["x"], "writes": ["z"]},
    ]
    values = [{"id": name, "size": 1} for name in ("x", "tape", "y", "z")]
    document = {"schema": "remat.instance/1", "kind": "dag", "values": values, "tasks": tasks}
    problem = make_problem(remat.load(document))
    model = stage_model(problem)
    heavy, _, use, again = (model.task.index(task) for task in range(4))
    item, stage = [heavy, use, heavy, again], [0, 1, 2, 2]
    assert Search(model, 0, 0).measure(item, stage).full[::2] == (1, 0)
    compare(problem, model, item, stage)


def layered(nodes, seed, share, compiled=True):
    """Return the search of a generated graph for a share of its peak, compiled by default."""
    model = stage_model(make_problem(remat.load(dict(generate("dag", "layered", nodes=nodes, seed=seed)))))
    search = Search(model, 0, 0, compiled)
    search.budget = search.measure(model.tables.first, range(model.stages)).peak * share // 100
    return search


def test_repair_finds_what_the_greedy_does_not():
    search = layered(250, 3, 75)
    assert all(search.construct(alpha) is None for alpha in ALPHAS)
    plan = search.repair(100)
    assert plan is not None
    assert plan.peak <= search.budget
    again = search.measure(plan.item, plan.stage)
    assert (again.time, again.peak) == (plan.time, plan.peak)


def test_improving_lowers_the_time_and_keeps_the_budget():
    search = layered(100, 3, 85)
    first = search.construct(1.0)
    assert first is not None
    search.start(first)
    _, better = search.improve(3000)
    assert better is not None
    assert better.time < first.time
    assert better.peak <= search.budget


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dag", "chain", "adjoint"])
def test_compiled_equals_interpreted(kind):
    problem = make_problem(remat.load(moderate(kind)))
    model = stage_model(problem)
    peak = Search(model, 0, 0).measure(model.tables.first, range(model.stages)).peak
    for share in (95, 80, 65):
        twins = [Search(model, peak * share // 100, 7, compiled=compiled) for compiled in (False, True)]
        for alpha, noise in ((1.0, 0.0), (0.5, 0.8)):
            plans = [search.construct(alpha, noise) for search in twins]
            assert plans[0] == plans[1]
        if plans[0] is not None:
            for search, plan in zip(twins, plans, strict=True):
                search.start(plan)
            assert twins[0].improve(5) == twins[1].improve(5)
            assert (twins[0].room.item == twins[1].room.item).all()
            assert (twins[0].room.stage == twins[1].room.stage).all()


def improved(compiled):
    """Compare the greedy's plan before and after 60 rounds."""
    search = layered(65, 0, 90, compiled)
    plan = search.construct(1.0)
    search.start(plan)
    made, better = search.improve(60)
    assert better is not None
    assert better.time < plan.time
    return search, made, better


def repaired(compiled):
    """A plan where the greedy finds none, after some tries."""
    search = layered(70, 4, 75, compiled)
    plan = search.repair(10)
    assert plan is not None
    return search, 0, plan


@pytest.mark.parametrize("find", [improved, repaired])
def test_compiled_on_the_way_equals_interpreted(find, monkeypatch):
    """The result does not depend on the call at which compilation starts."""
    interpreted, *wanted = find(compiled=False)
    for calls in range(6):
        monkeypatch.setattr(search_state, "CALLS_INTERPRETED", calls)
        search, *found = find(compiled=None)
        assert search.compiled
        assert found == wanted, calls
        assert search.room.draws.random == interpreted.room.draws.random
        for plan in (search_state.HERE, search_state.BEST):
            count = interpreted.room.length[plan]
            assert search.room.length[plan] == count
            assert (search.room.item[plan, :count] == interpreted.room.item[plan, :count]).all()
            assert (search.room.stage[plan, :count] == interpreted.room.stage[plan, :count]).all()
