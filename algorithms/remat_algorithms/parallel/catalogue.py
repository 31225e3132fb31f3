"""Catalogue of the algorithms for task trees and graphs on several processors: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="all-to-all",
        solver="remat_algorithms.parallel.trees.mapping:solve_all_to_all",
        kinds=("tree",),
        summary="every processor on every node of a tree, in the best post-order (after Agullo et al.)",
        guarantee="strategy",
        within="the all-to-all schedule",
        complexity="O(n log n)",
        reference="after Agullo et al. 2016",
    ),
    Algorithm(
        name="proportional",
        solver="remat_algorithms.parallel.trees.mapping:solve_proportional",
        kinds=("tree",),
        summary="subtrees on disjoint groups of processors in proportion to their work (after Pothen & Sun)",
        guarantee="heuristic",
        complexity="O(n log n)",
        reference="after Pothen & Sun 1993",
    ),
    Algorithm(
        name="memory-aware",
        solver="remat_algorithms.parallel.trees.mapping:solve_memory_aware",
        kinds=("tree",),
        summary="proportional mapping with serialisation where the budget demands it (after Agullo et al.)",
        guarantee="heuristic",
        complexity="O(n log n)",
        reference="after Agullo et al. 2016",
    ),
    Algorithm(
        name="par-subtrees",
        solver="remat_algorithms.parallel.trees.par_subtrees:solve",
        options="remat_algorithms.parallel.trees.par_subtrees:SubtreesOptions",
        kinds=("tree",),
        summary="a subtree on each processor, then the rest one by one (after Marchal et al.)",
        guarantee="heuristic",
        complexity="O(n (log n + P))",
        reference="after Marchal, Sinnen & Vivien 2013",
    ),
    Algorithm(
        name="par-inner-first",
        solver="remat_algorithms.parallel.trees.list_scheduling:solve_inner_first",
        kinds=("tree",),
        summary="list scheduling of a tree, inner nodes before leaves (after Marchal et al.)",
        guarantee="heuristic",
        complexity="O(n log n)",
        reference="after Marchal, Sinnen & Vivien 2013",
    ),
    Algorithm(
        name="par-deepest-first",
        solver="remat_algorithms.parallel.trees.list_scheduling:solve_deepest_first",
        kinds=("tree",),
        summary="list scheduling of a tree along its critical path (after Marchal et al.)",
        guarantee="heuristic",
        complexity="O(n log n)",
        reference="after Marchal, Sinnen & Vivien 2013",
    ),
    Algorithm(
        name="mem-booking",
        solver="remat_algorithms.parallel.trees.mem_booking:solve",
        options="remat_algorithms.parallel.trees.mem_booking:BookingOptions",
        kinds=("tree",),
        summary="list scheduling of a tree that books memory: within the budget, never stuck (after Aupy et al.)",
        guarantee="heuristic",
        complexity="O(n (height + log n))",
        reference="after Aupy, Brasseur & Marchal 2017",
    ),
    Algorithm(
        name="dag-list-memory",
        solver="remat_algorithms.parallel.dag_list_memory:solve",
        options="remat_algorithms.parallel.dag_list_memory:ListOptions",
        kinds=("taskgraph",),
        summary="list scheduling of any task graph on several processors: always within the budget, never stuck",
        guarantee="heuristic",
        complexity="O(n log n + n^2 / 512)",
        reference="-",
    ),
)
