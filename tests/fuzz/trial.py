"""One case from its solves to its findings."""

import dataclasses
import random

from remat.plugin import registry
from tests.fuzz.cases import is_large
from tests.fuzz.command_line import command_line_findings
from tests.fuzz.comparing import ask_minimum, compare
from tests.fuzz.invariances import invariance_findings
from tests.fuzz.judging import answer
from tests.fuzz.own_peak import ASKED, RULE, own_peak_findings
from tests.fuzz.questions import question_findings

ODDS_OF_COMMAND_LINE = 12
ODDS_OF_QUESTION = 12
ODDS_OF_OWN_PEAK = 3
"""Period, in cases, with which the command line runs, the minimum budget is computed, or peaks are budgets."""

TIGHT = 4
"""Algorithms that also run at the smallest known budget, and one byte below it."""


def judge(case, begin=lambda algorithm: None, focus=None):
    """Solve everything that a case asks, and judge each answer and all of them together.

    Parameters
    ----------
    case : Case
    begin : callable
        Called with the name of each algorithm before it solves: a watchdog waits for that.
    focus : str, optional
        The rule of a known finding. Nothing is asked that this rule does not need.

    Returns
    -------
    (answers, findings)
    """
    answers, findings = [], []

    def ask(solve):
        begin(solve.algorithm)
        answers.append(answer(case, solve))

    for solve in case.solves:
        ask(solve)
    if focus is None:
        for solve in tight_solves(case, answers):
            ask(solve)
    for given in answers:
        begin(f"{given.solve.algorithm} again")
        findings += given.findings
        if focus is None or focus.startswith("minimum"):
            findings += ask_minimum(case, given)
    if not is_large(case.document):
        begin("the comparison")
        findings += compare(case, answers)
        begin("the same written otherwise")
        findings += invariance_findings(case, answers, focus)
        rng = random.Random(f"{case.seed}/peak")
        if focus == RULE or (focus is None and rng.randrange(ODDS_OF_OWN_PEAK) == 0):
            begin("the budget of the peak")
            findings += own_peak_findings(case, answers, rng, len(answers) if focus == RULE else ASKED)
        rng = random.Random(f"{case.seed}/outside")
        if focus == "question" or (focus is None and rng.randrange(ODDS_OF_QUESTION) == 0):
            begin("the minimum budget")
            findings += question_findings(case, answers, rng)
        if focus == "command-line" or (focus is None and rng.randrange(ODDS_OF_COMMAND_LINE) == 0):
            begin("the command line")
            findings += command_line_findings(case, answers, rng)
    return answers, findings


def tight_solves(case, answers):
    """Yield solves at the smallest peak of any schedule found, which is a feasible budget, and one byte below it."""
    known = [given for given in answers if given.found]
    if not known or case.document["kind"] == "pipeline" or "storage" in case.document or is_large(case.document):
        return
    rng = random.Random(f"{case.seed}/tight")
    machine = known[0].result.machine
    working = machine.memories[machine.processors[0].memory].name
    least = min(known, key=lambda given: dict(given.result.peak_memory)[working])
    peak = dict(least.result.peak_memory)[working]
    others = least.solve.budget if isinstance(least.solve.budget, dict) else {}
    entries = {entry.name: entry for entry in registry.algorithms()}
    solves = {given.solve.algorithm: given.solve for given in answers if given.result is not None}
    solves.pop(None, None)
    exact = [name for name in solves if name in entries and entries[name].guarantee == "exact"]
    names = sorted({*exact, least.solve.algorithm, *(["auto"] if "auto" in solves else [])})
    for name in rng.sample(names, min(TIGHT, len(names))):
        for size in (peak, peak - 1):
            if size >= 0:
                yield dataclasses.replace(solves[name], budget={**others, working: size}, twice=False)
