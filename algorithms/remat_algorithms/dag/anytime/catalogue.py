"""Catalogue of the anytime solver for task graphs: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="dag-auto",
        solver="remat_algorithms.dag.anytime.dag_auto:solve",
        kinds=("taskgraph",),
        summary="anytime: greedy, ruin and recreate, and lower bounds that share their results",
        guarantee="heuristic",
        complexity="O(accesses) per schedule evaluated; the bounds are mixed-integer programs",
        reference="bounds after Jain et al. 2020 (Checkmate)",
        deviates="only the block programs of its bound follow the paper; the search is this project's",
        options="remat_algorithms.dag.anytime.dag_auto:DagAutoOptions",
        requires=("ortools",),
        anytime=True,
        trials=(
            Trial(
                when="parameters that stay in their memory",
                applies="remat_algorithms.chain.applicability:parameters_stay",
                kinds=("chain",),
            ),
            Trial(
                when="variants and more than 1,000 stages; no values to offload, or more than 50,000 tasks",
                applies="remat_algorithms.chain.applicability:variants_stay",
                kinds=("chain",),
            ),
            Trial(
                when="a time limit, and variants or more than 1,000 stages; no values to offload, or more than 50,000 "
                "tasks",
                applies="remat_algorithms.chain.applicability:stays_in_graph",
                kinds=("chain",),
                timed=True,
            ),
            Trial(
                when="unequal steps in one memory",
                applies="remat_algorithms.adjoint.applicability:unequal_in_one_memory",
                kinds=("adjoint",),
            ),
            Trial(when="to search beyond nested schedules", kinds=("join",)),
            Trial(
                when="no values to offload, or more than 20,000 tasks",
                applies="remat_algorithms.dag.applicability:stays",
                kinds=("dag",),
            ),
            Trial(
                when="same conditions, with an improved order of first runs",
                applies="remat_algorithms.dag.applicability:stays",
                kinds=("dag",),
                options={"reorder": True},
                free=True,
            ),
        ),
    ),
)
