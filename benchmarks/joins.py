"""Chains that meet in one loss: CPU seconds of `join-dp`."""

from __future__ import annotations

import time
from typing import Any

import remat
from benchmarks.harness import table
from remat.generate import generate


def unit_join(lengths: tuple[int, ...]) -> dict[str, Any]:
    """Return chains of unit steps whose backwards read their inputs."""
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1}
    return {
        "schema": "remat.instance/3",
        "kind": "join",
        "units": {"time": "unit", "memory": "unit"},
        "backward_reads": ["input"],
        "chains": [{"input_size": 1, "stages": [stage | {"repeat": length}]} for length in lengths],
    }


def run() -> None:
    """Print CPU seconds and times."""
    cases: list[tuple[str, dict[str, Any], int | str]] = [
        (f"{len(lengths)} chains of {lengths} unit steps", unit_join(lengths), budget)
        for lengths, budget in (((50, 50), 8), ((50, 50), 20), ((50, 40), 20), ((20, 20, 20), 20))
    ]
    cases += [(family, generate("join", family), "50%") for family in ("siamese", "cross-modal")]
    rows = []
    for name, document, budget in cases:
        began = time.process_time()
        result = remat.solve(document, algorithm="join-dp", budget=budget)
        took = time.process_time() - began
        rows.append([name, budget, result.makespan, str(result.status), round(took, 2)])
    table("join-dp: load, solve, place, verify", ["join", "budget", "makespan", "status", "CPU s"], rows)
