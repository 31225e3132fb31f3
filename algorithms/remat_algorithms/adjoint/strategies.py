"""Strategies on adjoints: given states are stored in the first sweep, all others advanced to from the nearest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat.errors import OptionError
from remat.problem import Problem, Proposal
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.slots import forget_elsewhere, initially_in
from remat_algorithms.emit import check_length


def store_all(problem: Problem) -> Proposal:
    """Store every state but the last, which stays live."""
    return fixed(problem, range(_steps(problem) - 1))


def recompute_all(problem: Problem) -> Proposal:
    """Store only x0: n(n-1)/2 advances."""
    return fixed(problem, [])


def fixed(problem: Problem, checkpoints: Sequence[int]) -> Proposal:
    """Store the named states (and x0, if there is anything to go back for)."""
    n = _steps(problem)
    for state in checkpoints:
        if not 0 <= state < n:
            raise OptionError(f"--option checkpoints: {state} is out of range; the states are 0 to {n - 1}")
    level = 1 if len(problem.machine.memories) > 1 else 0
    if level and (0, 1) not in problem.machine.link_index:
        names = [memory.name for memory in problem.machine.memories]
        raise OptionError(f"--machine: checkpoints need a link from {names[0]} to {names[1]}")
    stored = sorted({0, *checkpoints} - {n - 1})
    gaps = np.diff([*stored, n - 1])
    check_length(n + int((gaps * (gaps - 1) // 2).sum()), "this set of checkpoints")
    plan = _plan(n, stored, level, given=initially_in(problem, level))
    forget_elsewhere(problem, plan, level)
    return Proposal(steps=plan.steps(problem))


def _steps(problem: Problem) -> int:
    chain = problem.chain
    return chain.length if chain.saves else chain.length + 1


def _plan(n: int, stored: Sequence[int], level: int, *, given: bool) -> Plan:
    plan = Plan()
    live = 0
    for state in stored:
        plan.advance(live, state)
        live = state
        if not (given and state == 0):
            plan.write(state, level)
    plan.advance(live, n - 1)
    plan.back(n - 1)
    ends = [*stored[1:], n - 1] if stored else []
    for state, end in zip(reversed(stored), reversed(ends), strict=True):
        for step in range(end - 1, state - 1, -1):
            plan.read(state, level, last=step == state)
            plan.advance(state, step)
            plan.back(step)
    if n == 1 and given:
        plan.discard(0, level)
    return plan
