"""The fullest moment: bounds up to a share of the time, and solutions that are plans."""

import random

import pytest

import remat
from remat.placement import Unplaceable, place
from remat.plugin import run_in_order
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.moments.integer_facts import Facts
from remat_algorithms.dag.moments.peak import Peak
from remat_algorithms.dag.moments.plan_from_moment import WHOLE, runs_of
from tests.algorithms.dag.moments.drawn import graph, in_units, setting_of, training
from tests.oracles import search


def peak_of(document, budget, *, scale=1):
    """Return the fullest moment of a document, its relaxation asked; times by `scale`, so that ties can be broken."""
    tasks = [task | {"time": task["time"] * scale} for task in document["tasks"]]
    problem = make_problem(remat.load(document | {"tasks": tasks}), budget=budget)
    facts = Facts.of(problem)
    peak = Peak(facts, budget, 0, lambda: False)
    if peak.at is not None:
        peak.relax()
    return problem, peak


def compare(seed):
    """Compare with all schedules; return how many moments were asked, and how many bounds are above nothing."""
    draw = random.Random(seed)
    document = training(draw, draw.randint(2, 4)) if seed % 2 else graph(draw, draw.randint(4, 7))
    # Times of 1 to 6 plus small offsets: in units of a millionth, the tilts decide between near-equal times.
    for task in document["tasks"]:
        task["time"] = task["time"] * 10**7 + draw.randint(0, 20)
    least = make_problem(remat.load(document)).memory_bounds[0].size
    keep = next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))
    asked = met = 0
    for budget in range(least, keep):
        problem, peak = peak_of(document, budget)
        if peak.at is None:
            continue
        setting = setting_of(document, budget, listed=True)
        names = [problem.graph.tasks[task] for task in setting.facts.order]
        best = [in_units(setting, search.chain_best(document, budget, order)) for order in (names, None)]
        for near in (0.3, 0.02, 1e-7, 0.0):
            answer = peak.solve(near)
            assert answer.bound <= best[0]
            overall = peak.for_all(answer, near)
            assert overall <= best[1]
        asked += 1
        met += overall > 0
    return asked, met


def test_below_every_schedule():
    found = [compare(seed) for seed in range(24)]
    assert sum(asked for asked, _ in found) > 20
    assert sum(met for _, met in found) > 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_below_every_schedule_thoroughly(part):
    found = [compare(seed) for seed in range(1000 + 150 * part, 1150 + 150 * part)]
    assert sum(met for _, met in found) > 100


def layers(depth):
    """Return equal layers with two recomputable values each, and a loss that is kept and never read."""
    tasks = []
    for i in range(depth):
        tasks.append({"id": f"a{i}", "time": 40_000_000, "size": 4, "reads": [f"c{i - 1}"] if i else []})
        tasks.append({"id": f"c{i}", "time": 30_000_000, "size": 3, "reads": [f"a{i}"]})
    tasks.append({"id": "head", "time": 50_000_001, "size": 9, "reads": [f"c{depth - 1}"]})
    tasks.append({"id": "loss", "time": 1_000_000, "size": 0, "reads": ["head"]})
    tasks.append({"id": "b", "time": 50_000_000, "size": 9, "reads": ["head"]})
    for i in reversed(range(depth)):
        above = "b" if i == depth - 1 else f"b{i + 1}"
        tasks.append({"id": f"w{i}", "time": 30_000_000, "size": 3, "reads": [f"a{i}", above]})
        tasks.append({"id": f"b{i}", "time": 60_000_000, "size": 2, "reads": [f"a{i}", f"c{i}", above]})
    for task in tasks:
        task["size"] = 1000 * task["size"] + 1
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["loss", "b0"]}


@pytest.mark.parametrize("share", [6, 7, 8, 9])
def test_of_equal_layers_the_last_ones_are_kept(share):
    document = layers(14)
    keep = remat.solve(document, algorithm="keep-all")
    budget = next(iter(keep.peak_memory.values())) * share // 10
    problem, peak = peak_of(document, budget)
    answer = peak.solve(1e-9)
    runs = runs_of(peak.facts, peak.at, answer.whole[0], WHOLE)
    loss = list(problem.graph.tasks).index("loss")
    assert runs.count(loss) == 1  # another run costs nothing, but would hold what the head has made up to the end
    fits = place(problem.graph, problem.machine, run_in_order(problem.graph, problem.machine, runs))
    assert not isinstance(fits, Unplaceable)
    makespan = sum(problem.graph.time[task].item() for task in runs)
    bound = problem.no_recompute_time + peak.for_all(answer, 1e-9) * peak.facts.unit
    assert bound <= makespan <= bound * 1.002
