"""Encoding of stages with their levels for the kernel, and decoding of its results as orders that recompute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import IntArray, Orders, Pass, Phase, PipelineInstance, Problem, Segment, Stage
from remat_algorithms.joint.pipe_plan.recompute_options import Level, StageCosts
from remat_algorithms.parallel.pipeline.local_search.arrays import LARGEST, Rules, facts_of
from remat_algorithms.parallel.pipeline.local_search.records import Facts
from remat_algorithms.parallel.pipeline.model import Lists, PipelineModel
from remat_algorithms.parallel.pipeline.stages import model_of

UNLIMITED = LARGEST

RULES = Rules(recompute_weight=0.02, one=0.3, some=0.5, onwards=0.55, so_far=0.6, several=0.15, gaps=0.6, stretch=0.3)
"""Shares of the moves of the local search, and the weight of recomputation relative to the makespan."""


@dataclass(frozen=True)
class Outline:
    """Stages on devices, their recompute options, and the bytes that the model does not include.

    Attributes
    ----------
    name : str
    stages : tuple of Stage
    model : PipelineModel
        The model of the stages without recomputation.
    levels : tuple of tuple of Level
        By stage.
    unseen : tuple of int
        Bytes to leave free on each device for transient values.
    ahead : bool
        Whether recomputation may run ahead of its backward; not with transfers that block devices.
    """

    name: str
    stages: tuple[Stage, ...]
    model: PipelineModel
    levels: tuple[tuple[Level, ...], ...]
    unseen: tuple[int, ...]
    ahead: bool = True

    @staticmethod
    def of(
        problem: Problem,
        costs: StageCosts,
        stages: tuple[Stage, ...],
        name: str,
        chains: tuple[tuple[int, int], ...] = (),
    ) -> Outline:
        """Return the outline of stages of consecutive layers; `chains` as in `PipelineModel`."""
        instance = problem.instance
        assert isinstance(instance, PipelineInstance)
        levels = tuple(costs.levels(stage.layers, stage.device) for stage in stages)
        model = model_of(problem, instance, stages, chains)
        ahead = instance.cluster.transfers == "overlap"
        return Outline(name, stages, model, levels, (0,) * model.devices, ahead)

    def tightened(self, excess: Sequence[int]) -> Outline:
        """Return the outline with additional bytes left free."""
        return replace(self, unseen=tuple(old + more for old, more in zip(self.unseen, excess, strict=True)))

    @property
    def room(self) -> list[int]:
        """Bytes of each device for the values that its stages hold."""
        return [
            UNLIMITED if free is None else free - unseen
            for free, unseen in zip(self.model.free, self.unseen, strict=True)
        ]

    @property
    def feasible(self) -> bool:
        """Whether one micro-batch at a time fits, according to the model."""
        for room, own in zip(self.room, self.model.on, strict=True):
            least = [min(levels, key=lambda one: one.held) for levels in (self.levels[stage] for stage in own)]
            needs = max((max(one.backward, one.forward - one.held) for one in least), default=0)
            if sum(one.held for one in least) + needs > room:
                return False
        return True

    def splits_like(self, orders: Orders) -> bool:
        """Whether orders of the same stages run the same micro-batches in each."""
        first, count = self.model.first_batch, self.model.count
        return all(0 <= one.batch - first[one.stage] < count[one.stage] for listed in orders.lists for one in listed)

    def lists(self, orders: Orders) -> Lists:
        """Return orders as lists of the model, which do not say what is recomputed ahead."""
        first = self.model.first_batch
        return tuple(
            tuple((int(one.phase), one.stage, one.batch - first[one.stage]) for one in listed if one.phase != Phase.R)
            for listed in orders.lists
        )

    def levels_of(self, orders: Orders) -> IntArray | None:
        """Return the levels of orders of the same stages, (stages, batches); None if some recomputation is no level."""
        found = np.zeros((self.model.stages, self.model.batches), dtype=np.int64)
        first, count = self.model.first_batch, self.model.count
        for stage, (own, levels) in enumerate(zip(self.stages, self.levels, strict=True)):
            number = {
                tuple(tuple(own.layers[k] for k in segment) for segment in sorted(level.segments)): index
                for index, level in enumerate(levels)
            }
            for batch in range(count[stage]):
                index = number.get(orders.again(Pass(Phase.R, stage, first[stage] + batch)))
                if index is None:
                    return None
                found[stage, batch] = index
        return found

    def facts(self) -> Facts:
        """Encode the outline for the kernel."""
        return facts_of(
            self.model, [[[level] for level in levels] for levels in self.levels], free=self.room, rules=RULES
        )

    def orders(self, lists: Lists, level: IntArray, advance: IntArray) -> Orders:
        """Return lists as orders of stages that recompute according to their levels."""
        first, count = self.model.first_batch, self.model.count
        stages = []
        for stage, own in enumerate(self.stages):
            of_segment: dict[tuple[int, ...], list[int]] = {}
            for batch in range(count[stage]):
                for segment in self.levels[stage][int(level[stage, batch])].segments:
                    of_segment.setdefault(tuple(own.layers[k] for k in segment), []).append(first[stage] + batch)
            segments = tuple(
                Segment(layers, None if len(which) == count[stage] else tuple(which))
                for layers, which in sorted(of_segment.items())
            )
            stages.append(replace(own, recompute=segments))
        found = []
        for listed in lists:
            device: list[Pass] = []
            for phase, stage, batch in listed:
                if self.ahead and phase == Phase.B and advance[stage, batch] and level[stage, batch]:
                    device.append(Pass(Phase.R, stage, first[stage] + batch))
                device.append(Pass(Phase(phase), stage, first[stage] + batch))
            found.append(tuple(device))
        return Orders(tuple(stages), tuple(found))
