"""How often, and by how much, the best post-order of a tree is worse than the best traversal.

Assembly trees (grid Laplacians; matrices and trees of `$REMAT_DATA`, where that is set) against random weights on the
same shapes, drawn as by Jacquelin et al. 2011: outputs from 1..n, workspaces from 1..max(1, n/500).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import remat
from benchmarks.harness import data_missing, table
from remat.generate import generate
from remat.generate.sparse.assembly import Storage, assembly_tree
from remat.generate.sparse.minimum_degree import minimum_degree
from remat.generate.sparse.ordering import nested_dissection
from remat.generate.sparse.pattern import Pattern, pattern_of
from remat_algorithms.tree.liu import best_traversal
from remat_algorithms.tree.postorder import best_postorder
from remat_algorithms.tree.tree_arrays import TaskTree

FLAT = [(20, 20), (30, 30), (50, 50), (64, 64), (70, 30), (100, 25), (150, 10), (80, 80), (100, 100)]
SOLID = [(6, 6, 6), (8, 8, 8), (10, 10, 10), (12, 12, 12), (20, 10, 5), (14, 14, 14)]
RELAX = (0, 1, 4, 16)
DRAWS = 5
"""Draws of random weights for each tree."""


@dataclass
class Row:
    """Increases of the best post-order's peak over the optimum, one for each tree."""

    name: str
    increase: list[float] = field(default_factory=list)

    def add(self, postorder: int, optimum: int) -> None:
        """Count one tree."""
        self.increase.append(postorder / optimum - 1 if optimum else 0.0)

    def cells(self) -> list[str]:
        """Return the columns of the table."""
        worse = [increase for increase in self.increase if increase > 0]
        mean, mean_worse = (sum(worse) / max(len(group), 1) for group in (self.increase, worse))
        shares = (len(worse) / len(self.increase), max(self.increase), mean, mean_worse)
        return [self.name, str(len(self.increase)), *(f"{share:.1%}" for share in shares)]


def grid(shape: tuple[int, ...]) -> Pattern:
    """Return the pattern of the Laplacian on a grid."""
    point = np.arange(np.prod(shape)).reshape(shape)
    ends = [(np.delete(point, -1, axis).ravel(), np.delete(point, 0, axis).ravel()) for axis in range(len(shape))]
    rows, columns = (np.concatenate(side) for side in zip(*ends, strict=True))
    return pattern_of(point.size, rows, columns)


def assembly(pattern: Pattern, order: list[int], relax: int) -> dict[str, object]:
    """Return an assembly tree as an instance."""
    body = assembly_tree(pattern.permuted(order), relax=relax).body(Storage())
    unit = {"time": "unit", "memory": "unit"}
    return {"schema": "remat.instance/1", "kind": "tree", "units": unit, **body}


def grids_dissected() -> Iterator[remat.Instance]:
    """Yield `remat generate tree --family grid2d` and `grid3d` at several sizes and amalgamations."""
    for shape in (*FLAT, *SOLID):
        for relax in RELAX:
            sides = dict(zip(("nx", "ny", "nz"), shape, strict=False))
            yield remat.load(generate("tree", f"grid{len(shape)}d", **sides, relax=relax))


def grids_minimum_degree() -> Iterator[remat.Instance]:
    """Yield the same grids ordered by minimum degree."""
    for shape in (*FLAT, *SOLID):
        pattern = grid(shape)
        order = minimum_degree(pattern)
        for relax in RELAX:
            yield remat.load(assembly(pattern, order, relax))


def matrices(folder: Path) -> Iterator[remat.Instance]:
    """Yield the matrices of a folder, ordered by minimum degree and by nested dissection."""
    from remat.bridges.matrix_market.matrix import read_matrix

    for path in sorted(folder.glob("*.mtx*")):
        pattern = read_matrix(path)
        if len(pattern) > 20_000:
            continue
        for ordering in (minimum_degree, nested_dissection):
            order = ordering(pattern)
            for relax in RELAX:
                yield remat.load(assembly(pattern, order, relax))


def compare(name: str, instances: Iterator[remat.Instance]) -> list[Row]:
    """Compare on the trees as they are (through the verifier), and with random weights on their shapes."""
    own, random = Row(name), Row(f"random weights on {name}")
    for seed, instance in enumerate(instances):
        peaks = [
            remat.solve(instance, algorithm=algorithm).peak_memory["memory"] for algorithm in ("liu-postorder", "liu")
        ]
        own.add(*peaks)
        parent = np.array(instance.parent)  # type: ignore[union-attr]
        n = len(parent)
        draw = np.random.default_rng(seed)
        for _ in range(DRAWS):
            tree = TaskTree.from_arrays(
                parent, draw.integers(1, n, n, endpoint=True), draw.integers(1, max(1, n // 500), n, endpoint=True)
            )
            random.add(*(tree.peak_of(best(tree))[0] for best in (best_postorder, best_traversal)))
    return [own, random]


def run() -> None:
    """Print the table."""
    groups = {
        "grid Laplacians, nested dissection": grids_dissected(),
        "grid Laplacians, minimum degree": grids_minimum_degree(),
    }
    data = os.environ.get("REMAT_DATA")
    if data:
        trees = sorted((Path(data) / "trees").glob("*.json*"))
        groups["trees of $REMAT_DATA"] = map(remat.load, trees)
        groups["matrices of $REMAT_DATA"] = matrices(Path(data) / "matrices")
    rows = [row.cells() for name, instances in groups.items() for row in compare(name, instances)]
    header = ["trees", "number", "not optimal", "largest increase", "mean increase", "mean where not optimal"]
    table("Best post-order against the best traversal: peak memory", header, rows)
    data_missing("grids")


if __name__ == "__main__":
    run()
