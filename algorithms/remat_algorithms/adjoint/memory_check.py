"""Check with placement whether a schedule fits, because counting slots is only an estimate.

Algorithms for adjoints count slots of the largest state, in addition to the largest working state, adjoint and tape. A
schedule may need less than that or, if the user bounds the working memory, more than is available. Placement computes
the exact need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from math import inf
from typing import TypeVar

import numpy as np

from remat.placement import Unplaceable, least_capacity, place
from remat.plugin import Context, LeastBudget, Number, OptionError, Problem, Proposal, Steps
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.makespan import timed

MOST_STEPS = 100
"""Maximum number of steps for which a refusal is checked again: for long loops, the count is nearly exact."""

MOST_EQUAL_STEPS = 1000
"""Maximum number of equal steps without tapes for which more slots are tried: only few counts may fit then."""

MOST_TRIES = 40
"""Maximum number of larger counts of slots that are all tried; of more, a bisection tries some."""

Given = TypeVar("Given")
Solve = Callable[[Problem, Given, Context], Proposal]


def within_room(name: str, *, spares: bool = False) -> Callable[[Solve[Given]], Solve[Given]]:
    """Let placement check the memory that an algorithm for adjoints counts.

    Two schedules may need less than the smallest counted budget: the one without recomputation, and the one with the
    fewest slots. The minimum budget is the smaller need of both. With at least that budget, the schedule is taken
    unless the count allows a better one. The named budget is therefore never above one that suffices, and more memory
    never hurts.

    Schedules of more slots than counted may fit, too: whoever gives the peak of such a schedule as the budget gets it.

    With storage, the working memory may be too small for a schedule. The answer is then, without a claim, the smallest
    capacity with which the schedule can be placed. A storage size is likewise not called sufficient if the working
    memory would still be too small.

    Parameters
    ----------
    name : str
        The algorithm whose solver is decorated.
    spares : bool
        Whether its schedules may use fewer slots than they get.
    """

    def decorate(solve: Solve[Given]) -> Solve[Given]:
        @wraps(solve)
        def solve_within(problem: Problem, options: Given, context: Context) -> Proposal:
            def at(capacity: int | None) -> Proposal | None:
                memory = problem.machine.memories[_counted(problem)].name
                other = problem.on(problem.machine.with_capacities({memory: capacity}))
                try:
                    return solve(other, options, context)
                except OptionError:
                    return None

            answer = solve(problem, options, context)
            answer = _as_counted(problem, answer, at)
            if not context.stopped:
                answer = _with_more_slots(problem, answer, at, context, spares=spares)
            return _in_working_memory(problem, answer, name, at)

        return solve_within

    return decorate


def _counted(problem: Problem) -> int:
    """Return the memory whose slots are counted: the first level, or the one memory."""
    return min(1, len(problem.machine.memories) - 1)


def _as_counted(problem: Problem, answer: Proposal, at: Callable[[int | None], Proposal | None]) -> Proposal:
    """Return an answer, or a better one that fits all the same.

    `at` solves with another capacity of the counted memory.
    """
    counted = _counted(problem)
    capacity, refused = problem.machine.memories[counted].capacity, answer.steps is None
    if capacity is None or (refused and Facts.of(problem).steps > MOST_STEPS):
        return answer
    if not refused and _all_take_at_least(problem) > capacity:
        return answer
    without = answer if refused else at(0)
    least = None if without is None else without.least
    if least is None or least.memory != counted:
        return answer
    others = [at(None)] if _all_take_at_least(problem) < least.size else []
    if refused and least.sufficient:
        others.append(at(least.size))
    for other in others:
        need = None if other is None or other.steps is None else _need(problem, other.steps)
        if other is None or need is None or need >= least.size:
            continue
        if need <= capacity:
            answer = other if answer.steps is None or _time(problem, other) < _time(problem, answer) else answer
        elif refused and answer.least is not None and need < answer.least.size:
            answer = replace(answer, least=LeastBudget(need, None, True, counted))
    return answer


def _with_more_slots(
    problem: Problem,
    answer: Proposal,
    at: Callable[[int | None], Proposal | None],
    context: Context,
    *,
    spares: bool,
) -> Proposal:
    """Return an answer, or a faster one for more slots than counted that fits all the same.

    `at` solves with another capacity of the counted memory.
    """
    sizes = _larger_counts(problem, spares=spares)
    if not sizes:
        return answer
    best, time = answer, _placed_time(problem, answer)
    low, tries = 0, len(sizes)
    # From many slots to few. If there are many counts, they are bisected as if more slots always needed more memory.
    while tries > MOST_TRIES and not context.stopped:
        other = at(sizes[low + tries // 2])
        taken = _placed_time(problem, other)
        if taken < time and other is not None:
            best, time = other, taken
        low, tries = (low + tries // 2 + 1, tries - tries // 2 - 1) if taken == inf else (low, tries // 2)
    for size in sizes[low : low + tries]:
        if context.stopped:
            break
        other = at(size)
        taken = _placed_time(problem, other)
        if taken < time and other is not None:
            best, time = other, taken
            if not spares and not _counted(problem):
                break  # fewer slots take no less time
    return best


def _larger_counts(problem: Problem, *, spares: bool) -> list[int]:
    """Return capacities with more slots than the counted memory has, whose schedules may still fit, descending."""
    counted, facts = _counted(problem), Facts.of(problem)
    capacity, slot = problem.machine.memories[counted].capacity, facts.state + facts.tape
    fixed, static = (0, 0) if counted else (facts.working, facts.static)
    if capacity is None or not slot:
        return []
    equal = facts.equal and facts.least_state == facts.state and not facts.taped
    near = capacity + fixed - static  # where each slot in use has the size that is counted
    most = near if equal and not spares else fixed + facts.state + facts.steps * slot
    if facts.steps > MOST_STEPS:
        if not equal or facts.steps > MOST_EQUAL_STEPS:
            return []
        most = near
    fewest = 0 if spares else min(facts.least_state, facts.tape if facts.taped else facts.least_state)
    fitting = (capacity - static) // fewest if fewest else facts.steps
    sizes: set[int] = set()
    for unit in {facts.state, slot, max(facts.state, facts.tape)} - {0}:
        first, last = max(0, (capacity - fixed) // unit), min(facts.steps, fitting, (most - fixed) // unit)
        sizes.update(fixed + count * unit for count in range(first, last + 1))
    if facts.taped:  # the first state has bytes of its own
        sizes.update(one + facts.state for one in list(sizes))
    return sorted((size for size in sizes if capacity < size <= most), reverse=True)


def _placed_time(problem: Problem, answer: Proposal | None) -> Number:
    """Return the makespan of an answer on the problem's machine; infinite if it has no steps, or they do not fit."""
    placed = None if answer is None or answer.steps is None else timed(problem, answer.steps)
    return inf if placed is None else placed[1]


