"""Minimum budgets: of one schedule, and the smallest one that several answers name."""

from __future__ import annotations

from remat.graph.machine import Machine
from remat.instance import Instance
from remat.plugin.problem import device_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.schedule.steps import StepKind
from remat.solving.result import Result


def budgeted_memories(instance: Instance, machine: Machine, memory: int) -> list[int]:
    """Return the memories, by index, that a minimum budget named for one memory is for."""
    devices = device_memories(instance, machine)
    return sorted(devices) if memory in devices else [memory]


def largest_peak(result: Result, memory: int) -> int | None:
    """Return the verified peak of a memory, of devices with one budget the largest; None without a schedule."""
    peaks, machine = result.peak_memory, result.machine
    own = [memory] if result.instance is None else budgeted_memories(result.instance, machine, memory)
    return max((peaks[machine.memories[index].name] for index in own), default=None) if peaks else None


def at_peak(result: Result, memory: int) -> LeastBudget:
    """Return the budget with which a schedule fits, and the task that sets it."""
    assert result.report is not None
    assert result.columns is not None
    peak = result.report.peaks[result.machine.memories[memory].name]
    steps = result.columns
    run = peak.step is not None and steps.kind[peak.step] == int(StepKind.RUN)
    return LeastBudget(peak.size, int(steps.item[peak.step]) if run else None, sufficient=True, memory=memory)


def smallest_named(named: list[LeastBudget | None]) -> LeastBudget | None:
    """Return the smallest budget reported as sufficient, else the largest known to be insufficient."""
    known = [least for least in named if least is not None]
    enough = [least for least in known if least.sufficient]
    if enough:
        return min(enough, key=lambda least: (least.size, least.task is None))
    whole = [least for least in known if least.scope == ALL_SCHEDULES]
    return max(whole, key=lambda least: least.size, default=None)
