"""The minimum budget of a storage level is a sum of sizes: nothing in between is tried."""

import itertools
import random

import remat
from remat_algorithms.joint.adjoint_best import adjoint_best
from remat_algorithms.joint.adjoint_best.adjoint_best import sums_between


def test_sums_are_those_of_all_subsets():
    chance = random.Random(0)
    for _ in range(60):
        sizes = [chance.randint(0, 9) for _ in range(chance.randint(0, 6))]
        low, high = chance.randint(-1, 8), chance.randint(3, 30)
        subsets = itertools.chain.from_iterable(itertools.combinations(sizes, k) for k in range(len(sizes) + 1))
        assert sums_between(sizes, low, high) == sorted({t for s in subsets if low < (t := sum(s)) < high})
    assert sums_between([2**k for k in range(40)], 0, 2**50) is None


def test_few_budgets_are_tried(monkeypatch):
    tried, original = [], adjoint_best._found

    def counted(problem, options, context):
        tried.append(problem.machine.memories[1].capacity)
        return original(problem, options, context)

    monkeypatch.setattr(adjoint_best, "_found", counted)
    steps = [
        {"forward_time": 0},
        {"backward_time": 335708780, "state_size": 760566162},
        {"forward_time": 5188901315388172, "backward_time": 1},
        {"forward_time": 544014, "state_size": 258175186863, "adjoint_size": 59318351},
    ]
    given = {"schema": "remat.instance/2", "kind": "adjoint", "steps": steps, "forward_time": 0, "adjoint_size": 6}
    storage = [{"name": "level0", "capacity": 2207671221989, "bandwidth": 1}, {"name": "level1"}]
    given |= {"state_size": 311891520, "tape_size": 476881704534, "storage": storage}
    options = {"iterations": 5, "moves": 500, "window": 100, "work": 0.001}
    result = remat.solve(given, algorithm="adjoint-best", budget={"level0": 7, "level1": 2}, options=options)
    assert result.makespan is None
    assert result.least_budget.size == 311891520
    assert len(tried) <= 8, tried
