"""Minimum budget of a strategy: the smallest with which its only schedule can be placed."""

from __future__ import annotations

from collections.abc import Callable

from remat.graph.machine import Machine
from remat.placement import Unplaceable, least_capacity
from remat.plugin.problem import Problem
from remat.plugin.proposal import LeastBudget
from remat.schedule.steps import StepKind, Steps
from remat.verifier import check


def least_of_strategy(
    problem: Problem, steps: Steps, overrun: Unplaceable, placed_on: Callable[[Machine], Steps | Unplaceable]
) -> LeastBudget | None:
    """Return the minimum budget of the memory that is too small; None if no budget is enough.

    The schedule may use more with unlimited memory; in scarce memory its steps wait for free memory.

    Parameters
    ----------
    problem : Problem
    steps : Steps
        In order; steps with start times keep these, which determines their memory.
    overrun : Unplaceable
        The reason why they do not fit.
    placed_on : callable
        Places the steps on a machine.
    """
    name = problem.machine.memories[overrun.memory].name
    size = None
    if steps.start is None:
        size = least_capacity(problem.graph, problem.machine, steps, overrun)
        if size is None:
            return None
    machine = problem.machine.with_capacities({name: size})
    placed = placed_on(machine)
    if isinstance(placed, Unplaceable):
        return None
    report = check(problem.graph, machine, placed, reference_time=problem.no_recompute_time)
    peak = report.peaks[name]
    size = max(peak.size, overrun.needed) if size is None else size
    task = None
    if peak.step is not None and peak.size == size and steps.kind[peak.step] == StepKind.RUN:
        task = int(steps.item[peak.step])
    return LeastBudget(size, task, True, overrun.memory)
