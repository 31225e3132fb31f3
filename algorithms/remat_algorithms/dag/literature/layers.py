"""`layers`: recompute whole layers for their backward, as trainers of transformers let users choose.

Of n layers, r are checkpointed. Of the values that their backward reads, only those that later layers read as well
stay. All others are recomputed once, just before their first reader. The r layers are the first ones, as in
Megatron-LM's method `block` (Korthikanti et al. 2022, section 5), or evenly spread. Values outside of layers stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.dag.layering import Layering, layers_of
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention_phases import Training, training_of
from remat_algorithms.dag.recompute import MOST_TASKS, runs_with_remaking

MOST_TRIED = 96
"""Maximum number of values of r that are tried."""


class LayersOptions(Options):
    """Options of `layers`."""

    layers: Literal["names", "narrow"] = Field(
        default="names",
        description="how to find layers: by the numbers in names of modules or tasks, or between narrow points",
    )
    count: int = Field(
        default=0,
        ge=0,
        description="number of layers between narrow points; 0: the square root of the number of forward tasks",
    )
    split: Literal["first", "even"] = Field(
        default="first", description="which layers to recompute: the first ones, or evenly spaced ones"
    )


def solve(problem: Problem, options: LayersOptions, context: Context) -> Proposal:
    """Recompute the smallest number of layers that fits.

    Takes instances of kind `chain`, `adjoint` or `dag`; uses the first processor and its memory. Every number of layers
    is tried (`MOST_TRIED` of them if there are more), and the fastest schedule that fits is returned. Claims makespan
    and peak. O(layers * accesses log accesses).
    """
    training = training_of(problem, "layers", most=MOST_TASKS)
    layering = layers_of(training, options.layers, options.count)
    return fastest(problem, training.stages, _candidates(training, layering, options.split), context)


def _candidates(training: Training, layering: Layering, split: str) -> Iterator[list[int]]:
    count = layering.count
    steps = min(count, MOST_TRIED)
    for many in sorted({round(count * (index + 1) / steps) for index in range(steps)}):
        chosen = set(range(many)) if split == "first" else set(spread(count, many))
        yield runs_with_remaking(training, _lost(training, layering, chosen))[0]


def spread(count: int, many: int) -> list[int]:
    """Return `many` of `count` layers, spread evenly: one in each of as many equal parts."""
    return [(2 * index + 1) * count // (2 * many) for index in range(many)]


def _lost(training: Training, layering: Layering, chosen: set[int]) -> Iterator[int]:
    """Yield the values that the forward does not keep when some layers are recomputed.

    For values of these layers, those not read outside of them; for all others, those that the backward does not read.
    """
    stages, layer = training.stages, layering.layer
    for value, maker in enumerate(stages.maker):
        if not 0 <= maker < training.forward:
            continue
        inside = layer[maker] in chosen and all(layer[use] == layer[maker] for use in training.forward_uses[value])
        if inside or not training.backward_uses[value]:
            yield value
