"""Tiny instances: every claim over all schedules against an exhaustive search."""

import math

from tests.fuzz.budgets import plain
from tests.fuzz.verdicts import ALL, Finding, at_most, equal, may_stand_beside
from tests.oracles import lowering, offloading, parallel, search

TASKS, VALUES = 13, 14
"""The most tasks and values that are searched in one memory and on one processor."""

FEW_TASKS, FEW_VALUES = 4, 5
"""The same in two memories."""

PARALLEL_TASKS, PARALLEL_VALUES = 6, 8
"""The same on several processors."""

STATES = 400
"""A search in two memories is given up after so many states."""

PARALLEL_STATES = 1500
"""A search on several processors is given up after so many states."""


def truths(case, answers):
    """Yield findings where a claim or a schedule contradicts exhaustive search."""
    document = plain(case.document)
    form = _searched_by(document)
    known = {}
    for given in answers if form is not None else ():
        if given.result is None:
            continue
        key = repr(given.solve.budget)
        if key not in known:
            known[key] = form(document, given.solve.budget)
        best = known[key]
        if best is None or not math.isnan(best):
            exhaustive = not lowering.machine(document).links
            for rule, message in _differing(given, best, exhaustive=exhaustive):
                yield Finding(rule, given.solve.algorithm, message, (given.solve,))


def tiny_in_one_memory(document):
    """Whether an instance is small enough to be searched in one memory and on one processor."""
    if any(document.get(key) is not None for key in ("stream", "staleness", "sharding")):
        return False
    graph = lowering.lower(document)
    if len(graph.tasks) > TASKS or len(graph.values) > VALUES or graph.placeable:
        return False
    return not any(task.parts or task.times or task.on or task.parallel for task in graph.tasks.values())


def _searched_by(document):
    """Return the search that covers an instance, or None."""
    if document["kind"] == "pipeline" or any(document.get(key) is not None for key in ("stream", "staleness")):
        return None
    machine = lowering.machine(document)
    graph = lowering.lower(document, machine)
    several = len(machine.processors) > 1 or any(task.parallel for task in graph.tasks.values())
    if several or any(task.on or task.times for task in graph.tasks.values()):
        few = len(graph.tasks) <= PARALLEL_TASKS and len(graph.values) <= PARALLEL_VALUES
        return _parallel if few and parallel.supports(document) else None
    if graph.placeable or any(task.parts for task in graph.tasks.values()) or machine.static:
        return None
    if len(machine.memories) == 1:
        return _sequential if len(graph.tasks) <= TASKS and len(graph.values) <= VALUES else None
    if any(isinstance(link.bandwidth, float) for link in machine.links):
        return None  # the search needs fractions
    few = len(graph.tasks) <= FEW_TASKS and len(graph.values) <= FEW_VALUES
    return _offloading if few and len(machine.memories) == 2 and parallel.supports(document) else None


def _sequential(document, budget):
    capacity = next(iter(lowering.machine(document, budget).memories.values()))
    return search.chain_best(document, 2**63 if capacity is None else capacity)


def _offloading(document, budget):
    return offloading.least_makespan(document, budget, recompute=True, states=STATES)


def _parallel(document, budget):
    best = parallel.least_makespan(document, budget, states=PARALLEL_STATES)
    return None if best == math.inf else best


def _differing(given, best, *, exhaustive):
    """Yield rules that a claim breaks; searches that move whole values only are not exhaustive."""
    result = given.result
    if best is None:
        if given.found and exhaustive:
            yield "search-found-none", f"makespan {result.makespan!r}, and the search finds no schedule"
        return
    if given.excluded == ALL:
        yield "infeasible-found-by-search", f"the search finds {float(best)!r}"
    if not at_most(result.lower_bound, _number(best)):
        yield "bound-beaten-by-search", f"lower bound {result.lower_bound!r}, the search finds {_number(best)!r}"
    if not given.found:
        return
    # Where some start is a fraction, all are floats, and the makespan is the float that is nearest to the true sum.
    nearest = isinstance(result.makespan, float) and result.makespan == float(best)
    stands = may_stand_beside(result.makespan, len(result.columns), _number(best))
    if result.optimal_within == ALL and not nearest and not stands:
        yield "optimal-beaten-by-search", f"{result.makespan!r} is optimal, the search finds {_number(best)!r}"
    if exhaustive and not at_most(best, result.makespan) and not equal(_number(best), result.makespan):
        yield "shorter-than-possible", f"makespan {result.makespan!r}, the search finds {_number(best)!r}"


def _number(best):
    return best if isinstance(best, (int, float)) else int(best) if best.denominator == 1 else float(best)
