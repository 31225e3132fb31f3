"""Orders of graphs of dask, and of contraction trees of cotengra: their peaks beside those of the programs themselves.

``python -m benchmarks.foreign_orders dask`` needs dask; ``python -m benchmarks.foreign_orders trees`` needs cotengra.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import remat
from benchmarks.harness import table
from remat.bridges.contraction_tree import document as tree_document
from remat.bridges.contraction_tree import import_tree
from remat.bridges.dask.collections import document, order, peak

TITLES = {"dask": "Graphs of dask", "trees": "Contraction trees of cotengra"}


def drawn(shape: Any, chunks: Any) -> Any:
    """Return an array of dask with random numbers."""
    import dask.array

    return dask.array.random.RandomState(0).random_sample(shape, chunks=chunks)


def collections() -> Iterator[tuple[str, Any]]:
    """Yield ten graphs that are known to be troublesome."""
    import dask.array as da

    x = drawn((400, 400), (100, 100))
    a, b = drawn((600, 600), (100, 100)), drawn((600, 600), (100, 100))
    z = drawn((100, 200, 20), (10, 50, 20))
    yield "rechunk and sum", x.rechunk((400, 25)).sum(axis=0)
    yield "shared reductions", [(a - b).mean(), (a * b).sum(), a.std()]
    yield "cumulative sum", x.cumsum(axis=0)
    yield "tree reduction", drawn(64 * 64, 64).sum(split_every=2)
    yield "svd", list(da.linalg.svd(drawn((800, 50), (100, 50))))
    yield "matrix product", da.matmul(x, x.T)
    yield "anomaly", z - z.mean(axis=0)
    yield "rechunk twice", x.rechunk((400, 50)).rechunk((50, 400)) + 1
    yield "qr", list(da.linalg.qr(drawn((600, 40), (100, 40))))
    yield "overlap", da.overlap.overlap(x, depth=2, boundary="reflect").map_blocks(lambda q: q * 2).sum()


def dask_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each graph."""
    from dask.order import order as usual

    from remat.bridges.dask.collections import _graph

    yield "graph", "tasks", "dask.order", "remat", "", "CPU s"
    for name, collection in collections():
        graph = _graph(collection, optimize=False)
        rows = document(collection, measure=True, optimize=False)["tasks"]
        sizes = {key: row["size"] for key, row in zip(graph.keys, rows, strict=True)}
        ranks = usual(graph.tasks)
        theirs = peak(sorted(graph.keys, key=ranks.__getitem__), graph.reads, sizes, graph.outputs)
        begun = time.process_time()
        found = order(collection, sizes=sizes, optimize=False, time_limit="5s")
        spent = time.process_time() - begun
        ours = peak(sorted(found, key=found.__getitem__), graph.reads, sizes, graph.outputs)
        yield name, f"{len(sizes):,}", f"{theirs:,}", f"{ours:,}", f"{ours / theirs - 1:+.1%}", f"{spent:.1f}"


def tree_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row for each random network of cotengra."""
    from importlib import import_module

    cotengra = import_module("cotengra")
    yield "tensors", "peak_size()", "remat", "", "status", "CPU s"
    for seed in range(9):
        inputs, output, _, sizes = cotengra.utils.rand_equation(20 + 4 * seed, 3, seed=seed, d_max=4, n_out=seed % 3)
        search = cotengra.HyperOptimizer(max_repeats=8, methods=["greedy"], parallel=False, progbar=False).search
        tree = search(inputs, output, sizes)
        begun = time.process_time()
        result = remat.least_budget(remat.load(import_tree(tree_document(tree))), time_limit="2s")
        spent, theirs = time.process_time() - begun, int(tree.peak_size())
        ours = max(result.peak_memory.values())
        yield (
            str(len(inputs)),
            f"{theirs:,}",
            f"{ours:,}",
            f"{ours / theirs - 1:+.1%}",
            str(result.status),
            f"{spent:.2f}",
        )


def main(arguments: list[str]) -> None:
    """Print the tables that are asked for."""
    tables: dict[str, Callable[[], Iterator[tuple[str, ...]]]] = {"dask": dask_rows, "trees": tree_rows}
    for name in arguments or ["dask"]:
        head, *rows = tables[name]()
        table(TITLES[name], head, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
