"""Lower bounds on classes of schedules that contain a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from remat.plugin.proposal import ALL_SCHEDULES, LAYERS_WHOLE, PARAMETERS_STAY, Bound
from remat.plugin.registry import algorithms
from remat.plugin.topological_order import in_listed_order
from remat.solving.hints import PORTFOLIO
from remat.solving.result import Result
from remat.units import format_time

IN_ORDER = "reference order"
"""Part of the name of each class whose schedules begin the tasks in the listed order."""

OF_STAGES = (LAYERS_WHOLE, PARAMETERS_STAY)
"""Classes to which the stages of a pipeline say that a schedule belongs."""


def class_bounds(result: Result) -> Iterator[tuple[str, str]]:
    """Yield rows of bounds on classes of schedules."""
    for number, bound in enumerate(_other_bounds(result)):
        text = f"{format_time(bound.value, result.units)} for {bound.scope} ({bound.source})"
        yield "other bounds" if number == 0 else "", text


def _other_bounds(result: Result) -> list[Bound]:
    """Return bounds on classes that contain the schedule and are tighter than the best bound over all schedules."""
    makespan = result.makespan
    return [
        bound
        for bound in result.bounds
        # A bound above the makespan belongs to a class that excludes this schedule.
        if bound.scope != ALL_SCHEDULES
        and bound.value > result.lower_bound
        and (makespan is None or (bound.value <= makespan and _belongs(result, bound)))
    ]


def _belongs(result: Result, bound: Bound) -> bool:
    """Whether the schedule belongs to the class of a bound: its stages do, or its algorithm searches the class.

    The order must fit, too. An algorithm states its own bounds, and may name their sources in words, unless these are
    other algorithms.
    """
    if bound.scope == result.optimal_within or (bound.scope in OF_STAGES and _has_whole_layers(result)):
        return True
    own = bound.source == result.algorithm
    if result.asked not in ("", PORTFOLIO):
        own = own or bound.source not in {algorithm.name for algorithm in algorithms()}
    if not own or result.columns is None:
        return False
    return IN_ORDER not in bound.scope or in_listed_order(result.graph, result.columns)


def _has_whole_layers(result: Result) -> bool:
    """Whether the orders of a pipeline run each layer on one device."""
    if result.orders is None:
        return False
    layers = [layer for stage in result.orders.stages for layer in stage.layers]
    return len(set(layers)) == len(layers) and all(stage.tensor == 1 for stage in result.orders.stages)


def bounds_shown(result: Result, stated: str) -> Iterator[tuple[str, str]]:
    """Yield rows of the bounds of a schedule that was read: over all schedules, and over classes that contain it.

    `stated` is the note of a result whose bounds are those of its file.
    """
    if result.lower_bound:
        whose = ", as the file states" if stated in result.notes else ""
        yield "lower bound", f"{format_time(result.lower_bound, result.units)}{whose}"
    yield from class_bounds(result)
