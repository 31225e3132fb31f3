"""Stages of a pipeline: their devices, their layers, and the `PipelineModel` with their times and bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from remat.placement import Stuck, modulo_of, place_modulo, place_orders
from remat.plugin import (
    IntArray,
    Layer,
    Machine,
    MissingLinkError,
    Number,
    NumberArray,
    OptionError,
    Orders,
    Pass,
    Pattern,
    Phase,
    PipelineInstance,
    Problem,
    Stage,
    StepKind,
    Steps,
    TaskGraph,
    degrees_of,
    initial_of,
    plan_of,
    tasks_of,
)
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.device_links import links_between
from remat_algorithms.parallel.pipeline.model import Lists, PipelineModel
from remat_algorithms.parallel.pipeline.partition import balanced_cuts

INSTANT, ROUNDING = 1e-9, 2.0**-38
"""Shares of a period within which float times are one instant, and within which they differ by rounding only."""

ONE_COPY = ("chain", "v", "interleaved")
"""One stage per device; two per device, the second in reverse; several, round-robin."""

SHAPES = (*ONE_COPY, "bidirectional")
"""Also two copies of the layers, which micro-batches pass in opposite directions."""


@dataclass(frozen=True)
class Staging:
    """Stages on devices, with their times and bytes.

    Attributes
    ----------
    name : str
        Description of the placement, for scopes.
    instance : PipelineInstance
    stages : tuple of Stage
    model : PipelineModel
        A relaxation: transfers never wait for each other, and transient values take no bytes.
    starts : tuple of lists
        Named orders for this placement.
    chained : bool
        Whether each stage reads outputs of the previous one. Otherwise the model's orders are valid, but its times are
        not bounds.
    """

    name: str
    instance: PipelineInstance
    stages: tuple[Stage, ...]
    model: PipelineModel
    starts: tuple[Lists, ...]
    chained: bool = True

    def orders(self, lists: Lists) -> Orders:
        """Convert lists to orders; the micro-batches of a second chain follow those of the first one."""
        return Orders(self.stages, tuple(tuple(_passes(listed, self.model.first_batch)) for listed in lists))

    def lists(self, orders: Orders) -> Lists | None:
        """Return orders as lists of the model, without their recomputation; None if they are of other stages."""
        if orders.paired or [replace(stage, recompute=()) for stage in orders.stages] != list(self.stages):
            return None
        first = self.model.first_batch
        lists = tuple(
            tuple((int(one.phase), one.stage, one.batch - first[one.stage]) for one in listed if one.phase != Phase.R)
            for listed in orders.lists
        )
        count = self.model.count
        fits = all(0 <= batch < count[stage] for listed in lists for _, stage, batch in listed)
        return lists if fits else None

    def with_starts(self, known: Sequence[Orders]) -> Staging:
        """Return the same with known orders, where they are of these stages, before the named ones."""
        more = [lists for orders in known if (lists := self.lists(orders)) is not None]
        return replace(self, starts=(*more, *self.starts)) if more else self

    def tightened(self, excess: Sequence[int]) -> Staging:
        """Return the same with additional bytes reserved on each device for values outside the model."""
        fixed = tuple(size + more for size, more in zip(self.model.fixed, excess, strict=True))
        return replace(self, model=replace(self.model, fixed=fixed))


def _passes(listed: Sequence[tuple[int, int, int]], first: Sequence[int]) -> Iterator[Pass]:
    for phase, stage, batch in listed:
        yield Pass(Phase(phase), stage, first[stage] + batch)


def needs_flush(instance: PipelineInstance) -> None:
    """Refuse an instance whose parameters change while micro-batches are in flight.

    Raises
    ------
    OptionError
        If they do.
    """
    if instance.is_stream:
        raise OptionError(
            "this schedule ends with a change of the parameters (weights flush), and those of the instance are "
            f"{instance.weights}; 1f1b-star is for these",
            argument="algorithm",
        )


def check_copies(instance: PipelineInstance, copies: int) -> None:
    """Refuse a schedule that keeps more copies of a layer than the instance allows."""
    if copies > instance.copies:
        raise OptionError(
            f"this schedule keeps each layer on {copies} devices, and the instance allows {instance.copies}; "
            f'give it "copies": {copies}',
            argument="algorithm",
        )


def staging(problem: Problem, shape: str, chunks: int = 2, *, forth: int | None = None) -> Staging:
    """Cut the layers evenly for a placement of this shape.

    Parameters
    ----------
    problem : Problem
    shape : str
        One of `SHAPES`.
    chunks : int
        Stages per device of an interleaved placement.
    forth : int, optional
        For a bidirectional placement, the micro-batches that begin on the first device; by default half, rounded up.

    Raises
    ------
    OptionError
        If there are too few layers, or if layers may not have two copies.
    """
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    needs_flush(instance)
    devices, batches = len(problem.machine.processors), instance.micro_batches
    row = list(range(devices))
    place = {"chain": row, "v": row + row[::-1], "interleaved": row * chunks, "bidirectional": row + row[::-1]}[shape]
    chains: tuple[tuple[int, int], ...] = ()
    if shape == "bidirectional":
        check_copies(instance, 2)
        forth = -(-batches // 2) if forth is None else forth
        chains = ((0, forth), (devices, batches - forth))
        cuts = balanced_cuts(instance, [sorted({device, devices - 1 - device}) for device in row])
        cuts = [*cuts, *(len(instance.each_layer()) + end for end in cuts[1:])]
    else:
        cuts = balanced_cuts(instance, [[device] for device in place])
    stages = tuple(
        Stage(tuple(layer % len(instance.each_layer()) for layer in range(first, end)), device)
        for first, end, device in zip(cuts[:-1], cuts[1:], place, strict=True)
    )
    name = {
        "chain": "one stage a device",
        "v": "two stages a device in a V",
        "interleaved": f"{chunks} stages a device",
        "bidirectional": "two copies in opposite directions",
    }
    model = model_of(problem, instance, stages, chains)
    starts = tuple(_named(shape, devices, batches, chunks, split=instance.is_split))
    # The model does not cover pairs of simultaneous operations.
    alone = ", one operation at a time" if any(layer.paired_time is not None for layer in instance.layers) else ""
    if instance.cluster.host is not None:
        alone += ", nothing at the host"
    pairs = [pair for pair, head in zip(pairwise(stages), model.is_head[1:], strict=True) if not head]
    chained = all(_between(instance.sources(), one, other) for one, other in pairs)
    scope = f"orders of evenly cut layers, {name[shape]}{alone}, nothing runs again"
    return Staging(scope, instance, stages, model, starts, chained)


def _between(sources: Sequence[Sequence[int]], one: Stage, other: Stage) -> set[int]:
    """Return the layers of a stage whose outputs another one reads."""
    return {source for layer in other.layers for source in sources[layer]} & set(one.layers)


def _named(shape: str, devices: int, batches: int, chunks: int, *, split: bool) -> Iterator[Lists]:
    """Yield the lists of the rules that apply to a placement."""
    whole = (rules.gpipe, rules.one_forward_one_backward, rules.eager_one_forward_one_backward)
    halves = {"chain": (rules.zb_h1, rules.zb_h2), "v": (rules.zb_v, rules.v_half, rules.v_min)}
    if shape == "chain":
        yield from (rule(devices, batches, split=split).lists for rule in whole)
    if split:
        yield from (rule(devices, batches).lists for rule in halves.get(shape, ()))
    if shape == "bidirectional":
        for rule in (rules.chimera, rules.gems):
            with suppress(OptionError):
                yield rule(devices, batches, split=split).lists
    if shape == "interleaved" and batches % devices == 0:
        yield rules.interleaved(devices, batches, chunks=chunks, split=split).lists


def model_of(
    problem: Problem,
    instance: PipelineInstance,
    stages: tuple[Stage, ...],
    chains: tuple[tuple[int, int], ...] = (),
) -> PipelineModel:
    """Return the times and bytes of stages as a relaxation (see `Staging.model`); `chains` as in `PipelineModel`."""
    layers, machine, sources = instance.each_layer(), problem.machine, instance.sources()
    types = [processor.type for processor in machine.processors]

    def time(stage: Stage, phase: str) -> Number:
        return sum(layers[layer].time_on(phase, types[stage.device]) or 0 for layer in stage.layers)

    def hop(one: Stage, other: Stage) -> Number:
        here, there = (machine.processors[stage.device].memory for stage in (one, other))
        sent = [layers[layer] for layer in _between(sources, one, other)]
        if here == there or not sent:
            return 0
        out, back = (machine.links[link] for link in links_between(machine, one.device, other.device))
        # The faster direction of the slowest transfers, so that the model is a relaxation.
        there_and_back = (
            [out.time(layer.output_size) for layer in sent],
            [back.time(layer.gradient_bytes) for layer in sent],
        )
        return min(map(max, there_and_back))

    if instance.has_skips:
        _check_skips(machine, sources, stages, [first for first, _ in chains] or [0])
    held = []
    counted: dict[int, set[int]] = {}  # by device: outputs counted for an earlier stage of the chain there
    heads = {first for first, _ in chains}
    for number, stage in enumerate(stages):
        if number in heads:
            counted = {}
        here = counted.setdefault(stage.device, set())
        outputs = _kept_outputs(instance, layers, stage.layers) - here
        here |= outputs
        saved = sum(layers[index].saved_size for index in stage.layers)
        held.append(saved + sum(layers[index].output_size for index in outputs))
    fixed = [0] * len(machine.processors)
    for device in range(len(fixed)):
        own = {layer for stage in stages if stage.device == device for layer in stage.layers}
        fixed[device] = sum(sum(layers[layer].of_parameters) for layer in own)
    return PipelineModel(
        place=tuple(stage.device for stage in stages),
        batches=max((count for _, count in chains), default=instance.micro_batches),
        forward=tuple(time(stage, "forward_time") for stage in stages),
        backward=tuple(time(stage, "backward_time") for stage in stages),
        weight=tuple(time(stage, "weight_time") for stage in stages),
        hop=tuple(hop(one, other) for one, other in pairwise(stages)),
        activation=tuple(held),
        kept=tuple(sum(layers[layer].weight_saved_size for layer in stage.layers) for stage in stages),
        fixed=tuple(fixed),
        capacity=tuple(machine.memories[processor.memory].capacity for processor in machine.processors),
        chains=chains,
    )


def _check_skips(
    machine: Machine, sources: Sequence[Sequence[int]], stages: Sequence[Stage], heads: Sequence[int]
) -> None:
    """Refuse chains of stages, each from its head, in which a stage reads from another one without a link to it."""
    for first, end in zip(heads, [*heads[1:], len(stages)], strict=True):
        for one, other in combinations(stages[first:end], 2):
            if one.device != other.device and _between(sources, one, other):
                links_between(machine, one.device, other.device)


def held_bytes(instance: PipelineInstance, layers: Sequence[Layer], own: Sequence[int]) -> int:
    """Return the minimum bytes that a stage of these layers holds of a micro-batch from F to B."""
    outputs = _kept_outputs(instance, layers, own)
    return sum(layers[index].saved_size for index in own) + sum(layers[index].output_size for index in outputs)


def _kept_outputs(instance: PipelineInstance, layers: Sequence[Layer], own: Sequence[int]) -> set[int]:
    """Return the layers whose outputs a backward of a stage reads."""
    sources = instance.sources() if instance.has_skips else None
    kept: set[int] = set()
    for index in own:
        layer = layers[index]
        reads = instance.backward_reads if layer.backward_reads is None else layer.backward_reads
        if "output" in reads:
            kept.add(index)
        if "input" in reads:
            kept.update(range(max(0, index - 1), index) if sources is None else sources[index])
    return kept


def placed(problem: Problem, orders: Orders) -> tuple[Steps, Number, list[int]] | None:
    """Return the steps of orders, their makespan, and the peak of each device.

    None if they cannot be run: they deadlock, or a link is missing.
    """
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    degrees = degrees_of(instance, machine, orders.stages)
    graph = problem.graph_of(degrees)
    places, mode = initial_of(graph, machine, orders), instance.cluster.transfers
    try:
        plan = plan_of(instance, graph, machine, orders, places, tasks_of(instance, degrees))
        steps = place_orders(
            plan.graph, machine, plan.processors, plan.operations, places, beside=plan.beside, transfers=mode
        )
    except MissingLinkError:
        return None
    if isinstance(steps, Stuck):
        return None
    assert steps.start is not None
    runs = steps.kind == StepKind.RUN
    end = _ends(plan.graph, machine, steps, runs)
    return steps, end.max(initial=0).item(), _peaks(plan.graph, machine, steps, runs, end)


def excess_of(machine: Machine, peaks: Sequence[int]) -> list[int]:
    """Return the bytes by which each device's peak exceeds its capacity."""
    limits = (machine.memories[processor.memory].capacity for processor in machine.processors)
    return [0 if limit is None else max(0, peak - limit) for peak, limit in zip(peaks, limits, strict=True)]


