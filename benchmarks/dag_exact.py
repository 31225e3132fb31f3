"""`dag-exact` on drawn layered graphs: CPU seconds to prove the best of all schedules, and the minimum budget of any.

Budgets lie part of the way from the least peak of any schedule to the peak of `keep-all`. `DRAWN` graphs of each size.
"""

from __future__ import annotations

import time
from typing import Any

import remat
from benchmarks.harness import measure, table
from remat.generate.layered import layered_dag

SIZES = (12, 16, 20, 24, 32, 40, 60)
SHARES = (25, 50, 75)
DRAWN = 100
MOST_SLOW = 20
"""Graphs of more than 40 tasks: some of these take the whole limit."""


def solve(tasks: int, drawn: int) -> dict[str, list[tuple[float, bool, float]]]:
    """Solve all graphs of a size; return CPU seconds, whether it was proved, and the makespan beside keep-all's."""
    found: dict[str, list[tuple[float, bool, float]]] = {"least": [], **{f"{share} %": [] for share in SHARES}}
    for seed in range(1, drawn + 1):
        graph = layered_dag(nodes=tasks, seed=seed)
        keep = remat.solve(graph, algorithm="keep-all")
        (peak,) = keep.peak_memory.values()
        seconds, result = _timed(graph, keep.memory_bounds["memory"].size - 1)
        least = result.least_budget
        assert least is not None
        found["least"].append((seconds, least.sufficient, 0))
        for share in SHARES:
            budget = least.size + (peak - least.size) * share // 100
            seconds, result = _timed(graph, budget)
            ratio = (result.makespan or 0) / (keep.makespan or 1)
            found[f"{share} %"].append((seconds, str(result.status) == "optimal", ratio))
    return found


def _timed(graph: Any, budget: int) -> tuple[float, remat.Result]:
    start = time.process_time()
    result = remat.solve(graph, algorithm="dag-exact", budget=budget)
    return time.process_time() - start, result


def run() -> None:
    """Print the table."""
    rows = []
    for tasks in SIZES:
        drawn = DRAWN if tasks <= 40 else MOST_SLOW
        for budget, cases in measure(solve, tasks=tasks, drawn=drawn).value.items():
            seconds = sorted(case[0] for case in cases)
            ratios = [case[2] for case in cases if case[1] and case[2]]
            mean = f"{sum(ratios) / len(ratios):.3f}" if ratios else "-"
            at = [seconds[len(seconds) // 2], seconds[len(seconds) * 9 // 10], seconds[-1]]
            proved = f"{sum(case[1] for case in cases)} of {len(cases)}"
            rows.append([str(tasks), budget, *(f"{second:.3f}" for second in at), proved, mean])
    header = ["tasks", "budget", "median", "9 in 10", "longest", "proved", "makespan / keep-all's"]
    table("dag-exact: CPU s", header, rows)


if __name__ == "__main__":
    run()
