"""The bound on the work of processors of several types, against a linear program and against all assignments."""

import itertools
import random

import numpy as np
import pytest
from scipy.optimize import linprog

import remat
from remat.graph.bounds import makespan_bound
from remat.graph.typed_work import typed_share
from remat.solving.problem_setup import make_problem


def drawn(number):
    """Return the problem of a drawn graph on processors of up to three types, and the times by type."""
    chance = random.Random(f"types {number}")
    kinds = ["a", "b", "c"][: chance.randint(2, 3)]
    times = [{kind: chance.randint(0, 9) for kind in kinds} for _ in range(chance.randint(1, 6))]
    for entry in times:
        if chance.random() < 0.3:
            del entry[chance.choice(kinds)]
    tasks = [{"id": f"t{k}", "time": entry, "reads": [], "writes": []} for k, entry in enumerate(times)]
    used = [*kinds, *chance.choices(kinds, k=chance.randint(0, 1))]
    processors = [{"name": f"p{k}", "memory": "m", "type": kind} for k, kind in enumerate(used)]
    machine = {"memories": [{"name": "m"}], "processors": processors}
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "values": [], "machine": machine}
    return make_problem(remat.load(document)), times, used


def bound(problem):
    forced = np.ones(len(problem.graph.tasks), dtype=bool)
    return typed_share(problem.graph, problem.machine, forced)


@pytest.mark.parametrize("numbers", [range(k, 120, 10) for k in range(10)])
def test_no_assignment_takes_less_and_the_program_hardly_more(numbers):
    reached = []
    for number in numbers:
        problem, times, used = drawn(number)
        ways = [[k for k, kind in enumerate(used) if kind in entry] for entry in times]
        least = min(
            max(
                sum(times[task][used[k]] for task, k in enumerate(chosen) if k == processor)
                for processor in range(len(used))
            )
            for chosen in itertools.product(*ways)
        )
        found = bound(problem)
        assert found <= least
        assert makespan_bound(problem.graph, problem.machine) <= least
        cells = [(task, k) for task, own in enumerate(ways) for k in own]
        work = [[times[task][used[k]] * (k == processor) for task, k in cells] + [-1] for processor in range(len(used))]
        once = [[float(task == own) for task, _ in cells] + [0] for own in range(len(times))]
        program = linprog([0] * len(cells) + [1], work, [0] * len(used), once, [1] * len(times))
        assert float(found) <= program.fun + 1e-6
        reached.append(float(found) / program.fun if program.fun > 1e-9 else 1.0)
    assert np.mean(reached) > 0.9


def test_a_slow_processor_counts_for_its_speed():
    used = ["slow", "fast", "fast", "fast"]
    processors = [{"name": f"p{k}", "memory": "m", "type": kind} for k, kind in enumerate(used)]
    machine = {"memories": [{"name": "m"}], "processors": processors}
    tasks = [{"id": f"t{k}", "time": {"fast": 9, "slow": 18}, "reads": [], "writes": []} for k in range(192)]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "values": [], "machine": machine}
    assert bound(make_problem(remat.load(document))) == pytest.approx(1728 / 3.5, rel=0.01)
