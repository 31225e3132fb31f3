"""Catalogue of the algorithms for memory-aware orders of task graphs: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial
from remat_algorithms.kit.catalogue import GENERAL

_CLASS = "schedules without recomputation"

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="dag-order-exact",
        solver="remat_algorithms.dag.order.dag_order_exact:solve",
        kinds=("taskgraph",),
        summary="order of minimum peak that runs each required task once, by a search over down-sets",
        guarantee="exact",
        within=_CLASS,
        complexity="O(2^width n) states; bounded by `states`",
        reference="-",
        options="remat_algorithms.dag.order.dag_order_exact:ExactOptions",
        anytime=True,
        covered_by=GENERAL,
    ),
    Algorithm(
        name="dag-order-greedy",
        solver="remat_algorithms.dag.order.dag_order_greedy:solve",
        kinds=("taskgraph",),
        summary="best of four greedy list schedules that rank tasks by memory",
        guarantee="heuristic",
        within=_CLASS,
        complexity="O((n + reads) log n)",
        reference="-",
        cheap=("dag",),
        trials=(Trial(kinds=("dag",)),),
    ),
    Algorithm(
        name="dag-order-lpmf",
        solver="remat_algorithms.dag.order.dag_order_lpmf:solve",
        kinds=("taskgraph",),
        summary="depth-first order that starts with the branch of largest peak memory (Liu's post-order rule on "
        "graphs)",
        guarantee="heuristic",
        within=_CLASS,
        complexity="O(m log m)",
        reference="after Liu 1986, Kayaaslan et al. 2018",
        deviates="this project extends Liu's rule from trees to graphs",
        cheap=("dag",),
        trials=(Trial(kinds=("dag",)),),
    ),
    Algorithm(
        name="sp-order",
        solver="remat_algorithms.dag.order.sp_order:solve",
        kinds=("taskgraph",),
        summary="order of minimum peak of a series-parallel graph; exact unless last readers are ambiguous",
        guarantee="exact",
        within=_CLASS,
        complexity="O(n log n); O(n^2/64) if values are shared",
        reference="Kayaaslan et al. 2018",
        deviates="cumulative costs of series-parallel orders in place of cut-based merging; relaxes shared values",
        trials=(
            Trial(
                when="at most 1,000 tasks",
                applies="remat_algorithms.kit.applicability:moderate",
                kinds=("dag",),
                free=True,
            ),
        ),
    ),
)
