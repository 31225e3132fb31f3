"""Revolve on long time loops: solve, place, verify and write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table


def whole_way(steps: int, slots: int) -> dict[str, Any]:
    """Solve an adjoint with one storage level and write the schedule."""
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": {"time": "unit", "memory": "unit"},
        "steps": steps,
        "storage": [{"name": "ram", "slots": slots}],
    }
    with tempfile.TemporaryDirectory() as folder, Stopwatch() as watch:
        result = remat.solve(document, algorithm="revolve")
        result.save(Path(folder) / "schedule.json")
    return watch.report(steps=len(result.steps), advances=result.makespan - steps)  # type: ignore[operator]


def run() -> None:
    """Print seconds and steps per second."""
    rows = []
    for steps, slots in ((1_000, 30), (10_000, 15), (100_000, 20)):
        done = measure(whole_way, steps=steps, slots=slots)
        count = done.value["steps"]
        rows.append([steps, slots, done.value["advances"], count, done.wall, round(count / done.wall), done.peak_mib])
    header = ["n", "slots", "advances", "steps of the schedule", "wall s", "steps/s", "peak MiB"]
    table("Revolve: solve, place, verify, write", header, rows)
