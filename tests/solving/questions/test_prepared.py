"""`remat.prepare`: the answers of `remat.solve`, for many budgets."""

import threading

import pytest

import remat
from remat.generate import generate
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.chain.rotor.prepared import Fronts, _least_of
from remat_algorithms.chain.rotor.rotor import RotorOptions
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.seeds import seeds

LOOP = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 30, "forward_time": 2, "backward_time": 3,
        "state_size": 4, "units": {"time": "unit", "memory": "unit"}}  # fmt: skip
HOSTED = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [
        {"source": "device", "target": "host", "bandwidth": 3},
        {"source": "host", "target": "device", "bandwidth": 3},
    ],
}


def figures(result):
    """Return a result's claims about the instance, which are equal for equal questions."""
    least = result.least_budget
    named = None if least is None else (least.size, least.sufficient, least.memory, least.scope)
    return result.status, result.makespan, result.lower_bound, result.optimal_within, result.scope, named


def drawn(seed, kind):
    if kind == "chain":
        return draw_chain(seed, 5)
    if kind == "adjoint":
        return LOOP | {"steps": 12 + seed}
    if kind == "unequal":
        times = [{"forward_time": 1 + (5 * k + seed) % 7 + 0.5 * seed} for k in range(12 + seed)]
        return LOOP | {"steps": times}
    return dict(generate("tree", "random", nodes=12 + seed, seed=seed))


CASES = [
    ("chain", "rotor"), ("chain", "chain-exact"), ("chain", "rotor-float"), ("chain", "periodic"),
    ("chain", "chain-best"), ("adjoint", "revolve"), ("adjoint", "adjoint-dp"), ("adjoint", "walther-griewank"),
    ("unequal", "adjoint-dp"), ("unequal", "walther-griewank"),
    ("tree", "liu"), ("tree", "liu-postorder"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "algorithm"), CASES, ids=[name for _, name in CASES])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_prepared_answers_are_those_of_single_solves(kind, algorithm, seed):
    # What counts slots may refuse its own schedule at the peak of that schedule, which is known to fit.
    counts_slots = algorithm in ("revolve", "walther-griewank")
    instance = remat.load(drawn(seed, kind))
    prepared = remat.prepare(instance, algorithm=algorithm)
    top = max(remat.solve(instance, algorithm=algorithm).peak_memory.values())
    for k in (7, 1, 9, 4, 12, 5, 8):  # in no order
        budget = top * k // 10
        alone, mine = remat.solve(instance, algorithm=algorithm, budget=budget), prepared.solve(budget)
        if counts_slots and figures(mine) != figures(alone):
            better = mine.makespan < alone.makespan
            assert better or (mine.status, alone.status) == (remat.Status.OPTIMAL, remat.Status.FEASIBLE)
        else:
            assert figures(mine) == figures(alone), (seed, budget)
        assert mine.report is None or (mine.report.ok and max(mine.peak_memory.values()) <= budget)


def test_budgets_of_several_memories():
    instance = remat.load(draw_chain(3, 6))
    prepared = remat.prepare(instance, algorithm="rotor", machine=HOSTED)
    for budget in ({"": 30, "host": 5}, {"": 20}, {"": "50%"}, {"": 30, "host": 0}, {"device": 25, "host": None}):
        alone = remat.solve(instance, algorithm="rotor", machine=HOSTED, budget=budget)
        assert figures(prepared.solve(budget)) == figures(alone), budget


def test_proved_answers_need_no_other_search(monkeypatch):
    asked = []
    from remat_algorithms.chain.exact import chain_exact

    original = chain_exact.solve
    monkeypatch.setattr(
        chain_exact, "solve", lambda problem, *rest: asked.append(problem.budget) or original(problem, *rest)
    )
    prepared = remat.prepare(draw_chain(1, 6), algorithm="chain-exact")
    whole = prepared.solve(None)
    peak = max(whole.peak_memory.values())
    assert prepared.solve(peak).makespan == prepared.solve(peak + 5).makespan == whole.makespan
    assert asked == [None]
    small = prepared.solve(1)
    assert small.status is remat.Status.INFEASIBLE
    assert prepared.solve(small.least_budget.size - 1).status is remat.Status.INFEASIBLE
    assert asked == [None, 1] or asked == [None]  # a bound may have proved it
    assert prepared.solve(small.least_budget.size).status is not remat.Status.INFEASIBLE


