"""Stages in a row as a pattern: the connections of neighbours, and the beats of given start times."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import (
    Beat,
    Layer,
    Machine,
    Number,
    Pattern,
    Phase,
    PipelineInstance,
    Problem,
    Stage,
)
from remat_algorithms.parallel.pipeline.device_links import links_between
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Times


def hop_between(machine: Machine, one: int, other: int, last: Layer) -> Hop:
    """Return the connection between two devices, given the layer before the cut.

    Raises
    ------
    OptionError
        If a direction has no link.
    """
    if machine.processors[one].memory == machine.processors[other].memory:
        return Hop()
    ways = links_between(machine, one, other)
    out, back = (machine.links[link] for link in ways)
    return Hop(
        out.time(last.output_size) - out.delay,
        back.time(last.gradient_bytes) - back.delay,
        (out.delay, back.delay),
        machine.share_a_resource(*ways),
    )


def pattern_of(problem: Problem, stages: Sequence[Stage], period: Number, times: Times) -> Pattern:
    """Return the operations of stages in a row, and their transfers, as a pattern."""
    instance, processors = problem.instance, problem.machine.processors
    assert isinstance(instance, PipelineInstance)
    layers, memory = instance.each_layer(), [processors[stage.device].memory for stage in stages]
    beats: list[Beat] = []
    for stage, own in enumerate(stages):
        back = Phase.BW if any(layers[layer].is_split for layer in own.layers) else Phase.B
        beats.append(Beat.at(Phase.F, stage, times.forward[stage], period))
        if stage + 1 < len(stages) and memory[stage + 1] != memory[stage]:
            beats.append(Beat.at(Phase.F, stage, times.sent[stage], period, is_copy=True))
        beats.append(Beat.at(back, stage, times.backward[stage], period))
        if stage and memory[stage - 1] != memory[stage]:
            beats.append(Beat.at(back, stage, times.returned[stage - 1], period, is_copy=True))
    return Pattern(tuple(stages), period, tuple(beats))
