"""A smaller case with the same finding: leave out what can be left out, and make figures small, as long as it lasts."""

import copy
import dataclasses

import remat

ATTEMPTS = 2000


def shrunk(case, cause, judge):
    """Return the smallest case that was found with a finding of this cause, and the finding.

    Parameters
    ----------
    case : Case
        One with such a finding.
    cause : tuple
        `Finding.cause`.
    judge : callable
        As `tests.fuzz.trial.judge`.
    """
    best = case, _finding(case, cause, judge)
    left = ATTEMPTS
    while left > 0:
        for smaller in _smaller(best[0]):
            left -= 1
            found = _finding(smaller, cause, judge)
            if found is not None:
                best = smaller, found
                break
            if left <= 0:
                break
        else:
            return best
    return best


def _finding(case, cause, judge):
    try:
        remat.load(copy.deepcopy(case.document))
        findings = judge(case)[1]
    except (remat.RematError, KeyError, ValueError, IndexError, TypeError, StopIteration):
        return None  # not an instance any more
    return next((finding for finding in findings if finding.cause == cause), None)


def _smaller(case):
    for index in range(len(case.solves)):
        if len(case.solves) > 1:
            yield dataclasses.replace(case, solves=case.solves[:index] + case.solves[index + 1 :])
    for document in _less(case.document):
        yield dataclasses.replace(case, document=document)
    for index, solve in enumerate(case.solves):
        plain = [dataclasses.replace(solve, options=options) for options in _less(solve.options)]
        plain += [dataclasses.replace(solve, budget=budget) for budget in _less_of(solve.budget)]
        for other in plain:
            yield dataclasses.replace(case, solves=(*case.solves[:index], other, *case.solves[index + 1 :]))


def _less(thing):
    """Yield copies of nested lists and dictionaries in which one thing is gone, or one figure is smaller."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            yield {name: own for name, own in thing.items() if name != key}
            yield from ({**thing, key: less} for less in _less_of(value))
    elif isinstance(thing, list):
        for index, value in enumerate(thing):
            yield thing[:index] + thing[index + 1 :]
            yield from ([*thing[:index], less, *thing[index + 1 :]] for less in _less_of(value))


def _less_of(value):
    if isinstance(value, (dict, list)):
        yield from _less(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 1:
        yield from sorted({1, int(value) // 1000, int(value) // 2, int(value) - 1} - {value})
