"""Hints for classes of schedules without one that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES
from remat.plugin.registry import Algorithm

ONE_ORDER = ("reference order", "improved order")
"""Parts of scopes with a fixed order of first runs."""

OTHER_ORDERS = "dag-order-exact"

PORTFOLIO = "auto"
"""The portfolio, which has already tried all suggestions."""


def remedies(problem: Problem, solver: Algorithm, options: Mapping[str, Any], scope: str | None) -> Iterator[str]:
    """Yield suggestions that may find a schedule outside the searched class.

    Parameters
    ----------
    problem : Problem
    solver : Algorithm
    options : mapping
        The given options of the algorithm.
    scope : str or None
        The class for which the answer is infeasible; None if it is not.
    """
    if scope is None or scope == ALL_SCHEDULES or solver.name == PORTFOLIO:
        return
    yield from _other_orders(problem, solver, options, scope)
    if problem.used.machine.links and not solver.several_memories:
        yield "the machine has links, which this algorithm does not use; algorithm auto tries others that do"
    else:
        yield "algorithm auto tries others, which may find a schedule outside this class"


def _other_orders(problem: Problem, solver: Algorithm, options: Mapping[str, Any], scope: str) -> Iterator[str]:
    # Chains and adjoints have one order only.
    if problem.instance.is_chain or not any(order in scope for order in ONE_ORDER):
        return
    model = solver.load_options()
    ways = []
    if model is not None and "reorder" in model.model_fields and not options.get("reorder"):
        ways.append("option reorder=true")
    if len(problem.used.machine.memories) == 1:
        ways.append(f"algorithm {OTHER_ORDERS}")
    if ways:
        yield f"another order of the tasks may fit: try {' or '.join(ways)}"
