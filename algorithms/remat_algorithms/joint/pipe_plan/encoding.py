"""Encoding of stages with their levels for the kernel, and decoding of its results as orders that recompute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from remat.plugin import IntArray, Orders, Pass, Phase, PipelineInstance, Problem, Segment, Stage
from remat_algorithms.joint.pipe_plan.local_search import Facts, State
from remat_algorithms.joint.pipe_plan.recompute_options import Level, StageCosts
from remat_algorithms.parallel.pipeline.kernel_arrays import shared_facts, shared_state, whole
from remat_algorithms.parallel.pipeline.model import Lists, PipelineModel
from remat_algorithms.parallel.pipeline.stages import model_of

UNLIMITED = 2**62


@dataclass(frozen=True)
class Outline:
    """Stages on devices, their recompute options, and the bytes that the model does not include.

    Attributes
    ----------
    name : str
    stages : tuple of Stage
    model : PipelineModel
        Of the stages without recomputation.
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
    def of(problem: Problem, costs: StageCosts, stages: tuple[Stage, ...], name: str) -> Outline:
        """Return the outline of stages of consecutive layers."""
        instance = problem.instance
        assert isinstance(instance, PipelineInstance)
        levels = tuple(costs.levels(stage.layers, stage.device) for stage in stages)
        model = model_of(problem, instance, stages)
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

    def facts(self) -> Facts:
        """Encode the outline for the kernel."""
        most = max(map(len, self.levels))

        def table(name: str, kind: type) -> Any:
            rows = [[getattr(levels[min(k, len(levels) - 1)], name) for k in range(most)] for levels in self.levels]
            return np.array(rows, dtype=kind)

        return Facts(
            **shared_facts(self.model, np.float64),
            levels=np.array([len(levels) for levels in self.levels], dtype=np.int64),
            again=table("again", np.float64),
            held=table("held", np.int64),
            forward=table("forward", np.int64),
            backward=table("backward", np.int64),
            ahead=table("ahead", np.int64),
            kept=np.array(self.model.kept, dtype=np.int64),
            room=np.array(self.room, dtype=np.int64),
        )

    def orders(self, lists: Lists, level: IntArray, advance: IntArray) -> Orders:
        """Return lists as orders of stages that recompute according to their levels."""
        batches = self.model.batches
        stages = []
        for stage, own in enumerate(self.stages):
            of_segment: dict[tuple[int, ...], list[int]] = {}
            for batch in range(batches):
                for segment in self.levels[stage][int(level[stage, batch])].segments:
                    of_segment.setdefault(tuple(own.layers[k] for k in segment), []).append(batch)
            segments = tuple(
                Segment(layers, None if len(which) == batches else tuple(which))
                for layers, which in sorted(of_segment.items())
            )
            stages.append(replace(own, recompute=segments))
        found = []
        for listed in lists:
            device: list[Pass] = []
            for phase, stage, batch in listed:
                if self.ahead and phase == Phase.B and advance[stage, batch] and level[stage, batch]:
                    device.append(Pass(Phase.R, stage, batch))
                device.append(Pass(Phase(phase), stage, batch))
            found.append(tuple(device))
        return Orders(tuple(stages), tuple(found))


def state_of(facts: Facts, seed: int) -> State:
    """Allocate the arrays of a local search."""
    batches, devices, stages = facts.batches, facts.devices, facts.stages
    return State(
        **shared_state(facts, seed),
        level=whole(stages, batches),
        advance=whole(stages, batches),
        current_level=whole(stages, batches),
        best_level=whole(stages, batches),
        best_advance=whole(stages, batches),
        use=whole(devices),
        spared=whole(devices),
        share=np.zeros((2, stages)),
    )
