"""What an algorithm hands back: steps, and claims that the verifier checks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat.units import Number

if TYPE_CHECKING:
    from remat.schedule.orders import Orders
    from remat.schedule.patterns import Pattern
    from remat.schedule.samples import SamplePattern
    from remat.schedule.steps import Steps


class Status(enum.StrEnum):
    """How a solve ended.

    `OPTIMAL`: proved over all schedules of the instance on its machine. `FEASIBLE`: a verified schedule. `INFEASIBLE`:
    proved over all schedules. `UNKNOWN`: nothing found, or only a class of schedules is known to have none (then the
    scope names it).
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Termination(enum.StrEnum):
    """Why a solver stopped.

    `COMPLETED`: it came to its end, or there is nothing left to prove. `GAP`: the schedule is as near to the bound over
    all schedules as was asked for. `PATIENCE`: nothing better was found for as long as was asked for. `SIZE_LIMIT`: the
    problem is too large for it, and what it would search was not begun.
    """

    COMPLETED = "completed"
    TIME_LIMIT = "time limit"
    ITERATION_LIMIT = "iteration limit"
    SIZE_LIMIT = "size limit"
    GAP = "gap reached"
    PATIENCE = "patience over"
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
    """The least budget that an answer without a schedule names.

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


@dataclass(frozen=True, slots=True)
class Author:
    """The algorithm that found a schedule, with its options, where another one was asked.

    Attributes
    ----------
    algorithm : str
    options : mapping
    """

    algorithm: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What an algorithm hands back; the figures are claims, which the verifier checks.

    Attributes
    ----------
    steps : Steps or None
        Ordered steps, usually without start times; None if no schedule was found.
    orders : Orders or None
        Of a pipeline, instead of steps: one order per device, from which the steps follow.
    pattern : Pattern, SamplePattern or None
        Of a stream, whose micro-batches or samples follow each other without end, instead of steps: what is done for
        each of them.
    period : int, float or None
        Of a chain whose steps of training follow each other without end: how long after one the next begins, which
        then does the same. The steps have start times.
    makespan : int, float or None
        The claimed makespan. An algorithm that only promises an upper bound claims nothing.
    peak : int or None
        The claimed peak of the first processor's memory.
    bounds : tuple of Bound
        Lower bounds on the makespan.
    optimal_within : str or None
        The class of schedules over which the makespan is proved optimal.
    infeasible_within : str or None
        The class that was searched wholly without finding a schedule; only `ALL_SCHEDULES` makes the instance
        infeasible.
    least : LeastBudget or None
        For answers without steps.
    termination : Termination
    notes : tuple of str
        What a user should know (rounding, assumptions).
    author : Author or None
        Whose schedule it is, if not that of the algorithm that was asked.
    log : tuple of str
        What went wrong on the way, a line each: an algorithm that failed, a claim that another schedule refuted.
    """

    steps: Steps | None = None
    orders: Orders | None = None
    pattern: Pattern | SamplePattern | None = None
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
