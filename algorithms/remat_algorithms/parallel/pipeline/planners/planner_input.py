"""Conversion of instances to the planners' input, and of their cuts to placed and measured orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from pydantic import Field

from remat.plugin import (
    Layer,
    Link,
    Number,
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
from remat_algorithms.parallel.pipeline.device_links import links_between
from remat_algorithms.parallel.pipeline.partition import Work
from remat_algorithms.parallel.pipeline.planners.layer_sums import Hop, Line, Position, Row, sums
from remat_algorithms.parallel.pipeline.planners.simulation import Lists, Pipe, Way, one_forward_one_backward
from remat_algorithms.parallel.pipeline.planners.stage_measures import Counting, each_depth, evened
from remat_algorithms.parallel.pipeline.replicas import Replicas
from remat_algorithms.parallel.pipeline.stages import check_copies, held_bytes, needs_flush, placed

ROUNDS = 8
"""Maximum number of plans with less memory, when transient values do not fit along with the kept ones."""

MOST_CELLS = 2 * 10**9
"""Maximum number of table entries for which every number of unequal devices gets a separate table."""

MOST_SIMULATED = 400_000
"""Maximum number of operations that a planner simulates to evaluate its candidates."""


MOST_EVENED = 3
"""Number of device counts whose cuts are balanced and simulated again."""


class SharedOptions(Options):
    """Options of planners."""

    replicas: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="number of devices that hold a replica of each stage; default: the number with the shortest step, "
        "within `copies`",
    )


class StageOptions(SharedOptions):
    """Options of planners that accept a number of stages."""

    stages: int | None = Field(
        default=None,
        ge=1,
        description="number of devices that hold layers; default: all devices, or the best number that the planner "
        "finds",
    )


@dataclass(frozen=True)
class Site:
    """An instance as the planners see it.

    Attributes
    ----------
    problem : Problem
    room : tuple of int or None
        Bytes of each device available to the planner.
    """

    problem: Problem
    room: tuple[int | None, ...]
    row: Row
    split: tuple[bool, ...]
    _hops: dict[object, Hop] = field(default_factory=dict[object, Hop], repr=False)
    _works: dict[str, tuple[list[Number], Work]] = field(
        default_factory=dict[str, "tuple[list[Number], Work]"], repr=False
    )

    @staticmethod
    def of(problem: Problem) -> Site:
        """Read an instance."""
        machine, layers = problem.machine, _instance(problem).each_layer()
        room = tuple(machine.memories[processor.memory].capacity for processor in machine.processors)
        return Site(problem, room, _row(_instance(problem), layers), tuple(layer.is_split for layer in layers))

    def with_room(self, room: Sequence[int | None]) -> Site:
        """Return the same site with different memory sizes."""
        return replace(self, room=tuple(room))

    def narrowed(self, margin: int) -> Site:
        """Return the same site with `margin` fewer bytes on each device."""
        return self.with_room([None if room is None else room - margin for room in self.room])

    @property
    def instance(self) -> PipelineInstance:
        """The instance."""
        return _instance(self.problem)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.room)

    def position(self, device: int) -> Position:
        """Return a device with the times of its type."""
        _, work = self._sums(self.problem.machine.processors[device].type)
        return Position(np.array(work.until, dtype=np.float64), np.array(work.stop, dtype=np.int64), self.room[device])

    def least_work(self) -> list[Number]:
        """Return the time of each layer on the fastest type of device."""
        kinds = dict.fromkeys(self.problem.machine.processors[device].type for device in range(self.devices))
        times = [[layer.work_on(kind) for kind in kinds] for layer in self.instance.each_layer()]
        return [min(time for time in own if time is not None) for own in times]

    def _sums(self, kind: str) -> tuple[list[Number], Work]:
        """Return the cumulative times of forwards, and of all work, on a type of device."""
        if kind not in self._works:
            layers = self.instance.each_layer()
            times = [layer.time_on("forward_time", kind) or 0 for layer in layers]
            self._works[kind] = [0, *accumulate(times)], Work.of(layers, kind)
        return self._works[kind]

    def hop(self, one: int, other: int) -> Hop:
        """Return the connection between two devices; equal connections are one object.

        In a common memory, data are where they are read, without a link.
        """
        machine = self.problem.machine
        here, there = (machine.processors[device].memory for device in (one, other))
        if here == there:
            out = back = Link(source=here, target=there, channel="")
        else:
            out, back = (machine.links[link] for link in links_between(machine, one, other))
        key = tuple((link.bandwidth, link.latency, link.delay) for link in (out, back))
        if key not in self._hops:
            self._hops[key] = _hop(self.instance.each_layer(), out, back)
        return self._hops[key]

    def classes(self) -> list[int]:
        """Return the class of each device: devices of one class have the same type and memory."""
        kinds: dict[object, int] = {}
        processors = self.problem.machine.processors
        return [
            kinds.setdefault((processor.type, room), len(kinds))
            for processor, room in zip(processors, self.room, strict=True)
        ]

    def line(self, order: Iterable[int] | None = None) -> Line:
        """Return devices in this order, or all in the instance's order."""
        order = list(range(self.devices) if order is None else order)
        hops = tuple(self.hop(one, other) for one, other in pairwise(order))
        classes = self.classes()
        alike = len({classes[device] for device in order}) == 1 and len({id(hop) for hop in hops}) <= 1
        by_class = {classes[device]: self.position(device) for device in order}
        positions = tuple(by_class[classes[device]] for device in order)
        return Line(self.row, positions, hops, self.instance.micro_batches, alike)

    def depths(self, options: StageOptions) -> list[int]:
        """Return the numbers of devices from which a planner may choose: all, or a subset if this is too expensive.

        Raises
        ------
        OptionError
            If there are more stages than devices or layers.
        """
        layers = self.row.length
        if options.stages is None:
            most = min(self.devices, layers)
            cells = 1 if self.line(range(most)).alike else most**2 * layers**2 // 4
            return list(range(most, 0, -1 - cells // MOST_CELLS))[::-1]
        if options.stages > self.devices:
            raise OptionError(
                f"{options.stages} stages, one a device, and the cluster has {self.devices} devices", argument="stages"
            )
        enough_layers(options.stages, layers)
        return [options.stages]

    def whole(self, options: StageOptions) -> Line:
        """Return the line of the requested number of devices, by default all."""
        count = self.devices if options.stages is None else self.depths(options)[0]
        enough_layers(count, self.row.length)
        return self.line(range(count))

    def pipe(self, cuts: Sequence[int], devices: Sequence[int]) -> Pipe:
        """Return the stages of these cuts in the simulation's format."""
        parts = list(zip(cuts[:-1], cuts[1:], devices, strict=True))
        processors = self.problem.machine.processors
        known = [self._sums(processors[device].type) for device in devices]
        work = [both.until[end] - both.until[first] for (first, end, _), (_, both) in zip(parts, known, strict=True)]
        forward = [until[end] - until[first] for (first, end, _), (until, _) in zip(parts, known, strict=True)]
        apart = [Way(0, 0, 0, 0)]
        for cut, one, other in zip(cuts[1:-1], devices[:-1], devices[1:], strict=True):
            apart.append(apart[0] if one == other else self.hop(one, other).at(cut))
        return Pipe(
            place=tuple(devices),
            devices=self.devices,
            batches=self.instance.micro_batches,
            forward=tuple(forward),
            backward=tuple(total - own for total, own in zip(work, forward, strict=True)),
            ways=tuple(apart),
            previous=tuple(range(-1, len(devices) - 1)),
        )

    def orders(self, cuts: Sequence[int], devices: Sequence[int], lists: Lists) -> Orders:
        """Convert lists to orders, for a chain of stages."""
        return self.orders_of(cuts, range(len(devices)), devices, lists)

    def orders_of(self, cuts: Sequence[int], parts: Sequence[int], devices: Sequence[int], lists: Lists) -> Orders:
        """Convert lists to orders, for stages that hold these parts of the layers; backwards are whole."""
        stages = tuple(
            Stage(tuple(range(cuts[part], cuts[part + 1])), device) for part, device in zip(parts, devices, strict=True)
        )
        back = [Phase.BW if any(self.split[cuts[part] : cuts[part + 1]]) else Phase.B for part in parts]
        return Orders(
            stages,
            tuple(
                tuple(Pass(back[stage] if phase else Phase.F, stage, batch) for phase, stage, batch in own)
                for own in lists
            ),
        )


def run_1f1b(site: Site, cuts: Sequence[int], devices: Sequence[int]) -> Orders:
    """Return the orders of 1F1B for these cuts, with one stage per device."""
    return site.orders(cuts, devices, one_forward_one_backward(site.pipe(cuts, devices)))


def planned(problem: Problem, plan: Callable[[Site], Orders | None], options: SharedOptions) -> Proposal:
    """Plan, place and measure for each replication of stages; return the fastest.

    Parameters
    ----------
    problem : Problem
    plan : callable
        Returns orders for a site, each device of which represents the replicas of its stages; None if nothing fits.
    options : SharedOptions

    Returns
    -------
    Proposal
        With orders that fit, or without a schedule.

    Raises
    ------
    OptionError
        If no orders exist even for devices with unlimited memory.
    """
    assert isinstance(problem.instance, PipelineInstance)
    needs_flush(problem.instance)
    best: Proposal | None = None
    refused: OptionError | None = None
    for replicas in _ways(problem, options.replicas):
        try:
            found = _fitting(problem, plan, replicas)
        except OptionError as error:
            refused = refused or error
            continue
        if best is None or _time(found) < _time(best):
            best = found
    if best is None:
        assert refused is not None, "at least one replication of stages exists"
        raise refused
    return best


def _ways(problem: Problem, count: int | None) -> list[Replicas]:
    """Return the replications of stages on this number of devices each."""
    if count is None:
        return list(Replicas.options(problem))
    assert isinstance(problem.instance, PipelineInstance)
    check_copies(problem.instance, count)
    found = [ways for ways in Replicas.options(problem) if ways.count == count]
    if not found:
        Replicas(count).check(problem)
        raise OptionError(f"{count} devices that follow each other are not all alike", option="replicas")
    return found


def _time(proposal: Proposal) -> Number:
    return math.inf if proposal.makespan is None else proposal.makespan


def _fitting(problem: Problem, plan: Callable[[Site], Orders | None], replicas: Replicas) -> Proposal:
    """Plan, place and measure; if the peak exceeds the memory, plan again with the smallest sufficient reduction."""
    site = Site.of(replicas.first(problem))
    everywhere = [problem.machine.memories[device.memory].capacity for device in problem.machine.processors]
    margin = low = 0
    high: int | None = None
    best = Proposal()
    for _ in range(ROUNDS):
        one = plan(site.narrowed(margin))
        excess = 0
        if one is not None:
            orders = replicas.spread(one)
            outcome = placed(problem, orders)
            if outcome is None:  # planners avoid deadlock, unless transfers occupy both ends; the orders show it
                return Proposal(orders=orders) if best.makespan is None else best
            _, makespan, peaks = outcome
            over = (peak - room for peak, room in zip(peaks, everywhere, strict=True) if room is not None)
            excess = max(over, default=0)
            if excess <= 0 and makespan < _time(best):
                best = Proposal(orders=orders, makespan=makespan)
        elif not margin and plan(site.with_room([None] * site.devices)) is None:
            raise OptionError("these devices cannot run the layers in this order", argument="algorithm")
        if excess > 0:
            low = margin
        else:
            high = margin
        if high is not None and high - low <= 1:
            break
        margin = (low + high) // 2 if high is not None else max(low + excess, 4 * low)
    return best


def enough_layers(count: int, layers: int) -> None:
    """Refuse more stages than layers."""
    if count > layers:
        raise OptionError(
            f"{count} stages of at least one layer each, and the instance has {layers} layers; use fewer stages",
            argument="stages",
        )


def _instance(problem: Problem) -> PipelineInstance:
    assert isinstance(problem.instance, PipelineInstance)
    return problem.instance


def _row(instance: PipelineInstance, layers: Sequence[Layer]) -> Row:
    """Compute prefix sums such that differences equal `held_bytes` of a stage."""
    alone = [held_bytes(instance, layers, (layer,)) for layer in range(len(layers))]
    more = [0, *(held_bytes(instance, layers, (one, one + 1)) - alone[one] for one in range(len(layers) - 1))]
    inside = [alone[0], *more[1:]]
    entry = [own - less for own, less in zip(alone, inside, strict=True)]
    fixed = [sum(layer.of_parameters) for layer in layers]
    return Row(sums(inside, np.int64), np.array([*entry, 0], dtype=np.int64), sums(fixed, np.int64))


def _hop(layers: Sequence[Layer], out: Link, back: Link) -> Hop:
    there = [out.time(layer.output_size) for layer in layers[:-1]]
    gradient = [back.time(layer.gradient_bytes) for layer in layers[:-1]]

    def at_cuts(times: Sequence[float]) -> np.ndarray:
        return np.array([0, *times, 0], dtype=np.float64)

    return Hop(
        at_cuts(there),
        at_cuts(gradient),
        at_cuts([time - out.delay for time in there]),
        at_cuts([time - back.delay for time in gradient]),
    )


Judged = TypeVar("Judged")


def by_simulation(
    line: Line,
    counting: Counting,
    depths: Sequence[int],
    judge: Callable[[list[int], float], tuple[float, Judged] | None],
    *,
    passing: int,
) -> tuple[float, list[int], Judged] | None:
    """Minimise the largest cost on each number of devices, simulate, and balance the cuts of the best ones.

    Parameters
    ----------
    line : Line
    counting : callable
        At least the work.
    depths : sequence of int
    judge : callable
        ``judge(cuts, best)`` returns the makespan and an arbitrary result of cuts. It returns None if they do not fit
        or cannot beat the best makespan.
    passing : int
        Minimum number of micro-batches that pass each stage.

    Returns
    -------
    tuple or None
        Makespan, cuts, and the judge's result.
    """
    left = max(MOST_SIMULATED // (2 * line.batches), max(depths))
    times: list[tuple[float, int, float]] = []
    best: tuple[float, list[int], Judged] | None = None

    def consider(cuts: list[int]) -> float | None:
        nonlocal best
        said = judge(cuts, math.inf if best is None else best[0])
        if said is not None and (best is None or said[0] < best[0]):
            best = said[0], cuts, said[1]
        return None if said is None else said[0]

    def most() -> float:
        # Every schedule takes at least the time of its slowest stage for each micro-batch.
        return math.inf if best is None or not passing else best[0] / passing

    for depth, slowest, table in each_depth(line, counting, depths, most):
        left -= depth
        if left < 0 and times:
            break
        time = consider(table.cuts(depth))
        if time is not None:
            times.append((time, -depth, slowest))
    for _, depth, slowest in sorted(times)[:MOST_EVENED]:
        consider(evened(line.first(-depth), counting, slowest))
    return best
