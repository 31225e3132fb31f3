"""Traversals of large trees the whole way: load, lower, solve, place, verify; and the algorithms by themselves."""

from __future__ import annotations

import random
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table

ALGORITHMS = ("postorder", "liu-postorder", "liu", "minmem")
SHAPES = ("chain", "star", "random", "random, shuffled")


def parents(shape: str, nodes: int) -> list[int]:
    """Return a parent array; the root is node 0, unless the numbers are shuffled."""
    if shape == "chain":
        return [-1, *range(nodes - 1)]
    if shape == "star":
        return [-1] + [0] * (nodes - 1)
    draw = random.Random(1)
    above = [-1, *(draw.randrange(i) for i in range(1, nodes))]
    if shape == "random":
        return above
    label = draw.sample(range(nodes), nodes)
    parent = [-1] * nodes
    for node in range(1, nodes):
        parent[label[node]] = label[above[node]]
    return parent


def whole_way(shape: str, nodes: int, algorithm: str) -> dict[str, Any]:
    """Solve one tree; the peak memory is that of the whole process, with the document."""
    document = {
        "schema": "remat.instance/1",
        "kind": "tree",
        "units": {"time": "unit", "memory": "unit"},
        "parent": parents(shape, nodes),
        "output_size": [(i * 7919) % 1000 for i in range(nodes)],
        "workspace": [(i * 104729) % 500 for i in range(nodes)],
    }
    with Stopwatch() as watch:
        result = remat.solve(document, algorithm=algorithm)
    return watch.report(peak=result.peak_memory["memory"], solve=result.solve_seconds)


def run() -> None:
    """Print seconds for 10^5 and 10^6 nodes."""
    rows = []
    for nodes in (100_000, 1_000_000):
        for shape in SHAPES:
            for algorithm in ALGORITHMS:
                if algorithm == "minmem" and nodes > 100_000:
                    continue
                done = measure(whole_way, shape=shape, nodes=nodes, algorithm=algorithm)
                cells = [shape, nodes, algorithm, done.wall, done.cpu, done.value["solve"], round(done.peak_mib)]
                rows.append([*cells, done.value["peak"]])
    header = ["tree", "nodes", "algorithm", "wall s", "CPU s", "of it solver s", "RSS MiB", "peak"]
    table("Trees: load, lower, solve, place, verify (one thread)", header, rows)
