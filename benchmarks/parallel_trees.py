"""Task trees on P processors that share one memory: makespan against peak, and seconds for large trees."""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table
from remat.generate import generate
from remat.graph.bounds import makespan_bound, memory_time_bound
from remat.instance import Instance, load
from remat.instance.dag import Parallel
from remat.solving.problem_setup import make_problem

PROCESSORS = (2, 4, 8, 16, 32)
UNBOUNDED = ("all-to-all", "proportional", "par-subtrees", "par-inner-first", "par-deepest-first")
BOUNDED = ("memory-aware", "mem-booking", "dag-list-memory")
BUDGETS = (1.0, 1.5, 3.0)
LARGE = 100_000


def machine(processors: int) -> dict[str, Any]:
    """Return so many processors on one memory."""
    return {
        "memories": [{"name": "memory"}],
        "processors": [{"name": "cpu", "memory": "memory", "count": processors}],
    }


def trees(*, node_parallel: bool) -> list[Instance]:
    """Return generated trees, and the assembly trees under $REMAT_DATA if that is set."""
    documents = [
        generate("tree", "random", nodes=2000, max_workspace=500),
        generate("tree", "random", nodes=2000, max_children=2),
        generate("tree", "random", nodes=2000, method="prufer"),
        generate("tree", "grid2d", nx=60, ny=60),
        generate("tree", "grid3d", nx=12, ny=12, nz=12),
    ]
    data = os.environ.get("REMAT_DATA")
    paths = sorted((Path(data) / "trees").glob("*.json.gz")) if data else []
    found = [*(load(document) for document in documents), *(load(path) for path in paths)]
    if not node_parallel:
        return found
    parallel = Parallel(max=32, alpha=0.9)
    return [instance.model_copy(update={"parallel": parallel}) for instance in found]


def trade_off(*, node_parallel: bool) -> None:
    """Print geometric means over the trees of makespan / best bound and peak / sequential optimum."""
    instances = trees(node_parallel=node_parallel)
    optimum = [remat.solve(instance, algorithm="liu").peak_memory["memory"] for instance in instances]
    rows = []
    cases: list[tuple[str, float | None]] = [
        (name, None) for name in UNBOUNDED if node_parallel or name != "all-to-all"
    ]
    cases += [(name, budget) for name in BOUNDED for budget in (*BUDGETS, None)]
    for name, budget in cases:
        row: list[object] = [name, "-" if budget is None else f"{budget:g}"]
        for processors in PROCESSORS:
            figures = defaultdict(list)
            for instance, least in zip(instances, optimum, strict=True):
                size = None if budget is None else int(budget * least)
                result = remat.solve(instance, algorithm=name, machine=machine(processors), budget=size)
                assert result.makespan is not None
                problem = make_problem(instance, budget=size, machine=machine(processors))
                bound = max(
                    makespan_bound(problem.graph, problem.machine), memory_time_bound(problem.graph, problem.machine)
                )
                figures["time"].append(result.makespan / bound)
                figures["peak"].append(result.peak_memory["memory"] / least)
            row.append(f"{_mean(figures['time']):.2f} / {_mean(figures['peak']):.2f}")
        rows.append(row)
    kind = "nodes on up to 32 processors, speed-up p^0.9" if node_parallel else "one processor a node"
    title = f"{len(instances)} trees, {kind}: makespan / lower bound, and peak / sequential optimum"
    table(title, ["algorithm", "budget / optimum", *(f"P = {count}" for count in PROCESSORS)], rows)


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def whole_way(name: str, shape: dict[str, Any], budget: float | None) -> dict[str, Any]:
    """Solve one large tree on 16 processors."""
    instance = load(generate("tree", "random", nodes=LARGE, **shape))
    size = None
    if budget is not None:
        size = int(budget * remat.solve(instance, algorithm="liu").peak_memory["memory"])
    with Stopwatch() as watch:
        result = remat.solve(instance, algorithm=name, machine=machine(16), budget=size)
    return watch.report(solver=result.solve_seconds)


def large() -> None:
    """Print seconds for trees of 10^5 nodes."""
    rows = []
    shapes: dict[str, dict[str, Any]] = {"random": {}, "binary": {"max_children": 2}, "chain": {"max_children": 1}}
    for label, shape in shapes.items():
        for name in (*UNBOUNDED[1:], *BOUNDED):
            budget = 1.5 if name in BOUNDED else None
            done = measure(whole_way, name=name, shape=shape, budget=budget)
            rows.append(
                [label, name, "-" if budget is None else f"{budget:g}", done.value["solver"], done.wall, done.cpu]
            )
    header = ["tree", "algorithm", "budget / optimum", "algorithm s", "with placement and verifier s", "CPU s"]
    table(f"{LARGE} nodes on 16 processors", header, rows)


def run() -> None:
    """Print the trade-off without and with node parallelism, and the speed."""
    trade_off(node_parallel=False)
    trade_off(node_parallel=True)
    sys.stdout.write(
        "\nThe bound is the largest of the critical path, the work over P and the bytes times time over the budget.\n"
    )
    large()
