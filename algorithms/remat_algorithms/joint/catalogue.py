"""Catalogue of the solvers that combine families: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="adjoint-best",
        solver="remat_algorithms.joint.adjoint_best.adjoint_best:solve",
        options="remat_algorithms.joint.adjoint_best.adjoint_best:AdjointBestOptions",
        kinds=("adjoint",),
        summary="steps of any times and sizes on any levels: the best of all, a table over bytes, and local search",
        guarantee="heuristic",
        complexity="O(n^3 cells) for the table, and the other algorithms' time; exact search of tiny instances",
        reference="this project",
        several_memories=True,
        anytime=True,
    ),
    Algorithm(
        name="remat-offload-best",
        solver="remat_algorithms.joint.remat_offload_best:solve",
        options="remat_algorithms.joint.remat_offload_best:OffloadBestOptions",
        kinds=("chain",),
        summary="anytime: keep, remake or offload each value; from rotor, offload-dp and pofo on",
        guarantee="heuristic",
        complexity="that of pofo, then O(L) and more for each round",
        reference="-",
        several_memories=True,
        anytime=True,
    ),
    Algorithm(
        name="dag-offload-best",
        solver="remat_algorithms.joint.dag_offload_best.dag_offload_best:solve",
        options="remat_algorithms.joint.dag_offload_best.dag_offload_best:DagOffloadBestOptions",
        kinds=("chain", "adjoint", "dag"),
        summary="anytime: keep, remake or offload each value of a task graph, with bounds",
        guarantee="heuristic",
        complexity="O(accesses) and more for each round; the bounds are mixed-integer programs",
        reference="-",
        several_memories=True,
        anytime=True,
    ),
    Algorithm(
        name="adapipe",
        solver="remat_algorithms.joint.adapipe:solve",
        options="remat_algorithms.joint.adapipe:AdaPipeOptions",
        kinds=("pipeline",),
        summary="cuts for 1F1B, and what each stage recomputes at its position",
        guarantee="heuristic",
        complexity="O(devices * layers^2) for each slowest stage, and simulations",
        reference="Sun et al. 2024",
        several_memories=True,
        any_links=True,
    ),
    Algorithm(
        name="pipe-plan",
        solver="remat_algorithms.joint.pipe_plan.pipe_plan:solve",
        options="remat_algorithms.joint.pipe_plan.pipe_plan:PlanOptions",
        kinds=("pipeline",),
        summary="stages, order and recomputation of a pipeline, together, from the zoo's rules and planners on",
        guarantee="heuristic",
        complexity="O(operations * stages) for each schedule",
        reference="this project",
        several_memories=True,
        any_links=True,
        anytime=True,
    ),
)
