"""Time loops of equal steps on storage levels: what the hierarchical algorithms read from a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat.errors import OptionError
from remat.problem import ALL_SCHEDULES, LeastBudget, Problem, Proposal
from remat.units import Number
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve import first_split, problem_backward_time
from remat_algorithms.adjoint.slots import Slots, transfer_times
from remat_algorithms.emit import check_length


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
        chain, machine = problem.chain, problem.machine
        if chain.length and chain.forward_time.min() != chain.forward_time.max():
            raise OptionError(f"--algorithm: {name} needs steps of equal forward time")
        steps = chain.length if chain.saves else chain.length + 1
        forward: Number = chain.forward_time[0].item() if chain.length else 0
        backward = problem_backward_time(problem)
        count = len(machine.memories) - 1
        if max(count, 1) < least_levels:
            raise OptionError(f"--algorithm: {name} needs {least_levels} storage levels; the machine has {count}")
        if count == 0:
            slots = Slots.of(problem)
            only = Level(machine.memories[0].name, 0, slots.count, 0, 0)
            return TimeLoop(steps, forward, backward, (only,), None, slots.least)
        if machine.processors[0].memory != 0:
            raise OptionError(f"--algorithm: {name} needs the first processor in memory {machine.memories[0].name!r}")
        levels = tuple(_level(problem, name, memory, steps) for memory in range(1, count + 1))
        initial = getattr(problem.instance, "initial_state", "live")
        given = next((index for index, level in enumerate(levels) if level.name == initial), None)
        state = int(chain.activation_size.max())
        return TimeLoop(steps, forward, backward, levels, given, LeastBudget(state, None, True, 1))

    def cost(self, plan: Plan) -> Number:
        """Return the makespan of a plan: every operation occupies the processor."""
        total = self.forward * plan.advances + self.backward
        for level in self.levels:
            total += level.write * plan.writes.get(level.memory, 0) + level.read * plan.reads.get(level.memory, 0)
        return total

    def infeasible(self, scope: str, levels: Sequence[Level] | None = None) -> Proposal | None:
        """Return the answer where x0 does not fit where it lies, or `levels` (default: all) store nothing."""
        if self.given is not None and self.levels[self.given].slots < 1:
            memory = self.levels[self.given].memory
            least = LeastBudget(self.least.size, None, True, memory)
            return Proposal(infeasible_within=ALL_SCHEDULES, least=least)
        levels = levels or self.levels
        if self.steps > 1 and not any(level.slots for level in levels):
            least = LeastBudget(self.least.size, None, True, levels[0].memory)
            return Proposal(infeasible_within=scope, least=least)
        return None

    def discard_given(self, plan: Plan, but: int | None = None) -> bool:
        """Make a plan begin without the stored x0, unless it lies in the level with index `but`; say if it does."""
        if self.given is None:
            return False
        if self.given == but:
            return True
        plan.discard(0, self.levels[self.given].memory)
        return False


def _level(problem: Problem, name: str, memory: int, steps: int) -> Level:
    machine, sizes = problem.machine, problem.chain.activation_size
    level, working = machine.memories[memory].name, machine.memories[0].name
    state = int(sizes.max())
    if int(sizes.min()) != state:
        raise OptionError(f"--algorithm: {name} needs states of equal size; give all steps the largest state_size")
    for ends, names in (((0, memory), (working, level)), ((memory, 0), (level, working))):
        if ends not in machine.link_index:
            raise OptionError(f"--machine: {name} needs a link from {names[0]!r} to {names[1]!r}")
    times = transfer_times(problem, memory)
    if times is None:
        raise OptionError(
            f"--algorithm: {name} needs synchronous levels; transfers of {level!r} have a channel of their own"
        )
    capacity = machine.memories[memory].capacity
    slots = steps if capacity is None or state == 0 else min(steps, capacity // state)
    return Level(level, memory, slots, *times)


def finish(problem: Problem, plan: Plan, name: str) -> None:
    """Refuse a plan that would expand to too many steps."""
    check_length(plan.advances + len(plan), f"{name} on {problem.instance.name or 'this instance'}")


def reverse_block(
    plan: Plan,
    first: int,
    steps: int,
    levels: Sequence[int],
    *,
    stored: bool = False,
    given: bool = False,
    split: Callable[[int, int], int] = first_split,
) -> None:
    """Reverse a block of steps by Revolve (see `remat_algorithms.adjoint.revolve`).

    Parameters
    ----------
    plan : Plan
        Appended to.
    first, steps : int
        The block: steps first .. first+steps-1. Its first state is live, unless it is `stored`.
    levels : sequence of int
        Memory of each position of the stack of checkpoints, the first state's own included: one or more.
    stored : bool
        The first state lies in ``levels[0]`` and is not live: it is read from there.
    given : bool
        The first state is live, and lies in ``levels[0]`` too.
    split : callable
        From steps and slots to an optimal place of the second checkpoint.
    """
    if steps == 1 and given:
        plan.discard(first, levels[0])
    if steps > 1 and not stored and not given:
        plan.write(first, levels[0])
    # (first, steps, position of its checkpoint, to be read): what follows a range waits on the stack.
    stack = [(first, steps, 0, stored)]
    while stack:
        start, count, position, waits = stack.pop()
        level = levels[position]
        if waits:
            plan.read(start, level, last=count == 1)
        if count == 1:
            plan.back(start)
        elif position == len(levels) - 1:
            for step in range(start + count - 1, start, -1):
                plan.advance(start, step)
                plan.back(step)
                plan.read(start, level, last=step == start + 1)
            plan.back(start)
        else:
            ahead = split(count, len(levels) - position)
            plan.advance(start, start + ahead)
            stack.append((start, ahead, position, True))
            if count - ahead > 1:
                plan.write(start + ahead, levels[position + 1])
            stack.append((start + ahead, count - ahead, position + 1, False))
