"""dag-auto in the listed order, and with `reorder=true`: time on top of keep-all's, and the bound for all schedules.

Budgets are shares of the no-recompute peak of the listed order. Two threads, `LIMIT` seconds each.
"""

from __future__ import annotations

from typing import Any

from benchmarks.dag_auto import solve
from benchmarks.harness import table

LIMIT = 60
JOBS = (
    *(("layered_n100", share) for share in (80, 60)),
    *(("layered-60", share) for share in (80, 60)),
    *(("layered-500", share) for share in (80, 70)),
    ("layered-1000", 80),
    ("unet_joint", 60),
)
OPTIMAL = "proved (all schedules)"


def entry(value: dict[str, Any]) -> str:
    """Return an overhead in per cent, with a star where it is proved in its class, and two where it is optimal."""
    if value["ratio"] is None:
        return "none"
    proved = 2 if value["status"] == OPTIMAL else value["status"].startswith("proved")
    return f"{100 * (value['ratio'] - 1):.2f}" + "*" * proved


def run() -> None:
    """Print the table."""
    rows = []
    for name, share in JOBS:
        found = [solve(name, share, LIMIT, reorder=reorder) for reorder in (False, True)]
        bound = f"{100 * max(0.0, max(each['overall'] for each in found) - 1):.2f}"
        rows.append([name, f"{share} %", *map(entry, found), bound])
    header = ["graph", "budget", "listed order", "reorder=true", "bound for all"]
    table(f"dag-auto, at most {LIMIT} s each: % on top", header, rows)
