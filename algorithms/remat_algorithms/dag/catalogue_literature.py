"""Catalogue of the literature's rematerialisation algorithms on task graphs: metadata only."""

from __future__ import annotations

from remat.registry import Algorithm

KINDS = ("chain", "adjoint", "dag")
CHECKMATE = "Chen et al. 2016; Jain et al. 2020"

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="chen-sqrt",
        solver="remat_algorithms.dag.baselines:solve_chen_sqrt",
        kinds=KINDS,
        summary="every sqrt(n)-th task of a linear forward is a checkpoint",
        guarantee="strategy",
        within="the chen-sqrt schedule",
        complexity="O(n values)",
        reference=CHECKMATE,
    ),
    Algorithm(
        name="dag-chen-greedy",
        solver="remat_algorithms.dag.baselines:solve_chen_greedy",
        kinds=KINDS,
        summary="a linear forward is cut where more than b bytes have come together; b searched",
        guarantee="heuristic",
        complexity="O(n values) for each b",
        reference=CHECKMATE,
        anytime=True,
    ),
    Algorithm(
        name="ap-sqrt",
        solver="remat_algorithms.dag.baselines:solve_ap_sqrt",
        kinds=KINDS,
        summary="every sqrt-th articulation point of the forward graph is a checkpoint",
        guarantee="strategy",
        within="the ap-sqrt schedule",
        complexity="O(n values)",
        reference=CHECKMATE,
    ),
    Algorithm(
        name="ap-greedy",
        solver="remat_algorithms.dag.baselines:solve_ap_greedy",
        kinds=KINDS,
        summary="the forward is cut at articulation points where more than b bytes have come together; b searched",
        guarantee="heuristic",
        complexity="O(n values) for each b",
        reference=CHECKMATE,
        anytime=True,
    ),
    Algorithm(
        name="linearized-sqrt",
        solver="remat_algorithms.dag.baselines:solve_linearized_sqrt",
        kinds=KINDS,
        summary="every sqrt(n)-th forward task in reference order is a checkpoint",
        guarantee="strategy",
        within="the linearized-sqrt schedule",
        complexity="O(n values)",
        reference=CHECKMATE,
    ),
    Algorithm(
        name="linearized-greedy",
        solver="remat_algorithms.dag.baselines:solve_linearized_greedy",
        kinds=KINDS,
        summary="the forward in reference order is cut where more than b bytes have come together; b searched",
        guarantee="heuristic",
        complexity="O(n values) for each b",
        reference=CHECKMATE,
        anytime=True,
    ),
    Algorithm(
        name="dtr",
        solver="remat_algorithms.dag.dtr:solve",
        options="remat_algorithms.dag.dtr:DtrOptions",
        kinds=KINDS,
        summary="dynamic tensor rematerialisation, offline: evict the least cost / (size * staleness); best of many limits",
        guarantee="heuristic",
        complexity="O(limits * evictions * values)",
        reference="Kirisame et al. 2020",
        anytime=True,
    ),
)
