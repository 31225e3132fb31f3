"""Catalogue of the algorithms for heterogeneous chains (and strategies on adjoints): metadata only."""

from __future__ import annotations

from remat.registry import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="rotor",
        solver="remat_algorithms.chain.rotor:solve",
        options="remat_algorithms.chain.rotor:RotorOptions",
        kinds=("chain",),
        summary="optimal memory-persistent schedule of a heterogeneous chain with variants, by dynamic programming",
        guarantee="exact",
        within="memory-persistent schedules",
        complexity="O(L^3 slots)",
        reference="Beaumont et al. 2019",
        anytime=True,
        sweep="remat_algorithms.chain.rotor_sweep:sweep",
    ),
    Algorithm(
        name="store-all",
        solver="remat_algorithms.chain.strategies:solve_store_all",
        stream="remat_algorithms.adjoint.strategies:stream_store_all",
        kinds=("chain", "adjoint"),
        summary="every state or saved value kept: no recomputation",
        guarantee="strategy",
        within="the store-all schedule",
        complexity="O(L)",
        reference="-",
        several_memories=True,
    ),
    Algorithm(
        name="recompute-all",
        solver="remat_algorithms.chain.strategies:solve_recompute_all",
        stream="remat_algorithms.adjoint.strategies:stream_recompute_all",
        kinds=("chain", "adjoint"),
        summary="only x0 kept: forward again for every backward",
        guarantee="strategy",
        within="the recompute-all schedule",
        complexity="O(L^2)",
        reference="-",
        several_memories=True,
    ),
    Algorithm(
        name="fixed",
        solver="remat_algorithms.chain.strategies:solve_fixed",
        options="remat_algorithms.chain.strategies:FixedOptions",
        kinds=("chain", "adjoint"),
        summary="the checkpoints that the user names",
        guarantee="strategy",
        within="the schedule with these checkpoints",
        complexity="O(steps)",
        reference="-",
        several_memories=True,
    ),
    Algorithm(
        name="periodic",
        solver="remat_algorithms.chain.strategies:solve_periodic",
        options="remat_algorithms.chain.strategies:PeriodicOptions",
        kinds=("chain",),
        summary="equal segments, the last one saved whole (PyTorch's sequential checkpointing)",
        guarantee="strategy",
        within="the periodic schedule",
        complexity="O(L)",
        reference="Chen et al. 2016",
    ),
)
