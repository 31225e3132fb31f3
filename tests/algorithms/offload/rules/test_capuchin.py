"""`capuchin`: hidden swaps, then swap or remake; timelines worked out by hand, and machines that cannot swap."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import chains
from remat_algorithms.offload.rules.capuchin import by_free_time, free_time, wait
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.recompute import Remaking
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order
from tests.algorithms.offload.machines import two_memories
from tests.algorithms.offload.timelines import EQUAL, starts, timeline


def choice_of(bandwidth: float) -> Choice:
    problem = make_problem(remat.load(EQUAL), machine=two_memories(bandwidth), budget={"device": 20})
    return Choice(problem, Order.of(problem), routes(problem.machine))


def test_free_time_of_values_is_as_by_hand() -> None:
    """On EQUAL at 1 a unit of time, 4 + 4 for a round trip; x0's gap lasts from 1 to 13, x1's 2-11, 3-9, 4-7, 5-5."""
    choice = choice_of(1)
    gaps = choice.candidates[::-1]
    assert [choice.order.gaps[gap].value for gap in gaps] == [0, 1, 2, 3, 4]
    assert free_time(choice)[gaps].tolist() == [4, 1, -2, -5, -8]
    # Out: x0 1-5, x1 5-9; back: x0 9-13, x1 5-9: x1 would be late by 4.
    assert [wait(choice, [gap]) for gap in gaps] == [-4, -1, 2, 5, 8]
    assert wait(choice, gaps[:2].tolist()) == 4
    hidden, exposed = by_free_time(choice, lambda: False)
    assert hidden == gaps[:1].tolist()
    assert exposed == gaps[1:].tolist()
    assert by_free_time(choice, lambda: True) == ([], gaps.tolist())


# EQUAL in 20, at 1 a unit of time. x0 is hidden and leaves; with it, x1 would wait for 4. Too many are then 4 with the
# loss, 8 with B5, 4 with B4. Recomputing x1, x2 or x3 takes one forward each; x1 has most free time and reruns before
# B2. 4 with B5 are left. x2 would now take 2, through x1, and x3 takes 1, from x2: x3 is recomputed before B4.
#   x0 leaves 0-4, when Fe5 needs its bytes. x1 goes after Fe2, x3 after Fe4. B5 holds x2 x4 x5 y5 y4 = 20, B4 x2 x3 x4
#   y4 y3 = 20; during B3, with 16, x0 comes back for F1: 10-14.
MIXED = """
    0   Fe1, x0 out
    1   Fe2
    2   Fe3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   F3
    8   B4
    10  B3, x0 back
    14  F1
    15  B2
    17  B1
"""

# At 4 a unit of time everything but x4 is hidden; x0, x1 and x2 are enough, and all leave at once and early.
#   B4 holds 28 - 12 = 16, so x2 fits at 7; B3 holds x2 x3 y3 y2 = 16, so x1 fits at 9; with B2, x0 fits at 11.
HIDDEN = """
    0   Fe1, x0 out
    1   Fe2, x1 out
    2   Fe3, x2 out
    3   Fe4
    4   Fe5
    5   loss, B5
    7   B4, x2 back
    9   B3, x1 back
    11  B2, x0 back
    13  B1
