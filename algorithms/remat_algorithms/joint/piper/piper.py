"""`piper`: stages, tensor and data degrees, and recomputation, by Piper's dynamic program; then 1F1B.

Tarnawski et al. 2021: minimize the maximum load of a stage (`table`). Each layer is either run normally or recomputed,
as the device's memory requires; the paper's profiles contain such options, too. A stage's load includes the transfers
of a micro-batch at both of its ends, in both directions, without overlap. Copies of a stage alternate between
micro-batches, if the number of copies divides them. Devices are taken in their order, larger groups first, and some may
stay unused.

The plan runs as 1F1B: a copy first starts as many micro-batches as the table counts in its memory, and then alternates.
The result is placed and compared. If transient values do not fit next to the held ones, the plan is repeated with less
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

import numpy as np
from pydantic import Field

from remat.plugin import (
    Context,
    InstanceError,
    Layer,
    Link,
    Machine,
    OptionError,
    Options,
    Orders,
    Pass,
    Phase,
    PipelineInstance,
    Problem,
    Proposal,
    Segment,
    Stage,
    degrees_of,
)
from remat_algorithms.joint.piper.table import Part, Rows, Split, Way, best_split
from remat_algorithms.parallel.pipeline.order_search import BestOrders, report_named
from remat_algorithms.parallel.pipeline.stages import held_bytes, needs_flush

ROUNDS = 8
"""Maximum number of plans with less memory, if transient values do not fit next to the kept ones."""

MOST_CELLS = 10**9
"""Maximum number of entries that the table evaluates."""


class PiperOptions(Options):
    """Options of `piper`."""

    recompute: bool = Field(default=True, description="allow layers to recompute their forward")
    copies: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="maximum number of replicas of a stage; default: as the instance allows",
    )


def solve(problem: Problem, options: PiperOptions, context: Context) -> Proposal:
    """Minimize the maximum load of a stage, and run the plan as 1F1B."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    needs_flush(instance)
    _check(problem)
    report_named(problem, context)
    best = BestOrders(problem, context)
    margin = low = 0
    high: int | None = None
    for _ in range(ROUNDS):
        found = best_split(rows_of(problem, options, margin))
        excess = 0
        if found is not None:
            excess = max(best.weigh(orders_of(problem, found)))
        elif not margin:
            break
        if excess > 0:
            low = margin
        else:
            high = margin
        if context.stopped or (high is not None and high - low <= 1):
            break
        margin = (low + high) // 2 if high is not None else max(low + excess, 4 * low)
    return Proposal(orders=best.answer, makespan=best.makespan)


def _check(problem: Problem) -> None:
    """Refuse instances that the program does not cover."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    if instance.cut:
        raise OptionError("piper needs whole micro-batches, but sequences are cut", argument="algorithm")
    kinds = {(one.type, one.speed, machine.memories[one.memory].capacity) for one in machine.processors}
    if len(kinds) > 1:
        raise OptionError("piper takes devices of one type, with as much memory each", argument="algorithm")
    devices, layers = len(machine.processors), instance.length
    degrees = 1 + len(instance.tensor_degrees)
    cells = layers**2 * devices**2 * degrees * min(instance.copies, devices) // 2
    if cells > MOST_CELLS:
        raise OptionError(
            f"{layers} layers on {devices} devices make {cells:,} entries of its table, and {MOST_CELLS:,} are the "
            "most; pipe-plan takes more",
            argument="algorithm",
        )


def rows_of(problem: Problem, options: PiperOptions, margin: int = 0) -> Rows:
    """Return the program's data of an instance with equal devices, with `margin` bytes of each left free."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    link = _widest(machine)
    devices = 1 if link is None else len(machine.processors)
    batches = instance.micro_batches
    room = machine.memories[machine.processors[0].memory].capacity
    most = min(devices, instance.copies, options.copies or devices)
    copies = [count for count in range(1, most + 1) if batches % count == 0]
    ways: dict[int, Sequence[Sequence[Way]]] = {}
    crossing, exchange = {}, {}
    for tensor in _degrees(problem) if devices > 1 else [1]:
        layers, able = _layers_of(problem, tensor)
        ways[tensor] = [
            _ways(problem, layers, number, recompute=options.recompute) if number in able else ()
            for number in range(len(layers))
        ]
        crossing[tensor] = _crossing(instance, layers, link)
        for count in copies:
            each = [_closing(instance, layer, count, link) / batches for layer in layers]
            exchange[tensor, count] = np.array([0, *accumulate(each)], dtype=np.float64)
    return Rows(ways, crossing, exchange, devices, np.inf if room is None else room - margin, copies)


def _widest(machine: Machine) -> Link | None:
    """Return the link from the first device to the last one that it reaches; None without links.

    In a cluster, that is a link of the outermost level.
    """
    memories = [processor.memory for processor in machine.processors]
    ends = ((memories[0], memory) for memory in reversed(memories[1:]))
    return next((machine.link_between(*pair) for pair in ends if pair in machine.link_index), None)


