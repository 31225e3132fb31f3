"""`tflms` and `autoswap`: scores and timelines by hand, and unsuitable machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import chains
from remat_algorithms.offload.rules.autoswap import Scores, weighted_absence
from remat_algorithms.offload.rules.tflms import Triggers
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.swaps import Order
from tests.algorithms.offload.machines import assert_ways_are_needed, two_memories
from tests.algorithms.offload.timelines import EQUAL, FIVE, starts, timeline

NAMES = ("tflms", "autoswap")


# FIVE's gaps: x0 from run 0 to 10, x1 1-9, x2 2-8, x3 3-7, x4 4-6. Longer than 5 runs: x0, x1, x2, of 4 6 6: they leave
# as soon as they are written, on a channel of 2 a unit of time, in 2 3 3, and come back in 4 6 6.
#
# One run ahead, x2 starts with B4 (14) and holds up B3 until 20; x1 with B3, until 26; x0 with B2, until 30.
ONE_AHEAD = """
    0   Fe1, x0 out
    2   Fe2, x1 out
    3   Fe3
    5   x2 out
    6   Fe4
    7   Fe5
    9   loss, B5
    14  B4, x2 back
    20  B3, x1 back
    26  B2, x0 back
    30  B1
"""

# Two runs ahead, x2 starts with B5 (9), x1 when the channel is free (15), x0 again (21).
TWO_AHEAD = """
    0   Fe1, x0 out
    2   Fe2, x1 out
    3   Fe3
    5   x2 out
    6   Fe4
    7   Fe5
    9   loss, B5, x2 back
    14  B4
    15  B3, x1 back
    21  B2, x0 back
    25  B1
"""


@pytest.mark.parametrize(("ahead", "expected", "end"), [(1, ONE_AHEAD, 34), (2, TWO_AHEAD, 29)])
def test_tflms_equals_the_timelines_by_hand(ahead: int, expected: str, end: int) -> None:
    options = {"threshold": 5, "ahead": ahead}
    result = remat.solve(FIVE, algorithm="tflms", machine=two_memories(2, 1), options=options)
    assert starts(result) == timeline(expected)
    assert result.makespan == end


# A graph that is no chain: a makes b and c, which d joins; back come d', then c' and b', which do not depend
# on each other, then a'. The gap of a lasts from c (run 2) to a' (run 8), that of b from d (3) to b' (7).
#
# `direct-order` takes the run before the use that leads to it: b' for a; for b not c', but d' (5).
# `chain-rule` looks at what reads c in the backward: c' for a; and d: d' for b.
BRANCHES: dict[str, Any] = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "tasks": [
        {"id": name, "time": 1, "size": 4, "reads": list(reads), "phase": "forward" if name in "abcd" else "backward"}
        for name, reads in [("a", ""), ("b", "a"), ("c", "a"), ("d", "bc"), ("l", "d")]
    ]
    + [
        {"id": name, "time": 1, "size": 4, "reads": reads, "phase": "backward"}
        for name, reads in [("d'", ["l", "d"]), ("c'", ["d'", "c"]), ("b'", ["d'", "b"]), ("a'", ["b'", "c'", "a"])]
    ],
    "outputs": ["a'"],
}


@pytest.mark.parametrize(("strategy", "of_a"), [("direct-order", "b'"), ("chain-rule", "c'")])
def test_the_run_that_a_copy_back_waits_for_leads_to_its_use(strategy: Any, of_a: str) -> None:
    problem = make_problem(remat.load(BRANCHES), machine=two_memories(4))
    choice = Choice(problem, Order.of(problem), routes(problem.machine))
    finder = Triggers(choice, 10)
    gap_of = {problem.graph.values[choice.order.gaps[gap].value]: gap for gap in finder.gaps(1, grouped=True).tolist()}
    names = [problem.graph.tasks[task] for task in choice.order.tasks]
    found = {value: names[finder.trigger(gap, 1, strategy)] for value, gap in gap_of.items()}
    assert {value: found[value] for value in "ab"} == {"a": of_a, "b": "d'"}
    # Two runs ahead of a' is c', on which it depends; the lower bound of 3 leads to d'.
    assert [names[finder.trigger(gap_of["a"], ahead, strategy)] for ahead in (2, 3)] == ["c'", "d'"]


def test_grouped_copies_come_back_once() -> None:
    """x is read by two backwards far apart: single gaps of both leave, grouped ones stay between the two."""
    tasks = [
        {"id": "f", "time": 1, "size": 4, "phase": "forward"},
        *(
            {"id": f"p{k}", "time": 1, "size": 1, "reads": [f"p{k - 1}" if k else "f"], "phase": "forward"}
            for k in range(4)
        ),
        {"id": "g", "time": 1, "size": 1, "reads": ["p3", "f"], "phase": "backward"},
        *(
            {"id": f"q{k}", "time": 1, "size": 1, "reads": [f"q{k - 1}" if k else "g"], "phase": "backward"}
            for k in range(4)
        ),
        {"id": "h", "time": 1, "size": 1, "reads": ["q3", "f"], "phase": "backward"},
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["h"]}
    found = {}
    for grouped in (False, True):
        options = {"threshold": 3, "ahead": 1, "grouped": grouped}
        result = remat.solve(document, algorithm="tflms", machine=two_memories(4), options=options)
        found[grouped] = [what for _, what in starts(result) if what == "f back"]
    assert (len(found[False]), len(found[True])) == (2, 1)


# EQUAL in 24: 8 too many with B5, so that two gaps must leave, the longest ones: x0 and x1.
FEW_LEAVE = """
    0   Fe1, x0 out
    1   Fe2, x1 out
    2   Fe3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   B4
    9   B3, x1 back
    11  B2, x0 back
    13  B1
