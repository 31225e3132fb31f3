"""Initial schedules of `adjoint-best`: its own for equal steps with tapes, and those of other algorithms.

Each algorithm has a share of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from remat.placement import Placement, Unplaceable, least_capacity, place
from remat.plugin import (
    ALL_SCHEDULES,
    Algorithm,
    Context,
    Number,
    OptionError,
    Problem,
    Proposal,
    StepBuilder,
    Steps,
    concatenate,
)
from remat_algorithms.adjoint.applicability import uniform_adjoint
from remat_algorithms.adjoint.slots import initially_in
from remat_algorithms.joint.adjoint_best.reversal_schedules import schedules
from remat_algorithms.kit.delegation import asked
from remat_algorithms.kit.makespan import makespan_of

QUICK = ("store-all", "revolve", "multistage", "two-level", "periodic-disk-revolve", "treeverse", "recompute-all")
"""Algorithms without a search, which also run after the time is over."""

MOST_QUICK = 100_000
"""Maximum number of steps for running them after the time is over."""

SQUARE, MOST_SQUARED = "recompute-all", 600
"""The quick algorithm whose schedule has half the square of the steps as its length, and the maximum number of steps
for it; beyond, it runs only if no other algorithm finds a schedule.
"""

UNEQUAL = "walther-griewank"
"""A table for steps of different times. For equal times, `revolve` and `h-revolve` give the same with less work."""

MOST_AS_CHAINS = 200
"""Maximum number of steps for algorithms for chains."""

OFFLOADING_ROUNDS, MOST_OFFLOADED = 200, 30
"""Maximum number of rounds of the search that offloads values to storage, and maximum number of steps for which it
takes about a second. Longer loops skip it unless the user sets a time limit, or there is one and tapes may be stored.
"""

LITTLE = 0.05
"""Work limit of a constraint program, in CP-SAT's units of about 10 s; a program over stages finds nothing with it."""


@dataclass(frozen=True)
class Start:
    """A schedule that fits, with its makespan and a proved bound."""

    name: str
    steps: Steps
    makespan: Number
    bound: Number


def starts(problem: Problem, context: Context, rounds: int) -> Iterator[Start | Proposal]:
    """Yield each schedule that another algorithm finds, quick ones first; also a proposal that proves infeasibility.

    An algorithm that refuses the instance, or whose schedule does not fit, yields nothing. `rounds` limits the search
    that offloads values to storage.
    """
    for name, proposal in _asked(problem, context, rounds):
        start = judged(problem, name, proposal)
        if start is not None:
            yield start
        elif proposal.steps is None and proposal.infeasible_within == ALL_SCHEDULES:
            yield proposal


def within_given_time(context: Context) -> bool:
    """Whether the user set a time limit, which parts that seldom improve a schedule may use up."""
    return context.limit_given and context.seconds_left is not None


def sufficient(problem: Problem, context: Context, memory: int) -> Iterator[int]:
    """Yield sizes of a memory that suffice for other algorithms, by their reports or by schedules that do not fit."""
    for _, proposal in _asked(problem, context.aside()):
        if proposal.steps is not None:
            outcome = place(problem.graph, problem.machine, proposal.steps)
            if isinstance(outcome, Unplaceable) and outcome.memory == memory:
                size = least_capacity(problem.graph, problem.machine, proposal.steps, outcome)
                if size is not None:
                    yield size
        elif proposal.least is not None and proposal.least.sufficient and proposal.least.memory == memory:
            yield proposal.least.size


def _asked(problem: Problem, context: Context, rounds: int = OFFLOADING_ROUNDS) -> Iterator[tuple[str, Proposal]]:
    """Plan equal steps, run the other algorithms that accept the instance, quick ones first, then those for chains."""
    short, long = problem.chain.length <= MOST_QUICK, problem.chain.length > MOST_SQUARED
    found, equal = False, uniform_adjoint(problem)
    yield from (("states and tapes", planned) for planned in schedules(problem, context))
    for entry in _others():
        if context.stopped and not (short and entry.name in QUICK):
            continue
        if (entry.name == SQUARE and found) or (entry.name == UNEQUAL and equal):
            continue
        proposal = asked(entry, problem, context)
        if proposal is not None:
            found = found or (long and judged(problem, entry.name, proposal) is not None)
            yield entry.name, proposal
    if problem.chain.length > MOST_AS_CHAINS:
        return
    for name, proposal in (_in_working_memory(problem, context), _to_storage_and_back(problem, context, rounds)):
        if proposal is not None:
            yield name, proposal


def _in_working_memory(problem: Problem, context: Context) -> tuple[str, Proposal | None]:
    """Return the best schedule without storage, with the states and tapes of a chain.

    No algorithm for adjoints keeps tapes of individual sizes, and those for storage ignore the memory that smaller
    states leave free.
    """
    name = "rotor-float"
    return name, _as_a_chain(problem, name, {"certificate": False}, context) if _x0_can_stay(problem) else None


def _to_storage_and_back(problem: Problem, context: Context, rounds: int) -> tuple[str, Proposal | None]:
    """Return the result of a search for chains that offloads any value, also tapes and adjoints, during computation."""
    timed = context.seconds_left is not None
    quick = (
        problem.chain.length <= MOST_OFFLOADED or within_given_time(context) or (timed and bool(problem.chain.saves))
    )
    name, given = "remat-offload-best", {"iterations": min(OFFLOADING_ROUNDS, rounds), "work": 0}
    return name, _as_a_chain(problem, name, given, context) if problem.machine.links and quick else None


