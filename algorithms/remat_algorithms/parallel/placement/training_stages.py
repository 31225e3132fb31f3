"""Contiguous placement of pipelines with backwards: layers instead of units, and activations kept for the backward.

The program over down-sets (`downset_table`) begins at the loss. As in 1F1B, the k-th stage from there holds its
parameters and min(k, m) of m micro-batches. The time of a layer is that of its forward and its backward. Links between
stages carry outputs forwards and gradients backwards. The slower direction counts, or the sum of both if they share a
channel.

The search uses the slowest channel of the cluster for all, and then the fastest, and keeps the better result after
placement. Steps that end run 1F1B. Streams with changing parameters run 1F1B* with the smallest period that fits, or
take turns on channels that several pairs of devices share (`shared_channels`). If transient values do not fit, devices
have less memory in the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from remat.plugin import (
    Context,
    Machine,
    Number,
    OptionError,
    Orders,
    Pass,
    Phase,
    PipelineInstance,
    Problem,
    Proposal,
    Stage,
)
from remat_algorithms.parallel.pipeline.device_links import are_linked, occupied_between
from remat_algorithms.parallel.pipeline.linked_devices import linked_rows
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Row, Star, least_period, star
from remat_algorithms.parallel.pipeline.partition import balanced_cuts
from remat_algorithms.parallel.pipeline.periodic_pipelines import StagesInRow, versions_of
from remat_algorithms.parallel.pipeline.shared_channels import Occupied, pattern_in_turns
from remat_algorithms.parallel.pipeline.stages import excess_of, held_bytes, placed, steady_peaks
from remat_algorithms.parallel.pipeline.star_patterns import hop_between, pattern_of
from remat_algorithms.parallel.placement.best_pattern import ROUNDS
from remat_algorithms.parallel.placement.downset_table import FINEST, NO_LIMIT, Search, Staged, homes_of, orders
from remat_algorithms.parallel.placement.downsets import down_sets, of_order
from remat_algorithms.parallel.placement.groups import Passing

MOST_CELLS = 10**7
"""Maximum number of down-sets times numbers of devices of each class; above it, only orders of the layers are used."""

MOST_TRIALS = 10_000
"""Maximum number of devices that are tried in a row if not all of them are linked."""

MOST_ROWS = 16
"""Maximum number of rows of different devices that are searched if the best stages are not linked."""

MOST_ORDERS = 200
"""Maximum number of orders of different devices in linked rows over which the layers are balanced."""

ENDLESS = 10**6
"""Maximum number of micro-batches in flight in a stream."""


@dataclass(frozen=True)
class LayerOrder:
    """Layers from the loss backwards, each after its readers; the size of a flow is its layer's number."""

    after: tuple[frozenset[int], ...]
    passing: tuple[Passing, ...]

    def __len__(self) -> int:
        return len(self.after)

    def flows(self) -> list[Passing]:
        """Return the flows between layers."""
        return list(self.passing)


