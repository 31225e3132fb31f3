"""Catalogue of the algorithms that assign addresses to buffers: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

KINDS = ("layout",)

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="best-fit",
        solver="remat_algorithms.layout.best_fit:solve",
        options="remat_algorithms.layout.best_fit:BestFitOptions",
        kinds=KINDS,
        summary="places buffers in order of size, lifetime, area, weight or time, each into the smallest gap that fits",
        guarantee="heuristic",
        complexity="O(n log n) merges of gaps",
        reference="XLA, TFLite, MLIR",
    ),
    Algorithm(
        name="layout-exact",
        solver="remat_algorithms.layout.layout_exact:solve",
        options="remat_algorithms.layout.layout_exact:LayoutExactOptions",
        kinds=KINDS,
        summary="layout that fits the capacity, or the smallest arena, with proof, by a search over floors",
        guarantee="exact",
        within="layouts of the schedule",
        complexity="exponential",
        reference="after Moffitt 2023",
        deviates="reductions and bounds follow the paper; the branching is this project's",
        anytime=True,
    ),
    Algorithm(
        name="layout-auto",
        solver="remat_algorithms.layout.layout_auto:solve",
        options="remat_algorithms.layout.layout_auto:LayoutAutoOptions",
        kinds=KINDS,
        summary="best of all greedy orders, then searches for smaller arenas; with a lower bound",
        guarantee="heuristic",
        complexity="limited work",
        reference="-",
        anytime=True,
    ),
    Algorithm(
        name="online-best-fit",
        solver="remat_algorithms.layout.online_best_fit:solve",
        kinds=KINDS,
        summary="best fit, as an allocator without knowledge of the future places buffers",
        guarantee="strategy",
        within="best fit in execution order",
        complexity="O(n log n) merges of gaps",
        reference="-",
    ),
    Algorithm(
        name="caching",
        solver="remat_algorithms.layout.caching:solve",
        kinds=KINDS,
        summary="memory that PyTorch's caching allocator reserves, in execution order",
        guarantee="strategy",
        within="the rules of the caching allocator",
        complexity="O(n log n)",
        reference="PyTorch",
        deviates="default settings, one stream; no expandable segments",
    ),
)
