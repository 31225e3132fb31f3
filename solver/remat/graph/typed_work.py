"""A bound on the makespan from the work of processors of several types."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, TaskGraph

SCALE = 1_000
"""Sum of the first weights, which are whole numbers: sums of weighted times are exact."""

FACTORS = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
"""Factors by which a weight is changed if the bound grows."""

MOST_CHANGES, MOST_WORK = 12, 20_000_000
"""Maximum number of rounds over all weights, and of the products of a task and a type in all."""


def typed_share(graph: TaskGraph, machine: Machine, forced: BoolArray) -> Fraction:
    """Return a lower bound on the longest work of a processor if each of these tasks runs on one of a suitable type.

    Parameters
    ----------
    graph : TaskGraph
        With integer times by type.
    machine : Machine
    forced : (tasks,) bool
        Tasks that every schedule runs.

    Returns
    -------
    Fraction
        0 if the times do not depend on the type, or other features decide.

    Notes
    -----
    For any weights w of the types, a schedule in which each processor works for at most T has

        sum over tasks of  min over types k of  w_k t_k  <=  T  sum over processors of w

    because a task on type k adds t_k to the work there (weak duality of the linear program that divides tasks among
    types). Weights begin in proportion to the types' speeds and are changed one by one. O(tasks x types) for each.
    """
    counts = Counter(processor.type for processor in machine.processors if processor.type in graph.types)
    apart = graph.pairs is None or not graph.pairs.spared.any()
    plain = graph.times is not None and graph.exact_times and apart and not graph.parts
    parallel = graph.parallel_max is not None and bool((graph.parallel_max > 1).any())
    if len(counts) < 2 or not plain or parallel or any(processor.speed != 1 for processor in machine.processors):
        return Fraction(0)
    assert graph.times is not None
    rows = graph.times[[graph.types.index(kind) for kind in counts]][:, forced]
    number = np.array(list(counts.values()))
    rounds = min(MOST_CHANGES, MOST_WORK // max(1, rows.size * len(FACTORS) * len(number)))
    if not rounds or not rows.size or (rows < 0).all(axis=0).any():
        return Fraction(0)
    if float(rows.max()) * SCALE**2 * rows.shape[1] >= 2.0**62:
        return Fraction(0)
    able, times = rows >= 0, np.maximum(rows, 0)

    def bound(weights: np.ndarray) -> Fraction:
        most = np.iinfo(np.int64).max
        least = np.where(able, weights[:, None] * times, most).min(axis=0)
        return Fraction(int(least.sum()), int((weights * number).sum()))

    speed = 1.0 / np.maximum(1.0, np.where(able, times, times.max(axis=0)).sum(axis=1, dtype=np.float64))
    weights = np.maximum(1, np.rint(SCALE * speed / speed.sum())).astype(np.int64)
    best = bound(weights)
    for _ in range(rounds):
        before = best
        for kind in range(len(weights)):
            for factor in FACTORS:
                other = weights.copy()
                other[kind] = min(SCALE**2, max(1, round(float(weights[kind]) * factor)))
                found = bound(other)
                if found > best:
                    best, weights = found, other
        if best == before:
            break
    return best
