"""What rules and trainers' policies cost on task graphs with a host, in per cent over no recomputation.

At .6 of the peak of keep-all, links of 12 and 25 GB/s each way. `python -m benchmarks.baselines FILE...` does the same
for task graphs in files, such as traces of `remat import torch`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import remat
from benchmarks.harness import table
from benchmarks.hosts import host

SHARE = 0.6
BANDWIDTHS = (12, 25)

GENERATED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transformer", {"batch": 8, "dropout": False, "dtype": "fp32"}),
    ("resnet", {}),
    ("densenet", {}),
    ("unet", {}),
    ("lstm", {"keep_gradients": False, "steps": 35}),
)

COLUMNS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("greedy", "auto-perf-maxing", {}),
    ("program", "auto-perf-maxing", {"inner": "program"}),
    ("knapsack", "auto-perf-maxing", {"inner": "knapsack"}),
    ("even", "auto-perf-maxing", {"split": "even"}),
    ("layers", "layers", {}),
    ("layers, even", "layers", {"split": "even"}),
    ("capuchin", "capuchin", {}),
    ("offload-greedy", "offload-greedy", {"bound": False}),
    ("poet", "poet", {"work": 0.2}),
)


def graphs() -> Iterator[remat.Instance]:
    """Yield a traced graph and generated ones."""
    from remat.generate import generate

    yield remat.example("dags/unet_joint")
    for family, parameters in GENERATED:
        yield remat.load(generate("dag", family, **parameters))


def rows_of(instance: remat.Instance) -> Iterator[list[str]]:
    """Yield a row for each bandwidth: what each rule costs, and all of them together in CPU seconds."""
    for bandwidth in BANDWIDTHS:
        where = host(bandwidth)
        free = remat.solve(instance, algorithm="keep-all", machine=where)
        assert free.makespan is not None
        budget = int(SHARE * free.peak_memory["device"])
        cells, start = [], time.process_time()
        for _, algorithm, options in COLUMNS:
            found = remat.solve(instance, algorithm=algorithm, machine=where, budget=budget, options=options)
            cells.append("-" if found.makespan is None else f"{100 * (found.makespan / free.makespan - 1):.2f}")
        yield [str(instance.name), f"{bandwidth}GB/s", *cells, f"{time.process_time() - start:.1f}"]


def show(instances: Iterator[remat.Instance] | Sequence[remat.Instance]) -> None:
    """Print the table."""
    rows = [row for instance in instances for row in rows_of(instance)]
    header = ["graph", "links", *(name for name, _, _ in COLUMNS), "CPU s"]
    table(f"Rules and policies at {SHARE:g} of the peak, % over no recomputation", header, rows)


def run() -> None:
    """Print the table of shipped and generated graphs."""
    show(graphs())


if __name__ == "__main__":
    show([remat.load(path) for path in sys.argv[1:]])
