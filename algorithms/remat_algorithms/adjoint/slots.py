"""Checkpoint slots: the number of states that a machine can store, and the cost of storing them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from remat.plugin import Entry, LeastBudget, Number, OptionError, Problem
from remat_algorithms.adjoint.revolve_operations import DISCARD
from remat_algorithms.adjoint.uniform_steps import Facts


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots for checkpoints in one memory.

    Attributes
    ----------
    count : int
        Number of largest states that fit; at most the number of steps.
    memory : int
        Index of the memory that the count comes from.
    level : int
        Index of the storage level that checkpoints are written to; 0 if everything is in one memory.
    least : LeastBudget
        Capacity of `memory` for one slot.
    """

    count: int
    memory: int
    level: int
    least: LeastBudget

    @staticmethod
    def of(problem: Problem) -> Slots:
        """Count the slots of the fastest storage level, or of the one memory without a working state and adjoint."""
        facts = Facts.of(problem)
        state, steps = facts.state, facts.steps
        if len(problem.machine.memories) > 1:
            capacity = problem.machine.memories[1].capacity
            require_links(problem, 1)
            count = _fitting(capacity, 0, state, steps)
            return Slots(count, 1, 1, LeastBudget(state, None, True, 1))
        fixed = facts.working
        count = _fitting(problem.budget, fixed, state, steps)
        return Slots(count, 0, 0, LeastBudget(fixed + state, None, True, 0))


def require_links(problem: Problem, level: int) -> None:
    """Require links in both directions between the working memory and a storage level.

    Raises
    ------
    remat.OptionError
        If one direction has no link.
    """
    for ends in ((0, level), (level, 0)):
        if ends not in problem.machine.link_index:
            names = [problem.machine.memories[m].name for m in ends]
            raise OptionError(f"checkpoints need a link from {names[0]} to {names[1]}", argument="machine")


def _fitting(capacity: int | None, fixed: int, state: int, most: int) -> int:
    if capacity is None:
        return most
    if capacity < fixed:
        return 0
    return most if state == 0 else min(most, (capacity - fixed) // state)


def initially_in(problem: Problem, memory: int) -> bool:
    """Whether x0 is in a storage level (by memory index) from the start, without cost."""
    initial = problem.instance.initial_level
    return memory > 0 and initial == problem.machine.memories[memory].name


def slot_notes(problem: Problem, level: int) -> tuple[str, ...]:
    """Report what counting slots in one level leaves unused: bytes next to smaller states, and x0 in another level."""
    sizes, machine = problem.chain.activation_size, problem.machine
    notes = []
    if len(sizes) and int(sizes.min()) != int(sizes.max()) and machine.memories[level].capacity is not None:
        notes.append(
            f"each checkpoint counts as the largest state ({int(sizes.max())}), although the least has "
            f"{int(sizes.min())}: adjoint-best counts bytes"
        )
    initial = problem.instance.initial_level
    if initial is not None and level > 0 and not initially_in(problem, level):
        notes.append(f"x0 in {initial!r} is not used: checkpoints go to {machine.memories[level].name!r} only")
    return tuple(notes)


class Discards(Protocol):
    """A plan that can remove a state from a level."""

    def discard(self, step: int, level: int) -> None:
        """Remove x_step from a level (by memory index)."""
        ...


def forgotten(problem: Problem, level: int) -> Iterator[Entry]:
    """Yield the removal of x0 from the level that holds it at the start, if that level is not used."""
    initial = problem.instance.initial_level
    if initial is not None and not initially_in(problem, level):
        yield (DISCARD, 0, problem.machine.memory_index[initial])


def forget_elsewhere(problem: Problem, plan: Discards, level: int) -> None:
    """Remove from a plan what `forgotten` names."""
    for _, state, memory in forgotten(problem, level):
        plan.discard(state, memory)


def transfer_times(problem: Problem, level: int) -> tuple[Number, Number] | None:
    """Return the times to write and to read one state; None if they depend on the state or overlap."""
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
        times.append(machine.links[link].time(facts.state))
    return times[0], times[1]
