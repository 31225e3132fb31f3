"""Recomputation that gains nothing: kept instead, where it fits and makes no device slower."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from remat.plugin import Number, Orders, Phase, Problem, Segment, Stage
from remat_algorithms.parallel.pipeline.stages import placed

MOST_TRIES = 100
"""Maximum number of orders that are placed."""

MOST_OPERATIONS = 400_000
"""Maximum number of operations in all of them together."""


def without_needless(
    problem: Problem, orders: Orders, makespan: Number, stopped: Callable[[], bool]
) -> tuple[Orders, Number]:
    """Keep what micro-batches recompute, as long as that fits and takes no more time.

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
        if outcome is not None and outcome[1] <= makespan and _fits(problem, outcome[2]):
            orders, makespan = trial, outcome[1]
        elif len(batches) > 1:
            half = len(batches) // 2
            parts += [(stage, batches[:half]), (stage, batches[half:])]
    return orders, makespan


def recomputed(orders: Orders, stage: int) -> list[int]:
    """Return the micro-batches that recompute a layer of a stage."""
    segments = orders.stages[stage].recompute
    run = sorted({one.batch for listed in orders.lists for one in listed if one.stage == stage})
    return [batch for batch in run if any(_has(segment, batch) for segment in segments)]


def kept(orders: Orders, stage: int, batches: Collection[int]) -> Orders:
    """Return orders in which some micro-batches recompute nothing of a stage."""
    own, out = orders.stages[stage], frozenset(batches)
    run = sorted({one.batch for listed in orders.lists for one in listed if one.stage == stage})
    segments = []
    for segment in own.recompute:
        rest = tuple(batch for batch in run if _has(segment, batch) and batch not in out)
        if rest:
            segments.append(Segment(segment.layers, rest))
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


def _has(segment: Segment, batch: int) -> bool:
    return segment.batches is None or batch in segment.batches


def _fits(problem: Problem, peaks: list[int]) -> bool:
    machine = problem.machine
    limits = (machine.memories[processor.memory].capacity for processor in machine.processors)
    return all(capacity is None or peak <= capacity for peak, capacity in zip(peaks, limits, strict=True))
