"""Time lost to recomputation on the shipped chains, by algorithm and budget.

Budgets lie 5, 25, 50 and 75 % of the way from the least feasible budget of `rotor` to the peak without recomputation.
Chains of `$REMAT_DATA` follow, where that is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import remat
from benchmarks.harness import data_missing, table

SHARES = (5, 25, 50, 75)
ROUNDED = {"certificate": False}  # the bound is not asked for
COLUMNS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("rotor", "rotor", {}),
    ("rotor-float", "rotor-float", ROUNDED),
    ("chain-best", "chain-best", {"iterations": 20_000}),
    ("chen-greedy", "chen-greedy", {}),
    ("revolve-chain", "revolve-chain", {}),
    ("revolve-chain saved", "revolve-chain", {"saved": True}),
)
FOLDER = Path(__file__).parent.parent / "instances" / "chains"


def chains() -> list[Path]:
    """Return the shipped chains without parameters, and those of `$REMAT_DATA`."""
    found = [path for path in sorted(FOLDER.glob("*.json")) if not remat.load(path).has_parameters]  # type: ignore[union-attr]
    data = os.environ.get("REMAT_DATA")
    return found + sorted((Path(data) / "chains").glob("*.json*")) if data else found


def cell(makespan: float | None, once: float) -> str:
    """Format the overhead in percent; a dash where nothing was found."""
    return "-" if makespan is None else f"{100 * (makespan / once - 1):.2f}"


def quickest_periodic(instance: remat.Instance, stages: int, budget: int) -> float | None:
    """Return the least makespan of `periodic` over the numbers of segments."""
    found = [
        remat.solve(instance, algorithm="periodic", budget=budget, options={"segments": count}).makespan
        for count in range(1, stages + 1)
    ]
    return min((makespan for makespan in found if makespan is not None), default=None)


def rows(path: Path) -> list[list[str]]:
    """Solve one chain at all budgets."""
    instance = remat.load(path)
    stages = sum(stage.repeat for stage in instance.stages)  # type: ignore[union-attr]
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    high = remat.solve(instance, algorithm="rotor").peak_memory
    assert least is not None, "nothing fits into no memory"
    low, peak = least.size, next(iter(high.values()))
    found = []
    for share in SHARES:
        budget = low + (peak - low) * share // 100
        solved = [remat.solve(instance, algorithm=name, budget=budget, options=given) for _, name, given in COLUMNS]
        once, best = solved[0].no_recompute_time, solved[2]
        cells = [cell(result.makespan, once) for result in solved]
        cells.insert(3, cell(best.lower_bound, once))
        cells.insert(4, cell(quickest_periodic(instance, stages, budget), once))
        found.append([path.name.partition(".")[0], f"{share} %", *cells])
    return found


def run() -> None:
    """Print the table."""
    names = [title for title, _, _ in COLUMNS]
    header = ["chain", "budget", *names[:3], "lower bound", "periodic, best k", *names[3:]]
    table(
        "Chains: time on top of the time without recomputation, in percent",
        header,
        [row for path in chains() for row in rows(path)],
    )
    data_missing("shipped chains")


if __name__ == "__main__":
    run()
