"""Warm starts: known schedules from which a solve continues."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from remat.errors import InstanceError, OptionError
from remat.instance import digest
from remat.placement import Unplaceable, place
from remat.plugin.problem import Problem
from remat.schedule.document import Step, parse_steps, read_any_schedule
from remat.schedule.orders import Orders, orders_of
from remat.schedule.steps import Steps
from remat.solving.result import Result
from remat.units import Number, format_size
from remat.verifier import check

WarmStart = str | os.PathLike[str] | IO[Any] | dict[str, Any] | Sequence[dict[str, Any] | Step] | Result | None
"""A schedule document, its steps alone, the file that contains it, or a result."""

AUTHOR = "warm start"
"""The source of a schedule that was given."""


@dataclass(frozen=True)
class Warm:
    """A warm start on the machine of a problem: steps or orders that fit, or why they do not.

    Attributes
    ----------
    steps : Steps or None
        Placed; None if the schedule exceeds the memory.
    makespan : int, float or None
        Verified.
    note : str
        The reason if there are no steps.
    orders : Orders or None
        For a pipeline: the orders from which the steps follow.
    """

    steps: Steps | None
    makespan: Number | None
    note: str = ""
    orders: Orders | None = None


def read_warm_start(problem: Problem, given: WarmStart) -> Warm | None:
    """Read a schedule of the problem's instance, and place it on the problem's machine.

    Raises
    ------
    remat.OptionError
        If it is the schedule of another instance, or breaks rules at every budget.
    """
    if given is None:
        return None
    if isinstance(given, Result):
        document = given.to_dict()
    else:
        document = read_any_schedule(given)
    named = document.get("instance") if isinstance(document, dict) else None
    stated = named.get("digest") if isinstance(named, dict) else None
    if stated is not None and stated != digest(problem.instance):
        raise OptionError("it is the schedule of another instance (its digest differs)", argument="warm_start")
    if isinstance(document, dict) and "pattern" in document:
        raise OptionError("it is a pattern, and only steps are gone on from", argument="warm_start")
    if isinstance(document, dict) and "steps" not in document and "orders" not in document:
        raise OptionError("it is an answer without a schedule", argument="warm_start")
    try:
        orders = orders_of(problem.instance, document, problem.machine) if isinstance(document, dict) else None
        if orders is not None:
            return _in_orders(problem, orders)
        steps = parse_steps(document, problem.graph, problem.machine, problem.units)
    except InstanceError as error:
        raise OptionError(str(error), argument="warm_start") from None
    # Once more from the start: what another machine had to wait for may be ready earlier here.
    steps = replace(steps, start=None)
    _check_rules(problem, steps)
    placed = place(problem.graph, problem.machine, steps)
    if isinstance(placed, Unplaceable):
        return _too_large(problem, problem.machine.memories[placed.memory].name, placed.needed)
    steps = steps.placed(placed.start)
    return Warm(steps, check(problem.graph, problem.machine, steps).makespan)


def _too_large(problem: Problem, memory: str, needed: int) -> Warm:
    return Warm(None, None, f"the warm start does not fit: it needs {format_size(needed, problem.units)} in {memory}")


def _in_orders(problem: Problem, orders: Orders) -> Warm:
    """Place the orders of a pipeline's devices on the problem's machine."""
    from remat.solving.orders import Followed, follow

    followed = follow(problem.instance, problem.graph, problem.machine, orders)
    if not isinstance(followed, Followed):
        raise OptionError(str(followed[0]), argument="warm_start")
    report = check(followed.graph, problem.machine, followed.steps)
    for memory in problem.machine.memories:
        peak = report.peaks[memory.name].size
        if memory.capacity is not None and peak > memory.capacity:
            return _too_large(problem, memory.name, peak)
    if report.violations:
        raise OptionError(str(report.violations[0]), argument="warm_start")
    return Warm(followed.steps, report.makespan, orders=orders)


def _check_rules(problem: Problem, steps: Steps) -> None:
    """Refuse a schedule that breaks rules even on a machine without capacities."""
    violation = next(iter(steps.unknown.values()), None)
    if violation is not None:
        raise OptionError(f"{violation[0]}: {violation[1]!r}", argument="warm_start")
    unbounded = problem.machine.with_capacities({memory.name: None for memory in problem.machine.memories})
    placed = place(problem.graph, unbounded, steps)
    assert not isinstance(placed, Unplaceable)
    violations = check(problem.graph, unbounded, steps.placed(placed.start)).violations
    if violations:
        raise OptionError(str(violations[0]), argument="warm_start")
