"""Judge one answer: errors, time, its figures against each other, and its schedule against a second referee."""

import itertools
import json
import math
import os
import re
import traceback
import warnings
from fractions import Fraction

import remat
from remat.errors import AlgorithmError, ClaimError
from tests.fuzz.cases import is_large
from tests.fuzz.transformations import scale_times
from tests.fuzz.verdicts import ALL, LIMITED, TOLERANCE, WHOLE, Answer, at_most, equal
from tests.oracles import actions, lowering, referee

LONGEST = 300
"""The most characters of a message."""

MOST_STEPS = 2000
"""Longer schedules are not judged by the second referee, whose time grows with the square."""

TIME_TOLERANCE = 1e-9
"""Share of a period or makespan within which floats are one instant (docs/reference/formats.md)."""

SLOW = 15.0
"""Seconds of processor time that a tiny instance takes at most where no limit is given."""


def answer(case, solve):
    """Solve, and judge the answer."""
    given = Answer(solve)
    started = processor_seconds()
    given.result = caught(given, lambda: solved(case, solve))
    given.seconds = processor_seconds() - started
    limit = solve.time_limit
    if limit is not None and given.seconds > 1.1 * limit + 1.0:
        seconds = min(given.seconds, _seconds_of_another(case, solve))  # the first solve may import and compile
        if seconds > 1.1 * limit + 1.0:
            given.blame("overrun", f"{seconds:.1f} s of processor time, {limit} s asked")
    elif limit is None and given.seconds > SLOW and not is_large(case.document):
        given.blame("slow", f"{given.seconds:.1f} s of processor time for a tiny instance")
    if given.result is not None:
        _judge(case, given)
        if solve.twice:
            _ask_again(case, given)
    return given


def _seconds_of_another(case, solve):
    started = processor_seconds()
    caught(Answer(solve), lambda: solved(case, solve))
    return processor_seconds() - started


def caught(given, call):
    """Return what a call returns, with warnings as errors; refusals and errors are written down in the answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        try:
            return call()
        except remat.RematError as error:
            given.refusal = str(error)
            if len(given.refusal) > LONGEST or "\n" in given.refusal:
                given.blame("long-error", given.refusal[:400])
            if not given.refusal.strip() or re.search(r"(?<![\w-])--\w", given.refusal):
                given.blame("unclear-error", f"{type(error).__name__}: {given.refusal!r}")
        except ClaimError as error:
            given.blame("claim", str(error))
        except AlgorithmError as error:
            given.blame("exception", f"{error}{_place(error.__cause__)}")
        except Exception as error:
            given.blame("exception", f"{type(error).__name__}: {error}{_place(error)}")
    return None


def _place(error):
    if error is None or error.__traceback__ is None:
        return ""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" (in {last.filename.rpartition('/remat')[2]}, {last.name})"


def processor_seconds():
    """Return the processor time of this process and of those it has waited for: a loaded machine hardly changes it."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def solved(case, solve):
    """Solve a fresh copy of the document."""
    return remat.solve(json.loads(json.dumps(case.document)), **solve.arguments())


def _ask_again(case, given):
    again = caught(given, lambda: solved(case, given.solve))
    if again is None:
        if not given.findings:
            given.blame("not-the-same-twice", f"an answer, then {given.refusal}")
        return
    one, other = _lasting(given.result), _lasting(again)
    if given.solve.time_limit is not None:  # the search for a minimum budget has a share of it, however fast it goes
        one.pop("least_budget", None), other.pop("least_budget", None)
    if one != other and not LIMITED & {one["termination"], other["termination"]}:
        keys = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
        given.blame("not-the-same-twice", f"differs in {sorted(keys)}")


def _lasting(result):
    document = result.to_dict()
    del document["solve_seconds"]
    return document


# --- one answer -------------------------------------------------------------------------------------------------------


def _judge(case, given):
    result = given.result
    for line in getattr(result, "log", ()):
        if line.startswith("bug:"):
            given.blame("member-failed", line)
    try:
        document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    except ValueError as error:
        given.blame("no-json", str(error))
        return
    solved = result.status in ("optimal", "feasible")
    if solved != given.found:
        given.blame("status", f"{result.status}, with {'a' if given.found else 'no'} schedule")
    if (result.status == "optimal") != (given.found and result.optimal_within == ALL):
        given.blame("status", f"{result.status}, optimal within {result.optimal_within}")
    if result.status == "infeasible" and result.scope != ALL:
        given.blame("infeasible-in-a-class", f"infeasible, and the class is {result.scope!r}")
    if given.found and result.status == "optimal" and not equal(result.lower_bound, result.makespan):
        given.blame("optimal-above-bound", f"optimal with {result.makespan!r}, lower bound {result.lower_bound!r}")
    for bound in result.bounds:
        if not (type(bound.value) in (int, float) and math.isfinite(bound.value) and bound.value >= 0 and bound.scope):
            given.blame("bound-is-no-time", f"{bound}")
    shown = max((said.bound for said in result.history if said.bound is not None), default=0)
    if result.columns is not None and not at_most(shown, result.lower_bound):
        given.blame("gap-taken-back", f"bound {shown!r} was reported, and the answer's is {result.lower_bound!r}")
    if given.found:
        if not at_most(result.lower_bound, result.makespan):
            given.blame("own-bound", f"lower bound {result.lower_bound!r}, makespan {result.makespan!r}")
        _judge_schedule(case, given, document)


