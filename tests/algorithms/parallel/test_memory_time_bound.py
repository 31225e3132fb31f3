"""The bound from bytes times time: by hand, and at most the optimum of exhaustive search."""

from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.graph.bounds import memory_time_bound
from remat.instance import load
from remat.solving.problem_setup import make_problem
from tests.algorithms.parallel.cases import machine, peak, tree
from tests.algorithms.parallel.optimum import shortest


def bound(document, processors, capacity):
    problem = make_problem(load(document), machine=machine(processors, capacity))
    return memory_time_bound(problem.graph, problem.machine)


def test_tasks_that_need_the_whole_memory():
    # Each leaf takes all 10 bytes but the other's output: nothing overlaps, whatever the processors.
    document = tree([-1, 0, 0], [0, 0, 0], workspace=[10, 10, 10], time=[2, 3, 4])
    assert bound(document, 8, 10) == 9
    assert repr(bound(document, 8, 20)) == "5"  # 9 * 10 / 20, rounded up
    assert bound(document, 8, None) == 0


def test_node_parallelism_shortens_the_runs():
    document = tree([-1], [10], time=[8], parallel={"max": 16, "alpha": 0.5})
    assert bound(document, 4, 10) == 4


def test_readers_share_a_value():
    tasks = [{"id": "a", "time": 2, "size": 6}] + [
        {"id": f"r{i}", "time": 3, "reads": ["a"], "writes": []} for i in range(3)
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks}
    # 6 bytes for 2, and a third of them for 3 in each of the three readers.
    assert bound(document, 2, 6) == 5
    assert isinstance(bound(document, 2, 6), int)


def test_pinned_inputs_and_static_memory_are_no_room():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "x", "size": 5}],
        "inputs": ["x"],
        "pinned_inputs": ["x"],
        "static_memory": 3,
        "tasks": [{"id": "a", "time": 2, "reads": ["x"], "size": 4}, {"id": "b", "time": 2, "reads": ["x"], "size": 4}],
    }
    assert bound(document, 2, 12) == 4
    assert bound(document, 2, 8) == 0


def test_outputs_that_take_over_inputs_count_once():
    task = {"id": "a", "time": 2, "reads": ["x"], "size": 4, "in_place": True}
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "x", "size": 6}],
        "inputs": ["x"],
        "tasks": [task],
    }
    assert bound(document, 2, 6) == 2


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(st.data())
def test_below_the_optimum(data):
    count = data.draw(st.integers(1, 6))
    parent = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, count))]
    size, workspace, time = (data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)) for _ in range(3))
    document = tree(parent, size, workspace=workspace, time=time)
    capacity = peak(remat.solve(document, algorithm="liu")) + data.draw(st.integers(0, 4))
    processors = data.draw(st.integers(2, 3))
    assert bound(document, processors, capacity) <= shortest(parent, size, workspace, time, processors, capacity) + 1e-9
