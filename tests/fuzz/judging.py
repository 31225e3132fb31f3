"""What is asked of one answer: the referee of the oracles, the answer against itself, and errors that are clear."""

import json
import math
import os
import re
import traceback
import warnings
from dataclasses import dataclass, field
from fractions import Fraction

import remat
from remat.errors import ClaimError
from tests.fuzz.cases import plain
from tests.oracles import actions, cycles, lowering, referee, samples

ALL = "all schedules"
TOLERANCE = 1e-9

LONGEST = 300
"""Characters that a message has at most."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, and the solves of the case that show it."""

    rule: str
    algorithm: str
    message: str
    solves: tuple = ()

    @property
    def cause(self):
        """What findings are grouped by: the rule, the algorithm, and of errors the text without its figures."""
        told = re.sub(r"[\d.]+|'[^']*'", "#", self.message) if self.rule in ("claim", "exception") else ""
        return self.rule, self.algorithm, told


@dataclass
class Answer:
    """What came of a solve: a result, or a refusal, or neither (then there is a finding)."""

    solve: object
    result: object = None
    refusal: str = ""
    findings: list = field(default_factory=list)

    @property
    def found(self):
        return self.result is not None and self.result.columns is not None

    @property
    def excluded(self):
        """The class of schedules that is said to have none; None if none is."""
        return None if self.result is None or self.found else self.result.scope

    def blame(self, rule, message):
        self.findings.append(Finding(rule, self.solve.algorithm, message, (self.solve,)))


def at_most(one, other):
    """Whether a figure is at most another one: exactly, unless the makespan to compare with is fractional."""
    if isinstance(other, int):
        return Fraction(one) <= other
    return one - other <= TOLERANCE * max(abs(one), abs(other))


def may_stand_beside(figure, steps, other):
    """Whether a bound, or an optimum, of so many steps is no more than a makespan, but for what adding rounds off."""
    rounded = 0 if isinstance(figure, int) else Fraction(steps, 2**52) * Fraction(figure)
    return at_most(figure, other) or Fraction(figure) - Fraction(other) <= rounded


def equal(one, other):
    """Whether two figures are the same, whole ones exactly."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=TOLERANCE)


def answer(case, solve):
    """Solve, and judge what comes."""
    given = Answer(solve)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        started = _seconds()
        try:
            given.result = _solved(case, solve)
        except remat.RematError as error:
            given.refusal = str(error)
            if len(given.refusal) > LONGEST or "\n" in given.refusal:
                given.blame("long-error", given.refusal[:400])
            if not given.refusal.strip() or re.search(r"(?<![\w-])--\w", given.refusal):
                given.blame("unclear-error", f"{type(error).__name__}: {given.refusal!r}")
        except ClaimError as error:
            given.blame("claim", str(error))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename.rpartition('/remat')[2]}:{last.name}"
            given.blame("exception", f"{type(error).__name__} in {place}: {error}")
    taken = _seconds() - started
    if solve.time_limit is not None and taken > 1.1 * solve.time_limit + 1.0:
        given.blame("overrun", f"{taken:.1f} s of processor time, {solve.time_limit} s asked")
    if given.result is not None:
        _judge(case, given)
        if solve.twice:
            _ask_again(case, given)
    return given


def _seconds():
    """Processor time of this process and of those that it has waited for: a loaded machine changes little of it."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _solved(case, solve):
    return remat.solve(json.loads(json.dumps(case.document)), **solve.arguments())


def _ask_again(case, given):
    one, other = (_lasting(result) for result in (given.result, _solved(case, given.solve)))
    limited = {"time limit", "interrupted"} & {one["termination"], other["termination"]}
    if one != other and not limited:
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
        given.blame("status", f"{result.status}, and {'a' if given.found else 'no'} schedule")
    if (result.status == "optimal") != (given.found and result.optimal_within == ALL):
        given.blame("status", f"{result.status}, optimal within {result.optimal_within}")
    if result.status == "infeasible" and result.scope != ALL:
        given.blame("infeasible-in-a-class", f"infeasible, and the class is {result.scope!r}")
    for bound in result.bounds:
        if not (type(bound.value) in (int, float) and math.isfinite(bound.value) and bound.value >= 0 and bound.scope):
            given.blame("bound-is-no-time", f"{bound}")
    shown = max((said.bound for said in result.history if said.bound is not None), default=0)
    if result.columns is not None and shown > result.lower_bound:
        given.blame("gap-taken-back", f"bound {shown!r} was reported, and the answer's is {result.lower_bound!r}")
    if given.found:
        if not at_most(result.lower_bound, result.makespan) and not equal(result.lower_bound, result.makespan):
            given.blame("own-bound", f"lower bound {result.lower_bound!r}, makespan {result.makespan!r}")
        _judge_schedule(case, given, document)


def _judge_schedule(case, given, document):
    result, instance, budget = given.result, plain(case.document), given.solve.budget
    if document.get("pattern") is not None or document.get("period") is not None:
        _judge_without_end(instance, given, document, budget)
        return
    if any("recompute" in stage for stage in document.get("stages", ())):
        return  # layers of pipelines that run again are judged by tests/oracles/recomputing_pipelines.py
    told = document if document.get("orders") is not None or document.get("initial") else document["steps"]
    report = referee.check(instance, told, budget)
    if not report.ok:
        given.blame("rejected", f"the referee finds {report.violations[:3]}")
    for name, said, found in (
        ("makespan", result.makespan, report.makespan),
        ("recompute time", result.recompute_time, report.recompute_time),
        ("peaks", dict(result.peak_memory), report.peaks),
        ("transfers", dict(result.report.transferred), report.transferred),
    ):
        scale = result.report.run_time if name == "recompute time" else 0
        if not _same(said, found, scale):
            given.blame("figures", f"{name} {said}, the referee has {found}")
    for resource, busy in () if document.get("orders") is not None else _work(instance, document["steps"]).items():
        if busy > Fraction(report.makespan) * (1 + Fraction(TOLERANCE)):
            given.blame("overworked", f"{resource} works for {float(busy)} in {report.makespan}")


def _judge_without_end(instance, given, document, budget):
    """Judge what follows itself for ever by writing out a long stretch of it."""
    if instance["kind"] == "dag":
        verdict = samples.judge(instance, document)
        if not verdict.ok:
            given.blame("rejected", f"the referee finds {sorted(verdict.rules)[:3]}")
        elif not _same(given.result.makespan, verdict.time_per_sample):
            given.blame("figures", f"time {given.result.makespan}, the referee has {verdict.time_per_sample}")
    elif instance["kind"] == "chain":
        rules, _ = cycles.steady(instance, document, budget)
        if rules:
            given.blame("rejected", f"the referee finds {sorted(rules)[:3]}")


def _same(said, found, scale=0):
    """Whether figures are the same; a difference of sums of the size `scale` is known as well as these are."""
    if isinstance(found, dict):
        # A link of no name and no use is listed by one and not by the other.
        keys = said.keys() | found.keys()
        return all(_same(said.get(key, 0), found.get(key, 0)) for key in keys)
    if type(said) is int and type(found) is int:
        return said == found
    return math.isclose(said, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE * max(1, scale))


def _work(instance, steps):
    """Sum up, exactly, for how long each processor and channel is busy."""
    machine = lowering.machine(instance)
    graph, busy = lowering.lower(instance, machine), {}
    for index, step in enumerate(steps):
        action, _ = actions.read_step(graph, machine, index, step)
        for resource in action.resources if action else ():
            busy[resource] = busy.get(resource, 0) + Fraction(action.duration)
    return busy
