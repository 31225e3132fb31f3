"""Checkpoint slots: how many states a machine can store, and what storing them costs."""

from __future__ import annotations

from dataclasses import dataclass

from remat.errors import OptionError
from remat.problem import LeastBudget, Problem
from remat.units import Number
from remat_algorithms.adjoint.facts import Facts


@dataclass(frozen=True, slots=True)
class Slots:
    """Room for checkpoints in one memory.

    Attributes
    ----------
    count : int
        Number of largest states that fit; at most the number of steps.
    memory : int
        Index of the memory that the count comes from.
    level : int
        Index of the storage level that checkpoints are written to; 0 where all lives in one memory.
    least : LeastBudget
        Capacity of `memory` for one slot.
    """

    count: int
    memory: int
    level: int
    least: LeastBudget

    @staticmethod
    def of(problem: Problem) -> Slots:
        """Count the slots of the first storage level, or of the one memory beside a working state and adjoint."""
        facts = Facts.of(problem)
        state, steps = facts.state, facts.steps
        if len(problem.machine.memories) > 1:
            capacity = problem.machine.memories[1].capacity
            for ends in ((0, 1), (1, 0)):
                if ends not in problem.machine.link_index:
                    names = [problem.machine.memories[m].name for m in ends]
                    raise OptionError(f"--machine: checkpoints need a link from {names[0]} to {names[1]}")
            count = _fitting(capacity, 0, state, steps)
            return Slots(count, 1, 1, LeastBudget(state, None, True, 1))
        fixed = facts.working
        count = _fitting(problem.budget, fixed, state, steps)
        return Slots(count, 0, 0, LeastBudget(fixed + state, None, True, 0))


def _fitting(capacity: int | None, fixed: int, state: int, most: int) -> int:
    if capacity is None:
        return most
    if capacity < fixed:
        return 0
    return most if state == 0 else min(most, (capacity - fixed) // state)


def initially_in(problem: Problem, memory: int) -> bool:
    """Whether x0 lies in a storage level (by memory index) from the start, unpaid."""
    initial = getattr(problem.instance, "initial_state", "live")
    return memory > 0 and bool(initial == problem.machine.memories[memory].name)


def transfer_times(problem: Problem, level: int) -> tuple[Number, Number] | None:
    """Return the times to write and to read one state; None where they depend on the state or overlap."""
    if level == 0:
        return 0, 0
    machine, facts = problem.machine, Facts.of(problem)
    if facts.least_state != facts.state:
        return None
    times: list[Number] = []
    for ends in ((0, level), (level, 0)):
        link = machine.link_index[ends]
        if machine.resource_of_link[link] != 0:
            return None
        spec, size = machine.links[link], facts.state
        if spec.bandwidth is None:
            times.append(spec.latency)
        elif isinstance(spec.bandwidth, int) and size % spec.bandwidth == 0:
            times.append(spec.latency + size // spec.bandwidth)
        else:
            times.append(spec.latency + size / spec.bandwidth)
    return times[0], times[1]
