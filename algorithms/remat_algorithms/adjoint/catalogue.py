"""Catalogue of the algorithms for time-stepping adjoints: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm
from remat_algorithms.adjoint.catalogue_steps import ALGORITHMS as STEPS
from remat_algorithms.adjoint.levels.catalogue import ALGORITHMS as LEVELS

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="revolve",
        solver="remat_algorithms.adjoint.binomial.revolve:solve",
        stream="remat_algorithms.adjoint.binomial.revolve:stream",
        kinds=("adjoint",),
        summary="binomial checkpointing of equal steps, in closed form",
        guarantee="exact",
        within="checkpointing schedules with a number of slots",
        complexity="O(steps)",
        reference="Griewank & Walther 2000",
        several_memories=True,
    ),
    *STEPS,
    *LEVELS,
)
