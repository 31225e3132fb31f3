"""Test first schedules of large graphs: they fit, run all required tasks, and need a time limit."""

import random
import time

import pytest

import remat
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat.verifier import check
from remat_algorithms.dag.first_schedule import LARGE, first_runs, report_first


def chain(draw, count):
    stages = [
        {
            "forward_time": draw.randint(1, 9),
            "backward_time": draw.randint(1, 9),
            "output_size": draw.randint(1, 9),
            "saved_size": draw.randint(0, 20),
        }
        for _ in range(count)
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 3, "stages": stages}


def adjoint(draw, count):
    steps = [{"forward_time": draw.randint(1, 9), "state_size": draw.randint(1, 9)} for _ in range(count)]
    return {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps}


def graph(draw, count):
    """Draw a network's forward with skip connections, and its backward, whose tasks run once."""
    sizes, forward, backward = {"x0": 3}, [], []
    for k in range(1, count + 1):
        reads = sorted({f"x{k - 1}", f"x{draw.randrange(max(0, k - 6), k)}"})
        sizes |= {f"x{k}": draw.randint(1, 9), f"y{k - 1}": draw.randint(1, 9)}
        forward.append({"id": f"F{k}", "time": draw.randint(1, 9), "reads": reads, "writes": [f"x{k}"]})
        after = [f"y{k}"] if k < count else []
        task = {"id": f"B{k}", "time": 2, "reads": [*reads, f"x{k}", *after], "writes": [f"y{k - 1}"]}
        backward.insert(0, task | {"once": True, "workspace": draw.randint(0, 3), "in_place": draw.random() < 0.3})
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": forward + backward,
        "values": [{"id": name, "size": size} for name, size in sizes.items()],
        "inputs": ["x0"],
        "outputs": ["y0"],
    }


DRAWN = [(make, seed) for make in (chain, adjoint, graph) for seed in range(3)]


def problem_of(make, seed, count=LARGE):
    draw = random.Random(seed)
    return make_problem(remat.load(make(draw, count)), budget=f"{draw.choice([25, 40, 70])}%")


@pytest.mark.parametrize(("make", "seed"), DRAWN)
def test_the_verifier_accepts_it(make, seed):
    problem = problem_of(make, seed)
    context = Context(deadline=time.monotonic() + 1e6)
    assert report_first(problem, context)
    report = check(problem.graph, problem.machine, context.best_steps)
    assert report.violations == ()
    assert report.makespan == context.best_makespan


def test_it_needs_a_time_limit_and_a_large_graph():
    problem = problem_of(chain, 1)
    assert not report_first(problem, Context())
    small = problem_of(chain, 1, count=20)
    assert not report_first(small, Context(deadline=time.monotonic() + 1e6))


def test_values_that_nobody_makes_again_stay():
    problem = problem_of(graph, 2)
    runs = first_runs(problem)
    once = problem.graph.once.tolist()
    assert len(set(runs)) < len(runs)
    assert all(runs.count(task) == 1 for task in set(runs) if once[task])


def test_first_runs_stop_on_request():
    calls = []

    def stopped():
        calls.append(True)
        return True

    assert first_runs(problem_of(adjoint, 1, count=3 * LARGE), stopped) is None
    assert len(calls) == 1
