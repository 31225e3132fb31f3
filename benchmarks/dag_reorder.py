"""dag-auto in the listed order, and with `reorder=true`: time on top of keep-all's, and what is proved.

Budgets are shares of the no-recompute peak of the listed order. Two threads, `LIMIT` seconds each.
"""

from __future__ import annotations

from typing import Any

from benchmarks.dag_auto import solve
from benchmarks.harness import table

LIMIT = 20
JOBS = (
    *(("layered_n100", share) for share in (80, 60)),
    *(("layered-60", share) for share in (80, 60)),
    *(("layered-500", share) for share in (80, 70)),
    ("layered-1000", 80),
    ("unet_joint", 60),
)


def entry(value: dict[str, Any]) -> str:
    """Return an overhead in per cent, with a star where it is proved in its class."""
    if value["ratio"] is None:
        return "none"
    proved = "*" if value["status"].startswith("proved") else ""
    return f"{100 * (value['ratio'] - 1):.2f}{proved}"


def run() -> None:
    """Print the table."""
    rows = []
    for name, share in JOBS:
        costs = [entry(solve(name, share, LIMIT, reorder=reorder)) for reorder in (False, True)]
        rows.append([name, f"{share} %", *costs])
    table(f"dag-auto, at most {LIMIT} s each: % on top", ["graph", "budget", "listed order", "reorder=true"], rows)
