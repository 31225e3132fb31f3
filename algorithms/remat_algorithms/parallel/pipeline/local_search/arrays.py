"""Arrays for the local search: pipelines with their options, scratch space, and conversion of results to lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from remat.plugin import IntArray, Number
from remat_algorithms.parallel.pipeline.local_search.records import Facts, Progress, State
from remat_algorithms.parallel.pipeline.model import BW, Lists, Op, PipelineModel, W, evaluate

LARGEST = 2**62
"""Bytes of a memory without a limit."""

BYTES = ("held", "forward", "backward", "early")
"""Attributes of an option of which `Facts` has a table each, such as `held_bytes`."""


class Rules(NamedTuple):
    """Shares of the kinds of moves and the weight of recomputation (see `Facts`); by default, of plain pipelines."""

    recompute_weight: float = 0.0
    strict: float = 0.5
    one: float = 0.5
    some: float = 0.8
    onwards: float = 0.9
    so_far: float = 1.0
    several: float = 0.25
    gaps: float = 1.0
    stretch: float = 0.15


PLAIN = Rules()


class Option(NamedTuple):
    """The only option of a stage without recomputation; attributes as in `offload.offload_model.Way`."""

    recompute_time: Number
    held: int
    forward: int
    backward: int
    early: int


Options = Sequence[Sequence[Sequence[Any]]]
"""By stage, level and part."""


def facts_of(
    model: PipelineModel,
    options: Options | None = None,
    *,
    host: tuple[Options, Sequence[Number]] | None = None,
    free: Sequence[int | None] | None = None,
    span: bool = False,
    rules: Rules = PLAIN,
) -> Facts:
    """Convert a pipeline and its options to arrays.

    Parameters
    ----------
    model : PipelineModel
    options : sequence by stage, level and part, optional
        Objects with the attributes of `Option`. Default: stages do not recompute.
    host : (sequence by stage, level and part, sequence by stage), optional
        Offloads of the options (`offload.offload_model.Trip`), and the time of each stage's longest return. Default:
        there is no host.
    free : sequence of int or None, optional
        Bytes of each device for micro-batches; default: those of the model.
    span : bool
        Minimise the largest span of a device instead of the makespan.
    rules : Rules
        Shares of the moves.
    """
    every = plain_options(model) if options is None else options
    longest = model.batches * sum(map(sum, (*model.times[:3], model.delays)))
    kind = np.int64 if model.whole and options is None and longest < LARGEST else np.float64
    stages = model.stages
    trips, back = (None, ()) if host is None else host
    phases = 3 if model.split or host is not None else 2
    duration: Any = np.array([time for row in model.times[:phases] for time in row], dtype=kind)
    count = [*model.count, *model.count]
    count += [own if time else 0 for own, time in zip(model.count, model.weight, strict=True)]
    work = np.bincount(list(model.place) * phases, weights=duration, minlength=model.devices)
    step = float(work.sum()) / max(1, 2 * stages + sum(map(bool, model.weight)))
    levels, width = max(map(len, every)), max(len(parts) for own in every for parts in own)
    if host is not None:
        step = float(duration.sum() * model.batches) / max(1, (2 + model.split) * stages * model.batches)
    room = model.free if free is None else free
    return Facts(
        chooses=options is not None,
        offloads=host is not None,
        spans=span,
        duration=np.array([*duration.tolist(), *back], dtype=kind),
        device=np.array(list(model.place) * (phases + bool(back)), dtype=np.int64),
        runs=np.array([*count[: phases * stages], *[model.batches] * len(back)], dtype=np.int64),
        delay=np.array(model.delays, dtype=kind),
        head=np.array(model.is_head, dtype=np.int64),
        tail=np.array(model.is_tail, dtype=np.int64),
        levels=np.array([len(own) for own in every], dtype=np.int64),
        parts=np.array([[len(own[min(k, len(own) - 1)]) for k in range(levels)] for own in every], dtype=np.int64),
        recompute_time=_table(every, "recompute_time", kind, levels, width),
        **{f"{name}_bytes": _table(every, name, np.int64, levels, width) for name in BYTES},
        offloaded_bytes=_table(trips, "size", np.int64, levels, width),
        offload_time=_table(trips, "out", kind, levels, width),
        return_time=_table(trips, "back", kind, levels, width),
        kept=np.array(model.kept, dtype=np.int64),
        free_bytes=np.array([LARGEST if size is None else size for size in room], dtype=np.int64),
        first_own=np.cumsum([0, *map(len, model.on)], dtype=np.int64),
        own=np.array([stage for own in model.on for stage in own], dtype=np.int64),
        stages=stages,
        devices=model.devices,
        batches=model.batches,
        width=width,
        second=model.chains[1][0] if len(model.chains) > 1 else stages,
        step=step,
        load=float(work.max()),
        **rules._asdict(),
    )


def plain_options(model: PipelineModel) -> Options:
    """Return the options of stages that do not recompute; any excess of `kept` is allocated at the start of B."""
    pairs = zip(model.activation, model.kept, strict=True)
    return [[[Option(0, held, held, max(0, kept - held), 0)]] for held, kept in pairs]


def _table(of: Options | None, name: str, kind: type, levels: int, width: int) -> Any:
    """Return an attribute of options by stage and option; missing levels and parts repeat the last ones."""
    if of is None:
        return np.zeros((1, 1), dtype=kind)
    found: Any = np.zeros((len(of), levels, width), dtype=kind)
    for (stage, level, part), _ in np.ndenumerate(found):
        row = of[stage][min(level, len(of[stage]) - 1)]
        found[stage, level, part] = getattr(row[min(part, len(row) - 1)], name)
    return found.reshape(len(of), levels * width)


def state_of(facts: Facts, seed: int) -> State:
    """Return the scratch space of a local search, with random numbers."""
    classes, batches, devices, stages = len(facts.runs), facts.batches, facts.devices, facts.stages
    operations = int(facts.runs.sum())
    # Only searches with a host record releases.
    with_host, releases = (devices, 2 * operations) if facts.offloads else (1, 1)

    def floats(*shape: int) -> Any:
        return np.zeros(shape)

    def times(*shape: int) -> Any:
        return np.zeros(shape, dtype=facts.duration.dtype)

    return State(
        key=floats(classes, batches),
        start=times(classes, batches),
        end=times(classes, batches),
        current=floats(classes, batches),
        best=floats(classes, batches),
        option=whole(stages, batches),
        current_option=whole(stages, batches),
        best_option=whole(stages, batches),
        early=whole(stages, batches),
        best_early=whole(stages, batches),
        done=whole(classes),
        ready=times(classes),
        clock=times(devices),
        held=whole(devices),
        reserved=whole(devices),
        spare=whole(devices),
        order=whole(operations, 2),
        best_order=whole(operations, 2),
        finish=times(classes),
        needs=whole(classes),
        sending=times(with_host),
        coming=times(with_host),
        taking=times(with_host),
        gone=times(stages, batches),
        freed_at=times(with_host, releases),
        freed=whole(with_host, releases),
        first_freed=whole(with_host),
        last_freed=whole(with_host),
        gap=floats(2, 2 * stages),
        late=floats(2, stages),
        share=floats(2, stages),
        offset=floats(classes),
        reach=floats(devices, devices),
        path=floats(devices + 1, devices),
        progress=first_progress(seed),
    )


def whole(*shape: int) -> IntArray:
    """Return an array of integer zeros."""
    return np.zeros(shape, dtype=np.int64)


def first_progress(seed: int) -> Progress:
    """Return the initial counters of a local search; the random states of different seeds differ in all their bits."""
    drawn = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1 | 1
    return Progress(random=drawn, current=math.inf, best=math.inf, period=0.0, moves=0, length=0, best_length=0)


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


def sequence_of(facts: Facts, order: IntArray) -> tuple[Op, ...]:
    """Convert an order of the kernel to operations."""
    return tuple((index // facts.stages, index % facts.stages, batch) for index, batch in order.tolist())


def lists_of(facts: Facts, order: IntArray) -> Lists:
    """Convert an order of the kernel to one list per device."""
    lists: list[list[Op]] = [[] for _ in range(facts.devices)]
    for op in sequence_of(facts, order):
        lists[int(facts.device[op[1]])].append(op)
    return tuple(map(tuple, lists))