"""

# The same two for `autoswap`, but they return as early as they fit: x1 during B4, which holds 28 - 8; x0 during B3.
EARLY = """
    0   Fe1, x0 out
    1   Fe2, x1 out
    2   Fe3
    3   Fe4
    4   Fe5
    5   loss, B5
    7   B4, x1 back
    9   B3, x0 back
    11  B2
    13  B1
"""


@pytest.mark.parametrize(("algorithm", "expected"), [("tflms", FEW_LEAVE), ("autoswap", EARLY)])
def test_only_what_must_leave_leaves(algorithm: str, expected: str) -> None:
    result = remat.solve(EQUAL, algorithm=algorithm, machine=two_memories(4), budget={"device": 24})
    assert starts(result) == timeline(expected)
    assert result.makespan == 15
    assert result.peak_memory["device"] == 24


def test_tflms_takes_as_many_as_it_may() -> None:
    result = remat.solve(
        EQUAL, algorithm="tflms", machine=two_memories(4), options={"threshold": 1, "tensors": 3, "ahead": 0}
    )
    assert {what for _, what in starts(result) if what.endswith("out")} == {"x0 out", "x1 out", "x2 out"}


def test_scores_of_autoswap() -> None:
    """On EQUAL, transfers of 1: x0 has left at 2 and starts back at 12, x1 3-10, x2 4-8, x3 5-6, x4 6-4."""
    problem = make_problem(remat.load(EQUAL), machine=two_memories(4), budget={"device": 24})
    choice = Choice(problem, Order.of(problem), routes(problem.machine))
    scores = Scores.of(choice)
    assert [choice.order.gaps[gap].value for gap in scores.gaps[::-1]] == [0, 1, 2, 3, 4]
    assert scores.absence[::-1].tolist() == [10, 7, 4, 1, -2]
    assert scores.area[::-1].tolist() == [40, 28, 16, 4, -0.5]
    # x0: 16 + 20 + 24 while forwards run, then 2 (32 + 28 + 24) and half of B2's 2 * 20. x1: 20 + 24 + 2 (32 + 28) and
    # half of B3. x2: 24 + 2 * 32 and half of B4. x3: half of B5.
    assert scores.load[::-1].tolist() == [248, 188, 116, 32, -0.5]
    # Without x0 the runs 1 to 9 hold 4 less.
    profile = choice.profile.copy()
    profile[1:10] -= 4
    begins = choice.order.start_times.astype(np.float64)
    again = weighted_absence(begins, profile, scores.leaves, scores.returns, scores.area)
    assert again[::-1].tolist() == [208, 160, 100, 28, -0.5]


@settings(max_examples=25, deadline=None)
@given(chains(plain=True), st.floats(0, 1))
def test_autoswap_finds_a_schedule_wherever_one_exists(document: dict[str, Any], share: float) -> None:
    """As `offload-greedy` does: both take everything that can leave if they must."""
    document.pop("machine", None)
    machine = two_memories(3, 2)
    peak = remat.solve(document, algorithm="keep-all", machine=machine).peak_memory["device"]
    budget = {"device": int(share * peak)}
    greedy = remat.solve(document, algorithm="offload-greedy", machine=machine, budget=budget, options={"bound": False})
    found = remat.solve(document, algorithm="autoswap", machine=machine, budget=budget, options={"grid": 2})
    assert str(found.status) in ("optimal", str(greedy.status)) or str(greedy.status) == "optimal"
    assert (found.makespan is None) == (greedy.makespan is None)


@pytest.mark.parametrize("algorithm", NAMES)
def test_other_machines_have_valid_schedules(algorithm: str) -> None:
    """Half duplex, a synchronous channel, a latency: valid schedules, by hand where nothing overlaps."""
    for machine in (two_memories(4, channels=("bus", "bus")), two_memories(4, latency=1)):
        result = remat.solve(EQUAL, algorithm=algorithm, machine=machine, budget={"device": 24})
        assert result.makespan == 15  # there is time enough for 8 bytes each way
    result = remat.solve(
        EQUAL, algorithm=algorithm, machine=two_memories(4, channels=("gpu", "gpu")), budget={"device": 24}
    )
    assert result.makespan == 15 + 4  # four transfers of 1, during which nothing runs


@pytest.mark.parametrize("algorithm", NAMES)
def test_machines_without_enough_links_or_memory_have_no_schedule(algorithm: str) -> None:
    assert_ways_are_needed(EQUAL, algorithm)
    small = two_memories(1) | {"memories": [{"name": "device"}, {"name": "host", "capacity": 3}]}
    result = remat.solve(EQUAL, algorithm=algorithm, machine=small, budget={"device": 24})
    assert str(result.status) == "unknown"
    assert "other memories" in " ".join(result.notes)


# A backward holds two x and two y, of 4 each; with `tflms`, B5 also what B4 reads.
@pytest.mark.parametrize(("algorithm", "least"), [("tflms", 20), ("autoswap", 16)])
def test_infeasible_budgets_say_what_they_need(algorithm: str, least: int) -> None:
    tight = remat.solve(EQUAL, algorithm=algorithm, machine=two_memories(4), budget={"device": 15})
    assert str(tight.status) == "infeasible"
    assert tight.least_budget is not None
    assert tight.least_budget.size == least
    enough = remat.solve(EQUAL, algorithm=algorithm, machine=two_memories(4), budget={"device": least})
    assert enough.makespan is not None


def test_tflms_tells_a_small_device_from_a_small_host() -> None:
    """One run ahead, FIVE needs 28 with B2 however much leaves: x0 is back next to x1, x2, y2, y1."""
    machine = two_memories(2, 1)
    machine["memories"][1]["capacity"] = 3
    result = remat.solve(FIVE, algorithm="tflms", machine=machine, budget={"device": 27})
    assert result.scope is None  # its rules build many schedules, and another budget may bring up others
    assert result.least_budget is not None
    assert result.least_budget.size == 28
    assert result.least_budget.sufficient


def test_tflms_leaves_alone_what_would_come_back_at_once() -> None:
    """The input is needed by the second of two runs; one run ahead of that is the first."""
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "values": [{"id": "input", "size": 1}],
        "tasks": [{"id": "one", "time": 1, "writes": []}, {"id": "two", "time": 1, "reads": ["input"], "writes": []}],
        "inputs": ["input"],
    }
    given: dict[str, Any] = {"algorithm": "tflms", "machine": two_memories(1), "budget": {"device": 1}}
    assert remat.solve(document, **given, options={"threshold": 1}).makespan == 2


@pytest.mark.parametrize("name", [*NAMES, "capuchin", "swapadvisor"])
def test_an_output_that_begins_elsewhere_and_is_never_written_comes_over(name: str) -> None:
    document = {
        "schema": "remat.instance/2",
        "kind": "dag",
        "machine": two_memories(1),
        "tasks": [{"id": "t", "time": 1, "writes": ["v"]}],
        "values": [{"id": "i", "size": 3}, {"id": "v", "size": 1}],
        "inputs": [{"value": "i", "memory": "host"}],
        "outputs": ["i", "v"],
    }
    assert remat.solve(document, algorithm=name).makespan == 3
