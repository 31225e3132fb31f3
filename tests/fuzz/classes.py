"""Check claims about classes of schedules against metadata and exhaustive search of the class."""

import math
import re
from collections import Counter
from functools import cache

from remat.plugin import registry
from remat.schedule.steps import StepKind
from tests.fuzz.budgets import plain
from tests.fuzz.kinds.machines import working_memory
from tests.fuzz.truth import tiny_in_one_memory
from tests.fuzz.verdicts import ALL, Finding, at_most, may_stand_beside
from tests.oracles import floating, frontier, joins, lowering, offloading, persistent, search

NARROWED = (", in one memory", ", on one processor", ", without a disk")
"""Additions to the class of an algorithm that uses one memory or one processor, or that finds no disk."""

FITS = math.inf
"""Result of a search that proves only existence of a schedule: an upper bound on every makespan."""


def class_findings(case, answers):
    """Yield findings about classes: classes missing in the metadata, and claims that a search refutes."""
    known = {}
    for given in answers:
        if given.result is None:
            continue
        for message in _unnamed(given):
            yield Finding("class-not-in-metadata", given.solve.algorithm, message, (given.solve,))
        for scope in _scopes(given.result):
            best = _least_in(case, given, scope, known)
            if best is None or not math.isnan(best):
                for rule, message in _refuted(given, scope, best):
                    yield Finding(rule, given.solve.algorithm, message, (given.solve,))
    yield from _strategies(answers)
    yield from _bounded(answers)


# --- claims of the metadata -------------------------------------------------------------------------------------------


@cache
def _entry(name):
    return next((entry for entry in registry.algorithms() if entry.name == name), None)


def base_of(scope):
    """Return the class that a scope narrows to one memory or one processor."""
    for suffix in NARROWED:
        scope = scope.replace(suffix, "")
    return ALL if scope.startswith(("schedules in one memory", "schedules on one processor")) else scope


def _unnamed(given):
    """Yield differences between the classes that an algorithm names and its metadata."""
    entry = _entry(given.solve.algorithm)
    if entry is None or entry.guarantee not in ("exact", "strategy") or given.solve.options:
        return  # options may widen or narrow the class; a heuristic names what it has proved
    result = given.result
    named = {"optimal within": result.optimal_within, "no schedule in": None if given.found else result.scope}
    for what, scope in named.items():
        if scope is not None and not _is_named(base_of(scope), entry):
            yield f"{what} {scope!r}, and its class is {entry.within!r}"


def _is_named(scope, entry):
    """Whether a class is all schedules, that of the metadata with figures of budget and options, or one schedule."""
    parts = re.split(r"a number of|\d+", entry.within)
    figures = r"(?: (?:in|with) [\d+]+ [a-z ]+)?"
    return (
        scope in (ALL, f"the {entry.name} schedule")
        or re.fullmatch(r"\d+".join(map(re.escape, parts)) + figures, scope) is not None
    )


def _strategies(answers):
    """Yield findings where a strategy has other schedules at other budgets."""
    first = {}
    for given in answers:
        entry = _entry(given.solve.algorithm)
        if not given.found or entry is None or entry.guarantee != "strategy" or given.limited:
            continue
        key = given.solve.algorithm, repr(given.solve.options), given.solve.seed
        other = first.setdefault(key, given)
        same = Counter(given.result.columns.kind.tolist()) == Counter(other.result.columns.kind.tolist())
        if not same:
            message = f"another schedule at {given.solve.budget} than at {other.solve.budget}"
            yield Finding("strategy-changes", given.solve.algorithm, message, (other.solve, given.solve))


def _bounded(answers):
    """Yield findings where `online-revolve` runs a step more often than `revolve`, which needs the least repetition."""
    least = {repr(given.solve.budget): given for given in answers if given.found and given.solve.algorithm == "revolve"}
    for given in answers:
        other = least.get(repr(given.solve.budget))
        if given.solve.algorithm == "online-revolve" and given.found and other is not None:
            own, most = (_most_runs(one.result) for one in (given, other))
            if own > most:
                message = f"runs a step {own} times, and {most} would do"
                yield Finding("not-within-its-bound", "online-revolve", message, (given.solve, other.solve))


def _most_runs(result):
    runs = result.columns.kind == StepKind.RUN
    return max(Counter(result.columns.item[runs].tolist()).values(), default=0)


# --- exhaustive search ------------------------------------------------------------------------------------------------


def _scopes(result):
    scopes = {bound.scope for bound in result.bounds} | {result.optimal_within, result.scope} - {None}
    return sorted(scope for scope in scopes if scope is not None and scope != ALL)