"""


@pytest.mark.parametrize(("bandwidth", "expected", "end"), [(1, MIXED, 19), (4, HIDDEN, 15)])
def test_schedules_equal_the_timelines_by_hand(bandwidth: int, expected: str, end: int) -> None:
    result = remat.solve(EQUAL, algorithm="capuchin", machine=two_memories(bandwidth), budget={"device": 20})
    assert starts(result) == timeline(expected)
    assert result.makespan == end
    assert result.peak_memory["device"] == 20


def test_recompute_time_includes_lost_inputs() -> None:
    """Recomputing a value includes its inputs that are lost then; tasks that run once are never recomputed."""
    choice = choice_of(1)
    remaking = Remaking(choice.order)
    x0, x1, x2, x3, _ = choice.candidates[::-1].tolist()
    assert remaking.time(x3, []) == 1
    assert remaking.time(x3, [x2]) == 2
    assert remaking.time(x3, [x2, x1]) == 3
    assert remaking.time(x2, [x3]) == 1
    assert remaking.time(x0, []) == float("inf")
    names = choice.problem.graph.tasks
    kept = remaking.order_without([x2, x3], keep=True)
    assert kept is not None
    backwards = ["loss", "B5", "F2", "F3", "B4", "B3", "B2", "B1"]
    assert [names[task] for task in kept.tasks][5:] == backwards
    assert kept.origin[5:] == [5, 6, -1, -1, 7, 8, 9, 10]
    anew = remaking.order_without([x2, x3], keep=False)
    assert anew is not None
    assert [names[task] for task in anew.tasks][5:] == ["loss", "B5", "F2", "F3", "B4", "F2", "B3", "B2", "B1"]
    assert remaking.order_without([x0], keep=True) is None


@pytest.mark.parametrize(
    "machine",
    [
        None,
        two_memories(1) | {"links": two_memories(1)["links"][:1]},
        two_memories(1) | {"memories": [{"name": "device"}, {"name": "host", "capacity": 3}]},
    ],
)
def test_where_nothing_can_be_swapped_values_are_remade(machine: dict[str, Any] | None) -> None:
    """Test machines without a second memory, without a link back, and with a small host."""
    name = "memory" if machine is None else "device"
    result = remat.solve(EQUAL, algorithm="capuchin", machine=machine, budget={name: 20})
    assert result.makespan is not None
    assert result.makespan > 15
    assert result.recompute_time == result.makespan - 15
    assert not any(what.endswith("out") for _, what in starts(result))
    tight = remat.solve(EQUAL, algorithm="capuchin", machine=machine, budget={name: 15})
    assert str(tight.status) == "infeasible"
    assert tight.least_budget is not None
    assert tight.least_budget.size == 16


@settings(max_examples=25, deadline=None)
@given(chains(plain=True), st.floats(0, 1))
def test_a_schedule_wherever_swaps_alone_find_one(document: dict[str, Any], share: float) -> None:
    document.pop("machine", None)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    budget = {"device": int(share * peak)}
    greedy = remat.solve(document, algorithm="offload-greedy", machine=machine, budget=budget, options={"bound": False})
    found = remat.solve(document, algorithm="capuchin", machine=machine, budget=budget)
    assert found.makespan is not None or greedy.makespan is None


@pytest.mark.parametrize("more", [{"channels": ("bus", "bus")}, {"channels": ("gpu", "gpu")}, {"latency": 1}])
def test_other_machines_are_never_faster(more: dict[str, Any]) -> None:
    free = remat.solve(EQUAL, algorithm="capuchin", machine=two_memories(4), budget={"device": 20}).makespan
    result = remat.solve(EQUAL, algorithm="capuchin", machine=two_memories(4, **more), budget={"device": 20})
    assert free is not None
    assert result.makespan is not None
    assert result.makespan >= free


@pytest.mark.parametrize("seed", range(30))
def test_times_of_remaking_are_those_of_one_who_forgets(seed: int) -> None:
    """Cached recomputation times equal fresh ones after further losses; some values have two producers."""
    draw = random.Random(seed)
    values = [{"id": f"x{k}", "size": 1} for k in range(12)]
    tasks: list[dict[str, Any]] = []
    for k in range(1, 12):
        reads = sorted({f"x{draw.randrange(k)}" for _ in range(draw.randint(1, 3))})
        also = [f"x{k - 1}"] if k > 1 and f"x{k - 1}" not in reads and draw.random() < 0.5 else []
        tasks.append({"id": f"T{k}", "time": draw.randint(1, 3), "reads": reads, "writes": [*also, f"x{k}"]})
    tasks.append({"id": "last", "time": 1, "reads": [value["id"] for value in values], "writes": []})
    document = {"schema": "remat.instance/1", "kind": "dag", "units": {"time": "unit", "memory": "unit"}}
    document |= {"tasks": tasks, "values": values, "inputs": ["x0"]}
    problem = make_problem(remat.load(document), budget=100)
    order = Order.of(problem)
    remembering = Remaking(order)
    lost: list[int] = []
    for gap in draw.sample(range(len(order.gaps)), len(order.gaps)):
        for other in range(len(order.gaps)):
            assert remembering.time(other, lost) == Remaking(order).time(other, lost)
        lost.append(gap)
