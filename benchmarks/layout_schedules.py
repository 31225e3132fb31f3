"""Addresses of schedules: every shipped instance at three budgets, and drawn graphs whose first layout does not fit.

REMAT_SECONDS is the time limit of each solve (default 10). Instances at which `auto` finds no schedule are left out.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table

SHARES = ("50%", "70%", "90%")
WORK = 7_000_000_000
"""Work of the search for each layout."""

DRAWN = 50
BUDGETS = (0.9, 0.8, 0.7, 0.6)
NEAR = 1.01


def seconds() -> float:
    """Return the time limit of a solve."""
    return float(os.environ.get("REMAT_SECONDS", "10"))


def shipped() -> Iterator[tuple[str, str, Any]]:
    """Yield name, budget and result of each shipped instance for which a schedule is found."""
    for name in remat.examples():
        short = name.partition("/")[2]
        for share in SHARES:
            try:
                result = remat.solve(remat.example(short), budget=share, time_limit=seconds())
            except remat.RematError as error:
                sys.stdout.write(f"{short} at {share}: {str(error)[:80]}\n")
                continue
            if result.report is not None and result.steady is None:
                yield short, share, result


def instances() -> None:
    """Print arena and reserved bytes over the peak for each shipped instance."""
    rows, equal, near, proved = [], 0, 0, 0
    for name, share, result in shipped():
        with Stopwatch() as watch:
            found = remat.layout(result, options={"work": WORK})
        assert found.arena is not None
        caching = remat.layout(result, algorithm="caching")
        assert caching.reserved is not None
        ratio = found.arena / found.peak if found.peak else 1.0
        equal, near = equal + (ratio == 1.0), near + (ratio <= NEAR)
        proved += found.arena == found.bound
        reserved = "-" if result.units.memory == "unit" else f"{caching.reserved / max(found.peak, 1):.3f}"
        cells = (name, share, f"{len(found.size)}", f"{ratio:.5f}", f"{watch.cpu:.2f}", reserved)
        sys.stdout.write("  ".join(cells) + "\n")
        sys.stdout.flush()
        rows.append(cells)
    table("shipped", ("instance", "budget", "residencies", "arena / peak", "s", "caching / peak"), rows)
    print(f"arena = peak: {equal} of {len(rows)}; within 1 %: {near}; proved minimal: {proved}")


def drawn(seed: int) -> dict[str, Any]:
    """Return a task graph of 15 to 30 tasks, whose outputs have 1 to 20 bytes."""
    draw = random.Random(seed)
    count = draw.randint(15, 30)
    tasks: list[dict[str, Any]] = []
    values = []
    for k in range(count):
        reads = [f"v{j}" for j in range(k) if draw.random() < 2.5 / max(k, 1)]
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 5), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": draw.randint(1, 20)})
    used = {value for task in tasks for value in task["reads"]}
    for k, task in enumerate(tasks):
        if f"v{k}" not in used:
            task["required"] = True
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}


def unfitting() -> Iterator[tuple[int, int, Any, Any]]:
    """Yield seeds, budgets, drawn graphs, and schedules whose peak is the budget, and whose layout does not fit."""
    seed = 0
    while True:
        instance = drawn(seed)
        free = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
        for share in BUDGETS:
            first = remat.solve(instance, budget=int(free * share), algorithm="dag-auto", time_limit=seconds())
            if first.report is None:
                continue
            budget = first.peak_memory["memory"]
            if remat.layout(first, capacity=budget, options={"work": WORK // 10}).offset is None:
                yield seed, budget, instance, first
        seed += 1


def together() -> None:
    """Print what `layout=True` finds for drawn graphs, and what it costs."""
    rows, answers = [], 0
    for k, (seed, budget, instance, first) in enumerate(unfitting()):
        if k == DRAWN:
            break
        with Stopwatch() as watch:
            found = remat.solve(
                instance,
                budget=budget,
                algorithm="dag-auto",
                layout=True,
                warm_start=first,
                time_limit=6 * seconds(),
            )
        price = next((note for note in found.notes if "addresses" in note), "")
        answers += found.report is not None
        status = str(found.status) if found.scope is None else f"{found.status}: {found.scope}"
        cells = (f"{seed}", f"{budget}", status, f"{watch.cpu:.1f}", price[:60])
        sys.stdout.write("  ".join(cells) + "\n")
        sys.stdout.flush()
        rows.append(cells)
    table("order and addresses", ("seed", "budget", "status", "s", "price"), rows)
    print(f"{answers} of {len(rows)} answered")


def run() -> None:
    """Print everything."""
    instances()
    together()


if __name__ == "__main__":
    run()