def _as_a_chain(problem: Problem, name: str, given: dict[str, Any], context: Context) -> Proposal | None:
    """Return the proposal of an algorithm for chains; None if it refuses the instance, or the time is over."""
    from remat_algorithms.chain.catalogue import ALGORITHMS as CHAIN
    from remat_algorithms.joint.catalogue import ALGORITHMS as JOINT

    if context.stopped:
        return None
    entry = next(entry for entry in (*CHAIN, *JOINT) if entry.name == name)
    plain, head = _without_given_x0(problem)
    proposal = asked(entry, plain, context, given)
    return None if proposal is None else _after(head, proposal)


def _without_given_x0(problem: Problem) -> tuple[Problem, Steps]:
    """Return the problem without the initial copy of x0 in storage, and the step that frees this copy."""
    head = StepBuilder()
    given = next((k for k in range(1, len(problem.machine.memories)) if initially_in(problem, k)), None)
    if given is None:
        return problem, head.build()
    head.drop([0], given)
    return Problem(problem.instance.model_copy(update={"initial_state": "live"}), problem.machine), head.build()


def _after(head: Steps, proposal: Proposal) -> Proposal:
    """Return a proposal for the problem with the copy of x0; proofs for the problem without it do not carry over."""
    if not len(head):
        return proposal
    proposal = replace(proposal, bounds=(), optimal_within=None, infeasible_within=None, least=None)
    steps = proposal.steps
    if steps is None:
        return proposal
    if steps.start is not None:
        head = head.placed(np.zeros(len(head), dtype=steps.start.dtype))
    return replace(proposal, steps=concatenate([head, steps]))


def whole_values(problem: Problem, context: Context, work: float, makespan: Number | None) -> Iterator[Start]:
    """Yield the results of constraint programming for small instances: any value may move, also during computation.

    With more than `LITTLE` work, `poet` runs first; its program over stages is smaller. Then the search considers only
    schedules below a known makespan: first those without reruns, then all. If storage has an initial copy of x0, it
    first solves without that copy, so that the copy never makes the result worse.

    Parameters
    ----------
    problem, context
    work : float
        Work limit of each program, in CP-SAT's units; the answer does not depend on the clock. Infinite: no limit.
    makespan : number, optional
    """
    from remat_algorithms.offload.exact.offload_exact import OffloadExactOptions, solve_below

    plain, head = _without_given_x0(problem)
    with_given = [(problem, StepBuilder().build())] if plain is not problem else []
    if work > LITTLE and not context.stopped:
        start = _by_stages(problem, context, work)
        if start is not None and (makespan is None or start.makespan < makespan):
            makespan = start.makespan
            yield start
    for (variant, before), (recompute, share) in product([(plain, head), *with_given], ((False, 0.5), (True, 0.9))):
        if work <= 0 or context.stopped:
            return
        limit = None if math.isinf(work) else work
        # With more than one thread the answer depends on the clock.
        part = context.aside(share=share, threads=None if limit is None else 1)
        try:
            proposal = solve_below(variant, OffloadExactOptions(recompute=recompute, work=limit), part, makespan)
        except OptionError:
            return
        start = judged(problem, "offload-exact", _after(before, proposal))
        if start is not None and (makespan is None or start.makespan < makespan):
            makespan = start.makespan
            yield start


def _by_stages(problem: Problem, context: Context, work: float) -> Start | None:
    """Return what `poet` finds; None where it is not installed, or refuses the instance."""
    from remat_algorithms.offload.exact.catalogue import ALGORITHMS as EXACT

    entry = next(entry for entry in EXACT if entry.name == "poet")
    proposal = asked(entry, problem, context, {} if math.isinf(work) else {"work": work}, share=0.5)
    return None if proposal is None else judged(problem, entry.name, proposal)


def _x0_can_stay(problem: Problem) -> bool:
    """Whether every step fits next to x0 in the working memory: without storage, x0 has to stay to the end."""
    chain, capacity = problem.chain, problem.machine.memories[0].capacity
    state, adjoint = chain.activation_size, chain.gradient_size
    if capacity is None or chain.length == 0:
        return True
    need = max(int(state[1:].max()), int(adjoint[1:].max()))
    if not chain.saves and chain.length > 1:
        need = max(need, int((state[1:-1] + adjoint[2:]).max()))
    return int(state[0]) + need + chain.static_memory <= capacity


def _others() -> list[Algorithm]:
    from remat_algorithms.adjoint.catalogue import ALGORITHMS as ADJOINT
    from remat_algorithms.chain.catalogue import ALGORITHMS as CHAIN
    from remat_algorithms.dag.catalogue import ALGORITHMS as DAG

    # Of the algorithms for any graph only the plain one: the others do not use storage, and are slow.
    plain = [entry for entry in DAG if entry.name == "keep-all"]
    listed = [entry for entry in (*ADJOINT, *CHAIN, *plain) if entry.accepts("adjoint") and entry.is_available()]
    chosen = [entry for entry in listed if entry.name != "fixed"]
    return sorted(chosen, key=lambda entry: QUICK.index(entry.name) if entry.name in QUICK else len(QUICK))


def judged(problem: Problem, name: str, proposal: Proposal) -> Start | None:
    """Place a proposal; None if it has no schedule, or one that does not fit."""
    steps = proposal.steps
    if steps is None:
        return None
    placed = place(problem.graph, problem.machine, steps)
    if not isinstance(placed, Placement):
        return None
    bound = max((bound.value for bound in proposal.bounds if bound.scope == ALL_SCHEDULES), default=0)
    if steps.start is not None:  # its starts may come later, and therefore its end
        steps = steps.placed(placed.start)
    return Start(name, steps, makespan_of(problem, steps, placed), bound)
