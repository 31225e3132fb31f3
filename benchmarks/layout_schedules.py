"""Addresses of schedules: every shipped instance at three budgets, and drawn graphs whose first layout does not fit.

REMAT_SECONDS is the time limit of each solve of a shipped instance (default 10). Instances at which `auto` finds no
schedule are left out. Solves of drawn graphs have no time limit: rounds of their search are counted.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import remat
from benchmarks.harness import Stopwatch, table

SHARES = ("50%", "70%", "90%")
WORK = 7_000_000_000
"""Work of the search for each layout."""

DRAWN, ROUNDS = 50, 100
LARGEST = 1000
"""Size of the largest outputs: such sizes rarely add up."""

BUDGETS = (0.8, 0.65)
QUICK_WORK = 3_000_000
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
    """Return a task graph of 15 to 30 tasks."""
    draw = random.Random(seed)
    tasks: list[dict[str, Any]] = []
    values = []
    for k in range(draw.randint(15, 30)):
        reads = [f"v{j}" for j in range(k) if draw.random() < 2.5 / max(k, 1)]
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 5), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": draw.randint(1, LARGEST)})
    used = {value for task in tasks for value in task["reads"]}
    for k, task in enumerate(tasks):
        if f"v{k}" not in used:
            task["required"] = True
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}


def solve(instance: dict[str, Any], budget: int, **more: Any) -> Any:
    """Return the schedule of `dag-auto`, which is the same at each call."""
    return remat.solve(instance, budget=budget, algorithm="dag-auto", options={"iterations": ROUNDS}, **more)


def unfitting() -> Iterator[tuple[int, int, Any, Any]]:
    """Yield seeds, budgets, drawn graphs, and their schedules, which fit in bytes and whose layouts do not."""
    for seed in count():
        instance = drawn(seed)
        free = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
        for share in BUDGETS:
            known = solve(instance, int(free * share))
            if known.report is None:
                continue
            budget = known.peak_memory["memory"]
            if remat.layout(known, capacity=budget, options={"work": QUICK_WORK}).offset is not None:
                continue
            first = solve(instance, budget)
            if remat.layout(first, capacity=budget, options={"work": WORK // 7}).offset is None:
                yield seed, budget, instance, first


def together() -> None:
    """Print what `layout=True` finds for drawn graphs, and what it costs."""
    rows, answers, free = [], 0, 0
    for seed, budget, instance, first in islice(unfitting(), DRAWN):
        with Stopwatch() as watch:
            found = solve(instance, budget, layout=True)
        answered = found.report is not None
        price = f"{found.makespan / first.makespan - 1:.2%}" if answered else str(found.scope)
        answers, free = answers + answered, free + (answered and found.makespan <= first.makespan)
        cells = (f"{seed}", f"{budget}", str(found.status), f"{watch.cpu:.1f}", price)
        sys.stdout.write("  ".join(cells) + "\n")
        sys.stdout.flush()
        rows.append(cells)
    table("order and addresses", ("seed", "budget", "status", "s", "price"), rows)
    print(f"{answers} of {len(rows)} answered; {free} at no price")


def run() -> None:
    """Print everything."""
    instances()
    together()


if __name__ == "__main__":
    run()
