"""Catalogue of the exact search over all schedules of a task graph: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="dag-exact",
        solver="remat_algorithms.dag.exact.dag_exact:solve",
        kinds=("taskgraph",),
        summary="optimal order and recomputation of a small graph, by a shortest path over sets of values",
        guarantee="exact",
        within="sequential schedules in one memory",
        complexity="exponential in the number of values that fit; bounded by `states`",
        reference="-",
        options="remat_algorithms.dag.exact.dag_exact:DagExactOptions",
        anytime=True,
        trials=(
            Trial(
                when="one processor, at most 150 tasks",
                applies="remat_algorithms.dag.applicability:few_tasks",
                kinds=("dag", "join"),
                free=True,
            ),
        ),
    ),
)
