"""Revolve on long time loops: solve, place, verify and write; and beside it pyrevolve, where that is installed.

``REMAT_PYREVOLVE=PATH`` names a Python that has it: ``python -m venv v && v/bin/pip install pyrevolve``.
"""

from __future__ import annotations

import os
import subprocess
import sys
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


PEER = """
import sys, time, numpy, pyrevolve
class Nothing(pyrevolve.Checkpoint):
    dtype, size = numpy.float64, 1
    def get_data(self, t): return [numpy.zeros(1)]
    def get_data_location(self, t): return [numpy.zeros(1)]
    def save(self, *where): pass
    def load(self, *where): pass
class Count(pyrevolve.Operator):
    steps = 0
    def apply(self, t_start, t_end): self.steps += t_end - t_start
begin = time.process_time()
steps, slots = map(int, sys.argv[1:])
advance, reverse = Count(), Count()
revolver = pyrevolve.MemoryRevolver(Nothing(), advance, reverse, slots, steps)
revolver.apply_forward()
revolver.apply_reverse()
print(time.process_time() - begin, advance.steps)
"""
"""What pyrevolve takes to go through its schedule with operators that do nothing but count."""


def solved_and_verified(steps: int, slots: int) -> dict[str, Any]:
    """Solve a time loop, write the schedule, and verify the file."""
    units = {"time": "unit", "memory": "unit"}
    storage = [{"name": "ram", "slots": slots}]
    document = {"schema": "remat.instance/1", "kind": "adjoint", "units": units, "steps": steps, "storage": storage}
    with tempfile.TemporaryDirectory() as folder, Stopwatch() as watch:
        path = Path(folder) / "schedule.json"
        result = remat.solve(document, algorithm="revolve")
        result.save(path)
        advances = result.makespan - steps  # type: ignore[operator]
        del result
        assert remat.verify(document, path).ok
    return watch.report(advances=advances)


def _beside_the_peer(steps: int, slots: int) -> None:
    python = os.environ.get("REMAT_PYREVOLVE")
    if not python:
        sys.stdout.write("\nREMAT_PYREVOLVE is not set: without pyrevolve.\n")
        return
    done = measure(solved_and_verified, steps=steps, slots=slots)
    command = [python, "-c", PEER, str(steps), str(slots)]
    cpu, advances = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ours = "revolve: solve, write, verify the file"
    rows = [
        ["pyrevolve: goes through it", float(cpu), 1.0, int(advances) - steps, ""],
        [ours, done.cpu, done.cpu / float(cpu), done.value["advances"], done.peak_mib],
    ]
    table(f"{steps:,} steps, {slots} slots", ["program", "CPU s", "ratio", "advances", "peak MiB"], rows)


def run() -> None:
    """Print seconds and steps per second."""
    rows = []
    for steps, slots in ((1_000, 30), (10_000, 15), (100_000, 20)):
        done = measure(whole_way, steps=steps, slots=slots)
        count = done.value["steps"]
        rows.append([steps, slots, done.value["advances"], count, done.wall, round(count / done.wall), done.peak_mib])
    header = ["n", "slots", "advances", "steps of the schedule", "wall s", "steps/s", "peak MiB"]
    table("Revolve: solve, place, verify, write", header, rows)
    _beside_the_peer(100_000, 20)
