"""Test `two-level-async`: overlap, savings and memory needs."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.schedule.document import Copy, Run
from remat_algorithms.kit.binomial import advances

UNIT = {"time": "unit", "memory": "unit"}


def loop(n: int, slots: int, write: float, read: float, *, channel: bool = True, **more: Any) -> dict[str, Any]:
    disk: dict[str, Any] = {"name": "disk", "write_time": write, "read_time": read}
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": UNIT,
        "steps": n,
        "forward_time": 1,
        "backward_time": 2,
        "storage": [{"name": "ram", "slots": slots}, disk | ({"channel": "dma"} if channel else {})],
    }
    return document | more


def solve(document: dict[str, Any], room: int | None = None, **options: Any) -> remat.Result:
    budget = None if room is None else {"working": room}
    result = remat.solve(document, algorithm="two-level-async", budget=budget, options=options)
    assert result.report is not None
    assert result.report.profiles["disk"].size[-1] == result.report.profiles["ram"].size[-1] == 0
    return result


def computing(n: int, slots: int, period: int) -> int:
    """Return the time of the runs alone."""
    last = n - (n - 1) // period * period
    blocks = (n - 1) // period
    return n - last + blocks * advances(period, slots) + advances(last, slots) + 2 * n


@pytest.mark.parametrize(("n", "slots", "period"), [(100, 5, 8), (60, 3, 10), (33, 1, 8), (64, 8, 8)])
def test_every_transfer_is_hidden(n: int, slots: int, period: int) -> None:
    """A block that computes as long as its transfers hides them; the prefetch occupies a third working unit."""
    hidden = solve(loop(n, slots, 8, 8), 3, period=period)
    assert hidden.makespan == computing(n, slots, period)
    assert hidden.peak_memory["working"] == 3
    exposed = solve(loop(n, slots, 8, 8, channel=False), 3, period=period)
    transfers = 2 * ((n - 1) // period - 1)  # the last but one block's state stays in the working memory
    assert exposed.makespan == hidden.makespan + 8 * transfers


def test_worked_example_of_the_documentation() -> None:
    overlapped = solve(loop(100, 5, 8, 8), 3)
    assert overlapped.makespan == 407
    assert solve(loop(100, 5, 8, 8, channel=False), 3, period=8).makespan == 583
    in_two_states = solve(loop(100, 5, 8, 8))
    assert in_two_states.makespan == 437
    assert in_two_states.peak_memory["working"] == 2
    assert not in_two_states.notes
    writes_only = solve(loop(100, 2, 8, 8))  # the first level lacks two slots for the adjoint and the prefetched state
    assert "reads do not overlap" in writes_only.notes[0]
    best = remat.solve(loop(100, 5, 8, 8, channel=False), algorithm="disk-revolve")
    assert best.makespan == 492
    assert best.optimal_within


def test_writes_overlap_without_spare_room() -> None:
    n, slots, period = 60, 4, 10
    result = solve(loop(n, slots, 10, 5), period=period)
    assert result.makespan == computing(n, slots, period) + 5 * 5
    assert result.peak_memory["working"] == 2
    slow = solve(loop(n, slots, 12, 5), period=period)
    # Each write but the last holds up the next one by 2; the last one has the last block to end in.
    assert slow.makespan == result.makespan + 4 * 2


@pytest.mark.parametrize("n", [1, 2, 3, 9, 40])
@pytest.mark.parametrize("room", [None, 3])
@pytest.mark.parametrize("where", ["live", "ram", "disk"])
def test_small_loops_and_a_given_state(n: int, room: int | None, where: str) -> None:
    for period in (None, 1, 2, 7):
        document = loop(n, 2, 3, 2)
        free = solve(document, room, period=period)
        given = solve(document | {"initial_state": where}, room, period=period)
        assert given.makespan is not None
        assert free.makespan is not None
        assert given.makespan <= free.makespan
        assert given.peak_memory["ram"] <= 2


def test_disks_of_a_bounded_size() -> None:
    document = loop(50, 3, 1, 1)
    document["storage"][1]["slots"] = 4
    for room in (None, 3):
        assert solve(document, room).peak_memory["disk"] <= 4
    with pytest.raises(remat.OptionError, match="the least period is 9"):
        solve(document, period=8)
    document["storage"][0]["slots"] = 2
    with pytest.raises(remat.OptionError, match="the least period is 10"):
        solve(document, period=9)
    document["storage"][0]["slots"] = 3
    document["storage"][1]["slots"] = 0
    assert solve(document).makespan == advances(50, 3) + 100
    document["storage"][0]["slots"] = 0
    answer = remat.solve(document, algorithm="two-level-async")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 1


FIVE_STEPS = """
0 x0 working-disk, 0 F1, 1 F2, 2 x2 working-ram, 2 F3, 3 F4, 4 loss,
6 x2 ram-working, 6 y4 working-ram, 6 x0 disk-working, 6 F3, 8 x0 working-ram, 8 y4 ram-working,
8 B4, 10 x2 ram-working, 10 B3,
12 x0 ram-working, 12 F1, 13 B2, 15 x0 ram-working, 15 B1
"""
"""Blocks 0-1, 2-3 and 4: a write takes 2, two steps. The read of x0 overlaps with F3 from 6 to 7, while y4 waits in
RAM; the processor then waits until 8."""

FIVE_STEPS_WITH_ROOM = """
0 x0 working-disk, 0 F1, 1 F2, 2 F3, 3 F4, 4 loss, 4 x0 disk-working,
6 x2 working-ram, 6 F3, 7 B4, 9 x2 ram-working, 9 B3,
11 x0 working-ram, 11 F1, 12 B2, 14 x0 ram-working, 14 B1
"""
"""With a third working state, x2 stays, and x0 comes back during the first backward: nothing waits."""


@pytest.mark.parametrize(("room", "expected"), [(None, FIVE_STEPS), (3, FIVE_STEPS_WITH_ROOM)])
def test_timeline_of_five_steps(room: int | None, expected: str) -> None:
    budget = None if room is None else {"working": room}
    result = remat.solve(loop(5, 3, 2, 2), algorithm="async-multistage", budget=budget)
    found = []
    assert result.steps is not None
    for step in result.steps:
        if isinstance(step, Run):
            found.append(f"{step.start} {step.task}")
        elif isinstance(step, Copy):
            found.append(f"{step.start} {step.value} {step.source}-{step.target}")
    assert found == [each.strip() for each in expected.split(",")]


@pytest.mark.parametrize(("write", "interval"), [(1, 1), (4, 4), (4.5, 5), (12, 12), (200, 100)])
def test_intervals_just_hide_a_write(write: float, interval: int) -> None:
    document = loop(100, 5, write, write)
    own = remat.solve(document, algorithm="async-multistage", budget={"working": 3})
    assert own.makespan == solve(document, 3, period=interval).makespan
    assert own.peak_memory["disk"] <= -(-100 // interval)


def test_an_interval_costs_the_same_in_longer_loops() -> None:
    """Kukreja et al.: the time of a step does not depend on the length of the loop, if transfers are hidden."""
    spans = [
        remat.solve(loop(n, 4, 10, 10), algorithm="async-multistage", budget={"working": 3}).makespan
        for n in (101, 201, 301)
    ]
    assert None not in spans
    assert spans[2] - spans[1] == spans[1] - spans[0] == 10 * (10 + advances(10, 4) + 20)  # type: ignore[operator]


def test_an_interval_that_needs_too_much_disk() -> None:
    document = loop(50, 5, 1, 1)
    document["storage"][1]["slots"] = 3
    assert remat.solve(document, algorithm="async-multistage").peak_memory["disk"] <= 3
    with pytest.raises(remat.OptionError, match="the least interval is 10"):
        remat.solve(document, algorithm="async-multistage", options={"interval": 5})


def test_overlap_makes_long_loops_faster_than_disk_revolve() -> None:
    result = solve(loop(3000, 10, 20, 20), 3)
    assert result.makespan is not None
    assert result.makespan < remat.solve(loop(3000, 10, 20, 20, channel=False), algorithm="disk-revolve").makespan  # type: ignore[operator]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"steps": [{"forward_time": 1}, {"forward_time": 2}, {}]}, "equal forward time; use adjoint-best"),
        ({"steps": [{"state_size": 1}, {"state_size": 2}, {}]}, "equal size; use adjoint-best"),
        ({"tape_size": 1}, "without tape_size"),
        ({"storage": [{"name": "disk", "channel": "dma"}]}, "needs 2 storage levels; the machine has 1"),
    ],
)
def test_unsupported_loops_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(remat.OptionError, match=message):
        remat.solve(loop(3, 2, 1, 1) | more, algorithm="two-level-async")
