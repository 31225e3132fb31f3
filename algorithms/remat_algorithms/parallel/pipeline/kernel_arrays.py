"""Arrays for the local search kernels: models, scratch space, and conversion of results back to lists."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.local_search import LARGEST, Facts, State
from remat_algorithms.parallel.pipeline.model import BW, Lists, Op, PipelineModel, W, evaluate
from remat_algorithms.parallel.pipeline.priority_keys import Progress


def shared_facts(model: PipelineModel, kind: type) -> dict[str, Any]:
    """Return the fields common to the facts of all kernels (see `local_search.Facts`), with times of a numeric type."""
    stages = model.stages
    phases = 3 if model.split else 2
    duration: Any = np.array([time for row in model.times[:phases] for time in row], dtype=kind)
    count = [*model.count, *model.count]
    count += [own if time else 0 for own, time in zip(model.count, model.weight, strict=True)]
    device = np.array(list(model.place) * phases, dtype=np.int64)
    work = np.bincount(device, weights=duration, minlength=model.devices)
    return {
        "duration": duration,
        "device": device,
        "runs": np.array(count[: phases * stages], dtype=np.int64),
        "delay": np.array(model.delays, dtype=kind),
        "head": np.array(model.is_head, dtype=np.int64),
        "tail": np.array(model.is_tail, dtype=np.int64),
        "first_own": np.cumsum([0, *map(len, model.on)], dtype=np.int64),
        "own": np.array([stage for own in model.on for stage in own], dtype=np.int64),
        "stages": stages,
        "devices": model.devices,
        "batches": model.batches,
        "step": float(work.sum()) / max(1, 2 * stages + sum(map(bool, model.weight))),
        "load": float(work.max()),
    }


def facts_of(model: PipelineModel, *, span: bool) -> Facts:
    """Convert a model to arrays."""
    classes = (3 if model.split else 2) * model.stages
    more = [max(0, kept - own) for kept, own in zip(model.kept, model.activation, strict=True)]
    left = [kept - own for kept, own in zip(model.kept, model.activation, strict=True)]
    taken = [*model.activation, *more, *[0] * model.stages]
    return Facts(
        **shared_facts(model, np.int64 if model.whole else np.float64),
        taken=np.array(taken[:classes], dtype=np.int64),
        left=np.array([*model.activation, *left, *(-kept for kept in model.kept)][:classes], dtype=np.int64),
        room=np.array([LARGEST if free is None else free for free in model.free], dtype=np.int64),
        spared=np.array([max((more[stage] for stage in own), default=0) for own in model.on], dtype=np.int64),
        second=model.chains[1][0] if len(model.chains) > 1 else model.stages,
        spans=span,
    )


def shared_state(facts: Any, seed: int) -> dict[str, Any]:
    """Return the fields common to the states of all kernels (see `local_search.State`): work arrays, random numbers."""
    classes, batches, devices, stages = len(facts.runs), facts.batches, facts.devices, facts.stages
    most = batches * (classes // stages) * int(np.diff(facts.first_own).max())
    times = facts.duration.dtype
    return {
        "key": np.zeros((classes, batches)),
        "start": np.zeros((classes, batches), dtype=times),
        "end": np.zeros((classes, batches), dtype=times),
        "current": np.zeros((classes, batches)),
        "best": np.zeros((classes, batches)),
        "done": whole(classes),
        "ready": np.zeros(classes, dtype=times),
        "clock": np.zeros(devices, dtype=times),
        "order": whole(devices, most),
        "used": whole(devices),
        "best_order": whole(devices, most),
        "gap": np.zeros((2, 2 * stages)),
        "late": np.zeros((2, stages)),
        "offset": np.zeros(classes),
        "progress": first_progress(seed),
    }


def state_of(facts: Facts, seed: int) -> State:
    """Return the scratch space of a local search."""
    devices = facts.devices
    return State(
        **shared_state(facts, seed),
        held=whole(devices),
        spare=whole(devices),
        reach=np.zeros((devices, devices)),
        path=np.zeros((devices + 1, devices)),
    )


def whole(*shape: int) -> IntArray:
    """Return an array of integer zeros."""
    return np.zeros(shape, dtype=np.int64)


def first_progress(seed: int) -> Progress:
    """Return the initial counters of a local search; the random states of different seeds differ in all their bits."""
    drawn = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1 | 1
    return Progress(random=drawn, current=math.inf, best=math.inf, period=0.0, moves=0)


def start_keys(model: PipelineModel, lists: Lists) -> Any:
    """Return the start times of complete lists as keys; None if the lists deadlock."""
    evaluation = evaluate(model, lists)
    if evaluation is None:
        return None
    keys = np.zeros(((BW if model.split else W) * model.stages, model.batches))
    for listed, starts in zip(lists, evaluation.starts, strict=True):
        for (phase, stage, batch), start in zip(listed, starts, strict=True):
            keys[phase * model.stages + stage, batch] = start
    return keys


def lists_of(facts: Any, order: Any) -> Lists:
    """Convert a kernel's orders to lists."""
    count = [0] * len(facts.runs)
    lists = []
    for device in range(facts.devices):
        own = facts.own[facts.first_own[device] : facts.first_own[device + 1]].tolist()
        total = sum(int(facts.runs[index]) for index in range(len(facts.runs)) if index % facts.stages in own)
        listed: list[Op] = []
        for index in order[device, :total].tolist():
            phase, stage = divmod(index, facts.stages)
            listed.append((phase, stage, count[index]))
            count[index] += 1
        lists.append(tuple(listed))
    return tuple(lists)
