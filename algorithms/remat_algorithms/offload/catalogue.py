"""Catalogue of the offloading algorithms on chains and graphs: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm, Trial
from remat_algorithms.kit.catalogue import GENERAL
from remat_algorithms.offload.exact.catalogue import ALGORITHMS as EXACT
from remat_algorithms.offload.rules.catalogue import ALGORITHMS as RULES
from remat_algorithms.offload.weights.catalogue import ALGORITHMS as WEIGHTS

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="offload-greedy",
        solver="remat_algorithms.offload.offload_greedy:solve",
        options="remat_algorithms.offload.offload_greedy:OffloadOptions",
        kinds=("chain", "dag"),
        summary="offloads whole values, overlapped with computation, in several rankings; with a fluid lower bound",
        guarantee="heuristic",
        complexity="O(gaps * runs), and a linear program",
        reference="after Beaumont et al. 2020",
        deviates="this project's rankings for the paper's problem; its fluid relaxation is the bound",
        several_memories=True,
        ratios=True,
        trials=(
            Trial(
                when="links to another memory and back",
                applies="remat_algorithms.kit.applicability:can_offload",
                kinds=("chain",),
            ),
            Trial(
                when="links to another memory and back, more than 20,000 tasks",
                applies="remat_algorithms.offload.applicability:large",
                kinds=("dag",),
            ),
        ),
    ),
    Algorithm(
        name="offload-dp",
        solver="remat_algorithms.offload.pofo.pofo:solve_offload_dp",
        options="remat_algorithms.offload.pofo.pofo:OffloadDpOptions",
        kinds=("chain",),
        summary="offloads activations, by dynamic programming over the values still to send and already fetched",
        guarantee="heuristic",
        complexity="O(L slots^3)",
        needs_slack="sizes are rounded up to shares of the budget",
        reference="after Beaumont et al. 2020",
        deviates="this project's dynamic program for the paper's problem, on memory slots",
        several_memories=True,
        ratios=True,
        anytime=True,
        covered_by=GENERAL,
    ),
    Algorithm(
        name="pofo",
        solver="remat_algorithms.offload.pofo.pofo:solve_pofo",
        options="remat_algorithms.offload.pofo.pofo:PofoOptions",
        kinds=("chain",),
        summary="offloading and recomputation of a chain in one dynamic program",
        guarantee="heuristic",
        complexity="O(L^2 slots^3)",
        needs_slack="sizes are rounded up to shares of the budget",
        reference="Beaumont et al. 2021",
        deviates="sizes rounded to slots, for several shares of the memory; the placed schedule decides, not the model",
        several_memories=True,
        ratios=True,
        anytime=True,
        covered_by=GENERAL,
    ),
    *EXACT,
    *WEIGHTS,
    *RULES,
)