@dataclass
class _Best:
    """Best plan found."""

    problem: Problem
    context: Context
    proposal: Proposal | None = None
    time: Number | None = None

    def weigh(self, stages: tuple[Stage, ...]) -> list[int]:
        """Place a plan, and keep it if it is better and fits; return the excess bytes of devices."""
        instance = self.problem.instance
        assert isinstance(instance, PipelineInstance)
        found, time, peaks = (self._stream if instance.is_stream else self._step)(stages)
        excess = excess_of(self.problem.machine, peaks)
        if found is not None and not any(excess) and (self.time is None or time < self.time):
            self.proposal, self.time = found, time
        return excess

    def _step(self, stages: tuple[Stage, ...]) -> tuple[Proposal | None, Number, list[int]]:
        instance = self.problem.instance
        assert isinstance(instance, PipelineInstance)
        layers, batches = instance.each_layer(), instance.micro_batches
        lists: list[tuple[Pass, ...]] = [()] * len(self.problem.machine.processors)
        for index, stage in enumerate(stages):
            back = Phase.BW if any(layers[layer].is_split for layer in stage.layers) else Phase.B
            ahead = min(len(stages) - 1 - index, batches)
            own = [Pass(Phase.F, index, batch) for batch in range(ahead)]
            for batch in range(batches):
                if batch + ahead < batches:
                    own.append(Pass(Phase.F, index, batch + ahead))
                own.append(Pass(back, index, batch))
            lists[stage.device] = tuple(own)
        plan = Orders(stages, tuple(lists))
        outcome = placed(self.problem, plan)
        if outcome is None:
            return Proposal(orders=plan), 0, [0] * len(lists)
        _, makespan, peaks = outcome
        return Proposal(orders=plan, makespan=makespan), makespan, peaks

    def _stream(self, stages: tuple[Stage, ...]) -> tuple[Proposal | None, Number, list[int]]:
        problem = self.problem
        instance, machine = problem.instance, problem.machine
        assert isinstance(instance, PipelineInstance)
        staged = StagesInRow.of(problem, instance, stages)
        occupied = Occupied(
            tuple((stage.device,) for stage in stages),
            tuple(occupied_between(machine, one.device, other.device) for one, other in pairwise(stages)),
        )
        are_apart, none = occupied.are_apart, [0] * len(machine.processors)

        def made(row: Row, period: Number) -> Star | None:
            return star(row, period) if are_apart else pattern_in_turns(row, occupied, period)

        found = least_period(staged.row, lambda trial: not staged.excess(trial, instance, none), made)
        if found is None:
            return None, 0, none
        pattern = pattern_of(problem, stages, found.period, found)
        peaks = steady_peaks(problem, pattern, [versions_of(instance.weights, kept) for kept in found.kept])
        return Proposal(pattern=pattern, makespan=found.period), found.period, peaks


def solve_training(problem: Problem, sets: int, work: float, context: Context) -> Proposal:
    """Find stages for a pipeline with backwards, and run them.

    If its stages are on devices that are not linked in a row, rows of linked devices are searched instead.

    Raises
    ------
    OptionError
        If no device can run some layer.
    """
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    order = layer_order(instance)
    best = _Best(problem, context)
    every = range(len(problem.machine.processors))
    notes: tuple[str, ...] = ()
    if not _search(problem, best, order, every, sets, work, context) and best.proposal is None:
        notes = ("some neighbours lack a link in a direction: layers are on devices in a row of linked ones",)
        for row in _rows(problem.machine):
            if not context.stopped:
                _search(problem, best, order, row, sets, work, context)
        _cut_rows(problem, instance, best, context)
    if best.proposal is None:
        return Proposal(termination=context.termination)
    return replace(best.proposal, notes=(*best.proposal.notes, *notes))


def _cut_rows(problem: Problem, instance: PipelineInstance, best: _Best, context: Context) -> None:
    """Balance the layers over rows of linked devices, one for each order of different devices.

    The program over down-sets chooses how many devices of each class hold a stage; links decide their order.
    """
    seen: set[tuple[object, ...]] = set()
    for row in linked_rows(problem.machine, range(len(problem.machine.processors)), until_all=False):
        classes = tuple(_class_of(problem.machine, device) for device in row)
        if classes in seen or len(set(classes)) < 2 or len(row) > instance.length:
            continue
        seen.add(classes)
        if len(seen) > MOST_ORDERS or context.stopped:
            break
        with suppress(OptionError):  # devices that cannot run the layers in this order
            cuts = balanced_cuts(instance, [[device] for device in row])
            parts = zip(pairwise(cuts), row, strict=True)
            best.weigh(tuple(Stage(tuple(range(first, end)), device) for (first, end), device in parts))


def _class_of(machine: Machine, device: int) -> tuple[object, ...]:
    processor = machine.processors[device]
    return processor.type, machine.memories[processor.memory].capacity


