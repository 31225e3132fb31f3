"""Catalogue of the exact programs for offloading: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial
from remat_algorithms.kit.catalogue import GENERAL

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="offload-exact",
        solver="remat_algorithms.offload.exact.offload_exact:solve",
        options="remat_algorithms.offload.exact.offload_exact:OffloadExactOptions",
        kinds=("chain", "adjoint", "dag"),
        summary="optimal offloading of whole values (with `recompute`: and recomputation) of a small instance",
        guarantee="exact",
        within="whole-value offloading in the reference order, at most 2 copies of a value over a link",
        complexity="constraint program, O(C V) intervals; exponential",
        reference="-",
        requires=("ortools",),
        several_memories=True,
        ratios=True,
        anytime=True,
        trials=(
            Trial(
                when="links to another memory and back, at most 8 tasks",
                applies="remat_algorithms.offload.applicability:few_moves",
                kinds=("dag",),
            ),
            Trial(
                when="links to another memory and back, at most 14 tasks",
                applies="remat_algorithms.offload.applicability:few_moves_and_runs",
                kinds=("dag",),
                options={"recompute": True, "work": 0.1},  # about a second of CPU time at most
            ),
        ),
    ),
    Algorithm(
        name="poet",
        solver="remat_algorithms.offload.poet.poet:solve",
        options="remat_algorithms.offload.poet.poet:PoetOptions",
        kinds=("chain", "adjoint", "dag"),
        summary="integer program over stages for recomputation and paging, after POET",
        guarantee="heuristic",
        complexity="integer program, O(n^2) binaries",
        reference="Patil et al. 2022",
        deviates="paging takes time; stages are merged if the program is too large; minimizes the makespan by default",
        requires=("ortools", "pulp"),
        several_memories=True,
        ratios=True,
        anytime=True,
        covered_by=GENERAL,
    ),
)
