"""Catalogue of the placement algorithms: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="tarnawski-dp",
        solver="remat_algorithms.parallel.placement.tarnawski_dp:solve",
        options="remat_algorithms.parallel.placement.tarnawski_dp:DownSetOptions",
        kinds=("dag",),
        summary="contiguous placement of a stream for the least time per sample, by down-sets",
        guarantee="heuristic",
        complexity="O(nested pairs of down-sets within the best load)",
        reference="Tarnawski et al. 2020",
        several_memories=True,
        any_links=True,
        devices=True,
        streams=True,
        anytime=True,
    ),
)
