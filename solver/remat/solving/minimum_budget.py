"""Minimum budgets: of one schedule, and the smallest one that several answers name."""

from __future__ import annotations

from remat.graph.bounds import largest_need
from remat.plugin.problem import Problem, budgeted_memories, device_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.schedule.steps import StepKind
from remat.solving.result import Result


def largest_peak(result: Result, memory: int) -> int | None:
    """Return the verified peak of a memory, or the largest of devices with one budget; None without a schedule."""
    peaks, machine = result.peak_memory, result.machine
    own = [memory] if result.instance is None else budgeted_memories(result.instance, machine, memory)
    return max((peaks[machine.memories[index].name] for index in own), default=None) if peaks else None


def at_peak(result: Result, memory: int) -> LeastBudget:
    """Return the budget with which a schedule fits, and the task at which the schedule reaches its peak first."""
    assert result.report is not None
    assert result.columns is not None
    peak = result.report.peaks[result.machine.memories[memory].name]
    steps = result.columns
    run = peak.step is not None and steps.kind[peak.step] == int(StepKind.RUN)
    task = int(steps.item[peak.step]) if run else None
    orders = result.orders if result.pattern is None else None
    return LeastBudget(peak.size, task, sufficient=True, memory=memory, orders=orders)


def setting_task(problem: Problem, least: LeastBudget) -> int | None:
    """Return the task that sets a minimum budget: one that needs all of it, otherwise the one that the algorithm names.

    A schedule of this budget may reach its peak at another task first.
    """
    bounds = [problem.least_of(least.memory)]
    if least.memory in device_memories(problem.instance, problem.machine) and not problem.in_parts:
        bounds.append(largest_need(problem.graph, problem.machine, problem.needed.forced, least.memory))
    return next((bound.task for bound in bounds if bound is not None and bound.size == least.size), least.task)


def smallest_named(named: list[LeastBudget | None]) -> LeastBudget | None:
    """Return the smallest budget reported as sufficient, else the largest known to be insufficient."""
    known = [least for least in named if least is not None]
    enough = [least for least in known if least.sufficient]
    if enough:
        return min(enough, key=lambda least: (least.size, least.task is None))
    whole = [least for least in known if least.scope == ALL_SCHEDULES]
    return max(whole, key=lambda least: least.size, default=None)
