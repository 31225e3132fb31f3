"""Improvement of orders by local search: windows around the peak, each reordered optimally."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from remat.plugin import Context, IntArray, OptionError, Problem, TaskGraph
from remat_algorithms.dag.order.dag_order_greedy import greedy_order
from remat_algorithms.dag.order.dag_order_lpmf import largest_peak_first
from remat_algorithms.dag.order.model import OrderModel, model_of_graph, order_model
from remat_algorithms.dag.order.search import block_of, search

WINDOWS = (8, 16, 32, 64)
WINDOW_STATES = 2000
"""Maximum number of states that the search of one window expands."""


def improve(graph: TaskGraph, *, context: Context | None = None) -> IntArray:
    """Return an order of the needed tasks of a graph with a low peak; for other planners.

    Parameters
    ----------
    graph : TaskGraph
        On one processor and in one memory; every needed task runs once.
    context : Context, optional
        Tells when to stop.

    Returns
    -------
    (needed tasks,) int64
        Never worse than the reference order, `dag-order-greedy` and `dag-order-lpmf`.

    Raises
    ------
    OptionError
        If a value has several origins.
    """
    from remat.plugin import needed_tasks

    here = {place.value for place in graph.inputs}
    stays = {place.value for place in graph.outputs}
    model = model_of_graph(graph, needed_tasks(graph).once, here, stays, graph.static_memory, "improve")
    around = context or Context()
    order = improved(model, good_order(model), lambda: around.stopped)
    return np.array([model.tasks[index] for index in order], dtype=np.int64)


def better_order(problem: Problem, name: str, stopped: Callable[[], bool]) -> list[int] | None:
    """Return the needed tasks in an order of lower peak than the reference order; None if none is found.

    Parameters
    ----------
    problem : Problem
        Its budget is the target of the improvement.
    name : str
        The calling algorithm.
    stopped : callable
    """
    try:
        model = order_model(problem, name)
    except OptionError:  # values with several origins
        return None
    if stopped():
        return None
    order = improved(model, good_order(model), stopped, problem.budget or 0)
    if model.peak(order) >= model.peak(range(len(model))):
        return None
    return [model.tasks[index] for index in order]


def good_order(model: OrderModel) -> list[int]:
    """Return the better order of the two heuristics."""
    return min((greedy_order(model), largest_peak_first(model)), key=model.peak)


def improved(model: OrderModel, order: Sequence[int], stopped: Callable[[], bool], target: int = 0) -> list[int]:
    """Reorder windows around the peak while this lowers it, until it reaches `target`.

    A window of w tasks ends, is centered or begins at the peak. `search` finds its best order, with a limit on states.
    Each round lowers the bytes at the highest position, so the number of rounds is finite.
    """
    best = list(order)
    while best and not stopped():
        usage = model.usage(best)
        peak = max(usage)
        if peak <= max(target, model.start_peak):
            break
        place = usage.index(peak)
        better = _around(model, best, place, usage, stopped)
        if better is None:
            break
        best = better
    return best


def _around(
    model: OrderModel, order: list[int], place: int, usage: list[int], stopped: Callable[[], bool]
) -> list[int] | None:
    n = len(order)
    tried = set()
    for width in WINDOWS:
        for share in (0, 2, 1):
            first = max(0, place - width * share // 2 + (share == 2))
            last = min(n, first + width)
            if (first, last) in tried or last - first < 2 or not first <= place < last:
                continue
            tried.add((first, last))
            if stopped():
                return None
            block = block_of(model, order, first, last)
            found = search(block, floor=0, ceiling=max(usage[first:last]), limit=WINDOW_STATES, stopped=stopped)
            if found.order is not None:
                return order[:first] + [order[first + index] for index in found.order] + order[last:]
    return None
