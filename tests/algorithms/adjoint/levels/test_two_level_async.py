"""Test `two-level-async`: overlap, savings and memory needs."""

from __future__ import annotations

from typing import Any

import pytest

import remat
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
    writes_only = solve(loop(100, 5, 8, 8))
    assert writes_only.makespan == 477
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
    with pytest.raises(remat.OptionError, match="the least period is 10"):
        solve(document, period=9)
    document["storage"][1]["slots"] = 0
    assert solve(document).makespan == advances(50, 3) + 100
    document["storage"][0]["slots"] = 0
    answer = remat.solve(document, algorithm="two-level-async")
    assert answer.scope is not None
    assert answer.least_budget is not None
    assert answer.least_budget.size == 1


def test_long_loops() -> None:
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
def test_refusals(more: dict[str, Any], message: str) -> None:
    with pytest.raises(remat.OptionError, match=message):
        remat.solve(loop(3, 2, 1, 1) | more, algorithm="two-level-async")
