"""What `auto` promises: a schedule where any built-in algorithm finds one, and no worse than any that is cheap."""

import dataclasses

from remat.plugin import registry
from tests.fuzz.cases import SECONDS, WORK, Solve, draw_budget, draw_case
from tests.fuzz.drawing import Draw
from tests.fuzz.judging import Finding, answer, at_most


def portfolio_case(seed):
    """Draw a case with one budget: `auto` first, then every algorithm, with options that bound its work."""
    case = draw_case(seed)
    budget = draw_budget(Draw(f"{seed}/portfolio"), case.document)
    names = ["auto", *(entry.name for entry in registry.algorithms(case.document["kind"], available=True))]
    solves = (Solve(name, budget, WORK.get(name, {}), time_limit=SECONDS.get(name)) for name in names)
    return dataclasses.replace(case, solves=tuple(solves))


def judge_portfolio(case, begin=lambda algorithm: None):
    """Compare `auto` with the cheap algorithms, and with all of them where it has no schedule."""
    kind = case.document["kind"]
    cheap = {entry.name for entry in registry.algorithms(kind) if kind in entry.cheap}
    if not case.solves or case.solves[0].algorithm != "auto":
        return [], []  # `auto` itself hangs here
    first, *others = case.solves
    begin(first.algorithm)
    own = answer(case, first)
    answers, findings = [own], list(own.findings)
    for solve in others:
        if solve.algorithm not in cheap and own.found:
            continue
        begin(solve.algorithm)
        other = answer(case, solve)
        answers.append(other)
        if not other.found:
            continue
        shown = f"{solve.algorithm} finds {other.result.makespan!r} at {solve.budget}"
        if not own.found:
            rule = "auto-finds-none"
            shown += f"; auto ({own.result.algorithm}): {own.result.status}" if own.result else f"; auto: {own.refusal}"
        elif at_most(own.result.makespan, other.result.makespan):
            continue
        else:
            rule = "auto-beaten"
            shown += f", auto ({own.result.algorithm}) {own.result.makespan!r}"
        findings.append(Finding(rule, solve.algorithm, shown, (first, solve)))
    return answers, findings
