"""Strategies on adjoints: store given states in the first sweep, and advance to all others from the nearest one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from remat.plugin import Context, Entry, LeastBudget, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import ADVANCE, BACK, DISCARD, READ, READ_LAST, WRITE
from remat_algorithms.adjoint.slots import forgotten, initially_in, require_links
from remat_algorithms.adjoint.uniform_steps import Facts


def store_all(problem: Problem, context: Context) -> Proposal:
    """Store every state but the last, which stays live."""
    return fixed(problem, range(_steps(problem) - 1), context)


def recompute_all(problem: Problem, context: Context) -> Proposal:
    """Store only x0: n(n-1)/2 advances."""
    return fixed(problem, [], context, "recompute-all")


def fixed(
    problem: Problem, checkpoints: Sequence[int], context: Context, name: str = "this set of checkpoints"
) -> Proposal:
    """Store the named states (and x0, if there is anything to go back for)."""
    n = _steps(problem)
    for state in checkpoints:
        if not 0 <= state < n:
            raise OptionError(f"{state} is out of range; the states are 0 to {n - 1}", option="checkpoints")
    level = 1 if len(problem.machine.memories) > 1 else 0
    stored = sorted({0, *checkpoints} - {n - 1})
    if level and stored:
        require_links(problem, level)
    gaps = np.diff([*stored, n - 1])
    check_length(n + int((gaps * (gaps - 1) // 2).sum()), name, context.limit)
    plan = Plan()
    plan.extend(_entries(n, stored, level, given=initially_in(problem, level)))
    plan.extend(forgotten(problem, level))
    return Proposal(steps=plan.steps(problem))


def stream_store_all(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `store_all` one by one; O(1) memory."""
    return _stream(problem, "store-all", range(Facts.of(problem).steps - 1))


def stream_recompute_all(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `recompute_all` one by one; O(1) memory."""
    return _stream(problem, "recompute-all", range(min(1, Facts.of(problem).steps - 1)))


def _stream(problem: Problem, name: str, stored: range) -> Proposal | Iterator[Entry]:
    facts, machine = Facts.of(problem), problem.machine
    if facts.least_state != facts.state:
        raise OptionError(f"{name} streams states of equal size only; use solve", argument="algorithm")
    level = 1 if len(machine.memories) > 1 else 0
    if level and stored:
        require_links(problem, level)
    count, capacity = len(stored), machine.memories[level].capacity
    need = count * facts.state
    if not level:
        # The adjoint replaces the last state; after two backwards, steps are recomputed next to an adjoint.
        beside = facts.state + facts.adjoint if facts.steps > count + 1 else max(facts.state, facts.adjoint)
        need += facts.static + facts.tape + beside
    if capacity is not None and capacity < need:
        return Proposal(infeasible_within=f"the {name} schedule", least=LeastBudget(need, None, True, level))
    entries = _entries(facts.steps, stored, level, given=initially_in(problem, level))
    return facts.too_large(problem) or chain(entries, forgotten(problem, level))


def _steps(problem: Problem) -> int:
    chain = problem.chain
    return chain.length if chain.saves else chain.length + 1


def _entries(n: int, stored: Sequence[int], level: int, *, given: bool) -> Iterator[Entry]:
    live = 0
    for state in stored:
        if state > live:
            yield (ADVANCE, live, state)
        live = state
        if not (given and state == 0):
            yield (WRITE, state, level)
    if n - 1 > live:
        yield (ADVANCE, live, n - 1)
    yield (BACK, n - 1, 0)
    end = n - 1
    for state in reversed(stored):
        for step in range(end - 1, state - 1, -1):
            yield (READ_LAST if step == state else READ, state, level)
            if step > state:
                yield (ADVANCE, state, step)
            yield (BACK, step, 0)
        end = state
    if n == 1 and given:
        yield (DISCARD, 0, level)
