"""A scheduler that orders a networkx graph under a memory limit, and starts its tasks one after the other.

python examples/order_graph.py [--limit 2GB]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import networkx

import remat


def image_pipeline(tiles: int) -> Any:
    """Return a graph of tasks: load tiles, correct and match neighbours, blend all."""
    graph: Any = networkx.DiGraph()
    for tile in range(tiles):
        graph.add_node(("load", tile), seconds=2.0, bytes=800_000_000)
        graph.add_node(("correct", tile), seconds=5.0, bytes=900_000_000)
        graph.add_node(("features", tile), seconds=3.0, bytes=50_000_000)
        graph.add_edge(("load", tile), ("correct", tile))
        graph.add_edge(("correct", tile), ("features", tile))
        if tile:
            graph.add_node(("match", tile), seconds=1.0, bytes=10_000_000)
            graph.add_edges_from([(("features", tile - 1), ("match", tile)), (("features", tile), ("match", tile))])
            graph.add_edge(("match", tile), "blend")
    graph.add_node("blend", seconds=10.0, bytes=100_000_000)
    return graph


def order_within(graph: Any, limit: str) -> remat.Result:
    """Return a verified order of the tasks in which the results that are held never exceed a limit.

    Raises
    ------
    SystemExit
        If there is none, or none was found; it says which limit would do.
    """
    instance = remat.dag(graph, time="seconds", size="bytes", outputs=["blend"], recomputable=False, time_unit="s")
    result = remat.solve(instance, budget=limit, time_limit=10)
    if result.makespan is None:
        least = remat.least_budget(instance, time_limit=10)
        needed = "no limit" if least.answer is None or least.answer.value is None else f"{least.answer.value:,} bytes"
        raise SystemExit(f"{result.status} within {limit}; {needed} would do")
    return result


def execute(graph: Any, order: tuple[str, ...], start: Callable[[Any], None]) -> None:
    """Start the tasks in order: the names of the schedule are those of the nodes."""
    nodes = {str(node): node for node in graph}
    for name in order:
        start(nodes[name])


def main() -> None:
    """Order a pipeline of 6 tiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", default="2GB")
    asked = parser.parse_args()
    graph = image_pipeline(6)
    result = order_within(graph, asked.limit)
    print(f"{result.status}: {result.makespan} s, {max(result.peak_memory.values()) / 1e9:.2f} GB of {asked.limit}")
    done: list[Any] = []
    execute(graph, result.order, done.append)
    print("first tasks:", ", ".join(map(str, done[:4])))


if __name__ == "__main__":
    main()
