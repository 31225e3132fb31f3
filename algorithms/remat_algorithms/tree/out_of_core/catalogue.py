"""Catalogue of the algorithms for task trees that exceed the memory and evict to a second one: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

_HEURISTICS = "remat_algorithms.tree.out_of_core.heuristics"

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="postorder-min-io",
        solver="remat_algorithms.tree.out_of_core.postorder_min_io:solve",
        kinds=("tree",),
        summary="post-order of a tree with minimum I/O volume; evicts parts of values to a second memory",
        guarantee="exact",
        within="post-order traversals with divisible files",
        complexity="O(n log n)",
        reference="Agullo, Guermouche & L'Excellent 2010",
        options="remat_algorithms.tree.out_of_core.model:DiskOptions",
        several_memories=True,
        cheap=("tree",),
    ),
    Algorithm(
        name="min-io-lsnf",
        solver=f"{_HEURISTICS}:solve_lsnf",
        kinds=("tree",),
        summary="evicts the value of the last scheduled node first, on one traversal (after Jacquelin et al. 2011)",
        guarantee="heuristic",
        within="one traversal",
        complexity="O(n log n)",
        reference="after Jacquelin, Marchal, Robert & Uçar 2011",
        deviates="uses the traversal of minimum memory",
        options=f"{_HEURISTICS}:LastScheduledOptions",
        several_memories=True,
        cheap=("tree",),
    ),
    Algorithm(
        name="min-io-first-fit",
        solver=f"{_HEURISTICS}:solve_first_fit",
        kinds=("tree",),
        summary="evicts the first value that is large enough, on one traversal (after Jacquelin et al. 2011)",
        guarantee="heuristic",
        within="one traversal",
        complexity="O(n log n)",
        reference="after Jacquelin, Marchal, Robert & Uçar 2011",
        deviates="uses the traversal of minimum memory",
        options=f"{_HEURISTICS}:TraversalOptions",
        several_memories=True,
        cheap=("tree",),
    ),
    Algorithm(
        name="min-io-best-fit",
        solver=f"{_HEURISTICS}:solve_best_fit",
        kinds=("tree",),
        summary="evicts the value closest in size to the missing bytes, on one traversal (after Jacquelin et al. 2011)",
        guarantee="heuristic",
        within="one traversal",
        complexity="O(n log n)",
        reference="after Jacquelin, Marchal, Robert & Uçar 2011",
        deviates="uses the traversal of minimum memory",
        options=f"{_HEURISTICS}:TraversalOptions",
        several_memories=True,
        cheap=("tree",),
    ),
    Algorithm(
        name="min-io-best-k",
        solver=f"{_HEURISTICS}:solve_best_k",
        kinds=("tree",),
        summary="evicts the best combination of k values, on one traversal (after Jacquelin et al. 2011)",
        guarantee="heuristic",
        within="one traversal",
        complexity="O(n (log n + 2^k))",
        reference="after Jacquelin, Marchal, Robert & Uçar 2011",
        deviates="uses the traversal of minimum memory; k is an option",
        options=f"{_HEURISTICS}:BestCombinationOptions",
        several_memories=True,
    ),
)
