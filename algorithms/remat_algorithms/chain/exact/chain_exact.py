"""`chain-exact`: the best of all schedules of a short chain in one memory.

The algorithm finds a shortest path over the live sets (module `live_sets`). Any value may be dropped and recomputed at
any time, by F or by Fe. The schedule of `rotor-float` is the incumbent, and the search considers only states that may
improve it.
"""

from __future__ import annotations

import math

from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    Bound,
    Context,
    LeastBudget,
    Number,
    Options,
    Problem,
    Proposal,
    Termination,
    run_in_order,
)
from remat_algorithms.chain.exact.live_sets import LiveSets, Outcome
from remat_algorithms.chain.floating.rotor_float import RotorFloatOptions, total_time
from remat_algorithms.chain.floating.rotor_float import solve as solve_rotor_float
from remat_algorithms.chain.unsupported import refuse_alternatives

ONE_MEMORY = "sequential schedules in one memory"
"""Scope on machines with more than one memory or processor."""


class ChainExactOptions(Options):
    """Options of `chain-exact`."""

    states: int = Field(200_000, ge=0, description="maximum number of states (next backward, live values) to expand")


def solve(problem: Problem, options: ChainExactOptions, context: Context) -> Proposal:
    """Solve a short chain (some 10 stages; more if memory is not scarce).

    Takes instances of kind `chain` and uses only the working memory. Optimal, or infeasible, over all schedules
    (`ONE_MEMORY` on larger machines). If a limit is reached, which a note states, the answer is the incumbent, if there
    is one, with the proved bound.

    Raises
    ------
    remat.OptionError
        If a stage has several saving forwards.
    """
    refuse_alternatives(problem, "chain-exact")
    start = solve_rotor_float(problem, RotorFloatOptions(certificate=False, slots=None), context)
    return improve(problem, start, options, context)


def improve(problem: Problem, start: Proposal, options: ChainExactOptions, context: Context) -> Proposal:
    """Search for a schedule better than that of `rotor-float`, as `solve` does."""
    small = len(problem.machine.memories) == 1 and len(problem.machine.processors) == 1
    scope = ALL_SCHEDULES if small else ONE_MEMORY
    tasks, time = None, None
    if start.steps is not None:
        tasks = start.steps.runs.tolist()
        time = total_time(problem, tasks)
        if time <= problem.no_recompute_time:
            return Proposal(steps=start.steps, makespan=time, optimal_within=scope)
        context.report(start.steps, makespan=time)
    limit: Number = math.inf if time is None else time if isinstance(time, int) else time * (1 - 1e-12)
    room = _everything(problem) if problem.budget is None else problem.budget
    outcome = LiveSets(problem.chain, room).shortest(
        limit,
        states=options.states,
        stopped=lambda: context.stopped,
        told=lambda bound: context.report(bound=bound, scope=scope),
    )
    if outcome.tasks is not None:
        tasks, time = outcome.tasks, total_time(problem, outcome.tasks)
    if not outcome.finished:
        return _limited(problem, scope, tasks, outcome, options, context)
    if tasks is None:
        return Proposal(infeasible_within=scope, least=_least(problem, start.least, options, context))
    assert time is not None
    return Proposal(
        steps=run_in_order(problem.graph, problem.machine, tasks),
        makespan=time,
        bounds=(Bound(time, scope, "chain-exact"),),
        optimal_within=scope,
    )


def _everything(problem: Problem) -> int:
    """Bytes in which no schedule needs to drop anything."""
    graph = problem.graph
    return graph.static_memory + 2 * int(graph.size.sum()) + int(graph.workspace.max())


def _limited(
    problem: Problem,
    scope: str,
    tasks: list[int] | None,
    outcome: Outcome,
    options: ChainExactOptions,
    context: Context,
) -> Proposal:
    """Propose the result of a search that a limit ended."""
    why = "stopped" if context.stopped else f"the limit of {options.states:,} states was reached"
    termination = context.termination if context.stopped else Termination.ITERATION_LIMIT
    note = f"{why} after {outcome.states:,} states: not proved"
    if tasks is None:
        return Proposal(termination=termination, notes=(note,))
    time = total_time(problem, tasks)
    return Proposal(
        steps=run_in_order(problem.graph, problem.machine, tasks),
        makespan=time,
        bounds=(Bound(min(outcome.bound, time), scope, "chain-exact"),),
        termination=termination,
        notes=(note,),
    )


def _least(
    problem: Problem, known: LeastBudget | None, options: ChainExactOptions, context: Context
) -> LeastBudget | None:
    """Find the minimum budget by bisection between the problem's budget and a sufficient one.

    The minimum budget of floating schedules is usually the overall minimum, so the value just below it is tried first.
    """
    if known is None or not known.sufficient or problem.budget is None:
        return None
    low, high = problem.budget, known.size
    trial = high - 1
    while low < trial:
        search = LiveSets(problem.chain, trial)
        outcome = search.shortest(states=options.states, stopped=lambda: context.stopped, timed=False)
        if outcome.tasks is not None:
            high = trial
        elif outcome.finished:
            low = trial
        else:
            return LeastBudget(low + 1, None, sufficient=False)
        trial = (low + high) // 2
    return LeastBudget(high, known.task if high == known.size else None, sufficient=True)