def _in_working_memory(
    problem: Problem, answer: Proposal, name: str, at: Callable[[int | None], Proposal | None]
) -> Proposal:
    """Return an answer or, if the working memory is too small for it, the size that the working memory needs."""
    steps, capacity = answer.steps, problem.machine.memories[0].capacity
    if capacity is None or len(problem.machine.memories) == 1:
        return answer
    facts = Facts.of(problem)
    if capacity >= facts.working + facts.state:
        return answer
    if steps is None:
        return _with_storage_alone(problem, answer, at)
    outcome = place(problem.graph, problem.machine, steps)
    if not isinstance(outcome, Unplaceable):
        return replace(answer, steps=steps.placed(outcome.start))
    need = least_capacity(problem.graph, problem.machine, steps, outcome)
    least = None if need is None else LeastBudget(need, None, True, outcome.memory)
    return Proposal(infeasible_within=f"the {name} schedule", least=least, notes=answer.notes)


def _with_storage_alone(problem: Problem, answer: Proposal, at: Callable[[int | None], Proposal | None]) -> Proposal:
    """Return a refusal that calls a storage size sufficient only if the schedule there fits the working memory, too."""
    least = answer.least
    if least is None or not least.sufficient or least.memory != _counted(problem):
        return answer
    # Long loops are not solved again for this: the refusal then promises nothing.
    other = at(least.size) if Facts.of(problem).steps <= MOST_STEPS else None
    if other is not None and other.steps is not None:
        machine = problem.machine
        enough = machine.with_capacities({machine.memories[least.memory].name: least.size})
        if not isinstance(place(problem.graph, enough, other.steps), Unplaceable):
            return answer
    return replace(answer, least=replace(least, sufficient=False))


def _all_take_at_least(problem: Problem) -> int:
    """Return a bound on the bytes of a schedule without recomputation: of each step but one its state, or its tape."""
    facts = Facts.of(problem)
    static = 0 if _counted(problem) else facts.static
    if facts.least_state == facts.state and not facts.taped:
        return static + (facts.steps - 1) * facts.state
    chain = problem.chain
    kept = chain.activation_size[: facts.steps]
    if chain.saves:
        kept = np.minimum(kept, chain.saved_size)
    return static + int(kept.sum()) - int(kept.max())


def _need(problem: Problem, steps: Steps) -> int | None:
    """Return the smallest capacity of the counted memory with which steps fit; None if another memory is full."""
    machine, counted = problem.machine, _counted(problem)
    empty = machine.with_capacities({machine.memories[counted].name: 0})
    outcome = place(problem.graph, empty, steps)
    if not isinstance(outcome, Unplaceable):
        return 0
    return least_capacity(problem.graph, empty, steps, outcome) if outcome.memory == counted else None


def _time(problem: Problem, answer: Proposal) -> Number:
    """Return the time that an answer claims, or else the time of its runs."""
    if answer.makespan is not None or answer.steps is None:
        return inf if answer.makespan is None else answer.makespan
    time: Number = problem.graph.time[answer.steps.runs].sum().item()
    return time
