"""Catalogue of the algorithms for chains with parameters: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="weight-offload",
        solver="remat_algorithms.offload.weights.weight_offload:solve",
        options="remat_algorithms.offload.weights.weight_offload:WeightOffloadOptions",
        kinds=("chain",),
        summary="after Beaumont et al.: which stages' parameters leave between F and B, and where they are updated",
        guarantee="heuristic",
        complexity="O(evaluations L log L)",
        reference="Beaumont et al. 2022",
        several_memories=True,
        anytime=True,
    ),
    Algorithm(
        name="zero-offload",
        solver="remat_algorithms.offload.weights.rules:solve_zero_offload",
        kinds=("chain",),
        summary="after Ren et al.: parameters stay, gradients leave, optimizer states and updates are at the host",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="Ren et al. 2021",
        several_memories=True,
    ),
    Algorithm(
        name="l2l",
        solver="remat_algorithms.offload.weights.rules:solve_l2l",
        options="remat_algorithms.offload.weights.rules:LayerToLayerOptions",
        kinds=("chain",),
        summary="after Pudipeddi et al.: parameters come stage by stage, one ahead, once for F and once for B",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="Pudipeddi et al. 2020",
        several_memories=True,
    ),
)
