"""The gap between `adjoint-best` and its lower bound, on drawn loops of unequal steps and on loops of equal steps."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table

LONGEST = 10
"""Maximum time of a forward, a backward, a write or a read."""


def loop(seed: int) -> dict[str, Any]:
    """Draw 20 to 100 steps with times of 1 to 10 and states of 1 to 4 units, on two or three storage levels.

    The first level holds 10 to 30 % of the states, a second of three 20 to 60 %, and the last one any number. Levels
    are sorted by the time of a write and a read.
    """
    draw = random.Random(seed)
    steps = [
        {
            "forward_time": draw.randint(1, LONGEST),
            "backward_time": draw.randint(1, LONGEST),
            "state_size": draw.randint(1, 4),
        }
        for _ in range(draw.randint(20, 100))
    ]
    total = sum(step["state_size"] for step in steps)
    times = sorted(((draw.randint(1, LONGEST), draw.randint(1, LONGEST)) for _ in range(draw.choice([2, 3]))), key=sum)
    shares = [draw.uniform(0.1, 0.3), draw.uniform(0.2, 0.6)]
    storage = [
        {"name": f"level{k}", "write_time": write, "read_time": read}
        | ({"capacity": round(total * shares[k])} if k < len(times) - 1 else {})
        for k, (write, read) in enumerate(times)
    ]
    units = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": units, "steps": steps, "storage": storage}


def measure(count: int, seconds: float | None) -> list[list[object]]:
    """Solve so many loops; one row for each number of levels, and one for all."""
    gaps: dict[str, list[float]] = {"2": [], "3": [], "2 or 3": []}
    proved, took = dict.fromkeys(gaps, 0), dict.fromkeys(gaps, 0.0)
    for seed in range(count):
        document = loop(seed)
        with Stopwatch() as watch:
            result = remat.solve(document, algorithm="adjoint-best", time_limit=seconds)
        assert result.makespan is not None
        gap = result.makespan / result.lower_bound - 1
        steps, levels = len(document["steps"]), len(document["storage"])
        sys.stderr.write(f"seed {seed}: {steps} steps, {levels} levels, {result.makespan} over {result.lower_bound}\n")
        for group in (str(levels), "2 or 3"):
            gaps[group].append(gap)
            proved[group] += result.makespan <= result.lower_bound
            took[group] += watch.cpu
    return [
        [group, len(each), f"{statistics.fmean(each):.2%}", f"{max(each):.2%}", proved[group], took[group] / len(each)]
        for group, each in gaps.items()
        if each
    ]


def equal_steps() -> Iterator[tuple[tuple[int, int, int, int], dict[str, Any], int | None]]:
    """Yield tape size (0: no tapes), steps, slots and levels of loops of equal steps, their document and budget.

    With one level, the slots are bytes of the one memory beside a state, an adjoint and a tape. A second one is a disk.
    """
    units = {"time": "unit", "memory": "unit"}
    disk = {"name": "disk", "write_time": 2, "read_time": 2}
    for tape, steps, slots in product((0, 1, 3), (100, 600, 2000), (4, 15, 50)):
        document = {"schema": "remat.instance/1", "kind": "adjoint", "units": units, "steps": steps}
        document |= {"tape_size": tape} if tape else {}
        yield (tape, steps, slots, 1), document, slots + 2 + tape
        yield (tape, steps, slots, 2), document | {"storage": [{"name": "ram", "slots": slots}, disk]}, None


def measure_equal(seconds: float | None) -> tuple[list[list[object]], list[list[object]]]:
    """Solve loops of equal steps; one row for each, and a summary with and without tapes."""
    rows: list[list[object]] = []
    gaps: dict[str, list[float]] = {"without": [], "with": []}
    for figures, document, budget in equal_steps():
        with Stopwatch() as watch:
            result = remat.solve(document, algorithm="adjoint-best", budget=budget, time_limit=seconds)
        assert result.makespan is not None
        gap = result.makespan / result.lower_bound - 1
        gaps["with" if figures[0] else "without"].append(gap)
        rows.append([*figures, result.makespan, result.lower_bound, f"{gap:.2%}", watch.cpu])
    summary = [
        [name, len(each), sum(gap < 0.05 for gap in each), sum(gap == 0 for gap in each), f"{max(each):.2%}"]
        for name, each in gaps.items()
    ]
    return rows, summary


def run(count: int = 50, seconds: float | None = None) -> None:
    """Print the tables."""
    header = ["levels", "loops", "mean gap", "largest", "proved", "CPU s"]
    table("Unequal steps on storage levels: adjoint-best above its lower bound", header, measure(count, seconds))
    rows, summary = measure_equal(10.0 if seconds is None else seconds)
    columns = ["tape", "steps", "slots", "levels", "time", "bound", "gap", "CPU s"]
    table("Equal steps: adjoint-best above its lower bound", columns, rows)
    table("Equal steps: summary", ["tapes", "loops", "gap below 5 %", "no gap", "largest"], summary)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    run(given.count, given.seconds)