def _degrees(problem: Problem) -> list[int]:
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    found = [1]
    for degree in instance.tensor_degrees:
        with suppress(InstanceError):  # the first devices are no group: they are unlike, or links are missing
            if degree <= len(machine.processors):
                _layers_of(problem, degree)
                found.append(degree)
    return found


def _layers_of(problem: Problem, tensor: int) -> tuple[list[Layer], set[int]]:
    """Return the layers as the cluster's first `tensor` devices run them together, and those that they can run."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    layers = instance.each_layer()
    if tensor == 1:
        return layers, set(range(len(layers)))
    able = {number for number, layer in enumerate(layers) if str(tensor) in layer.tensor}
    group = Stage(tuple(sorted(able)), 0, tensor=tensor)
    return instance.each_layer(degrees_of(instance, problem.machine, [group])), able


def _ways(problem: Problem, layers: Sequence[Layer], number: int, *, recompute: bool) -> list[Way]:
    """Return the options of a layer: run normally, or recomputed."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    layer, kind = layers[number], problem.machine.processors[0].type
    work, forward = layer.work_on(kind), layer.time_on("forward_time", kind)
    if work is None or forward is None:
        return []
    held = held_bytes(instance, layers, (number,))
    if number:  # the previous layer counts its output
        held = held_bytes(instance, layers, (number - 1, number)) - held_bytes(instance, layers, (number - 1,))
    fixed = sum(layer.of_parameters)
    ways = [Way(float(work), held, fixed)]
    if recompute and layer.saved_size and instance.sharding is None:
        ways.append(Way(float(work + forward), held - layer.saved_size, fixed))
    return ways


def _crossing(instance: PipelineInstance, layers: Sequence[Layer], link: Link | None) -> np.ndarray:
    """Return the transfer time into and out of each interval of layers, in both directions: O(edges x layers^2)."""
    count = len(layers)
    found = np.zeros((count + 1, count + 1), dtype=np.float64)
    first, end = np.arange(count + 1)[:, None], np.arange(count + 1)[None, :]
    for target, sources in enumerate(instance.sources()):
        for source in sources if link is not None else ():
            assert link is not None
            both = link.time(layers[source].output_size) + link.time(layers[source].gradient_bytes)
            inside = ((first <= own) & (own < end) for own in (source, target))
            found += float(both) * np.logical_xor(*inside)
    return found


def _closing(instance: PipelineInstance, layer: Layer, count: int, link: Link | None) -> float:
    """Return the time of a layer at the end of a step: its copies' gradient exchange, and the update."""
    time = float(layer.update_time)
    if count > 1 and instance.exchange == "ring" and layer.parameter_gradient_bytes and link is not None:
        time += 2 * (count - 1) * link.time(-(-layer.parameter_gradient_bytes // count))
    return time


def orders_of(problem: Problem, split: Split) -> Orders:
    """Return a split as 1F1B: copies alternate between micro-batches, and each starts as many as its memory allows."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    layers, batches = instance.each_layer(), instance.micro_batches
    stages: list[Stage] = []
    lists: list[tuple[Pass, ...]] = [()] * len(problem.machine.processors)
    for part, first in zip(split.parts, _places(problem, split.parts), strict=True):
        own = tuple(range(part.first, part.end))
        again = tuple(Segment((layer,)) for layer, way in zip(own, part.ways, strict=True) if way)
        back = Phase.BW if any(layers[layer].is_split for layer in own) else Phase.B
        for copy in range(part.copies):
            device, stage = first + copy * part.tensor, len(stages)
            stages.append(Stage(own, device, recompute=again, tensor=part.tensor))
            mine = range(copy, batches, part.copies)
            ahead = min(part.flight - 1, len(mine))
            listed = [Pass(Phase.F, stage, batch) for batch in mine[:ahead]]
            for index, batch in enumerate(mine):
                listed += [Pass(Phase.F, stage, one) for one in mine[ahead + index : ahead + index + 1]]
                listed.append(Pass(back, stage, batch))
            lists[device] = tuple(listed)
    return Orders(tuple(stages), tuple(lists))


def _places(problem: Problem, parts: Sequence[Part]) -> list[int]:
    """Return the first device of each part: consecutive, or larger groups first if groups would otherwise be unlike."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    found: list[int] = []
    for order in (range(len(parts)), sorted(range(len(parts)), key=lambda k: -parts[k].tensor)):
        found = [0] * len(parts)
        device = 0
        for k in order:
            found[k] = device
            device += parts[k].tensor * parts[k].copies
        groups = [
            Stage(tuple(range(part.first, part.end)), first + copy * part.tensor, tensor=part.tensor)
            for part, first in zip(parts, found, strict=True)
            for copy in range(part.copies)
        ]
        try:
            degrees_of(instance, problem.machine, groups)
        except InstanceError:
            continue
        return found
    raise OptionError("groups of the plan are joined by unlike links; use fewer copies", argument="algorithm")
