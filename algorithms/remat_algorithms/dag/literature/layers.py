"""`layers`: whole layers are made again for their backward, as trainers of transformers let users choose.

Of n layers r are checkpointed: of what their backward reads, only what later layers read as well stays, and all else is
made again, once, just before its first reader. The first r, as in Megatron-LM's method `block` (Korthikanti et al.
2022, section 5), or r that are spread evenly. What is outside of layers stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.dag.layering import OUTSIDE, Layering, layers_of
from remat_algorithms.dag.literature.fitting import fastest
from remat_algorithms.dag.literature.phases import Training, training_of

MOST_TRIED = 96
"""Most numbers of layers that are tried."""


class LayersOptions(Options):
    """Options of `layers`."""

    layers: Literal["names", "narrow"] = Field(
        default="names", description="Layers by numbers in names of modules or tasks, or between narrow points."
    )
    count: int = Field(default=0, ge=0, description="Layers between narrow points; 0: the root of the forward tasks.")
    split: Literal["first", "even"] = Field(
        default="first", description="Which layers are made again: the first ones, or some that are spread evenly."
    )


def solve(problem: Problem, options: LayersOptions, context: Context) -> Proposal:
    """Make as few layers again as fit.

    Takes instances of kind `chain`, `adjoint` or `dag`; uses the first processor and its memory. Every number of layers
    is tried (`MOST_TRIED` of them where there are more), and the quickest schedule that fits is returned. Claims
    makespan and peak. O(layers * tasks * values).
    """
    training = training_of(problem, "layers")
    layering = layers_of(training, options.layers, options.count)
    return fastest(problem, training.stages, _candidates(training, layering, options.split), context)


def _candidates(training: Training, layering: Layering, split: str) -> Iterator[list[int]]:
    count = layering.count
    steps = min(count, MOST_TRIED)
    for many in sorted({round(count * (index + 1) / steps) for index in range(steps)}):
        chosen = set(range(many)) if split == "first" else set(spread(count, many))
        yield training.stages.runs(training.saved(_kept(training, layering, chosen)))


def spread(count: int, many: int) -> list[int]:
    """Return `many` of `count` layers, spread evenly: one in each of as many equal parts."""
    return [(2 * index + 1) * count // (2 * many) for index in range(many)]


def _kept(training: Training, layering: Layering, chosen: set[int]) -> list[int]:
    """Return the values that stay when some layers are made again: their boundaries, and those of all others."""
    stages, layer = training.stages, layering.layer
    found = []
    for value, maker in enumerate(stages.maker):
        if not 0 <= maker < training.forward or not training.backward_uses[value]:
            continue
        mine = layer[maker]
        leaves = any(layer[use] != mine for use in training.forward_uses[value])
        if mine == OUTSIDE or mine not in chosen or leaves:
            found.append(value)
    return found
