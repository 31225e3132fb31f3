"""Judge several answers about one instance: no schedule of one may refute a claim of another."""

import dataclasses
import itertools
import math

from remat.plugin import registry
from tests.fuzz.cases import AUTO_SECONDS, is_large, named_budget
from tests.fuzz.classes import class_findings
from tests.fuzz.judging import answer
from tests.fuzz.truth import truths
from tests.fuzz.verdicts import ALL, Finding, at_most, may_stand_beside

UNFINISHED = "a limit ended the search for a smaller budget"
"""The note of an answer whose smallest budget is only the smallest that was found."""


def compare(case, answers):
    """Yield findings about the answers of one case."""
    found = [_Schedule(given) for given in answers if given.found]
    claims = [_Claims(given) for given in answers if given.result is not None]
    for schedule, claim in itertools.product(found, claims):
        if schedule.fits(claim.capacities):
            for rule, message in claim.refuted_by(schedule):
                shown = (schedule.given.solve, claim.given.solve)
                where = f"; {_shown(schedule.given)} against {_shown(claim.given)}"
                yield Finding(rule, claim.given.solve.algorithm, message + where, shown)
        for rule, message in claim.minimum_refuted_by(schedule):
            shown = (schedule.given.solve, claim.given.solve)
            yield Finding(rule, claim.given.solve.algorithm, f"{message}; {_shown(schedule.given)}", shown)
    yield from _portfolio(case, answers)
    yield from _with_more_memory(claims)
    yield from _less_than_proved(case, answers)
    yield from class_findings(case, answers)
    yield from truths(case, answers)


def _portfolio(case, answers):
    """Yield findings where `auto` has no schedule and another algorithm has one, or is worse than a cheap algorithm."""
    kind = case.document["kind"]
    cheap = {entry.name for entry in registry.algorithms(kind) if kind in entry.cheap}
    plain = [given for given in answers if given.result is not None]
    for own in (given for given in plain if given.solve.algorithm == "auto" and not given.limited):
        for other in plain:
            if repr(other.solve.budget) != repr(own.solve.budget) or (other.solve.options and other.found):
                continue
            shown, name = (own.solve, other.solve), other.solve.algorithm
            if other.found and not own.found and own.result.status == "unknown":
                yield Finding("auto-finds-none", "auto", f"{name} finds {other.result.makespan!r}", shown)
            elif (
                other.found and own.found and name in cheap and not at_most(own.result.makespan, other.result.makespan)
            ):
                message = f"{own.result.makespan!r}, and {name} finds {other.result.makespan!r}"
                yield Finding("auto-beaten", "auto", message, shown)
            elif not other.found and not own.found and name != "auto":
                yield from _smaller_minimum(own, other)


def _smaller_minimum(own, other):
    """Yield a finding where an algorithm names a smaller sufficient budget than `auto`."""
    least, less = own.result.least_budget, other.result.least_budget
    if None in (least, less) or not (least.sufficient and less.sufficient) or least.memory != less.memory:
        return
    if less.size < least.size:
        message = f"{least.size} is named as enough, and {other.solve.algorithm} names {less.size}"
        yield Finding("minimum-not-smallest", "auto", message, (own.solve, other.solve))


def _with_more_memory(claims):
    """Yield findings where `auto`, or an algorithm that proves its optimum, answers worse with more memory."""
    for less, more in itertools.permutations(claims, 2):
        one, other = less.given, more.given
        same = dataclasses.replace(one.solve, budget=None) == dataclasses.replace(other.solve, budget=None)
        if not same or not one.found or one.limited or other.limited or less.capacities == more.capacities:
            continue
        proved = one.result.optimal_within is not None and other.result.termination == "completed"
        exact = proved and _own_class(one)[0] is not None and other.result.scope in (None, ALL, _own_class(one)[0])
        if not (exact or one.solve.algorithm == "auto"):
            continue
        if any(more.capacities[name] < size for name, size in less.capacities.items()):
            continue
        if not other.found or not may_stand_beside(other.result.makespan, len(one.result.columns), one.result.makespan):
            message = (
                f"{one.result.makespan!r} at {one.solve.budget}, {other.result.makespan!r} at {other.solve.budget}"
            )
            yield Finding("worse-with-more-memory", one.solve.algorithm, message, (one.solve, other.solve))


