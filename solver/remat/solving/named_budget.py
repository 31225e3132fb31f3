"""The promise of a named budget: a solve at a budget that an answer names as sufficient finds a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from remat.errors import AlgorithmError
from remat.plugin.context import Context
from remat.plugin.problem import Problem, budgeted_memories
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget
from remat.plugin.registry import Algorithm
from remat.solving.result import Result

MOST_TRIALS = 4
"""Budgets that are tried, each named by the solve at the one before."""

NAMED_SHARE = 0.25
"""Share of the time left of a portfolio in which an algorithm must find a schedule at the budget that it has named."""

SURE = ("exact", "strategy")
"""Guarantees with which the same schedule, or a proof, is found at the named budget."""


def may_fail(solver: Algorithm, least: LeastBudget | None) -> bool:
    """Whether an algorithm promises a schedule at a budget, and neither a proof nor its only schedule says so."""
    return least is not None and least.sufficient and solver.guarantee not in SURE


def kept(
    problem: Problem, solver: Algorithm, result: Result, context: Context, solve: Callable[[Problem, Context], Result]
) -> Result:
    """Return an answer without a schedule whose budget is sufficient only if the same algorithm finds a schedule there.

    Parameters
    ----------
    problem : Problem
    solver : Algorithm
    result : Result
    context : Context
    solve : callable
        Runs the same algorithm on a problem with other capacities.

    Notes
    -----
    At most `MOST_TRIALS` further solves, each of which ends with its first schedule. When the limit of the solve is
    over, the algorithm is taken at its word.
    """
    least = result.least_budget
    if result.report is not None or not may_fail(solver, least):
        return result
    for _ in range(MOST_TRIALS):
        assert least is not None
        try:
            again = None if context.ended else solve(at(problem, least), trial(context))
        except AlgorithmError as error:
            result = replace(result, log=(*result.log, f"bug: {error}"))
            break
        if again is None or again.report is not None or context.ended:
            return result if least is result.least_budget else replace(result, least_budget=least)
        larger = again.least_budget
        if larger is None or not larger.sufficient or larger.memory != least.memory or larger.size <= least.size:
            break
        least = larger
    assert result.least_budget is not None
    return replace(result, least_budget=insufficient(problem, result.least_budget))


def at(problem: Problem, least: LeastBudget) -> Problem:
    """Return the problem with a named budget."""
    own = budgeted_memories(problem.instance, problem.machine, least.memory)
    return problem.with_capacities({problem.machine.memories[memory].name: least.size for memory in own})


def trial(context: Context, *, share: float = 1.0) -> Context:
    """Return a context within another one that ends with the first schedule, or after a share of the time left."""
    inner = context.aside(share=share)
    inner.enough = math.inf
    inner.forms = context.forms
    return inner


def insufficient(problem: Problem, least: LeastBudget) -> LeastBudget | None:
    """Return what is still known of a budget that is not sufficient: the need of its class, or of all schedules."""
    if least.scope is not None:
        return replace(least, sufficient=False)
    first = problem.machine.processors[0].memory
    known = problem.least_of(first)
    return None if known is None else LeastBudget(known.size, known.task, False, first, ALL_SCHEDULES)
