"""The output of an algorithm: steps, and claims that the verifier checks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.units import Number

if TYPE_CHECKING:
    from remat.schedule.orders import Orders
    from remat.schedule.patterns import PeriodicSchedule
    from remat.schedule.steps import Steps


class Status(enum.StrEnum):
    """The status of a solve.

    `OPTIMAL`: proved over all schedules of the instance on its machine. `FEASIBLE`: a verified schedule. `INFEASIBLE`:
    proved over all schedules. `UNKNOWN`: no schedule found; at most a class of schedules, named by the scope, is proved
    to be empty.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Termination(enum.StrEnum):
    """The reason why a solver stopped.

    `COMPLETED`: it finished, or nothing is left to prove. `TIME_LIMIT`: the time limit was reached. `ITERATION_LIMIT`:
    the algorithm's own limit on its work was reached. `SIZE_LIMIT`: the problem is too large for the algorithm, which
    did not begin its search. `GAP`: the schedule is within the requested gap to the bound over all schedules.
    `PATIENCE`: no improvement for the requested time. `INTERRUPTED`: the caller stopped it.
    """

    COMPLETED = "completed"
    TIME_LIMIT = "time limit"
    ITERATION_LIMIT = "iteration limit"
    SIZE_LIMIT = "size limit"
    GAP = "gap reached"
    PATIENCE = "patience over"
    INTERRUPTED = "interrupted"


ALL_SCHEDULES = "all schedules"

LAYERS_WHOLE = "schedules that run each layer on one device"
"""Scope for a pipeline whose layers have no parameters: each layer runs on one device for all micro-batches."""

PARAMETERS_STAY = "schedules that run each layer where its parameters lie from the start"
"""The same scope for a pipeline whose layers have parameters, which could move."""


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
    """The minimum budget that an answer without a schedule names.

    Attributes
    ----------
    size : int
        Capacity of the memory, in bytes or units.
    task : int or None
        Index (in `Result.graph.tasks`) of the task that sets it: one that takes all of it, if one does, else the one at
        which a schedule reaches its peak. None if no task does or if it is unknown.
    sufficient : bool
        Whether solving again at this budget succeeds; otherwise it is only a lower bound.
    memory : int
        Index of the memory (in `Result.machine.memories`).
    scope : str or None
        The class of schedules that all need at least this budget; None if that is not proved. The core fills it in.
    values : tuple of int or None
        Indices of the values that are resident when that task runs, in the schedule of this budget; None if they are
        unknown. The core fills it in.
    orders : Orders or None
        For a pipeline, orders whose largest peak is this budget, if the algorithm has them. Explanations use them.
    """

    size: int
    task: int | None
    sufficient: bool
    memory: int = 0
    # Not compared: the scope qualifies the budget, and is not part of it.
    scope: str | None = field(default=None, compare=False)
    values: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    orders: Orders | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Untried:
    """What a portfolio would also run within a time limit that the user sets.

    Attributes
    ----------
    longer : tuple of str
        Algorithms that would search longer.
    others : tuple of str
        Algorithms that have not run.
    """

    longer: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Author:
    """The algorithm that found a schedule, with its options, if it is not the one that the user chose.

    Attributes
    ----------
    algorithm : str
    options : mapping
    """

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The output of an algorithm; the figures are claims, which the verifier checks.

    Attributes
    ----------
    steps : Steps or None
        Ordered steps, usually without start times; None if no schedule was found.
    orders : Orders or None
        For a pipeline, instead of steps: one order per device, from which the steps follow.
    pattern : Pattern, ModuloSchedule or None
        For a stream, instead of steps: the operations for each of its micro-batches or samples, which follow each other
        without end.
    period : int, float or None
        For a chain whose training steps follow each other without end: the time from the begin of a training step to
        the begin of the next, equal one. The steps have start times.
    makespan : int, float or None
        The claimed makespan; None for an algorithm that promises only an upper bound.
    peak : int or None
        The claimed peak of the first processor's memory.
    bounds : tuple of Bound
        Lower bounds on the makespan.
    optimal_within : str or None
        The class of schedules over which the makespan is proved optimal.
    infeasible_within : str or None
        The class that was searched completely without finding a schedule; only `ALL_SCHEDULES` makes the instance
        infeasible.
    least : LeastBudget or None
        For answers without steps.
    termination : Termination
    notes : tuple of str
        Notes for the user (rounding, assumptions).
    author : Author or None
        The algorithm that found the schedule, if not the chosen one.
    log : tuple of str
        Problems on the way, one line each: an algorithm that failed, a claim that another schedule refuted.
    untried : Untried
        For a portfolio.
    """

    steps: Steps | None = None
    orders: Orders | None = None
    pattern: PeriodicSchedule | None = None
    period: Number | None = None
    makespan: Number | None = None
    peak: int | None = None
    bounds: tuple[Bound, ...] = ()
    optimal_within: str | None = None
    infeasible_within: str | None = None
    least: LeastBudget | None = None
    termination: Termination = Termination.COMPLETED
    notes: tuple[str, ...] = ()
    author: Author | None = None
    log: tuple[str, ...] = ()
    untried: Untried = Untried()
