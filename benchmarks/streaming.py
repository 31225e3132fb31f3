"""Streaming long time loops: steps a second in each lane, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table
from remat.time_loops.online import OnlineSchedule


def plan(steps: int, slots: int, algorithm: str = "revolve") -> remat.Stream:
    """Stream an adjoint with one storage level."""
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": {"time": "unit", "memory": "unit"},
        "steps": steps,
        "storage": [{"name": "ram", "slots": slots}],
    }
    return remat.stream(document, algorithm=algorithm)


def count(items: Iterable[object]) -> int:
    """Use a stream up."""
    return sum(1 for _ in items)


def lane(name: str, steps: int, slots: int, algorithm: str = "revolve") -> dict[str, Any]:
    """Stream a whole schedule; return how many items the lane yields."""
    stream = plan(steps, slots, algorithm)
    # What is imported or compiled at the first use is left out.
    count(plan(100, 5, algorithm).chunks())
    with Stopwatch() as watch:
        lanes = {"chunks": stream.chunks, "operations": stream.operations, "actions": stream.actions}
        items = count(stream if name == "steps" else lanes[name]())
    return watch.report(items=items)


def online(steps: int, slots: int) -> dict[str, Any]:
    """Decide the first sweep of a loop whose length is not known."""
    schedule = OnlineSchedule(slots)
    with Stopwatch() as watch:
        for _ in range(steps):
            schedule.advance()
    return watch.report()


def run() -> None:
    """Print CPU seconds, steps a second and peak memory of each lane."""
    rows: list[list[object]] = []
    lanes = [("revolve", name, 10**6) for name in ("chunks", "operations", "actions")]
    lanes += [("revolve", "steps", 10**5), ("online-revolve", "chunks", 10**5), ("online-revolve", "operations", 10**5)]
    for algorithm, name, steps in lanes:
        length = sum(len(chunk) for chunk in plan(steps, 30, algorithm).chunks())
        done = measure(lane, name=name, steps=steps, slots=30, algorithm=algorithm)
        items = done.value["items"]
        speeds = [round(length / done.cpu), round(steps / done.cpu)]
        rows.append([algorithm, steps, 30, length, name, items, done.cpu, *speeds, done.peak_mib])
    header = [
        "algorithm",
        "n",
        "slots",
        "schedule steps",
        "lane",
        "items",
        "CPU s",
        "schedule steps/s",
        "n/s",
        "peak MiB",
    ]
    table("Streaming whole schedules", header, rows)
    rows = []
    for steps, slots in ((1_000_000, 30), (1_000_000, 1000)):
        done = measure(online, steps=steps, slots=slots)
        rows.append([steps, slots, done.cpu, round(steps / done.cpu), done.peak_mib])
    table("OnlineSchedule.advance", ["n", "slots", "CPU s", "decisions/s", "peak MiB"], rows)
