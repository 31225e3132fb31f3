"""Checkpointing policies of chains: segments of stages that run forward once more, together, before their backwards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from remat.errors import OptionError
from remat.instance import ChainInstance, Instance
from remat.instance.kinds import is_chain
from remat.schedule.document import Copy, Drop, Run, StepView
from remat.solving.external_schedule import schedule_of
from remat.solving.result import Result
from remat.solving.verifying import Examined
from remat.units import format_size, format_time


@dataclass(frozen=True)
class Policy:
    """Segments of stages (from 0, in order), each recomputed as a whole; all other stages keep what they save."""

    segments: tuple[tuple[int, ...], ...] = ()

    @property
    def stages(self) -> tuple[int, ...]:
        """All recomputed stages."""
        return tuple(stage for segment in self.segments for stage in segment)

    @staticmethod
    def each(stages: Iterable[int]) -> Policy:
        """Return the policy that checkpoints stages one by one."""
        return Policy(tuple((stage,) for stage in stages))

    def runs(self, length: int) -> list[str]:
        """Return the tasks of a chain of so many stages, in order."""
        again = set(self.stages)
        last = {segment[-1]: segment for segment in self.segments}
        found = [f"{'F' if stage in again else 'Fe'}{stage + 1}" for stage in range(length)] + ["loss"]
        for stage in reversed(range(length)):
            found += [f"Fe{other + 1}" for other in last.get(stage, ())]
            found.append(f"B{stage + 1}")
        return found


@dataclass(frozen=True)
class Verified:
    """A policy, and the verified schedule that it leads to."""

    policy: Policy
    result: Result

    @property
    def peak(self) -> int:
        """Peak of the working memory."""
        return next(iter(self.result.peak_memory.values()))


@dataclass(frozen=True)
class ChainPlan:
    """The properties of a verified schedule of a chain that matter for policies.

    Attributes
    ----------
    instance : ChainInstance
        In one unbounded memory.
    peak, makespan
        Figures of the schedule, in the working memory.
    closest : Policy
        Keeps the values that are resident at the loss, and recomputes each range between them at once.
    losses : tuple of str
        Properties of the schedule that no policy has.
    """

    instance: ChainInstance
    peak: int
    makespan: int | float
    closest: Policy
    losses: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The stages' names, if each has another one."""
        names = tuple(stage.name for stage in self.instance.stages for _ in range(stage.repeat))
        return names if all(names) and len(set(names)) == len(names) else None

    def verified(self, policy: Policy) -> Verified:
        """Turn a policy into a schedule, and verify it."""
        return Verified(policy, schedule_of(self.instance, policy.runs(self.instance.length)))

    def best(self, policies: Iterable[Policy]) -> Verified:
        """Return the fastest policy within the schedule's peak, else that with the lowest peak."""
        found = [self.verified(policy) for policy in policies]
        return min(found, key=lambda one: (max(0, one.peak - self.peak), one.result.makespan or 0, one.peak))

    def compared(self, found: Verified) -> str:
        """Return the peak and time of a policy, and those of the schedule."""
        units = self.instance.units.build()
        peaks = [format_size(size, units) for size in (found.peak, self.peak)]
        times = [format_time(time, units) for time in (found.result.makespan or 0, self.makespan)]
        return f"verified peak {peaks[0]}, time {times[0]}; the plan: {peaks[1]}, {times[1]}"


def is_plain_chain(instance: Instance) -> TypeGuard[ChainInstance]:
    """Whether policies of stages apply: a chain without parameters and without variants of stages."""
    return is_chain(instance) and not instance.has_parameters and not instance.listed_variants


def chain_plan(examined: Examined) -> ChainPlan:
    """Read a verified schedule of a chain.

    Raises
    ------
    OptionError
        For chains with parameters or with variants of stages.
    """
    instance = examined.instance
    if not is_plain_chain(instance):
        raise OptionError("policies are for chains without parameters and variants of stages", argument="as")
    length = instance.length
    forwards, late = Counter[int](), set[str]()
    resident, copies, lost = {"x0"}, 0, False
    at_loss: set[str] = set()
    for step in StepView(examined.steps, examined.graph, examined.machine):
        match step:
            case Run(task="loss"):
                at_loss, lost = set(resident), True
                resident.difference_update(step.drop)
            case Run():
                kind, number = _split(step.task)
                forwards[number] += kind != "B"
                late.update([step.task] if lost else [])
                resident.update({f"{name}{number}" for name in _MADE[kind]})
                resident.difference_update(step.drop)
            case Copy():
                copies += 1
            case Drop(memory=name) if name == examined.machine.memories[0].name:
                resident.difference_update(step.values)
    kept = {stage for stage in range(length) if f"Fe{stage + 1}" not in late}
    policy = Policy(tuple(_segments(kept, at_loss, length)))
    most = max(forwards.values())
    losses = []
    if most > 2:
        losses.append(f"stages run forward up to {most} times in the plan; a checkpoint runs them once more")
    if copies:
        losses.append(f"{copies} copies between memories are left out: what they move stays")
    machine = instance.model_copy(update={"machine": None})
    peak = examined.report.peak_memory[examined.machine.memories[0].name]
    return ChainPlan(machine, peak, examined.report.makespan, policy, tuple(losses))


_MADE = {"F": ("x",), "Fe": ("x", "s"), "B": ()}


def _split(task: str) -> tuple[str, int]:
    found = re.fullmatch(r"(Fe|F|B)(\d+)", task)
    assert found is not None
    return found[1], int(found[2])


def _segments(kept: set[int], at_loss: set[str], length: int) -> Iterator[tuple[int, ...]]:
    """Yield runs of stages that are not kept, each from an activation that is resident at the loss."""
    segment: list[int] = []
    for stage in range(length):
        if segment and (stage in kept or f"x{stage}" in at_loss):
            yield tuple(segment)
            segment = []
        if stage not in kept:
            segment.append(stage)
    if segment:
        yield tuple(segment)
