"""Catalogue of the solvers that combine families: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="adjoint-best",
        solver="remat_algorithms.joint.adjoint_best.adjoint_best:solve",
        options="remat_algorithms.joint.adjoint_best.adjoint_best:AdjointBestOptions",
        kinds=("adjoint",),
        summary="steps of any times and sizes on any levels: best of all algorithms, a dynamic program and local "
        "search",
        guarantee="heuristic",
        complexity="O(n^3 cells) for the table, plus the time of the other algorithms; exact search on tiny instances",
        needs_slack="the search takes another path at another budget",
        reference="this project",
        several_memories=True,
        anytime=True,
        trials=(
            Trial(when="at most 2,000 steps", applies="remat_algorithms.adjoint.applicability:moderate"),
            Trial(when="more steps", applies="remat_algorithms.adjoint.applicability:many_steps"),
        ),
    ),
    Algorithm(
        name="remat-offload-best",
        solver="remat_algorithms.joint.remat_offload_best:solve",
        options="remat_algorithms.joint.remat_offload_best:OffloadBestOptions",
        kinds=("chain",),
        summary="anytime: keep, recompute or offload each value; starts from rotor, offload-dp and pofo",
        guarantee="heuristic",
        complexity="that of pofo, then O(L) and more for each round",
        needs_slack="the search takes another path at another budget",
        reference="-",
        several_memories=True,
        ratios=True,
        anytime=True,
        trials=(
            Trial(
                when="links to another memory and back, no variants, at most 200 stages",
                applies="remat_algorithms.chain.applicability:offloads",
            ),
        ),
    ),
    Algorithm(
        name="dag-offload-best",
        solver="remat_algorithms.joint.dag_offload_best.dag_offload_best:solve",
        options="remat_algorithms.joint.dag_offload_best.dag_offload_best:DagOffloadBestOptions",
        kinds=("chain", "adjoint", "dag"),
        summary="anytime: keep, recompute or offload each value of a task graph, with bounds",
        guarantee="heuristic",
        complexity="O(accesses) and more for each round; the bounds are mixed-integer programs",
        needs_slack="the search takes another path at another budget",
        reference="-",
        several_memories=True,
        ratios=True,
        anytime=True,
        trials=(
            Trial(
                when="more than 50 stages, or variants, with links to another memory and back, at most 50,000 tasks",
                applies="remat_algorithms.chain.applicability:offloads_otherwise",
                kinds=("chain",),
            ),
            Trial(
                when="a time limit, links to another memory and back, at most 50,000 tasks",
                applies="remat_algorithms.chain.applicability:offloads_in_graph",
                kinds=("chain",),
                timed=True,
            ),
            Trial(
                when="links to another memory and back, at most 20,000 tasks",
                applies="remat_algorithms.dag.applicability:offloads_plain",
                kinds=("dag",),
            ),
        ),
    ),
    Algorithm(
        name="adapipe",
        solver="remat_algorithms.joint.adapipe:solve",
        options="remat_algorithms.joint.adapipe:AdaPipeOptions",
        kinds=("pipeline",),
        summary="chooses the partition of the layers for 1F1B and the recomputation of each stage",
        guarantee="heuristic",
        complexity="O(devices * layers^2) for each slowest stage, and simulations",
        needs_slack="the table counts bytes of stages that the schedule may not need",
        reference="Sun et al. 2024",
        deviates="a choice of recomputation levels per stage in place of single operators",
        several_memories=True,
        any_links=True,
        covered_by=("pipe-plan", "1f1b-star"),
    ),
    Algorithm(
        name="piper",
        solver="remat_algorithms.joint.piper.piper:solve",
        options="remat_algorithms.joint.piper.piper:PiperOptions",
        kinds=("pipeline",),
        summary="chooses stages, tensor and data degrees and recomputation for the minimum maximum load; then 1F1B",
        guarantee="heuristic",
        complexity="O(layers^2 * devices^2 * degrees)",
        needs_slack="the table counts bytes of stages that the schedule may not need",
        reference="Tarnawski et al. 2021",
        deviates="each layer runs unchanged or recomputes its forward; devices keep their order",
        several_memories=True,
        any_links=True,
        trials=(
            Trial(
                when="layers that several devices can share",
                applies="remat_algorithms.parallel.applicability:has_groups",
            ),
        ),
    ),
    Algorithm(
        name="pipe-plan",
        solver="remat_algorithms.joint.pipe_plan.pipe_plan:solve",
        options="remat_algorithms.joint.pipe_plan.pipe_plan:PlanOptions",
        kinds=("pipeline",),
        summary="chooses stages, order, recomputation and offloading of a pipeline jointly, from named schedules and "
        "planners",
        guarantee="heuristic",
        complexity="O(operations * stages) for each schedule",
        needs_slack="the search takes another path at another budget",
        reference="this project",
        several_memories=True,
        any_links=True,
        anytime=True,
        trials=(
            Trial(when="a step that does not repeat", applies="remat_algorithms.kit.applicability:runs_once"),
            Trial(
                when="two copies of the layers",
                applies="remat_algorithms.parallel.applicability:step_of_copies",
                options={"placement": "bidirectional"},
            ),
        ),
        quick="remat_algorithms.parallel.applicability:few_moves",
        work_limits=("effort",),
    ),
)
