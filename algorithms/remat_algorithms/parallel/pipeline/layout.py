"""A model and room for walks over its orders, laid out in arrays for the kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.keys import Progress
from remat_algorithms.parallel.pipeline.model import PipelineModel
from remat_algorithms.parallel.pipeline.walk import LARGEST, Facts, State


def facts_of(model: PipelineModel, *, span: bool) -> Facts:
    """Lay out a model."""
    stages, batches = model.stages, model.batches
    phases = 3 if model.split else 2
    duration = np.array(
        [time for row in model.times[:phases] for time in row], dtype=np.int64 if model.whole else np.float64
    )
    more = [max(0, kept - own) for kept, own in zip(model.kept, model.activation, strict=True)]
    count = [batches] * (2 * stages) + [batches if time else 0 for time in model.weight]
    device = np.array(list(model.place) * phases, dtype=np.int64)
    work = np.bincount(device, weights=duration, minlength=model.devices)
    return Facts(
        duration=duration,
        device=device,
        runs=np.array(count[: phases * stages], dtype=np.int64),
        delay=np.array(model.delays, dtype=duration.dtype),
        taken=np.array([*model.activation, *more, *[0] * stages][: phases * stages], dtype=np.int64),
        left=np.array(
            [
                *model.activation,
                *(kept - own for kept, own in zip(model.kept, model.activation, strict=True)),
                *(-kept for kept in model.kept),
            ][: phases * stages],
            dtype=np.int64,
        ),
        room=np.array([LARGEST if free is None else free for free in model.free], dtype=np.int64),
        spared=np.array([max((more[stage] for stage in own), default=0) for own in model.on], dtype=np.int64),
        first_own=np.cumsum([0, *map(len, model.on)], dtype=np.int64),
        own=np.array([stage for own in model.on for stage in own], dtype=np.int64),
        stages=stages,
        devices=model.devices,
        batches=batches,
        spans=span,
        step=float(work.sum()) / max(1, (2 * stages + sum(map(bool, model.weight)))),
        load=float(work.max()),
    )


def state_of(facts: Facts, seed: int) -> State:
    """Return room for walks."""
    classes, batches, devices, stages = len(facts.runs), facts.batches, facts.devices, facts.stages
    most = batches * (classes // stages) * int(np.diff(facts.first_own).max())

    def whole(*shape: int) -> IntArray:
        return np.zeros(shape, dtype=np.int64)

    def times(*shape: int) -> Any:
        return np.zeros(shape, dtype=facts.duration.dtype)

    return State(
        key=np.zeros((classes, batches)),
        start=times(classes, batches),
        end=times(classes, batches),
        current=np.zeros((classes, batches)),
        best=np.zeros((classes, batches)),
        done=whole(classes),
        ready=times(classes),
        clock=times(devices),
        held=whole(devices),
        order=whole(devices, most),
        used=whole(devices),
        best_order=whole(devices, most),
        gap=np.zeros((2, 2 * stages)),
        late=np.zeros((2, stages)),
        offset=np.zeros(classes),
        reach=np.zeros((devices, devices)),
        path=np.zeros((devices + 1, devices)),
        progress=Progress(random=first_random(seed), current=math.inf, best=math.inf, period=0.0, moves=0),
    )


def first_random(seed: int) -> int:
    """Return a state of the random numbers that differs from those of other seeds in all its bits, and is not 0."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1 | 1
