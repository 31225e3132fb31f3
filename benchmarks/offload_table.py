"""What recomputation, offloading and both together cost on chains, on a link of 12 GB/s each way.

Budgets as in `chain_table`: shares of the way from the least feasible budget of `rotor` to the peak without
recomputation. The last column is the share of rotor's overhead that combining removes. Chains of `$REMAT_DATA` follow,
where that is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import remat
from benchmarks.chain_table import FOLDER, SHARES, cell
from benchmarks.harness import data_missing, table
from benchmarks.hosts import host

BANDWIDTH = 12
COLUMNS = (
    ("rotor", "rotor", {}),
    ("offload-dp", "offload-dp", {"bound": False}),
    ("pofo", "pofo", {}),
    ("remat-offload-best", "remat-offload-best", {}),
    ("vdnn-all", "vdnn-all", {}),
    ("autoswap", "autoswap", {}),
)
SHIPPED = ("resnet50_b32_224", "gpt2_small_b16_sublayers")
PROFILED = ("pipedream_resnet50", "pipedream_densenet121", "pipedream_vgg16")


def chains() -> list[Path]:
    """Return two shipped chains, and the profiled ones of `$REMAT_DATA`."""
    found = [path for path in sorted(FOLDER.glob("*.json*")) if path.name.partition(".")[0] in SHIPPED]
    data = os.environ.get("REMAT_DATA")
    if data:
        folder = Path(data) / "chains"
        found += [path for path in sorted(folder.glob("*.json*")) if path.name.partition(".")[0] in PROFILED]
    return found


def rows(path: Path) -> list[list[str]]:
    """Solve one chain at all budgets."""
    instance = remat.load(path)
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    assert least is not None, "nothing fits into no memory"
    high = next(iter(remat.solve(instance, algorithm="rotor").peak_memory.values()))
    found = []
    for share in SHARES:
        budget = {"device": least.size + (high - least.size) * share // 100}
        solved = [
            remat.solve(instance, algorithm=name, budget=budget, machine=host(BANDWIDTH), options=given)
            for _, name, given in COLUMNS
        ]
        once = solved[0].no_recompute_time
        cells = [cell(result.makespan, once) for result in solved]
        alone, together = solved[0].makespan, solved[3].makespan
        assert alone is not None, "rotor fits above its minimum budget"
        assert together is not None, "and so does what begins with rotor"
        removed = f"{100 * (alone - together) / (alone - once):.0f} %" if alone > once else "-"
        found.append([path.name.partition(".")[0], f"{share} %", *cells, removed])
    return found


def run() -> None:
    """Print the table."""
    header = ["chain", "budget", *(title for title, _, _ in COLUMNS), "removed"]
    table(
        f"Chains on a link of {BANDWIDTH}GB/s each way: time on top of the time without recomputation, in percent",
        header,
        [row for path in chains() for row in rows(path)],
    )
    data_missing("shipped chains")


if __name__ == "__main__":
    run()
