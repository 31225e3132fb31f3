"""Check with placement whether a schedule fits, because counting slots is only an estimate.

Algorithms for adjoints count slots of the largest state, in addition to the largest working state, adjoint and tape. A
schedule may need less than that or, if the user bounds the working memory, more than is available. Placement computes
the exact need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from math import inf
from typing import TypeVar

import numpy as np

from remat.placement import Unplaceable, least_capacity, place
from remat.plugin import Context, LeastBudget, Number, OptionError, Problem, Proposal, Steps
from remat_algorithms.adjoint.uniform_steps import Facts

MOST_STEPS = 100
"""Maximum number of steps for which a refusal is checked again: for long loops, the count is nearly exact."""

Given = TypeVar("Given")
Solve = Callable[[Problem, Given, Context], Proposal]


def within_room(name: str) -> Callable[[Solve[Given]], Solve[Given]]:
    """Let placement check the memory that an algorithm for adjoints counts.

    Two schedules may need less than the smallest counted budget: the one without recomputation, and the one with the
    fewest slots. The minimum budget is the smaller need of both. With at least that budget, the schedule is taken
    unless the count allows a better one. The named budget is therefore never above one that suffices, and more memory
    never hurts.

    With storage, the working memory may be too small for a schedule. The answer is then, without a claim, the smallest
    capacity with which the schedule can be placed. A storage size is likewise not called sufficient if the working
    memory would still be too small.

    Parameters
    ----------
    name : str
        The algorithm whose solver is decorated.
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
            return _in_working_memory(problem, _as_counted(problem, answer, at), name, at)

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
    needs: list[LeastBudget] = []
    for other in _candidates(problem, answer, at):
        if other is None or other.steps is None:
            continue
        outcome = place(problem.graph, problem.machine, other.steps)
        if not isinstance(outcome, Unplaceable):
            return replace(other, steps=other.steps.placed(outcome.start))
        need = least_capacity(problem.graph, problem.machine, other.steps, outcome)
        if need is not None:
            needs.append(LeastBudget(need, None, True, outcome.memory))
    # One that names another memory comes last: more of it may not be enough.
    least = min(needs, key=lambda need: (need.memory, need.size), default=None)
    return Proposal(infeasible_within=f"the {name} schedule", least=least, notes=answer.notes)


def _candidates(
    problem: Problem, answer: Proposal, at: Callable[[int | None], Proposal | None]
) -> Iterator[Proposal | None]:
    """Yield the answer and, if its states may fit the counted memory, the one without a limit of that memory."""
    yield answer
    capacity = problem.machine.memories[_counted(problem)].capacity
    if capacity is not None and _all_take_at_least(problem) <= capacity:
        yield at(None)


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
