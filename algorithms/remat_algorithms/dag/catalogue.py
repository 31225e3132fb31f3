"""Catalogue of the algorithms for any task graph: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial
from remat_algorithms.dag.literature.catalogue import ALGORITHMS as LITERATURE

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="keep-all",
        solver="remat_algorithms.dag.keep_all:solve",
        kinds=("taskgraph",),
        summary="runs each required task once, in the reference order, and frees each value after its last use",
        guarantee="strategy",
        within="the keep-all schedule",
        complexity="O(size)",
        reference="-",
        cheap=("chain", "dag"),
        trials=(
            Trial(kinds=("chain",)),
            Trial(
                when="all values fit at once",
                applies="remat_algorithms.kit.applicability:everything_fits",
                kinds=("dag", "join"),
                early=True,
            ),
            Trial(kinds=("dag",)),
        ),
    ),
    *LITERATURE,
)
