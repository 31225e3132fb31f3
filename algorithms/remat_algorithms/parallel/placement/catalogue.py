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
    Algorithm(
        name="tarnawski-ip",
        solver="remat_algorithms.parallel.placement.tarnawski_ip:solve",
        options="remat_algorithms.parallel.placement.tarnawski_ip:ProgramOptions",
        kinds=("dag",),
        summary="placement of a stream for the least time per sample, by an integer program; contiguous or not",
        guarantee="heuristic",
        complexity="exponential in units and processors",
        reference="after Tarnawski et al. 2020",
        several_memories=True,
        any_links=True,
        devices=True,
        streams=True,
        anytime=True,
    ),
    Algorithm(
        name="placement-replicated",
        solver="remat_algorithms.parallel.placement.placement_replicated:solve",
        options="remat_algorithms.parallel.placement.placement_replicated:ReplicatedOptions",
        kinds=("dag",),
        summary="parameters of a stream copied into several memories, the load shared by a linear program",
        guarantee="heuristic",
        complexity="a linear program for each choice of copies",
        reference="after Tarnawski et al. 2020",
        several_memories=True,
        any_links=True,
        devices=True,
        streams=True,
        anytime=True,
    ),
)
