"""Bounds in whole numbers: exact where times are huge, rounded up, and never above the best of all schedules."""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.graph.bounds import makespan_bound, memory_time_bound
from remat.solving.problem_setup import make_problem
from tests.verifier.judges import Case

HUGE = st.integers(2**57, 2**58)
SPEEDS = st.sampled_from((1, 0.5, 0.25, 0.1, 0.3, 0.7))


def case_of(times: list[int], speeds: list[float], **more: Any) -> Case:
    """Independent tasks on processors of these speeds, the first being 1."""
    processors = [
        {"name": f"p{k}", "memory": "m"} | ({} if speed == 1 else {"speed": speed}) for k, speed in enumerate(speeds)
    ]
    machine = {"memories": [{"name": "m", **more}], "processors": processors}
    tasks = [{"id": f"t{k}", "time": time, "size": 1} for k, time in enumerate(times)]
    return Case({"schema": "remat.instance/2", "kind": "dag", "machine": machine, "tasks": tasks})


def verified_makespan(case: Case, where: tuple[int, ...]) -> int | float:
    """Let each task run where it is sent, without pauses, and ask the referee how long it takes."""
    ends: dict[int, Any] = {}
    steps = []
    for task, processor in enumerate(where):
        time = int(case.graph.time[task])
        speed = case.machine.processors[processor].speed
        quotient = time / speed
        took = time if speed == 1 else int(quotient) if quotient.is_integer() and quotient < 2**53 else quotient
        name = case.machine.processors[processor].name
        steps.append({"run": f"t{task}", "on": [name], "start": ends.get(processor, 0)})
        ends[processor] = ends.get(processor, 0) + took
    report = case.verify(steps)
    assert report.ok, report.violations
    return report.makespan


def least_makespan(case: Case) -> int | float:
    places = range(len(case.machine.processors))
    return min(verified_makespan(case, where) for where in product(places, repeat=len(case.graph.tasks)))


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(st.lists(HUGE, min_size=4, max_size=5), st.just(2))
def test_huge_times_on_equal_processors(times: list[int], processors: int) -> None:
    case = case_of(times, [1] * processors)
    bound, best = makespan_bound(case.graph, case.machine), least_makespan(case)
    assert isinstance(bound, int)
    assert isinstance(best, int)
    step = math.gcd(*times)
    assert max(max(times), -(-sum(times) // (processors * step)) * step) == bound <= best


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.lists(SPEEDS, min_size=1, max_size=2))
def test_speeds_given_as_decimals(times: list[int], slower: list[float]) -> None:
    case = case_of(times, [1, *slower])
    bound, best = makespan_bound(case.graph, case.machine), least_makespan(case)
    if isinstance(bound, int) and isinstance(best, int):
        assert bound <= best
    else:
        assert bound <= best * (1 + 1e-15)
    assert bound >= sum(times) / (1 + sum(slower)) * (1 - 1e-15)


def test_the_sum_of_the_speeds_is_exact() -> None:
    # 1 + .1 + .2 + .7 is 2; in float64, in this order, it is less.
    case = case_of([14] * 4 + [7], [1, 0.1, 0.2, 0.7])
    assert 1 + 0.1 + 0.2 + 0.7 == 2.0
    # 63 / 2, rounded up to a multiple of 5: 7 takes 35 or 10 on the slow ones, 14 takes 20 on the fastest of these.
    assert repr(makespan_bound(case.graph, case.machine)) == "32"
    case = case_of([7 * 2**50 + 7] * 3, [1, 0.1, 0.1, 0.1])
    assert makespan_bound(case.graph, case.machine) <= (21 * 2**50 + 21) * 10 / 13


def test_the_largest_float_times_have_a_finite_bound() -> None:
    case = case_of([1e300, 1e300], [1, 1], capacity=2**61)  # type: ignore[list-item]
    tasks = [task | {"size": 2**60, "workspace": 2**60} for task in case.document["tasks"]]
    case = Case(case.document | {"tasks": tasks})
    bound = memory_time_bound(case.graph, case.machine)
    assert 0 < bound <= 2e300


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.lists(HUGE, min_size=1, max_size=5), st.integers(1, 5))
def test_bytes_times_huge_times(times: list[int], capacity: int) -> None:
    case = case_of(times, [1, 1], capacity=capacity)
    # Each run writes a separate byte.
    step = math.gcd(*times)
    assert repr(memory_time_bound(case.graph, case.machine)) == str(-(-sum(times) // (capacity * step)) * step)


@pytest.mark.parametrize("factor", [1, 4, 2**40])
def test_a_common_step_of_all_times_is_kept(factor: int) -> None:
    """Two processors, three tasks of 2: one runs two of them. Scaled times change nothing but the unit."""
    tasks = [{"id": f"t{k}", "time": 2 * factor, "writes": [f"v{k}"]} for k in range(3)]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks}
    document["values"] = [{"id": f"v{k}", "size": 1} for k in range(3)]
    document["machine"] = {
        "memories": [{"name": "memory"}],
        "processors": [{"name": "cpu", "memory": "memory", "count": 2}],
    }
    problem = make_problem(remat.load(document))
    assert problem.least_makespan == 4 * factor
