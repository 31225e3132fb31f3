"""Where an instance is tiny: every claim over all schedules against an exhaustive search."""

import math

from tests.fuzz.cases import plain
from tests.fuzz.judging import ALL, Finding, at_most, equal
from tests.oracles import lowering, offloading, search

TASKS = 13
VALUES = 14
STATES = 400
"""A search in two memories is given up after so many states."""


def truths(case, answers):
    """Yield findings where a claim, or a schedule, differs from what exhaustive search finds."""
    memories = len(lowering.machine(plain(case.document)).memories)
    if not _tiny(case.document, memories):
        return
    known = {}
    for given in answers:
        if given.result is None:
            continue
        key = repr(given.solve.budget)
        if key not in known:
            known[key] = _best(case.document, given.solve.budget, memories)
        best = known[key]
        if best is None or not math.isnan(best):
            for rule, message in _differing(given, best, whole_values=memories > 1):
                yield Finding(rule, given.solve.algorithm, message, (given.solve,))


def _tiny(document, memories):
    if document["kind"] == "pipeline" or "stream" in document or "staleness" in document:
        return False
    machine = lowering.machine(plain(document))
    graph = lowering.lower(plain(document))
    if len(machine.processors) > 1 or any(task.parallel for task in graph.tasks.values()):
        return False
    if graph.placeable or any(task.parts or task.times or task.on for task in graph.tasks.values()):
        return False
    if any(isinstance(link.bandwidth, float) for link in machine.links):
        return False  # the search wants fractions
    most = (TASKS, VALUES) if memories == 1 else (4, 5)
    return memories <= 2 and len(graph.tasks) <= most[0] and len(graph.values) <= most[1]


def _best(document, budget, memories):
    instance = plain(document)
    if memories > 1:
        return offloading.least_makespan(instance, budget, recompute=True, states=STATES)
    capacity = next(iter(lowering.machine(instance, budget).memories.values()))
    return search.chain_best(instance, 2**63 if capacity is None else capacity)


def _differing(given, best, *, whole_values):
    """Yield rules that a claim breaks; searches in two memories move whole values only, and are no lower bound."""
    result = given.result
    if best is None:
        if given.found and not whole_values:
            yield "search-found-none", f"makespan {result.makespan!r}, and the search finds no schedule"
        return
    if given.excluded == ALL:
        yield "infeasible-found-by-search", f"the search finds {best!r}"
    if not at_most(result.lower_bound, _number(best)):
        yield "bound-beaten-by-search", f"lower bound {result.lower_bound!r}, the search finds {best!r}"
    if not given.found:
        return
    # Where some start is a fraction, all are floats, and the makespan is the float that is nearest to the true sum.
    nearest = isinstance(result.makespan, float) and result.makespan == float(best)
    if result.optimal_within == ALL and not nearest and not at_most(result.makespan, _number(best)):
        yield "optimal-beaten-by-search", f"{result.makespan!r} is optimal, the search finds {best!r}"
    if not whole_values and not at_most(best, result.makespan) and not equal(best, result.makespan):
        yield "shorter-than-possible", f"makespan {result.makespan!r}, the search finds {best!r}"


def _number(best):
    return best if isinstance(best, (int, float)) else int(best) if best.denominator == 1 else float(best)
