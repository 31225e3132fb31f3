"""`adapipe`: cuts for 1F1B in which each stage recomputes as its position requires (after Sun et al. 2024).

Under 1F1B the k-th stage from the end holds min(k, m) of m micro-batches, so the first stages have the least memory for
each. The cost of a stage at a position is the minimum time of its levels that fit there
(`remat_algorithms.joint.pipe_plan.recompute_options`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from pydantic import Field

from remat.plugin import (
    Context,
    OptionError,
    Options,
    Orders,
    PipelineInstance,
    Problem,
    Proposal,
    Segment,
    Stage,
    Termination,
)
from remat_algorithms.joint.pipe_plan.recompute_options import Level, StageCosts
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.named_schedules import orders_of, without_halves
from remat_algorithms.parallel.pipeline.order_search import BestOrders
from remat_algorithms.parallel.pipeline.stages import needs_flush

ROUNDS = 4
"""Maximum number of rounds that reserve memory on devices, if transient values do not fit next to the held ones."""


class AdaPipeOptions(Options):
    """Options of `adapipe`."""

    judged: int = Field(default=16, ge=1, le=10_000, description="maximum number of partitions to simulate")


@dataclass(frozen=True)
class _Cut:
    """Cuts of the layers, and the level of each stage."""

    cuts: tuple[int, ...]
    levels: tuple[Level, ...]
    slowest: float
    total: float


class _Table:
    """The costs of stages at their positions, and the cuts of minimum total time for each limit on the slowest stage.

    Parameters
    ----------
    problem : Problem
    stages : int
        Number of devices that hold layers: the first ones.
    unseen : list of int
        Bytes to leave free on each device.
    """

    def __init__(self, problem: Problem, costs: StageCosts, stages: int, unseen: list[int]) -> None:
        instance = problem.instance
        assert isinstance(instance, PipelineInstance)
        self.instance, self.costs, self.stages, self.unseen = instance, costs, stages, unseen
        self.layers = instance.each_layer()
        machine = problem.machine
        self.types = [processor.type for processor in machine.processors]
        self.room = [machine.memories[processor.memory].capacity for processor in machine.processors]

    @cached_property
    def cost(self) -> list[dict[tuple[int, int], tuple[float, Level]]]:
        """By device: the minimum time, and the level, of each interval of layers that fits at its position."""
        count = len(self.layers)
        found: list[dict[tuple[int, int], tuple[float, Level]]] = []
        for device in range(self.stages):
            own: dict[tuple[int, int], tuple[float, Level]] = {}
            before, after = device, self.stages - 1 - device
            for first in range(before, count - after) if before else range(1):
                for end in range(first + 1, count - after + 1) if after else (count,):
                    entry = self._of_stage(first, end, device)
                    if entry is not None:
                        own[first, end] = entry
            found.append(own)
        return found

    def _of_stage(self, first: int, end: int, device: int) -> tuple[float, Level] | None:
        work = [layer.work_on(self.types[device]) for layer in self.layers[first:end]]
        if any(time is None for time in work):
            return None
        fixed = sum(sum(layer.of_parameters) for layer in self.layers[first:end])
        room, flight = self.room[device], min(self.stages - device, self.instance.micro_batches)
        best: tuple[float, Level] | None = None
        for level in self.costs.levels(tuple(range(first, end)), device):
            needs = fixed + (flight - 1) * level.held + max(level.forward, level.held + level.backward)
            fits = room is None or needs + self.unseen[device] <= room
            if fits and (best is None or level.recompute_time < best[0]):
                best = level.recompute_time, level
        return None if best is None else (float(sum(time or 0 for time in work) + best[0]), best[1])

    def cuts(self) -> Iterator[_Cut]:
        """Yield cuts with smaller and smaller slowest stages, each of minimum total time for its limit.

        O(stages x layers^2) for each.
        """
        limit = math.inf
        while (found := self._below(limit)) is not None:
            yield found
            limit = found.slowest

    def _below(self, limit: float) -> _Cut | None:
        """Return the cuts of minimum total time in which every stage takes less than a limit."""
        count = len(self.layers)
        rows: list[dict[int, tuple[float, int]]] = [{count: (0.0, count)}]
        for device in reversed(range(self.stages)):
            row: dict[int, tuple[float, int]] = {}
            for (first, end), (time, _) in self.cost[device].items():
                if time < limit and end in rows[-1]:
                    total = time + rows[-1][end][0]
                    if first not in row or total < row[first][0]:
                        row[first] = total, end
            rows.append(row)
        if 0 not in rows[-1]:
            return None
        cuts = [0]
        for row in reversed(rows[1:]):
            cuts.append(row[cuts[-1]][1])
        entries = [self.cost[device][pair] for device, pair in enumerate(pairwise(cuts))]
        return _Cut(tuple(cuts), tuple(level for _, level in entries), max(time for time, _ in entries), rows[-1][0][0])


def solve(problem: Problem, options: AdaPipeOptions, context: Context) -> Proposal:
    """Assign consecutive layers to the devices in order, and choose the recomputation of each stage.

    Notes
    -----
    For every limit on the slowest stage, a dynamic program from the last stage on finds the cuts of minimum time for
    one micro-batch, in O(stages x layers^2). The cuts of minimum (m - 1) x slowest + total are then placed and
    compared, together with 1F1B of even cuts without recomputation.
    """
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    needs_flush(instance)
    if instance.has_skips or instance.cut or instance.parts:
        raise OptionError("adapipe needs a sequence of layers and whole micro-batches", argument="algorithm")
    best = BestOrders(problem, context)
    costs = StageCosts(instance, instance.each_layer(), instance.device_types, "any")
    devices = len(problem.machine.processors)
    with suppress(OptionError):
        plain = rules.one_forward_one_backward(devices, instance.micro_batches, split=instance.is_split)
        best.weigh(orders_of(instance, plain))
    for stages in range(min(devices, instance.length), 0, -1):
        _on(stages, problem, costs, best, options.judged, context)
        if best.orders is not None or context.stopped:
            break
    return Proposal(
        orders=best.answer,
        makespan=best.makespan,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def _on(stages: int, problem: Problem, costs: StageCosts, best: BestOrders, judged: int, context: Context) -> None:
    """Compare plans on a number of devices; if transient values do not fit, repeat with less memory."""
    unseen = [0] * len(problem.machine.processors)
    assert isinstance(problem.instance, PipelineInstance)
    batches = problem.instance.micro_batches
    for _ in range(ROUNDS):
        table = _Table(problem, costs, stages, unseen)
        every = sorted(table.cuts(), key=lambda cut: (batches - 1) * cut.slowest + cut.total)
        more = [0] * len(unseen)
        for cut in every[:judged]:
            if context.stopped:
                return
            excess = best.weigh(_orders(problem, cut))
            more = [max(pair) for pair in zip(more, excess, strict=True)]
        if not any(more):
            return
        unseen = [sum(pair) for pair in zip(unseen, more, strict=True)]


def _orders(problem: Problem, cut: _Cut) -> Orders:
    """Return 1F1B orders with recomputing stages."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    layers, stages = instance.each_layer(), []
    for device, (level, (first, end)) in enumerate(zip(cut.levels, pairwise(cut.cuts), strict=True)):
        segments = tuple(Segment(tuple(first + k for k in segment)) for segment in level.segments)
        stages.append(Stage(tuple(range(first, end)), device, recompute=segments))
    split = instance.is_split
    lists = rules.one_forward_one_backward(len(stages), instance.micro_batches, split=split).lists
    halves = [any(layers[layer].is_split for layer in stage.layers) for stage in stages]
    rest = ((),) * (len(problem.machine.processors) - len(stages))
    return Orders(tuple(stages), (*(tuple(without_halves(listed, halves)) for listed in lists), *rest))
