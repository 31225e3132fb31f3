"""Catalogue of the offloading rules from the literature: metadata only."""

from __future__ import annotations

from remat.registry import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="vdnn-all",
        solver="remat_algorithms.offload.rules_vdnn:solve_all",
        options="remat_algorithms.offload.rules_vdnn:VdnnOptions",
        kinds=("chain",),
        summary="the input of every stage leaves during its forward and comes back one stage ahead of its backward",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="Rhu et al. 2016",
        several_memories=True,
    ),
    Algorithm(
        name="vdnn-conv",
        solver="remat_algorithms.offload.rules_vdnn:solve_conv",
        options="remat_algorithms.offload.rules_vdnn:VdnnConvOptions",
        kinds=("chain",),
        summary="as vdnn-all, for the convolutions alone: stages with `conv` in their name",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="Rhu et al. 2016",
        several_memories=True,
    ),
    Algorithm(
        name="vdnn-pp",
        solver="remat_algorithms.offload.rules_vdnn:solve_pp",
        options="remat_algorithms.offload.rules_vdnn:VdnnOptions",
        kinds=("chain",),
        summary="as vdnn-all, no stage waiting for transfers at its end: freed as soon as they have ended",
        guarantee="heuristic",
        complexity="O(L log L)",
        reference="after Shriram et al. 2019",
        several_memories=True,
    ),
    Algorithm(
        name="tflms",
        solver="remat_algorithms.offload.rules_tflms:solve",
        options="remat_algorithms.offload.rules_tflms:TflmsOptions",
        kinds=("chain", "dag"),
        summary="gaps longer than a threshold leave at once and come back a few runs ahead of their use",
        guarantee="heuristic",
        complexity="O((runs + gaps) log gaps)",
        reference="after Le et al. 2018",
        several_memories=True,
    ),
    Algorithm(
        name="autoswap",
        solver="remat_algorithms.offload.rules_autoswap:solve",
        options="remat_algorithms.offload.rules_autoswap:AutoswapOptions",
        kinds=("chain", "dag"),
        summary="gaps leave by four scores of their absence and of the load, whose weights are searched",
        guarantee="heuristic",
        complexity="O(grid^3 gaps (runs + gaps))",
        reference="Zhang et al. 2019",
        several_memories=True,
        anytime=True,
    ),
    Algorithm(
        name="capuchin",
        solver="remat_algorithms.offload.rules_capuchin:solve",
        kinds=("chain", "dag"),
        summary="swaps that are hidden leave first; then the cheaper of swapping and remaking, by bytes per second",
        guarantee="heuristic",
        complexity="O(gaps^2 runs)",
        reference="after Peng et al. 2020",
        several_memories=True,
    ),
)
