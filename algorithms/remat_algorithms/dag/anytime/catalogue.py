"""Catalogue of the anytime solver for task graphs: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="dag-auto",
        solver="remat_algorithms.dag.anytime.dag_auto:solve",
        kinds=("taskgraph",),
        summary="greedy, ruin and recreate, and bounds that share their results; anytime, with proofs",
        guarantee="heuristic",
        complexity="O(accesses) a schedule looked at; the bounds are mixed-integer programs",
        reference="bounds after Jain et al. 2020 (Checkmate)",
        deviates="only the block programs of its bound follow the paper; the search is this project's",
        options="remat_algorithms.dag.anytime.dag_auto:DagAutoOptions",
        requires=("ortools",),
        anytime=True,
        trials=(
            Trial(
                when="parameters that stay where they are",
                applies="remat_algorithms.chain.applicability:parameters_stay",
                kinds=("chain",),
            ),
            Trial(when="beyond schedules that nest", kinds=("join",)),
            Trial(
                when="values stay, or more than 20,000 tasks",
                applies="remat_algorithms.dag.applicability:stays",
                kinds=("dag",),
            ),
            Trial(
                when="the same, in a better order",
                applies="remat_algorithms.dag.applicability:stays",
                kinds=("dag",),
                options={"reorder": True},
                free=True,
            ),
        ),
    ),
)
