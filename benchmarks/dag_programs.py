"""`checkmate` and `moccasin`: what they prove, and where they stop.

Budgets are shares of the no-recompute peak. Shipped graphs; those under ``$REMAT_DATA/dag``, too, where that is set.
Two threads, and at most `LIMIT` seconds of wall time each.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import remat
from benchmarks.dag_auto import load
from benchmarks.harness import data_missing, measure, table

LIMIT = 60
ALGORITHMS = ("checkmate", "moccasin")
SHIPPED = {
    "layered_n60_mixed": (0.9, 0.8, 0.65),
    "layered_n100": (0.9, 0.8),
    "mlp12_joint": (0.9,),
    "unet_b8_512_bf16": (0.9, 0.8),
    "unet_joint": (0.9, 0.8),
}
FOREIGN = {
    "checkmate/vgg16": (0.873,),
    "checkmate/vgg19": (0.828,),
    "checkmate/unet": (0.849, 0.7, 0.65),
    "checkmate/mobilenet": (0.9, 0.8, 0.6),
    "checkmate/resnet50": (0.9, 0.8),
    "random_layered/rl100": (0.9, 0.8),
    "random_layered/rl250": (0.9,),
}


def solve(name: str, share: float, algorithm: str) -> dict[str, Any]:
    """Solve once, and say how far it came."""
    instance = load(name)
    keep = remat.solve(instance, algorithm="keep-all")
    budget = int(next(iter(keep.peak_memory.values())) * share)
    once = keep.makespan or 1
    cpu, wall = time.process_time(), time.perf_counter()
    result = remat.solve(instance, algorithm=algorithm, budget=budget, time_limit=LIMIT, threads=2)
    bound = max((bound.value for bound in result.bounds), default=0)
    proved = result.optimal_within is not None or result.status in ("optimal", "infeasible")
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "tasks": len(instance.tasks),  # type: ignore[union-attr]
        "ratio": None if result.makespan is None else result.makespan / once,
        "bound": bound / once,
        "answer": "infeasible" if result.status == "infeasible" else "proved" if proved else str(result.status),
        "notes": "; ".join(result.notes),
    }


def run() -> None:
    """Print the table."""
    jobs = [(name, share) for name, shares in SHIPPED.items() for share in shares]
    data = os.environ.get("REMAT_DATA")
    if data:
        jobs += [
            (str(Path(data, "dag", f"{name}.json")), share) for name, shares in FOREIGN.items() for share in shares
        ]
    rows = []
    for name, share in jobs:
        for algorithm in ALGORITHMS:
            seen = measure(solve, name=name, share=share, algorithm=algorithm)
            value = seen.value
            ratio = "-" if value["ratio"] is None else f"{value['ratio']:.6f}"
            gap = "-" if value["ratio"] is None else f"{100 * (value['ratio'] / max(1, value['bound']) - 1):.3f}"
            rows.append(
                [
                    *(Path(name).stem, str(value["tasks"]), f"{100 * share:g} %", algorithm, ratio),
                    *(f"{value['bound']:.6f}", gap, f"{seen.cpu:.1f}", f"{seen.wall:.1f}"),
                    *(value["answer"], value["notes"]),
                ]
            )
    header = [
        "graph",
        "tasks",
        "budget",
        "algorithm",
        "cost",
        "bound",
        "gap %",
        "CPU s",
        "wall s",
        "answer",
        "stopped by",
    ]
    table(f"Exact programs on task graphs, at most {LIMIT} s (cost and bound: shares of keep-all's time)", header, rows)
    data_missing("shipped graphs")


if __name__ == "__main__":
    run()
