"""Test the parts between separators: joined schedules are valid, and summed bounds hold."""

import itertools
import random

import numpy as np
import pytest

import remat
from remat.generate import generate
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.anytime import separators as module
from remat_algorithms.dag.anytime.separators import find_parts
from tests.algorithms.dag.anytime.test_dag_auto import keep_peak
from tests.oracles import search

REFERENCE = "schedules in the reference order"


def batches(draw, depth, count, *, buffers):
    """Return micro-batches, one after the other, each forward and backward; `buffers`: gradients are added in place."""
    figures = [[draw.randint(1, 4) for _ in range(3)] for _ in range(2 * depth)]
    shape = [(time, size, work % 3, draw.random() < 0.2) for time, size, work in figures]
    tasks, values, inputs = [], {}, []
    held = {}
    if buffers:
        held = {i: f"buffer{i}" for i in range(depth)}
        values |= dict.fromkeys(held.values(), 2)
        inputs = list(held.values())
    for batch in range(count):
        for i in range(depth):
            time, size, _, in_place = shape[i]
            reads = [f"m{batch}.f{i - 1}"] if i else []
            tasks.append({"id": f"m{batch}.f{i}", "time": time, "reads": reads, "size": size, "in_place": in_place})
        for i in reversed(range(depth)):
            time, size, work, _ = shape[depth + i]
            reads = [f"m{batch}.f{i}", *([f"m{batch}.b{i + 1}"] if i + 1 < depth else [])]
            tasks.append({"id": f"m{batch}.b{i}", "time": time, "reads": reads, "size": size, "workspace": work})
            if buffers:
                name = f"m{batch}.w{i}"
                reads = [f"m{batch}.b{i}", held[i]]
                tasks.append({"id": name, "time": time, "reads": reads, "writes": [name], "in_place": True})
                values[name] = 2
                held[i] = name
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "inputs": inputs}
    document["values"] = [{"id": name, "size": size} for name, size in values.items()]
    document["outputs"] = list(held.values()) if buffers else []
    return document


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 3)
    monkeypatch.setattr(module, "NARROW", 10**6)


def compare(seed):
    """Compare with all schedules at three budgets; return how many times reruns were proved to be needed."""
    draw = random.Random(seed)
    document = batches(draw, 2, 2, buffers=seed % 2 == 1)
    names = [task["id"] for task in document["tasks"]]
    bound = make_problem(remat.load(document)).memory_bounds[0]
    proved = 0
    for budget in sorted({bound.size, keep_peak(document) - 1}):
        problem = make_problem(remat.load(document), budget=budget)
        parts = find_parts(problem)
        if budget >= keep_peak(document) or parts is None:
            continue
        assert parts.counts == [2]
        result = remat.solve(document, algorithm="dag-auto", budget=budget)
        best, in_order = search.chain_best(document, budget), search.chain_best(document, budget, names)
        for found in result.bounds:
            least = in_order if found.scope == REFERENCE else best
            assert least is None or found.value <= least
        if result.makespan is None:
            assert best is None or result.status != "infeasible"
            continue
        assert result.makespan >= best
        proved += result.lower_bound > problem.no_recompute_time
        if result.optimal_within == "all schedules":
            assert result.makespan == best
    return proved


def test_joined_schedules_and_sums_of_bounds(small_parts):
    assert sum(compare(seed) for seed in range(5)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_joined_schedules_and_sums_of_bounds_thoroughly(small_parts, part):
    assert sum(compare(seed) for seed in range(100 + 20 * part, 120 + 20 * part)) > 5


def test_micro_batches_are_one_kind_and_their_bounds_add_up(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 100)
    options = {"preset": "gpt2-small", "layers": 8, "vocabulary": 2000, "parameters": "none", "gradients": "none"}
    found = []
    for count in (1, 3):
        document = generate("dag", "transformer", micro_batches=count, **options)
        instance = remat.load(dict(document))
        budget = keep_peak(remat.load(dict(generate("dag", "transformer", micro_batches=1, **options)))) * 7 // 10
        problem = make_problem(instance, budget=budget)
        parts = find_parts(problem)
        assert (parts is None) == (count == 1)
        if parts is not None:
            assert parts.counts == [3]
            assert np.concatenate([part.tasks for part in parts.parts]).tolist() == parts.order.tolist()
        found.append(remat.solve(instance, algorithm="dag-auto", budget=budget, gap="0.5%", time_limit=60))
    once, thrice = found
    assert thrice.termination == "gap reached"
    assert thrice.makespan - thrice.lower_bound <= 0.005 * thrice.makespan
    assert thrice.makespan == pytest.approx(3 * once.makespan, rel=0.01)


def test_buffers_that_are_handed_on_are_no_obstacle(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 100)
    options = {"preset": "gpt2-small", "layers": 8, "vocabulary": 2000, "parameters": "none", "gradients": "accumulate"}
    document = dict(generate("dag", "transformer", micro_batches=2, **options))
    problem = make_problem(remat.load(document), budget=keep_peak(document) * 8 // 10)
    parts = find_parts(problem)
    assert parts is not None
    assert parts.counts == [2]
    bounding, planning = (parts.problem_of(0, bounding=each).graph for each in (True, False))
    size = {value["id"]: value["size"] for value in document["values"]}
    assert bounding.static_memory == sum(size[name] for name in document["inputs"] if name.startswith("buffer"))
    assert len(planning.inputs) == len(bounding.inputs)
    assert len(planning.outputs) > len(bounding.outputs) == 0


def test_what_is_not_simple_has_no_parts(small_parts):
    document = batches(random.Random(0), 2, 2, buffers=False)
    budget = keep_peak(document) - 1
    assert find_parts(make_problem(remat.load(document), budget=budget)) is not None
    assert find_parts(make_problem(remat.load(document))) is None
    other = {"id": "other", "time": 1, "reads": [], "writes": ["m0.f0"], "required": False}
    twice = document | {"tasks": [*document["tasks"], other]}
    assert find_parts(make_problem(remat.load(twice), budget=budget)) is None
    chained = [task for task in document["tasks"] if task["id"].startswith("m0")]
    assert find_parts(make_problem(remat.load(document | {"tasks": chained}), budget=budget)) is None


def test_parts_are_some_way_apart(monkeypatch):
    monkeypatch.setattr(module, "FEWEST", 7)
    monkeypatch.setattr(module, "NARROW", 10**6)
    document = batches(random.Random(1), 2, 9, buffers=False)
    parts = find_parts(make_problem(remat.load(document), budget=keep_peak(document) - 1))
    assert parts is not None
    cuts = [part.begin for part in parts.parts] + [len(document["tasks"])]
    assert all(later - earlier >= 7 for earlier, later in itertools.pairwise(cuts))
    assert all(cut % 4 == 0 for cut in cuts)
