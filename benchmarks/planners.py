"""Planners of pipelines: 1,000 layers of their own on 64 devices, equal ones and of two types."""

from __future__ import annotations

import random
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table

PLANNERS = ("pipedream-dp", "2bw-plan", "dapple-plan", "varuna", "hetpipe", "pipe-torch", "ftpipe", "chimera-plan")


def pipeline(*, types: int) -> dict[str, Any]:
    """Return an instance whose devices have little more memory than the planners need."""
    rng = random.Random(0)
    layers: list[dict[str, Any]] = []
    for _ in range(1_000):
        forward = rng.randint(5, 20)
        layer = {"backward_time": 2 * forward, "saved_size": rng.randint(1, 9), "output_size": rng.randint(1, 9)}
        time = forward if types == 1 else {"a": forward, "b": forward + rng.randint(1, 20)}
        layers.append(layer | {"forward_time": time, "parameter_size": rng.randint(1, 50)})
    devices = [{"name": name, "count": 64 // types, "memory": 4_000 + 1_000 * k} for k, name in enumerate("ab"[:types])]
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": 8,
        "copies": 2,
        "cluster": {"devices": devices, "levels": [{"bandwidth": 2}]},
    }


def solve(algorithm: str, *, types: int) -> dict[str, Any]:
    """Plan, place and verify."""
    document = pipeline(types=types)
    with Stopwatch() as watch:
        result = remat.solve(document, algorithm=algorithm)
    stages = len(result.orders.stages) if result.orders is not None else 0
    return watch.report(makespan=result.makespan, stages=stages)


def run() -> None:
    """Print the table."""
    rows: list[list[object]] = []
    for name in ("1f1b", *PLANNERS):
        found = [measure(solve, algorithm=name, types=types) for types in (1, 2)]
        figures = [(one.value["makespan"], one.value["stages"], f"{one.cpu:.2f}") for one in found]
        rows.append([name, *(figure for one in figures for figure in one)])
    header = ["algorithm", "makespan", "stages", "CPU s", "two types: makespan", "stages", "CPU s"]
    table("1,000 layers, 64 devices, 8 micro-batches, placed and verified", header, rows)