def ask_minimum(case, given):
    """Yield findings about a budget that is named as the smallest sufficient one: solve there, and with less."""
    least = None if given.result is None or given.found else given.result.least_budget
    if least is None or not least.sufficient:
        return
    machine = given.result.machine
    memory = machine.memories[least.memory]
    again = _at(given, case, memory.name, least.size)
    yield from again.findings
    if not again.found and not again.limited:
        said = again.refusal or (again.result.status if again.result else "an error")
        others = {place.name: place.capacity for place in machine.memories if place is not memory}
        message = f"{least.size} in {memory.name} is named as enough beside {others}, and there: {said}"
        yield Finding("minimum-not-enough", given.solve.algorithm, message, (given.solve,))
    if given.limited or (_own_class(given)[0] is None and given.solve.algorithm != "auto"):
        return  # no time to look for less, or a heuristic that names some budget at which it finds a schedule
    if least.scope is None and UNFINISHED in given.result.notes:
        return  # it claims no minimality
    known = memory.capacity or 0  # the fullest device may have no limit: its budget is that of every device
    for less in sorted({least.size - 1, (least.size + known) // 2}):
        if known < less < least.size and (found := _at(given, case, memory.name, less)).found:
            if given.solve.algorithm == "auto" and least.scope not in (None, ALL, *_classes_of_one()):
                continue  # minimal within a class of many schedules, which is named
            message = f"{least.size} in {memory.name} is named as minimal, and {less} does: {found.result.makespan}"
            yield Finding("minimum-not-minimal", given.solve.algorithm, message, (given.solve,))


def _less_than_proved(case, answers):
    """Yield a finding if `auto` finds a schedule one byte below the largest minimum that is proved for a memory."""
    largest = {}
    for given in answers:
        least = None if given.result is None or given.found or given.limited else given.result.least_budget
        if least is not None and least.scope == ALL:
            place = (least.memory, repr(given.solve.budget))
            largest[place] = max(largest.get(place, given), given, key=lambda one: one.result.least_budget.size)
    for given in () if is_large(case.document) else largest.values():
        least, memory = given.result.least_budget, given.result.machine.memories[given.result.least_budget.memory]
        if least.size - 1 <= (memory.capacity or 0):
            continue
        solve = dataclasses.replace(given.solve, algorithm="auto", options={}, time_limit=AUTO_SECONDS)
        found = _at(dataclasses.replace(given, solve=solve), case, memory.name, least.size - 1)
        if found.found:
            message = f"no less than {least.size} in {memory.name}, and auto finds {found.result.makespan!r} with less"
            yield Finding("minimum-beaten", given.solve.algorithm, message, (given.solve, found.solve))


def _classes_of_one():
    """Return the classes of strategies, which are one schedule each: minimal in them says nothing about an instance."""
    return {
        entry.within or f"the {entry.name} schedule" for entry in registry.algorithms() if entry.guarantee == "strategy"
    }


def _at(given, case, memory, size):
    """Solve again with another capacity of one memory, or of all devices if the budget was that of all."""
    solve, budget = given.solve, given.solve.budget
    if not isinstance(budget, dict):
        budget = named_budget(case.document, memory, size)
        if isinstance(budget, dict):  # one size may be that of several memories
            held = {place.name: place.capacity for place in given.result.machine.memories}
            budget = {name: own for name, own in held.items() if own is not None} | budget
    else:
        budget = {name: own for name, own in budget.items() if own is not None} | {memory: size}
    return answer(case, dataclasses.replace(solve, budget=budget, twice=False))


def _shown(given):
    options = f" {given.solve.options}" if given.solve.options else ""
    return f"{given.solve.algorithm}{options} at {given.solve.budget}"


class _Schedule:
    """A schedule, and the classes of schedules to which it belongs."""

    def __init__(self, given):
        self.given, self.makespan = given, given.result.makespan
        self.peaks = dict(given.result.peak_memory)
        self.classes = {ALL, given.result.optimal_within} - {None}
        self.own = _own_class(given)

    def belongs(self, scope, other):
        """Whether the schedule is of a class that another answer speaks of."""
        if scope in self.classes:
            return True
        # A strategy's one schedule is the same for the same options only.
        entry, same = self.own
        return scope == entry and (not same or same == _own_class(other)[1])

    def fits(self, capacities):
        return all(self.peaks[memory] <= capacity for memory, capacity in capacities.items())


def _own_class(given):
    name = given.result.algorithm
    entry = next((entry for entry in registry.algorithms() if entry.name == name), None)
    wider = any(given.result.options.get(option) for option in ("reorder", "recompute"))
    if entry is None or entry.guarantee not in ("exact", "strategy") or wider:
        return None, None  # with a free order or reruns, the schedule belongs to another class
    options = tuple(sorted(map(repr, given.result.options.items())))
    return entry.within, ((name, options) if entry.guarantee == "strategy" else None)


class _Claims:
    """An answer's claims about all schedules of a class, on its machine."""

    def __init__(self, given):
        self.given, self.result = given, given.result
        places = given.result.machine.memories
        self.capacities = {m.name: math.inf if m.capacity is None else m.capacity for m in places}

    def refuted_by(self, schedule):
        for bound in self.result.bounds:
            if schedule.belongs(bound.scope, self.given) and not self._may_stand_beside(bound.value, schedule):
                rule = "bound-beaten" if bound.scope == ALL else "class-bound-beaten"
                yield rule, f"bound {bound.value!r} ({bound.source}, {bound.scope}), makespan {schedule.makespan!r}"
        within = self.result.optimal_within
        optimum = self.result.makespan
        if within and schedule.belongs(within, self.given) and not self._may_stand_beside(optimum, schedule):
            rule = "optimal-beaten" if within == ALL else "class-optimal-beaten"
            yield rule, f"{self.result.makespan!r} is optimal in {within!r}, makespan {schedule.makespan!r}"
        if self.given.excluded and schedule.belongs(self.given.excluded, self.given):
            rule = "infeasible-found" if self.given.excluded == ALL else "class-infeasible-found"
            yield rule, f"none in {self.given.excluded!r}, makespan {schedule.makespan!r}, peaks {schedule.peaks}"

    def _may_stand_beside(self, figure, schedule):
        steps = 0 if self.result.columns is None else len(self.result.columns)
        return may_stand_beside(figure, steps, schedule.makespan)

    def minimum_refuted_by(self, schedule):
        least = self.result.least_budget
        if least is None or least.scope is None or not schedule.belongs(least.scope, self.given):
            return
        machine = self.result.machine
        memory, all_devices = machine.memories[least.memory].name, self.result.instance.budgets_are_for_all
        devices = {machine.memories[one.memory].name for one in machine.processors}
        free = devices if all_devices and memory in devices else {memory}
        peak = max(schedule.peaks[name] for name in free)
        if peak < least.size and schedule.fits(self.capacities | dict.fromkeys(free, math.inf)):
            rule = "minimum-beaten" if least.scope == ALL else "class-minimum-beaten"
            yield rule, f"no less than {least.size} in {memory} ({least.scope}), peak {peak}"
