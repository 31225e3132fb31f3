"""Test lifetimes and arenas of orders of runs against placed and verified schedules."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remat.instance import load
from remat.placement import place
from remat.plugin.emit import run_in_order
from remat.solving.problem_setup import make_problem
from remat.solving.run_orders import OrderSearch, RunOrders, greedy_arena, live_bytes
from remat.verifier import check
from remat.verifier.residencies import residencies_of
from tests.oracles import layouts

SEEDS = st.integers(0, 2**32)


def instance(seed, *, in_place=False):
    draw = random.Random(seed)
    tasks, values = [], [{"id": "x", "size": 3}]
    for k in range(draw.randint(2, 8)):
        reads = [f"v{j}" for j in range(k) if draw.random() < 0.5] or ["x"]
        task = {"id": f"t{k}", "time": draw.randint(1, 5), "reads": reads, "writes": [f"v{k}"]}
        task |= {"workspace": draw.randint(0, 4), "in_place": in_place and draw.random() < 0.6}
        tasks.append(task)
        values.append({"id": f"v{k}", "size": draw.randint(1, 9)})
    used = {value for task in tasks for value in task["reads"]}
    for k, task in enumerate(tasks):
        if f"v{k}" not in used:
            task["required"] = True
    inputs = [{"value": "x"}]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "inputs": inputs}


def drawn_order(orders, draw):
    """Return the tasks in reference order, after a few changes that leave a valid order."""
    order = list(range(len(orders.reads)))
    for _ in range(8):
        changed = orders.changed(order, draw, 0.5)
        if changed is not None and orders.lifetimes(changed) is not None:
            order = changed
    return order


def prepared(document):
    return make_problem(load(document), budget=1_000_000)


def verified(problem, order):
    steps = run_in_order(problem.graph, problem.machine, order)
    steps = steps.placed(place(problem.graph, problem.machine, steps).start)
    report = check(problem.graph, problem.machine, steps)
    assert report.ok
    return steps, report


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_lifetimes_are_those_of_the_schedule(seed):
    problem = prepared(instance(seed) | {"static_memory": seed % 3})
    orders, draw = RunOrders(problem), random.Random(seed)
    order = drawn_order(orders, draw)
    lives = orders.lifetimes(order)
    steps, report = verified(problem, order)
    held = residencies_of(problem.graph, problem.machine, steps)
    assert sorted(size for _, _, size in lives) == sorted(held.size.tolist())
    assert live_bytes(lives) + seed % 3 == report.peaks["memory"].size
    assert orders.total_time(order) == report.makespan
    assert orders.capacity == 1_000_000 - seed % 3
    pairs = [
        sum(
            first[k] < last[j] and first[j] < last[k] for k in range(len(first)) for j in range(k)
        )  # pairs that live at one time
        for first, last in (
            ([life[0] for life in lives], [life[1] for life in lives]),
            (held.first.tolist(), held.last.tolist()),
        )
    ]
    assert pairs[0] == pairs[1]


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_an_output_takes_over_one_input_at_most(seed):
    """The verifier counts an output and all inputs that its run frees as the larger of the two."""
    document = instance(seed, in_place=True)
    problem = prepared(document)
    orders = RunOrders(problem)
    order = drawn_order(orders, random.Random(seed))
    _, report = verified(problem, order)
    for task in document["tasks"]:
        task["in_place"] = False
    apart = live_bytes(RunOrders(prepared(document)).lifetimes(order))
    assert report.peaks["memory"].size <= live_bytes(orders.lifetimes(order)) <= apart


@pytest.mark.parametrize(("size", "peak"), [(5, 8), (8, 9), (11, 12)])
def test_an_output_in_place_begins_where_its_input_ends(size, peak):
    tasks = [
        {"id": "A", "time": 1, "reads": [], "writes": ["a"]},
        {"id": "B", "time": 1, "reads": ["a"], "writes": ["b"], "in_place": True},
        {"id": "C", "time": 1, "reads": ["b"], "writes": ["c"], "required": True},
    ]
    values = [{"id": name, "size": held} for name, held in (("a", 8), ("b", size), ("c", 1))]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}
    problem = prepared(document)
    assert live_bytes(RunOrders(problem).lifetimes([0, 1, 2])) == peak
    assert verified(problem, [0, 1, 2])[1].peaks["memory"].size == peak


@settings(max_examples=25, derandomize=True, database=None, deadline=None)
@given(SEEDS)
def test_greedy_arenas_exist(seed):
    draw = random.Random(seed)
    lives = [(start := draw.randrange(6), start + draw.randint(1, 3), draw.randint(1, 9)) for _ in range(6)]
    columns = list(map(list, zip(*lives, strict=True)))
    least, total = layouts.smallest_arena(*columns), sum(columns[2])
    assert max(live_bytes(lives), least) <= greedy_arena(lives, 0) <= total
    assert greedy_arena(lives, total) <= total


def test_an_order_with_a_missing_input_is_invalid():
    orders = RunOrders(prepared(instance(1)))
    order = list(range(len(orders.reads)))
    assert orders.lifetimes(order) is not None
    assert orders.lifetimes(order[1:]) is None


def test_orders_come_faster_and_faster():
    problem = prepared(instance(5))
    orders = RunOrders(problem)
    order = [task for task in range(len(orders.reads)) for _ in range(2)]
    orders.capacity = live_bytes(orders.lifetimes(order))
    search = OrderSearch(orders, lambda lives: False, random.Random(0), 0.4)
    times = []
    for found in search.run(order, 400, 0, lambda: False):
        assert greedy_arena(orders.lifetimes(found), orders.capacity) <= orders.capacity
        times.append(orders.total_time(found))
    assert len(times) > 2
    assert times == sorted(set(times), reverse=True)
    assert times[-1] < orders.total_time(order)


def test_a_stop_ends_the_search_before_the_next_change():
    orders = RunOrders(prepared(instance(5)))
    order = [task for task in range(len(orders.reads)) for _ in range(2)]
    change, made = orders.changed, []
    orders.changed = lambda *given: made.append(0) or change(*given)
    list(OrderSearch(orders, lambda lives: False, random.Random(0), 0.4).run(order, 400, 0, lambda: len(made) == 3))
    assert len(made) == 3


def test_another_order_follows_one_that_is_refused():
    problem = prepared(instance(5))
    orders = RunOrders(problem)
    order = [task for task in range(len(orders.reads)) for _ in range(2)]
    orders.capacity = live_bytes(orders.lifetimes(order))

    def found(*, refuse):
        search, number = OrderSearch(orders, lambda lives: False, random.Random(0), 0.4), 0
        for changed in search.run(order, 2000, 0, lambda: False):
            number += 1
            search.refused = refuse
            assert orders.lifetimes(changed) is not None
        return number

    assert 0 < found(refuse=False) < found(refuse=True)


def test_a_task_that_cannot_be_recomputed_has_one_run():
    document = instance(5)
    for task in document["tasks"]:
        task["recomputable"] = False
    orders, draw = RunOrders(prepared(document)), random.Random(0)
    order = list(range(len(orders.reads)))
    for _ in range(100):
        changed = orders.changed(order, draw, 1.0)
        assert changed is None
