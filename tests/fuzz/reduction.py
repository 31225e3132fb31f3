"""Reduce a case: remove parts and shrink figures while the same rule stays broken."""

import copy
import dataclasses
import time

import remat

ATTEMPTS, SECONDS = 600, 25.0
"""A reduction ends after so many attempts, or so many seconds of processor time."""

AS_IT_IS = ("hangs", "ends-the-process", "overrun", "slow")
"""Rules whose cases are not reduced: each attempt would take as long."""


def reduced(case, finding, judge, attempts=ATTEMPTS, seconds=SECONDS):
    """Return the smallest case that was found with a finding of the same cause, and that finding.

    Parameters
    ----------
    case : Case
    finding : Finding
    judge : callable
        As `tests.fuzz.trial.judge`.
    attempts : int
    seconds : float
        Of processor time.

    Returns
    -------
    (case, finding)
        The case as it is, with the solves of the finding, if the finding does not come again.
    """
    best = shown_by(case, finding), finding
    if finding.rule.startswith(AS_IT_IS):
        return best
    end, left = time.process_time() + seconds, attempts
    again = _finding(best[0], finding, judge)
    if again is None:
        return best
    best = best[0], again
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(best[0]):
            left -= 1
            if left <= 0 or time.process_time() > end:
                return best
            again = _finding(smaller, finding, judge)
            if again is not None:
                best, improved = (smaller, again), True
                break
    return best


def shown_by(case, finding):
    """Return the case with the solves that show a finding."""
    solves = finding.solves or tuple(one for one in case.solves if one.algorithm == finding.algorithm)
    return dataclasses.replace(case, solves=solves)


def _finding(case, wanted, judge):
    try:
        remat.load(copy.deepcopy(case.document))
        findings = judge(case, focus=wanted.rule)[1]
    except (remat.RematError, KeyError, ValueError, IndexError, TypeError, StopIteration, AttributeError):
        return None  # not an instance any more
    return next((finding for finding in findings if finding.cause == wanted.cause), None)


def _smaller(case):
    for index in range(len(case.solves)):
        if len(case.solves) > 1:
            yield dataclasses.replace(case, solves=case.solves[:index] + case.solves[index + 1 :])
    for document in (*_halves(case.document), *_fewer_tasks(case.document)):
        yield dataclasses.replace(case, document=document)
    for document in _less(case.document):
        yield dataclasses.replace(case, document=document)
    for index, solve in enumerate(case.solves):
        others = [dataclasses.replace(solve, options=options) for options in _less(solve.options)]
        others += [dataclasses.replace(solve, budget=budget) for budget in _less_of(solve.budget)]
        for other in others:
            yield dataclasses.replace(case, solves=(*case.solves[:index], other, *case.solves[index + 1 :]))


def _halves(document):
    """Yield documents in which half of a long list is gone."""
    for key, value in document.items():
        if isinstance(value, list) and len(value) >= 4:
            middle = len(value) // 2
            yield {**document, key: value[:middle]}
            yield {**document, key: value[middle:]}
        if key in ("steps", "micro_batches") and isinstance(value, int) and value > 2:
            yield {**document, key: value // 2}


def _fewer_tasks(document):
    """Yield task graphs without one of the tasks, or one of the values, and all that names it."""
    for task in document.get("tasks", ()):
        own = {*task.get("writes", ()), task["id"]}
        yield _without(document | {"tasks": [other for other in document["tasks"] if other is not task]}, own)
    for value in document.get("values", ()):
        yield _without(document, {value["id"]})


def _without(document, values):
    def kept(entries):
        return [e for e in entries if (e if isinstance(e, str) else e.get("value", e.get("id"))) not in values]

    smaller = dict(document)
    for key in ("values", "inputs", "outputs", "pinned_inputs"):
        if key in smaller:
            smaller[key] = kept(smaller[key])
    smaller["tasks"] = [
        {key: kept(value) if key in ("reads", "writes") else value for key, value in task.items()}
        for task in document["tasks"]
    ]
    return smaller


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
