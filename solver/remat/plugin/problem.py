"""What an algorithm gets and what it hands back."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.graph.bounds import MemoryBound, NeededTasks, memory_bounds, needed_tasks, no_recompute_time
from remat.graph.machine import Machine
from remat.schedule.steps import Steps
from remat.units import Number, Units

if TYPE_CHECKING:
    from remat.graph.chain import Chain
    from remat.graph.taskgraph import TaskGraph
    from remat.instance import Instance


class Status(enum.StrEnum):
    """How a solve ended.

    `OPTIMAL`: proved over all schedules. `FEASIBLE`: a verified schedule. `INFEASIBLE`: proved, by a bound or
    because a whole class was searched (then the scope says which). `UNKNOWN`: a limit, or nothing found.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Termination(enum.StrEnum):
    """Why a solver stopped.

    `COMPLETED`: it came to its end, or there is nothing left to prove. `SIZE_LIMIT`: the problem is too large for it,
    and what it would search was not begun.
    """

    COMPLETED = "completed"
    TIME_LIMIT = "time limit"
    ITERATION_LIMIT = "iteration limit"
    SIZE_LIMIT = "size limit"
    INTERRUPTED = "interrupted"


ALL_SCHEDULES = "all schedules"


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on the makespan.

    Attributes
    ----------
    value : int or float
    scope : str
        The schedules for which it holds; `ALL_SCHEDULES`, or a class such as "memory-persistent schedules".
    source : str
        The algorithm or rule that proved it.
    """

    value: Number
    scope: str
    source: str


@dataclass(frozen=True, slots=True)
class LeastBudget:
    """The least budget that an infeasible answer names.

    Attributes
    ----------
    size : int
        Capacity of the memory `memory` (by index), in bytes or units.
    task : int or None
        The task that sets it; None if no task does, or if that is not known.
    sufficient : bool
        Whether solving again at this budget succeeds; otherwise it is only a lower bound.
    scope : str or None
        The class of schedules of which none does with less; None where that is not proved. The core fills it in.
    """

    size: int
    task: int | None
    sufficient: bool
    memory: int = 0
    # Not compared: it says for whom the budget is the least, and is not part of the budget.
    scope: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What an algorithm hands back; the figures are claims, which the verifier checks.

    Attributes
    ----------
    steps : Steps or None
        Ordered steps, usually without start times; None if no schedule was found.
    makespan : int, float or None
        The claimed makespan. An algorithm that only promises an upper bound claims nothing.
    peak : int or None
        The claimed peak of the first processor's memory.
    bounds : tuple of Bound
        Lower bounds on the makespan.
    optimal_within : str or None
        The class of schedules over which the makespan is proved optimal.
    infeasible_within : str or None
        The class that was searched wholly without finding a schedule; `ALL_SCHEDULES` for a full proof.
    least : LeastBudget or None
        For infeasible answers.
    termination : Termination
    notes : tuple of str
        What a user should know (rounding, assumptions).
    """

    steps: Steps | None = None
    makespan: Number | None = None
    peak: int | None = None
    bounds: tuple[Bound, ...] = ()
    optimal_within: str | None = None
    infeasible_within: str | None = None
    least: LeastBudget | None = None
    termination: Termination = Termination.COMPLETED
    notes: tuple[str, ...] = ()


FOR_PARAMETERS = "; use weight-offload, zero-offload or l2l, or one for task graphs, such as dag-auto"


@dataclass(frozen=True)
class Problem:
    """An instance on a machine; everything derived is computed once, when first asked for.

    Attributes
    ----------
    instance : Instance
    machine : Machine
        With the budgets applied.
    """

    instance: Instance
    machine: Machine

    def on(self, machine: Machine) -> Problem:
        """Return the problem on another machine; what depends on the instance alone is shared."""
        other = Problem(self.instance, machine)
        for name in ("graph", "chain", "needed", "no_recompute_time"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    @property
    def kind(self) -> str:
        """The instance's kind."""
        return self.instance.kind

    @property
    def units(self) -> Units:
        """What bare numbers mean."""
        return self.instance.units.build()

    @cached_property
    def graph(self) -> TaskGraph:
        """The task graph that the instance lowers to."""
        from remat.instance.lowering import lower

        return lower(self.instance)

    @cached_property
    def chain(self) -> Chain:
        """The instance as a chain (kinds `chain` and `adjoint` only); OptionError where it has parameters."""
        from remat.graph.chain import Chain
        from remat.instance import AdjointInstance, ChainInstance

        if isinstance(self.instance, ChainInstance):
            if self.instance.has_parameters:
                raise OptionError(f"--algorithm: this one knows no parameters{FOR_PARAMETERS}")
            return Chain.from_chain(self.instance)
        if isinstance(self.instance, AdjointInstance):
            return Chain.from_adjoint(self.instance)
        raise TypeError(f"a {self.kind} instance is not a chain")

    @property
    def budget(self) -> int | None:
        """Capacity of the first processor's memory; None is unbounded."""
        return self.machine.memories[self.machine.processors[0].memory].capacity

    @cached_property
    def needed(self) -> NeededTasks:
        """The tasks that every schedule must run."""
        return needed_tasks(self.graph)

    @cached_property
    def no_recompute_time(self) -> Number:
        """Time of each needed task, once."""
        return no_recompute_time(self.graph, self.needed)

    @property
    def exceeded(self) -> LeastBudget | None:
        """The bound of the first memory that is too small for every schedule; None if there is none."""
        for index, (memory, bound) in enumerate(zip(self.machine.memories, self.memory_bounds, strict=True)):
            if bound is not None and memory.capacity is not None and bound.size > memory.capacity:
                return LeastBudget(bound.size, bound.task, False, index, ALL_SCHEDULES)
        return None

    @cached_property
    def memory_bounds(self) -> list[MemoryBound | None]:
        """Least bytes for each memory of the machine."""
        return memory_bounds(self.graph, self.machine, self.needed)
