"""Catalogue of the sequential algorithms for task trees in one memory: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="postorder",
        solver="remat_algorithms.tree.postorder:solve_given",
        kinds=("tree",),
        summary="post-order of a tree that visits children by number",
        guarantee="strategy",
        within="the post-order by node numbers",
        complexity="O(n)",
        reference="-",
        covered_by=("liu",),
    ),
    Algorithm(
        name="liu-postorder",
        solver="remat_algorithms.tree.postorder:solve",
        kinds=("tree",),
        summary="post-order of a tree with minimum peak",
        guarantee="exact",
        within="post-order traversals",
        complexity="O(n log n)",
        reference="Liu 1986",
        covered_by=("liu",),
    ),
    Algorithm(
        name="liu",
        solver="remat_algorithms.tree.liu:solve",
        kinds=("tree",),
        summary="traversal of a tree with minimum peak, by hill-valley segments",
        guarantee="exact",
        within="traversals in one memory",
        complexity="O(n log^2 n)",
        reference="Liu 1987",
        trials=(Trial(early=True),),
        many="remat_algorithms.tree.applicability:alone",
    ),
    Algorithm(
        name="minmem",
        solver="remat_algorithms.tree.minmem:solve",
        kinds=("tree",),
        summary="traversal of a tree with minimum peak, by exploring with growing memory",
        guarantee="exact",
        within="traversals in one memory",
        complexity="O(n^2)",
        reference="Jacquelin et al. 2011",
        covered_by=("liu",),
    ),
)
