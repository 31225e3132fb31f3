"""The schedules that have a name: layers cut evenly by time, and operations in the order of a rule.

One function a schedule; which rule it is, and what it promises, says `rules`.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from remat.errors import OptionError
from remat.instance import PipelineInstance
from remat.plugin import Options, Problem, Proposal
from remat.schedule.orders import Orders, Stage
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.cuts import balanced_cuts


class ChunkOptions(Options):
    """Options of the interleaved schedule."""

    chunks: int = Field(default=2, ge=1, le=64, description="Parts of the model that each device holds.")


def orders_of(instance: PipelineInstance, lists: rules.Lists) -> Orders:
    """Give each part of a rule its layers: the cut is even in time."""
    parts = max(lists.part) + 1
    homes = [
        sorted({device for device, part in zip(lists.place, lists.part, strict=True) if part == wanted})
        for wanted in range(parts)
    ]
    copies = max(len(devices) for devices in homes)
    if copies > instance.copies:
        raise OptionError(
            f"this schedule keeps each layer on {copies} devices, and the instance allows {instance.copies}; "
            f'give it "copies": {copies}',
            argument="algorithm",
        )
    cuts = balanced_cuts(instance, homes)
    stages = tuple(
        Stage(tuple(range(cuts[part], cuts[part + 1])), device)
        for device, part in zip(lists.place, lists.part, strict=True)
    )
    return Orders(stages, lists.lists)


def _proposal(problem: Problem, rule: Callable[[PipelineInstance, int], rules.Lists]) -> Proposal:
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    return Proposal(orders=orders_of(instance, rule(instance, len(problem.machine.processors))))
