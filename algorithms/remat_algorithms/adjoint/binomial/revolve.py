"""`revolve`: binomial checkpointing of n equal steps with s slots, in closed form.

Griewank & Walther 2000, "Algorithm 799: Revolve". The minimum number of advances is t(n, s) = r*n - beta(s+1, r-1) with
beta(s, r) = C(s+r, s) and r the smallest number for which n <= beta(s, r). `remat_algorithms.kit.binomial` computes it,
and the splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from remat.plugin import MOST_RUNS, Bound, Context, Entry, Number, OptionError, Problem, Proposal, check_length
from remat_algorithms.adjoint.memory_check import within_room
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import Alike, Blocks, Splits, reversal
from remat_algorithms.adjoint.slots import Slots, forgotten, initially_in, slot_notes, transfer_times
from remat_algorithms.adjoint.uniform_steps import Facts
from remat_algorithms.kit.binomial import advances


@within_room("revolve")
def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Solve an adjoint of equal steps with the slots of its fastest storage level, or of its one memory.

    Takes instances of kind `adjoint`. Without storage, slots = floor((budget - state - adjoint) / state). Finds the
    minimum number of advances, and the minimum makespan too if writing and reading checkpoints takes no time.

    Raises
    ------
    remat.OptionError
        If the steps' times differ: the closed form does not hold then.

    Notes
    -----
    O(steps of the schedule) time.
    """
    return propose(problem, context)


def prepare(problem: Problem, options: None) -> Callable[[Problem, Context], Proposal]:
    """Return a function that answers as `solve` does, and keeps what schedules with other slots have in common."""
    known: dict[int, Blocks] = {}

    @within_room("revolve")
    def answer(problem: Problem, options: None, context: Context) -> Proposal:
        return propose(problem, context, known)

    return lambda problem, context: answer(problem, options, context)


def propose(problem: Problem, context: Context, known: dict[int, Blocks] | None = None) -> Proposal:
    """Return the result of `solve` with the counted slots, without the check by placement.

    `known` has the ranges that earlier schedules of the same loop consist of, by storage level.
    """
    facts, slots = Facts.of(problem), Slots.of(problem)
    refused = refused_by_revolve(facts, slots)
    if refused is not None:
        return if_built(problem, refused)
    steps = facts.steps
    scope = scope_of(slots)
    check_length(advances(steps, max(slots.count, 1)) + steps, f"revolve with {slots.count} slots", context.limit)
    given = initially_in(problem, slots.level)
    blocks = Blocks(slots.level, Splits(steps))
    if known is not None:
        blocks = known.setdefault(slots.level, blocks)
    plan = plan_revolve(steps, max(slots.count, 1), slots.level, given=given, blocks=blocks)
    plan.extend(forgotten(problem, slots.level))
    work = plan.advances * (facts.forward or 0) + facts.backward
    bound = Bound(work, scope, "revolve")
    costs = transfer_times(problem, slots.level)
    if costs is None:
        return Proposal(steps=plan.steps(problem), bounds=(bound,), notes=slot_notes(problem, slots.level))
    makespan = work + costs[0] * plan.writes.get(slots.level, 0) + costs[1] * plan.reads.get(slots.level, 0)
    return Proposal(
        steps=plan.steps(problem),
        makespan=makespan,
        bounds=(bound,),
        optimal_within=scope if makespan == work else None,
        notes=slot_notes(problem, slots.level),
    )


def stream(problem: Problem, options: None, context: Context) -> Proposal | Iterator[Entry]:
    """Yield the operations of `solve` one by one, in O(slots) memory; steps and levels as for `solve`."""
    facts, slots = Facts.of(problem), Slots.of(problem)
    refused = refused_by_revolve(facts, slots) or facts.too_large(problem)
    if refused is not None:
        return refused
    levels = Alike(slots.level, max(slots.count, 1))
    entries = reversal(0, facts.steps, levels, given=initially_in(problem, slots.level))
    return chain(entries, forgotten(problem, slots.level))


def refused_by_revolve(facts: Facts, slots: Slots, name: str = "revolve") -> Proposal | None:
    """Return the answer if no state can be stored.

    Raises
    ------
    remat.OptionError
        If the steps' times differ: the closed form does not hold then.
    """
    if not facts.equal:
        raise OptionError(f"{name} needs steps of equal forward time; use walther-griewank", argument="algorithm")
    if slots.count < 1 and facts.steps > 1:
        return Proposal(infeasible_within=scope_of(slots), least=slots.least)
    return None


def if_built(problem: Problem, refused: Proposal) -> Proposal:
    """Withdraw the claim that one checkpoint suffices if its schedule is too long to be built."""
    facts, least = Facts.of(problem), refused.least
    alone = advances(facts.steps, 1) + facts.steps
    if least is None or alone <= MOST_RUNS:
        return refused
    note = f"with one checkpoint a schedule has {alone:,} runs; at most {MOST_RUNS:,} are built"
    if 2 * facts.steps - 1 <= MOST_RUNS:
        low, high = 1, facts.steps
        while high - low > 1:
            middle = (low + high) // 2
            if advances(facts.steps, middle) + facts.steps <= MOST_RUNS:
                high = middle
            else:
                low = middle
        name, size = problem.machine.memories[least.memory].name, least.size + (high - 1) * facts.state
        note += f", which takes {high} checkpoints at least: a budget of {name}={size}"
    return replace(refused, least=replace(least, sufficient=False), notes=(*refused.notes, note))


def scope_of(slots: Slots) -> str:
    """Name the class of schedules in which the number of advances is minimal."""
    return f"checkpointing schedules with {slots.count} slots"


def problem_backward_time(problem: Problem) -> Number:
    """Return the time of all backwards, tapes and the loss, which every schedule pays once."""
    return Facts.of(problem).backward


def plan_revolve(steps: int, slots: int, level: int, *, given: bool = False, blocks: Blocks | None = None) -> Plan:
    """Plan the binomial schedule of all steps.

    Parameters
    ----------
    steps, slots : int
        Slots include x0's.
    level : int
        Storage level (memory index) of the checkpoints.
    given : bool
        Whether x0 is already there.
    blocks : Blocks, optional
        Cached ranges of this level.
    """
    plan = Plan()
    blocks = Blocks(level, Splits(steps)) if blocks is None else blocks
    plan.add(np.concatenate([*blocks.reversal(steps, slots, given=given)]))
    return plan
