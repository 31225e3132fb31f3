"""Time loops of equal steps on storage levels: the data of a problem for the hierarchical algorithms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remat.plugin import (
    ALL_SCHEDULES,
    Context,
    Entry,
    LeastBudget,
    Number,
    OptionError,
    Problem,
    Proposal,
    check_length,
)
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import DISCARD, Split, reversal
from remat_algorithms.adjoint.slots import Slots, transfer_times
from remat_algorithms.adjoint.uniform_steps import Facts


@dataclass(frozen=True, slots=True)
class Level:
    """A storage level.

    Attributes
    ----------
    name : str
    memory : int
        Index of its memory in the machine; 0 where everything lives in one memory.
    slots : int
        States that fit, at most the number of steps.
    write, read : int or float
        Times to store and to bring back one state.
    """

    name: str
    memory: int
    slots: int
    write: Number
    read: Number


@dataclass(frozen=True, slots=True)
class TimeLoop:
    """Equal steps and synchronous levels.

    Attributes
    ----------
    steps : int
    forward : int or float
        Time of one advance.
    backward : int or float
        Time of all backwards (and tapes) together, which every schedule pays once.
    levels : tuple of Level
        In the machine's order.
    given : int or None
        Index of the level in which x0 lies from the start.
    least : LeastBudget
        Capacity of the first level for one state.
    """

    steps: int
    forward: Number
    backward: Number
    levels: tuple[Level, ...]
    given: int | None
    least: LeastBudget

    @staticmethod
    def of(problem: Problem, name: str, *, least_levels: int = 1) -> TimeLoop:
        """Read a problem.

        Raises
        ------
        remat.OptionError
            If the algorithm `name` cannot deal with it: unequal steps or states, levels that are too few, out of
            reach or asynchronous.
        """
        facts, machine = Facts.of(problem), problem.machine
        if facts.forward is None:
            raise OptionError(f"{name} needs steps of equal forward time; use adjoint-best", argument="algorithm")
        steps, forward, backward = facts.steps, facts.forward, facts.backward
        count = len(machine.memories) - 1
        if max(count, 1) < least_levels:
            raise OptionError(
                f"{name} needs {least_levels} storage levels; the machine has {count}", argument="algorithm"
            )
        if count == 0:
            slots = Slots.of(problem)
            only = Level(machine.memories[0].name, 0, slots.count, 0, 0)
            return TimeLoop(steps, forward, backward, (only,), None, slots.least)
        levels = tuple(_level(problem, name, memory, facts) for memory in range(1, count + 1))
        initial = problem.instance.initial_level
        given = next((index for index, level in enumerate(levels) if level.name == initial), None)
        return TimeLoop(steps, forward, backward, levels, given, LeastBudget(facts.state, None, True, 1))

    def cost(self, plan: Plan) -> Number:
        """Return the makespan of a plan: every operation occupies the processor."""
        total = self.forward * plan.advances + self.backward
        for level in self.levels:
            total += level.write * plan.writes.get(level.memory, 0) + level.read * plan.reads.get(level.memory, 0)
        return total

    def infeasible(self, scope: str, levels: Sequence[Level] | None = None) -> Proposal | None:
        """Return the answer if x0 does not fit in its level, or `levels` (default: all) can store nothing."""
        if self.given is not None and self.levels[self.given].slots < 1:
            memory = self.levels[self.given].memory
            least = LeastBudget(self.least.size, None, True, memory)
            return Proposal(infeasible_within=ALL_SCHEDULES, least=least)
        levels = levels or self.levels
        if self.steps > 1 and not any(level.slots for level in levels):
            least = LeastBudget(self.least.size, None, True, levels[0].memory)
            return Proposal(infeasible_within=scope, least=least)
        return None

    def without_given(self, but: int | None = None) -> Iterator[Entry]:
        """Yield the operations that discard the stored x0, unless it is in the level with index `but`."""
        if self.given is not None and self.given != but:
            yield (DISCARD, 0, self.levels[self.given].memory)

    def discard_given(self, plan: Plan, but: int | None = None) -> bool:
        """Make a plan begin without the stored x0, unless it is in the level with index `but`; return whether it is."""
        plan.extend(self.without_given(but))
        return self.given is not None and self.given == but


def _level(problem: Problem, name: str, memory: int, facts: Facts) -> Level:
    machine, state, steps = problem.machine, facts.state, facts.steps
    level, working = machine.memories[memory].name, machine.memories[0].name
    if facts.least_state != state:
        raise OptionError(
            f"{name} needs states of equal size; give all steps the largest state_size", argument="algorithm"
        )
    for ends, names in (((0, memory), (working, level)), ((memory, 0), (level, working))):
        if ends not in machine.link_index:
            raise OptionError(f"{name} needs a link from {names[0]!r} to {names[1]!r}", argument="machine")
    times = transfer_times(problem, memory)
    if times is None:
        raise OptionError(
            f"{name} needs synchronous levels; transfers of {level!r} have a separate channel", argument="algorithm"
        )
    capacity = machine.memories[memory].capacity
    slots = steps if capacity is None or state == 0 else min(steps, capacity // state)
    return Level(level, memory, slots, *times)


def finish(problem: Problem, plan: Plan, name: str, context: Context) -> None:
    """Refuse a plan that would expand to too many steps."""
    check_length(plan.advances + len(plan), f"{name} on {problem.instance.name or 'this instance'}", context.limit)


def reverse_block(
    plan: Plan,
    first: int,
    steps: int,
    levels: Sequence[int],
    *,
    stored: bool = False,
    given: bool = False,
    split: Split | None = None,
) -> None:
    """Append the reversal of a block of steps to a plan (see `remat_algorithms.adjoint.revolve_operations`)."""
    plan.extend(reversal(first, steps, levels, stored=stored, given=given, split=split))
