"""The gap between `adjoint-best` and its lower bound, on drawn loops of unequal steps with two or three levels."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
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


def run(count: int = 50, seconds: float | None = None) -> None:
    """Print the table."""
    header = ["levels", "loops", "mean gap", "largest", "proved", "CPU s"]
    table("Unequal steps on storage levels: adjoint-best above its lower bound", header, measure(count, seconds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    run(given.count, given.seconds)
