"""Steps per second of placement and verifier."""

from __future__ import annotations

import sys
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table

CASES = ("sequential runs", "synchronous copies", "overlapped copies", "tree, chain", "tree, star")


def case(name: str) -> remat.Result:
    """Build a schedule of the kind."""
    unit = {"time": "unit", "memory": "unit"}
    if name.startswith("tree"):
        n = 200_000
        parent = [-1, *(range(n - 1) if name.endswith("chain") else [0] * (n - 1))]
        sizes = [(i * 7919) % 1000 for i in range(n)]
        document: dict[str, Any] = {"kind": "tree", "units": unit, "parent": parent, "output_size": sizes}
        return remat.solve({"schema": "remat.instance/1", **document}, algorithm="liu-postorder")
    document = {"kind": "adjoint", "units": unit, "steps": 30_000}
    level: dict[str, Any] = {"name": "ram", "slots": 12}
    if name == "overlapped copies":
        level |= {"channel": "dma", "write_time": 1, "read_time": 2}
    budget = 14 if name == "sequential runs" else None
    if budget is None:
        document["storage"] = [level]
    return remat.solve({"schema": "remat.instance/1", **document}, algorithm="revolve", budget=budget)


def place_and_check(name: str) -> dict[str, Any]:
    """Time placement and verification of one schedule."""
    from remat.placement import place
    from remat.placement.list_scheduling import place_general
    from remat.verifier import check

    result = case(name)
    steps = result.columns
    assert steps is not None
    figures = {"steps": len(steps)}
    for key, function in (("place", place), ("general", place_general), ("verify", check)):
        with Stopwatch() as watch:
            function(result.graph, result.machine, steps)  # type: ignore[operator]
        figures[key] = watch.cpu
    return figures


def run() -> None:
    """Print steps per second of CPU time."""
    rows = []
    for name in CASES:
        value = measure(place_and_check, name=name).value
        n = value["steps"]
        rows.append([name, n, *(round(n / value[key]) for key in ("place", "general", "verify"))])
    header = ["schedule", "steps", "placement, steps/s", "general placement, steps/s", "verifier, steps/s"]
    table("Placement and verifier (one thread)", header, rows)
    sys.stdout.write(
        "\nBound by: placement of overlapped steps, the interpreter's dictionary and heap operations (a few per\n"
        "access); everything else, sorting one int64 code per event; runs one after another, numpy's passes.\n"
    )