def _judge_schedule(case, given, document):
    result, instance = given.result, case.instance_of(given.solve)
    budget = _named_budget(instance, given)
    if len(result.columns) > MOST_STEPS:
        return
    if document.get("orders") is not None and isinstance(result.makespan, float):
        # The product adds up floats, also where sums of whole times leave int64: the referee rounds with it.
        instance = scale_times(instance, 1.0) or instance
    whole = document.get("orders") is not None or document.get("initial") or _is_periodic(document)
    report = referee.check(instance, document if whole else document["steps"], budget)
    if not report.ok:
        given.blame("rejected", f"the referee finds {report.violations[:3]}")
        return
    exact = type(report.makespan) is int and report.makespan < WHOLE and _only_whole(result.machine)
    if type(result.no_recompute_time) is float and 4 * report.makespan >= WHOLE:
        exact = False  # sums of times that no schedule adds up leave int64, too
    for name, said, found in _figures(instance, result, report, document):
        scale = result.report.run_time if name == "recompute time" else 0
        if not _same(said, found, scale, exact=exact):
            given.blame("figures", f"{name} {said}, the referee has {found}")
    plainly = document.get("orders") is None and not _is_periodic(document)
    for resource, busy in _work(instance, document["steps"]).items() if plainly else ():
        if busy > Fraction(report.makespan) * (1 + Fraction(TOLERANCE)):
            given.blame("overworked", f"{resource} works for {float(busy)} in {report.makespan}")


def _named_budget(instance, given):
    """Return the budget, by name where several storage levels are the quickest: which one it means is a matter of uses.

    The referee orders equal levels by their names; the product by what the instance does with them.
    """
    budget = given.solve.budget
    if "storage" not in instance or not isinstance(budget, int):
        return budget
    unlimited = list(lowering.machine(instance).memories.items())[1:]
    level = given.result.machine.memories[1].name
    as_quick = [name for name, _ in unlimited if _round_trip(instance, name) == _round_trip(instance, unlimited[0][0])]
    return {level: budget} if level in as_quick else budget


def _round_trip(instance, name):
    """Return the comparison key of storage levels."""
    machine = lowering.machine(instance)
    largest = max((size for size in lowering.lower(instance, machine).values.values()), default=0)
    ways = machine.link("working", name), machine.link(name, "working")
    return sum(way.duration(largest) + way.delay for way in ways), machine.memories[name]


def _is_periodic(schedule):
    return schedule.get("pattern") is not None or schedule.get("period") is not None


def _only_whole(machine):
    """Whether whole times stay whole on a machine, for every run and transfer."""
    links = machine.links
    moves = all(link.bandwidth in (None, 1) and type(link.latency + link.delay) is int for link in links)
    moves = moves and not any(link.packed for link in links)
    return moves and all(processor.speed == 1 for processor in machine.processors)


def _figures(instance, result, report, document):
    """Yield the name of each figure of a schedule, the result's value, and the referee's value."""
    if not _is_periodic(document):
        yield "makespan", result.makespan, report.makespan
        yield "recompute time", result.recompute_time, report.recompute_time
        if document.get("orders") is None or not is_blurred(instance, result, result.makespan):
            yield "peaks", dict(result.peak_memory), report.peaks
        yield "transfers", dict(result.report.transferred), report.transferred
        return
    steady = result.steady
    yield "period", steady.period, report.period
    yield "makespan", result.makespan, report.time_per_sample
    if not is_blurred(instance, result, steady.period):
        yield "peaks", dict(steady.peaks), report.steady_peaks
    if document.get("stages") is not None:
        yield "micro-batches in flight", dict(enumerate(steady.in_flight)), dict(enumerate(report.in_flight))
        yield "versions", dict(enumerate(steady.versions)), dict(enumerate(report.versions))
        yield "staleness", dict(enumerate(steady.staleness)), dict(enumerate(report.staleness))
    elif document.get("pattern") is not None:
        yield "latency", steady.latency, report.latency


def is_blurred(instance, result, period):
    """Whether different events of a period, or of a step, are one instant for floats: their order is not defined."""
    start = result.columns.start
    if not period:
        return False
    if start.dtype == int and isinstance(period, int):
        return False
    slack = 2 * TIME_TOLERANCE * float(period)
    graph = lowering.lower(instance)
    durations = {task.time for task in graph.tasks.values()}
    durations |= {link.time(size) for link in result.machine.links for size in set(graph.values.values())}
    if any(0 < duration <= slack for duration in durations):
        return True
    times = sorted({float(time) % period for time in (*start.tolist(), *result.report.end.tolist())})
    return any(0 < after - before <= slack for before, after in itertools.pairwise(times))


def _same(said, found, scale=0, *, exact=True):
    """Return whether figures are equal, up to the rounding error of sums of the size `scale`.

    Integer figures of an `exact` schedule must be equal exactly.
    """
    if isinstance(found, dict):
        # Only one of the two lists unnamed, unused links.
        keys = said.keys() | found.keys()
        return all(_same(said.get(key, 0), found.get(key, 0), exact=exact) for key in keys)
    if type(found) is int and found < WHOLE and (exact or type(said) is int):
        return type(said) is int and said == found
    return math.isclose(said, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE * max(1, scale))


def _work(instance, steps):
    """Sum up, exactly, for how long each processor and channel is busy."""
    machine = lowering.machine(instance)
    graph, busy = lowering.lower(instance, machine), {}
    for index, step in enumerate(steps):
        action, _ = actions.read_step(graph, machine, index, step)
        for resource in action.resources if action else ():
            # The delay of a transfer does not occupy resources.
            busy[resource] = busy.get(resource, 0) + Fraction(action.duration) - Fraction(action.delay)
    return busy
