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
)
