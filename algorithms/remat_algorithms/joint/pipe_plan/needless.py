"""Recomputation without a gain: values are kept instead if they fit and no device becomes slower."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from remat.plugin import Number, Orders, Pass, Phase, Problem, Segment, Stage
from remat_algorithms.parallel.pipeline.stages import excess_of, placed

MOST_TRIES = 100
"""Maximum number of orders that are placed."""

MOST_OPERATIONS = 400_000
"""Maximum number of operations in all of them together."""


def without_needless(
    problem: Problem, orders: Orders, makespan: Number, stopped: Callable[[], bool]
) -> tuple[Orders, Number]:
    """Remove recomputation of micro-batches if the plan still fits and takes no more time.

    Parameters
    ----------
    problem : Problem
    orders : Orders
        They fit the memory of each device.
    makespan : number
        Their makespan.
    stopped : callable
        Whether to end at once.

    Returns
    -------
    (Orders, number)
        Orders with a subset of the recomputation, and their makespan.

    Notes
    -----
    The micro-batches of a stage are tried together, then in halves. O(`MOST_TRIES`) placements.
    """
    if orders.paired:
        return orders, makespan
    tries = min(MOST_TRIES, MOST_OPERATIONS // max(1, len(orders)))
    parts = [(stage, recomputed(orders, stage)) for stage in range(len(orders.stages))]
    while parts and tries and not stopped():
        stage, batches = parts.pop()
        if not batches:
            continue
        tries -= 1
        trial = kept(orders, stage, batches)
        outcome = placed(problem, trial)
        if outcome is not None and outcome[1] <= makespan and not any(excess_of(problem.machine, outcome[2])):
            orders, makespan = trial, outcome[1]
        elif len(batches) > 1:
            half = len(batches) // 2
            parts += [(stage, batches[:half]), (stage, batches[half:])]
    return orders, makespan


def recomputed(orders: Orders, stage: int) -> list[int]:
    """Return the micro-batches that recompute a layer of a stage."""
    return [batch for batch in sorted(_run(orders, stage)) if orders.again(Pass(Phase.R, stage, batch))]


def kept(orders: Orders, stage: int, batches: Collection[int]) -> Orders:
    """Return orders in which some micro-batches recompute nothing of a stage."""
    own, out = orders.stages[stage], frozenset(batches)
    left = _run(orders, stage) - out
    segments = []
    for segment in own.recompute:
        rest = left if segment.batches is None else left.intersection(segment.batches)
        if rest:
            segments.append(Segment(segment.layers, tuple(sorted(rest))))
    stages: tuple[Stage, ...] = (
        *orders.stages[:stage],
        replace(own, recompute=tuple(segments)),
        *orders.stages[stage + 1 :],
    )
    lists = tuple(
        tuple(one for one in listed if not (one.phase == Phase.R and one.stage == stage and one.batch in out))
        for listed in orders.lists
    )
    return Orders(stages, lists)


def _run(orders: Orders, stage: int) -> set[int]:
    """Return the micro-batches that a stage runs."""
    _, _, stages, batches = orders.columns
    return set(batches[stages == stage].tolist())
