"""dag-auto on training graphs of thousands of tasks: seconds to the first schedule, time on top of keep-all's, bound.

Multilayer perceptrons of three tasks a layer in each direction; budgets are shares of the no-recompute peak. Two
threads, `LIMIT` seconds each.
"""

from __future__ import annotations

from benchmarks.dag_auto import load, solve
from benchmarks.harness import table

LIMIT = 20
LAYERS = (300, 1000, 3000)
SHARES = (80, 50, 20)


def run() -> None:
    """Print the table."""
    rows = []
    for layers in LAYERS:
        name = f"mlp-{layers}"
        tasks = len(load(name).tasks)
        for share in SHARES:
            found = solve(name, share, LIMIT)
            cost = "none" if found["ratio"] is None else f"{100 * (found['ratio'] - 1):.3f}"
            rows.append([name, tasks, f"{share} %", found["first"], cost, f"{100 * max(0, found['bound'] - 1):.3f}"])
    header = ["graph", "tasks", "budget", "first s", "% on top", "bound"]
    table(f"dag-auto, at most {LIMIT} s each", header, rows)