def _refuted(given, scope, best):
    """Yield rules broken by claims about a class, given its minimum makespan (None: no schedule)."""
    result = given.result
    if best is None:
        return
    steps = 0 if result.columns is None else len(result.columns)
    if not given.found and result.scope == scope:
        yield "class-infeasible-found-by-search", f"none in {scope!r}, and the search finds {float(best)!r}"
    if given.found and result.optimal_within == scope and not may_stand_beside(result.makespan, steps, best):
        yield (
            "class-optimal-beaten-by-search",
            f"{result.makespan!r} is optimal in {scope!r}, the search finds {best!r}",
        )
    for bound in result.bounds:
        if bound.scope == scope and best != FITS and not at_most(bound.value, best):
            yield "class-bound-beaten-by-search", f"bound {bound.value!r} in {scope!r}, the search finds {best!r}"


def _least_in(case, given, scope, known):
    """Return the minimum makespan in a class, None without a schedule, and NaN if unknown."""
    searching = SEARCHES.get(base_of(scope))
    if searching is None:
        return math.nan
    document = in_one_memory(case.document)
    if document is None:
        return math.nan
    working = given.result.machine.memories[given.result.machine.processors[0].memory]
    key = scope, working.capacity
    if key not in known:
        known[key] = searching(document, 2**63 if working.capacity is None else working.capacity)
    return known[key]


def in_one_memory(document):
    """Return a tiny instance with its working memory and first processor only; None where that is not all it needs."""
    document = plain(document)
    if "storage" in document or document["kind"] == "pipeline" or working_memory(document) is None:
        return None
    machine = document.get("machine")
    if machine is not None:
        working = working_memory(document)
        memory = next(one for one in machine["memories"] if one["name"] == working)
        first = next(one for one in machine["processors"] if one.get("speed", 1) == 1)
        alone = {"memories": [memory], "processors": [{"name": first["name"], "memory": working}]}
        elsewhere = [document.get(key) not in (None, working) for key in ("parameter_memory", "optimizer_memory")]
        places = [entry for key in ("inputs", "outputs") for entry in document.get(key, ()) if isinstance(entry, dict)]
        elsewhere += [place.get("memory") not in (None, working) for place in places]
        elsewhere.append(document.get("initial_state", "live") not in ("live", working))
        if any(elsewhere) or memory.get("static"):
            return None
        document = document | {"machine": alone}
    return document if tiny_in_one_memory(document) else None


def _sequential(document, budget):
    return search.chain_best(document, budget)


def _persistent(document, budget):
    if document["kind"] != "chain" or any("parameter_size" in stage for stage in document["stages"]):
        return math.nan
    return persistent.Recursion(document).least_time(budget)


def _floating(document, budget):
    try:
        return floating.floating_best(document, budget)
    except (ValueError, KeyError):
        return math.nan  # another form of chain than the class is stated for


def _frontier(document, budget):
    graph = lowering.lower(document)
    if document["kind"] not in ("chain", "adjoint") or any(len(task.writes) == 0 for task in graph.tasks.values()):
        return math.nan
    needed = frontier.needed(graph)
    reference = [name for name in offloading._reference_order(graph, document["kind"]) if name in needed]
    return frontier.best(document, budget, reference)


def _nested(document, budget):
    if document["kind"] != "join":
        return math.nan
    return min((time for peak, time in joins.front(document).items() if peak <= budget), default=None)


def _without_recomputation(document, budget):
    if document["kind"] != "dag" or any(not task.get("required", True) for task in document["tasks"]):
        return math.nan
    try:
        return FITS if search.dag_best_order_peak(document) <= budget else None
    except ValueError:
        return math.nan  # alternatives


def _traversals(document, budget):
    return _of_tree(search.tree_best_traversal, document, budget)


def _postorders(document, budget):
    return _of_tree(search.tree_best_postorder, document, budget)


def _of_tree(least_peak, document, budget):
    if document["kind"] != "tree" or document.get("orientation") == "out":
        return math.nan
    parent = document["parent"]
    workspace = document.get("workspace") or [0] * len(parent)
    peak = least_peak(parent, document["output_size"], workspace) + document.get("static_memory", 0)
    return FITS if peak <= budget else None


SEARCHES = {
    ALL: _sequential,
    "sequential schedules": _sequential,
    "sequential schedules in one memory": _sequential,
    "memory-persistent schedules": _persistent,
    "floating schedules": _floating,
    "frontier-advancing schedules of the reference order": _frontier,
    "nested memory-persistent schedules on one processor": _nested,
    "schedules without recomputation": _without_recomputation,
    "traversals in one memory": _traversals,
    "post-order traversals": _postorders,
}
"""Classes with exhaustive search: (document in one memory, budget) -> minimum makespan."""
