"""TeraPipe: sequences cut into slices of tokens, which follow each other through the stages (Li et al. 2021).

In each layer, a slice waits only for the previous slices. Forwards may therefore proceed from stage to stage slice by
slice, and backwards in the opposite order. Short slices fill the pipeline sooner. Long ones use a device better, and
later ones attend to more tokens. Slices therefore have different lengths, chosen such that all take about equally long.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from pydantic import Field

from remat.plugin import (
    Context,
    NumberArray,
    OptionError,
    Options,
    Orders,
    Pass,
    Phase,
    PipelineInstance,
    Problem,
    Proposal,
    Stage,
)
from remat_algorithms.parallel.pipeline.partition import balanced_cuts

NO_TOKENS = "this schedule cuts sequences into slices, and the instance has no tokens"

MOST_LIMITS = 4096
"""Maximum number of limits on the longest slice that are tried, evenly spread over all times."""


class TeraPipeOptions(Options):
    """Options of `terapipe`."""

    cuts: int = Field(
        default=8, ge=1, le=1000, description="number of sequence cuts to place, taken in order of their estimated time"
    )


def divide(problem: Problem, options: TeraPipeOptions) -> Iterator[PipelineInstance]:
    """Yield the instance with its sequences cut, the best cuts first.

    For p equal stages and n sequences, slices with times t_1, t_2, ... per stage take n (t_1 + t_2 + ...) + (p - 1) max
    t. For each limit T on the longest slice, the minimum sum over prefixes is S(i) = min over slices that end at token
    i of S(i - k) + t(k, i - k), t <= T (Li et al. 2021, eq. 4). The best cut over all limits is optimal. If stages
    differ, the time of a slice is that of the slowest stage.

    Notes
    -----
    O(slices x limits).
    """
    instance = _instance(problem)
    tokens = instance.tokens
    if tokens is None:
        raise OptionError(
            "this schedule cuts sequences into slices, and the instance has no tokens", argument="algorithm"
        )
    devices = len(problem.machine.processors)
    bounds = _cuts(instance, devices)
    spans = [(one.before, one.before + one.tokens) for one in tokens.slices]
    types = _types(instance)
    times: list[float] = []
    for one in tokens.slices:
        each = [work for work, layer in zip(one.layers, instance.layers, strict=True) for _ in range(layer.repeat)]
        stages = [
            sum(each[layer].work_on(types[stage]) or 0 for layer in range(bounds[stage], bounds[stage + 1]))
            for stage in range(devices)
        ]
        times.append(float(max(stages)))
    found = list(best_cuts(tokens.length, spans, times, sequences=instance.micro_batches, stages=devices))
    if not found:
        raise OptionError("no slices of the instance make up a whole sequence", argument="algorithm")
    yield from islice(_valid(instance, found), options.cuts)


def _valid(instance: PipelineInstance, cuts: list[tuple[int, ...]]) -> Iterator[PipelineInstance]:
    """Yield the instance with each cut that it allows, skipping those with too many slices."""
    for cut in cuts:
        try:
            yield instance.of_cut(cut)
        except ValueError:
            continue


def best_cuts(
    length: int, spans: list[tuple[int, int]], times: list[float], *, sequences: int, stages: int
) -> Iterator[tuple[int, ...]]:
    """Yield cuts of a sequence, fastest first, each with the minimum sum for some limit on its longest slice.

    Parameters
    ----------
    length : int
        Tokens of a sequence.
    spans : list of (first, end)
        Available slices, in tokens.
    times : list of float
        Time of each slice in a stage.
    sequences, stages : int
    """
    limits = np.unique(np.array(times, dtype=np.float64))
    if len(limits) > MOST_LIMITS:
        limits = limits[np.unique(np.linspace(0, len(limits) - 1, MOST_LIMITS).round().astype(np.int64))]
    ends = sorted({0, *(end for _, end in spans), *(first for first, _ in spans)})
    place = {token: index for index, token in enumerate(ends)}
    total = np.full((len(ends), len(limits)), np.inf)
    last = np.full((len(ends), len(limits)), -1, dtype=np.int64)
    total[0] = 0.0
    for index in sorted(range(len(spans)), key=lambda index: spans[index]):
        first, end = (place[token] for token in spans[index])
        with_this: NumberArray = np.where(limits >= times[index], total[first] + times[index], np.inf)
        better = with_this < total[end]
        total[end][better] = with_this[better]
        last[end][better] = index
    if length not in place:
        return
    found: dict[tuple[int, ...], float] = {}
    for column in np.flatnonzero(np.isfinite(total[place[length]])).tolist():
        chosen: list[int] = []
        token = length
        while token:
            chosen.append(int(last[place[token], column]))
            token = spans[chosen[-1]][0]
        cut = tuple(spans[index][1] - spans[index][0] for index in reversed(chosen))
        longest = max(times[index] for index in chosen)
        found[cut] = sequences * float(total[place[length], column]) + (stages - 1) * longest
    yield from sorted(found, key=lambda cut: (found[cut], len(cut), cut))


def solve(problem: Problem, options: TeraPipeOptions, context: Context) -> Proposal:
    """All forwards, slice by slice; then all backwards, starting with the last slice of the last sequence.

    One stage per device, with layers cut evenly by the time of whole sequences.
    """
    instance = _instance(problem)
    if not instance.cut:
        raise OptionError(
            "this schedule cuts sequences into slices, and the instance has no tokens", argument="algorithm"
        )
    devices = len(problem.machine.processors)
    bounds = _cuts(instance, devices)
    stages = tuple(Stage(tuple(range(bounds[k], bounds[k + 1])), k) for k in range(devices))
    layers = instance.each_layer()
    lists: list[tuple[Pass, ...]] = []
    for number, stage in enumerate(stages):
        back = Phase.BW if any(layers[layer].is_split for layer in stage.layers) else Phase.B
        forwards = [Pass(Phase.F, number, batch) for batch in range(instance.micro_batches)]
        backwards = [Pass(back, number, batch) for batch in reversed(range(instance.micro_batches))]
        lists.append((*forwards, *backwards))
    return Proposal(orders=Orders(stages, tuple(lists)))


def _instance(problem: Problem) -> PipelineInstance:
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    return instance


def _cuts(instance: PipelineInstance, devices: int) -> list[int]:
    return balanced_cuts(instance, [[device] for device in range(devices)])


def _types(instance: PipelineInstance) -> list[str]:
    """Return the type of each device."""
    return list(instance.cluster.types)