def _rows(machine: Machine) -> list[list[int]]:
    """Return rows of linked devices: the longest of each class, and others that differ in their numbers of each class.

    In a row of one class, any stages have linked neighbours.
    """
    class_of = [_class_of(machine, device) for device in range(len(machine.processors))]
    longest: dict[object, list[int]] = {}
    for kind in dict.fromkeys(class_of):
        own = [device for device, other in enumerate(class_of) if other == kind]
        longest[frozenset([kind])] = max(linked_rows(machine, own), key=len)
    found: dict[object, list[int]] = {}
    for row in linked_rows(machine, range(len(class_of))):
        counts = Counter(class_of[device] for device in row)
        if len(counts) > 1:
            found.setdefault(frozenset(counts.items()), row)
    return [*longest.values(), *sorted(found.values(), key=len, reverse=True)[:MOST_ROWS]]


def _search(
    problem: Problem,
    best: _Best,
    order: LayerOrder,
    devices: Sequence[int],
    sets: int,
    work: float,
    context: Context,
) -> bool:
    """Search stages on some devices; return whether the neighbours of all stages found are linked."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    are_all_linked = True
    for slowest in (True, False):
        less = [0] * len(problem.machine.processors)
        for _ in range(ROUNDS):
            costs = staged_layers(problem, instance, order, devices, less, slowest=slowest)
            stages = None if costs is None else _stages(costs, order, sets, work, context)
            if costs is None or stages is None:
                break
            stages = linked(problem.machine, stages, costs.classes)
            if stages is None:
                are_all_linked = False
                break
            excess = best.weigh(stages)
            if not any(excess) or context.stopped:
                break
            less = [own + more for own, more in zip(less, excess, strict=True)]
        if context.stopped:
            break
    return are_all_linked


def linked(machine: Machine, stages: tuple[Stage, ...], classes: Sequence[Sequence[int]]) -> tuple[Stage, ...] | None:
    """Return stages on devices of the same classes whose neighbours are linked; None if none are found."""
    if all(are_linked(machine, one.device, other.device) for one, other in pairwise(stages)):
        return stages
    class_of = {device: own for own in classes for device in own}
    path: list[int] = []
    left = [list(class_of[stages[0].device])]
    for _ in range(MOST_TRIALS):
        if not left[-1]:
            left.pop()
            if not path:
                return None
            path.pop()
            continue
        path.append(left[-1].pop(0))
        if len(path) == len(stages):
            return tuple(replace(stage, device=device) for stage, device in zip(stages, path, strict=True))
        left.append(
            [
                device
                for device in class_of[stages[len(path)].device]
                if device not in path and are_linked(machine, path[-1], device)
            ]
        )
    return None


def layer_order(instance: PipelineInstance) -> LayerOrder:
    """Return the layers from the loss backwards: number 0 is the last one."""
    layers, sources = instance.each_layer(), instance.sources()
    last = len(layers) - 1
    readers: list[list[int]] = [[] for _ in layers]
    for reader, own in enumerate(sources):
        for source in own:
            readers[source].append(reader)
    passing = [
        Passing(last - source, tuple(sorted(last - reader for reader in own)), source)
        for source, own in enumerate(readers)
        if own
    ]
    after = tuple(frozenset(last - reader for reader in readers[last - number]) for number in range(len(layers)))
    return LayerOrder(after, tuple(passing))


def staged_layers(
    problem: Problem,
    instance: PipelineInstance,
    order: LayerOrder,
    devices: Sequence[int],
    less: Sequence[int],
    *,
    slowest: bool,
) -> Staged | None:
    """Return the times and bytes of stages on some devices, with times as integers in steps.

    None if these devices cannot run some layer.

    Raises
    ------
    OptionError
        If no device of the machine can run it.
    """
    machine, layers = problem.machine, instance.each_layer()[::-1]
    kinds: dict[object, list[int]] = {}
    for index in devices:
        processor = machine.processors[index]
        kinds.setdefault((processor.type, machine.memories[processor.memory].capacity, less[index]), []).append(index)
    classes = tuple(tuple(own) for own in kinds.values())
    works = [[layer.work_on(machine.processors[own[0]].type) for layer in layers] for own in classes]
    unable = np.array([[work is None for work in row] for row in works], dtype=bool)
    if unable.all(axis=0).any():
        if len(devices) < len(machine.processors):
            return None
        raise OptionError("some layer runs on no device", argument="algorithm")
    time = np.array([[0 if work is None else work for work in row] for row in works], dtype=np.float64)
    choose = max if slowest else min
    each = instance.each_layer()
    connections = _connections(machine, devices)
    ways = [
        choose((float(hop_between(machine, *ends, each[flow.value]).load) for ends in connections), default=0.0)
        for flow in order.passing
    ]
    total = float(time.max(axis=0).sum()) + 2 * sum(ways)
    whole = total <= FINEST and bool((time == np.rint(time)).all()) and all(way == round(way) for way in ways)
    step = 1.0 if whole or not total else total / FINEST
    away = np.tile(np.rint(np.array(ways, dtype=np.float64) / step).astype(np.int64), (len(classes), 1))
    rooms = [machine.memories[machine.processors[own[0]].memory] for own in classes]
    stash = instance.weights == "stash"
    holds = instance.cluster.transfers != "overlap"
    return Staged(
        order,
        classes,
        step,
        np.rint(time / step).astype(np.int64),
        unable,
        away,
        away,
        ((holds, holds, False),) * len(classes),
        tuple(
            NO_LIMIT if room.capacity is None else room.capacity - room.static - less[own[0]]
            for own, room in zip(classes, rooms, strict=True)
        ),
        tuple(sum(layer.of_parameters) - (layer.parameter_size if stash else 0) for layer in layers),
        tuple(
            held_bytes(instance, layers[::-1], (len(layers) - 1 - index,)) + (layer.parameter_size if stash else 0)
            for index, layer in enumerate(layers)
        ),
        ENDLESS if instance.is_stream else instance.micro_batches,
    )


def _connections(machine: Machine, devices: Sequence[int]) -> list[tuple[int, int]]:
    """Return linked pairs of devices in different memories, one for each pair of speeds."""
    found: dict[object, tuple[int, int]] = {}
    device_of = {machine.processors[device].memory: device for device in devices}
    for link, out in enumerate(machine.links):
        ends = (out.source, out.target)
        reverse = machine.link_index.get((out.target, out.source))
        if reverse is None or ends[0] == ends[1] or not device_of.keys() >= set(ends):
            continue
        back = machine.links[reverse]
        speeds = tuple((one.bandwidth, one.latency) for one in (out, back))
        key = (speeds, machine.share_a_resource(link, reverse))
        found.setdefault(key, (device_of[ends[0]], device_of[ends[1]]))
    return list(found.values())


def _stages(costs: Staged, order: LayerOrder, sets: int, work: float, context: Context) -> tuple[Stage, ...] | None:
    """Return the best stages, from the input to the loss; None if none fit."""
    every = down_sets(order, min(sets, MOST_CELLS // costs.states))
    best: tuple[Search, list[tuple[int, int]]] | None = None
    for listed in orders(order):
        chain = of_order(listed)
        search = Search(costs, chain, lambda: context.stopped)
        upper = None if best is None else max(best[0].loads(best[1])) - 1
        found = search.best(costs.bound, upper)
        if found is not None:
            best = search, found
    if every is not None and not context.stopped:
        search = Search(costs, every, lambda: context.stopped, work)
        found = search.best(costs.bound, None if best is None else max(best[0].loads(best[1])) - 1)
        if found is not None:
            best = search, found
    if best is None:
        return None
    search, found = best
    homes = homes_of(costs, search.sets, found)
    last = len(order) - 1
    stages = []
    before = 0
    for end, _ in found:
        numbers = search.sets.between(before, end)
        stages.append(Stage(tuple(sorted(last - number for number in numbers)), homes[numbers[0]]))
        before = end
    return tuple(reversed(stages))
