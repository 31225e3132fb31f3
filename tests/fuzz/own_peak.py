"""The peak of a schedule as the budget: the same algorithm finds one that is no slower, unless its metadata says why.

See `remat.plugin.Algorithm.needs_slack`.
"""

import dataclasses

from remat.plugin import registry
from remat.testing.checks import own_peak
from tests.fuzz.cases import named_budget
from tests.fuzz.judging import answer, is_blurred
from tests.fuzz.verdicts import Finding, may_stand_beside

ASKED = 2
"""Number of answers of a case that are asked for again."""

RULE = "slower-at-own-peak"


def own_peak_findings(case, answers, rng, asked=ASKED):
    """Yield findings where an algorithm has no schedule at the peak of its own one, or a slower one."""
    exempt = {entry.name for entry in registry.algorithms() if entry.needs_slack} | {"auto"}
    found = [
        given
        for given in answers
        if given.found
        and not given.limited
        and given.solve.algorithm not in exempt
        and not given.solve.options.get("pool")  # the budget limits its addresses, which may exceed the peak
    ]
    for given in rng.sample(found, min(asked, len(found))):
        yield from _at_its_peak(case, given)


def _at_its_peak(case, given):
    result, solve = given.result, given.solve
    memory = _memory(result)
    peak = own_peak(result, memory)
    budget = named_budget(case.document, result.machine.memories[memory].name, peak)
    others = solve.budget if isinstance(solve.budget, dict) and isinstance(budget, dict) else {}
    if result.steady is not None and is_blurred(case.instance_of(solve), result, result.steady.period):
        return  # what is one instant of the period has no order, and its bytes no single peak
    again = answer(case, dataclasses.replace(solve, budget={**others, **budget} if others else budget, twice=False))
    if again.limited:
        return
    steps = len(result.columns)
    if not again.found or not may_stand_beside(again.result.makespan, steps, result.makespan):
        told = again.result.makespan if again.found else again.result.status
        message = f"{result.makespan!r} with peak {peak} at {solve.budget}, and at that peak {told!r}"
        yield Finding(RULE, solve.algorithm, message, (solve,))


def _memory(result):
    """Return the memory that a bare budget means."""
    return 1 if result.instance.has_storage and len(result.machine.memories) > 1 else 0