def _ends(graph: TaskGraph, machine: Machine, steps: Steps, runs: IntArray) -> NumberArray:
    assert steps.start is not None
    assert steps.on is not None
    took: NumberArray = np.zeros(len(steps), dtype=steps.start.dtype)
    types = np.array([graph.types.index(p.type) if graph.types else 0 for p in machine.processors])
    on = types[_first_on(steps, runs)]
    times = graph.time[steps.item[runs]] if graph.times is None else graph.times[on, steps.item[runs]]
    took = took.astype(np.float64) if times.dtype == np.float64 else took
    took[runs] = times
    for k in np.flatnonzero(~runs).tolist():
        link = machine.links[machine.link_index[int(steps.source[k]), int(steps.target[k])]]
        time = link.time(int(graph.size[steps.item[k]]))
        took = took.astype(np.float64) if isinstance(time, float) and took.dtype != np.float64 else took
        took[k] = time
    return steps.start + took


def _first_on(steps: Steps, runs: IntArray) -> IntArray:
    """Return the processor of each run; for collectives, the first one."""
    assert steps.on is not None
    return steps.on.items[steps.on.start[:-1][runs]]


def steady_peaks(problem: Problem, pattern: Pattern, versions: Sequence[int]) -> list[int]:
    """Return the peak of each device over a period, given the number of parameter versions of each stage."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    one = replace(problem.repeated, count=1)
    schedule = modulo_of(one.graph, machine, replace(tasks_of(instance), batches=1), pattern)
    graph, steps = one.graph, place_modulo(one, machine, schedule)
    runs = steps.kind == StepKind.RUN
    assert steps.start is not None
    end = _ends(graph, machine, steps, runs)
    time, where, change, starts = _changes(graph, machine, steps, runs, end)
    slack = _slack_of(end - steps.start, pattern.period)
    length, turn = end - steps.start, 2 * np.arange(len(steps))
    instantly = np.concatenate((length, length, length[~runs])) <= slack
    starts = np.where(instantly, np.concatenate((turn, turn + 1, turn[~runs])), starts)
    rank = np.where(instantly, 1, np.where(starts < 0, 0, 2))
    resident = _resident(graph, machine, steps)
    layers = instance.each_layer()
    for stage, kept in zip(pattern.stages, versions, strict=True):
        more = sum(layers[layer].parameter_size for layer in stage.layers)
        resident[machine.processors[stage.device].memory] += (kept - 1) * more
    peaks = []
    for processor in machine.processors:
        mine = np.flatnonzero(where == processor.memory)
        whole, offset = _instants(time[mine], pattern.period, slack)
        # Releases of earlier steps come first, then steps of zero length, those of earlier micro-batches first.
        order = np.lexsort((starts[mine], np.where(instantly[mine], -whole, 0), rank[mine], offset))
        before = -int((change[mine] * (whole + 1)).sum())
        most = max(0, int(np.cumsum(change[mine][order]).max(initial=0)))
        peaks.append(int(resident[processor.memory]) + before + most)
    return peaks


def _slack_of(lengths: NumberArray, period: Number) -> float:
    """Return the time within which events of a pattern are one instant, which contains no whole step."""
    if isinstance(period, int) and lengths.dtype == np.int64:
        return 0.0
    shortest = lengths[lengths > ROUNDING * period].min(initial=math.inf)
    return min(INSTANT * float(period), float(shortest) / 4)


def _instants(time: NumberArray, period: Number, slack: float) -> tuple[NumberArray, NumberArray]:
    """Return whole periods and offsets of times; offsets within `slack` of each other are equal.

    Where more times are close than one instant can hold, only rounding is ignored.
    """
    whole, offset = np.divmod(time, period)
    whole = whole.astype(np.int64)
    if not slack or not len(time):
        return whole, offset
    late = period - offset <= slack
    whole, offset = whole + late, np.where(late | (offset <= slack), 0, offset)
    order = np.argsort(offset, kind="stable")
    ordered = offset[order]
    gap = np.diff(ordered)
    edges = np.concatenate(([0], np.flatnonzero(gap > slack) + 1, [len(ordered)]))
    long = ordered[edges[1:] - 1] - ordered[edges[:-1]] > slack
    apart = (gap > slack) | (np.repeat(long, np.diff(edges))[1:] & (gap > ROUNDING * period))
    offset[order] = ordered[np.flatnonzero(np.append(True, apart))][np.cumsum(np.append(0, apart))]
    return whole, offset


def _changes(
    graph: TaskGraph, machine: Machine, steps: Steps, runs: IntArray, end: NumberArray
) -> tuple[NumberArray, IntArray, IntArray, NumberArray]:
    """Return the times, memories and sizes of all changes, and their order within an instant.

    Releases of earlier steps come first. Then steps allocate in order, and steps of zero length release immediately.
    """
    assert steps.start is not None
    memory = steps.source.copy()
    memory[runs] = np.array([processor.memory for processor in machine.processors])[_first_on(steps, runs)]
    taken = np.zeros(len(steps), dtype=np.int64)
    writes = graph.writes.gather(steps.item[runs])
    np.add.at(taken, np.flatnonzero(runs)[writes.rows], graph.size[writes.items])
    workspace = np.zeros(len(steps), dtype=np.int64)
    workspace[runs] = graph.workspace[steps.item[runs]]
    given = workspace.copy()
    np.add.at(given, steps.drop.rows, graph.size[steps.drop.items])
    copies = np.flatnonzero(~runs)
    time = np.concatenate((steps.start, end, steps.start[copies]))
    where = np.concatenate((memory, memory, steps.target[copies]))
    change = np.concatenate((taken + workspace, -given, graph.size[steps.item[copies]]))
    turn = 2 * np.arange(len(steps))
    starts = np.concatenate((turn, np.where(end > steps.start, -1, turn + 1), turn[copies]))
    return time, where, change, starts


def _resident(graph: TaskGraph, machine: Machine, steps: Steps) -> IntArray:
    resident = np.zeros(len(machine.memories), dtype=np.int64)
    for value, at in steps.initial:
        resident[at] += graph.size[value]
    return resident


def _peaks(graph: TaskGraph, machine: Machine, steps: Steps, runs: IntArray, end: NumberArray) -> list[int]:
    """Return the peak of each device: steps allocate at their starts and release at their ends, releases first."""
    time, where, change, starts = _changes(graph, machine, steps, runs, end)
    resident = _resident(graph, machine, steps)
    order = np.lexsort((starts, time))
    peaks = []
    for processor in machine.processors:
        mine = order[where[order] == processor.memory]
        held = int(resident[processor.memory])
        peaks.append(held + max(0, int(np.cumsum(change[mine]).max(initial=0))))
    return peaks
