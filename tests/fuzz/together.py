"""What is asked of several answers about one instance: no claim of one may be refuted by a schedule of another."""

import dataclasses
import itertools
import math

from remat.plugin import registry
from tests.fuzz.judging import ALL, Finding, answer, may_stand_beside
from tests.fuzz.truth import truths


def compare(case, answers):
    """Yield findings about answers to one case, and about the least budgets that they name."""
    found = [_Schedule(given) for given in answers if given.found]
    claims = [_Claims(given) for given in answers if given.result is not None]
    for schedule, claim in itertools.product(found, claims):
        if schedule.fits(claim.capacities):
            for rule, message in claim.refuted_by(schedule):
                shown = (schedule.given.solve, claim.given.solve)
                where = f"; {_shown(schedule.given)} against {_shown(claim.given)}"
                yield Finding(rule, claim.given.solve.algorithm, message + where, shown)
        for rule, message in claim.least_refuted_by(schedule):
            shown = (schedule.given.solve, claim.given.solve)
            yield Finding(rule, claim.given.solve.algorithm, f"{message}; {_shown(schedule.given)}", shown)
    yield from truths(case, answers)


def ask_least(case, given):
    """Yield findings about a budget that is named as the least sufficient one: solve there, and with less."""
    least = None if given.result is None or given.found else given.result.least_budget
    if least is None or not least.sufficient:
        return
    machine = given.result.machine
    memory = machine.memories[least.memory]
    again = _at(case, given, memory.name, least.size)
    yield from again.findings
    if not again.found:
        said = again.refusal or (again.result.status if again.result else "an error")
        others = {place.name: place.capacity for place in machine.memories if place is not memory}
        message = f"{least.size} in {memory.name} is named as enough beside {others}, and there: {said}"
        yield Finding("least-is-not-enough", given.solve.algorithm, message, (given.solve,))
    if _own_class(given)[0] is None and (given.solve.algorithm != "auto" or least.scope != ALL):
        return  # a heuristic that names some budget at which it finds a schedule
    for less in sorted({least.size - 1, (least.size + memory.capacity) // 2}):
        if memory.capacity < less < least.size and (found := _at(case, given, memory.name, less)).found:
            message = f"{least.size} in {memory.name} is named as the least, and {less} does: {found.result.makespan}"
            yield Finding("least-is-not-least", given.solve.algorithm, message, (given.solve,))


def _at(case, given, memory, size):
    """Solve again with another capacity of one memory, beside the budgets that were given."""
    solve, machine = given.solve, given.result.machine
    budget = solve.budget if isinstance(solve.budget, dict) else {"": solve.budget}
    first = machine.memories[1 if "storage" in case.document else 0].name
    budget = {name or first: own for name, own in budget.items() if own is not None} | {memory: size}
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
        return None, None  # in an order of its own choice, or with reruns, the schedule is of another class
    options = tuple(sorted(map(repr, given.result.options.items())))
    return entry.within, ((name, options) if entry.guarantee == "strategy" else None)


class _Claims:
    """What an answer says of all schedules of a class, on its machine."""

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

    def least_refuted_by(self, schedule):
        least = self.result.least_budget
        if least is None or least.scope is None or not schedule.belongs(least.scope, self.given):
            return
        memory = self.result.machine.memories[least.memory].name
        if schedule.peaks[memory] < least.size and schedule.fits(self.capacities | {memory: math.inf}):
            rule = "least-beaten" if least.scope == ALL else "class-least-beaten"
            yield rule, f"no less than {least.size} in {memory} ({least.scope}), peak {schedule.peaks[memory]}"