def test_fronts_are_filled_once_and_give_way_to_searches(monkeypatch):
    from remat_algorithms.chain.rotor import prepared as module

    problem = make_problem(remat.load(draw_chain(5, 40)))
    needed = Fronts(problem, RotorOptions()).setting
    low, high = needed.least.least + needed.resident, needed.whole.need + needed.resident
    budgets = [low + (high - low) * k // 6 for k in range(6)]

    def answers(fronts):
        asked = (problem.with_capacities({problem.machine.memories[0].name: budget}) for budget in budgets)
        return [fronts.solve(one, Context()) for one in asked]

    plain, limited = Fronts(problem, RotorOptions()), Fronts(problem, RotorOptions())
    first = answers(plain)
    assert plain._reader is not None
    assert answers(plain)[2].steps is first[2].steps
    monkeypatch.setattr(module, "MANY_WORK", 10)
    monkeypatch.setattr(module, "LEAST_WORK", 10)
    assert [proposal.makespan for proposal in answers(limited)] == [proposal.makespan for proposal in first]
    assert limited._tried >= 10


def test_fronts_have_the_minimum_memory_and_its_task():
    for seed in range(12):
        fronts = Fronts(make_problem(remat.load(draw_chain(seed, 3 + seed))), RotorOptions())
        fronts.setting.asked(fronts.setting.problem, Context())
        table, least = fronts._fronts().table, fronts.setting.least
        if len(table.whole[0]):
            found = _least_of(table)
            assert (found.least, found.binding_task()) == (least.least, least.binding_task())


def test_fronts_that_were_stopped_are_filled_later():
    problem = make_problem(remat.load(draw_chain(6, 30)))
    name, fronts = problem.machine.memories[0].name, Fronts(problem, RotorOptions())
    budget = fronts.setting.least.least + fronts.setting.resident
    tight = problem.with_capacities({name: budget})
    fronts.solve(tight, Context(deadline=0.0))
    assert fronts._reader is None
    assert fronts.solve(tight, Context()).optimal_within is not None


def test_curve_and_least_budget_are_those_of_the_questions():
    instance = remat.load(draw_chain(2, 8))
    prepared = remat.prepare(instance, algorithm="rotor")
    alone = remat.sweep(instance, "rotor").curves[0]
    assert [(point.budget, point.makespan) for point in prepared.curve().answers] == [
        (point.budget, point.makespan) for point in alone.answers
    ]
    assert len(prepared.curve(["60%", 0.8]).answers) == 2
    for price in ({}, {"max_overhead": "20%"}):
        assert prepared.least_budget(**price).answer == remat.least_budget(instance, algorithm="rotor", **price).answer


def test_a_curve_has_the_answer_to_each_budget_that_was_asked():
    prepared = remat.prepare(remat.load(draw_chain(2, 8)), algorithm="rotor")
    whole = prepared.least_budget().answer.value
    budgets = [3 * whole, 2 * whole, 3 * whole, f"{2 * whole}B", float(3 * whole)]
    curve = prepared.curve(budgets[:3])
    assert [point.budget for point in curve.answers] == [2 * whole, 3 * whole]
    assert [curve.at(budget).makespan for budget in budgets] == [
        prepared.solve(size * whole).makespan for size in (3, 2, 3, 2, 3)
    ]
    with pytest.raises(remat.OptionError, match=rf"budget: no answer to 7; the budgets are {2 * whole}, {3 * whole}"):
        curve.at(7)
    with pytest.raises(remat.OptionError, match=r"^budget: '60%' is not a size"):
        curve.at("60%")


def test_auto_and_warm_starts():
    instance = remat.load(draw_chain(4, 6))
    prepared = remat.prepare(instance)
    for budget in ("100%", "70%", "60%"):
        mine = prepared.solve(budget)
        assert figures(mine) == figures(remat.solve(instance, budget=budget))
    again = prepared.solve("80%", warm_start=mine)
    assert again.makespan <= mine.makespan


def test_mistakes_are_told_at_once():
    with pytest.raises(remat.OptionError, match="unknown algorithm"):
        remat.prepare(draw_chain(0, 3), algorithm="rotr")
    prepared = remat.prepare(draw_chain(0, 3), algorithm="rotor")
    with pytest.raises(remat.OptionError, match="as a float, a budget lies between"):
        prepared.solve(1.5)
    assert "rotor" in repr(prepared)


def test_threads_share_one_prepared_instance():
    instance = remat.load(draw_chain(7, 12))
    prepared = remat.prepare(instance, algorithm="rotor")
    budgets = [f"{share}%" for share in range(40, 100, 6)]
    expected = [figures(remat.solve(instance, algorithm="rotor", budget=budget)) for budget in budgets]
    found: dict[int, list[object]] = {}

    def work(number):
        found[number] = [figures(prepared.solve(budget)) for budget in budgets]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(answers == expected for answers in found.values())
