"""`dag-offload-best`: keep, recompute or offload each value of any task graph; anytime."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from remat.plugin import (
    ALL_SCHEDULES,
    Context,
    OptionError,
    Options,
    Problem,
    Proposal,
    Termination,
    check_reach,
)
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.anytime.dag_auto import DagAutoOptions
from remat_algorithms.dag.anytime.dag_auto import solve as solve_dag_auto
from remat_algorithms.joint.dag_offload_best.bound import bound
from remat_algorithms.joint.dag_offload_best.incumbent import Best
from remat_algorithms.joint.dag_offload_best.local_search import Walk
from remat_algorithms.joint.dag_offload_best.model import Runs, Setting
from remat_algorithms.joint.dag_offload_best.rate_relaxation import Relaxing
from remat_algorithms.joint.dag_offload_best.starts import alone, begin_with, first, orders, rules

ROUNDS, WORK = 4000, 1_000_000
"""Maximum rounds of local search, and number of runs that limits them for large graphs, whose rounds take O(runs)."""

MORE = 12
"""Factor on the number of rounds if they are compiled."""

FIRST, TURN = 40, 40
"""Rounds of local search after the first searches for reruns, and between two further ones."""

ALONE = 10
"""Number of turns after which `dag-auto` runs, if it may still be faster."""

PATIENCE, PATIENCE_WORK = 1000, 40_000
"""Rounds without a better schedule after which the search stops; more for small graphs."""

LARGE = 65
"""Minimum number of tasks for the factor `MORE`."""


class DagOffloadBestOptions(Options):
    """Options of `dag-offload-best`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description="number of rounds of the local search; if set, the result depends only on the seed, and the solve "
        "ignores known schedules. Default: what takes a few seconds, or until the time limit",
    )
    reorder: bool = Field(
        True,
        description="also try other orders of first runs; `false` keeps the listed order, which some frameworks "
        "require",
    )


def solve(problem: Problem, options: DagOffloadBestOptions, context: Context) -> Proposal:
    """Solve a task graph by recomputation and offloading together.

    Accepts instances of kinds `chain`, `adjoint` and `dag`. Tasks run on the first processor. A processor in another
    memory may run tasks whose outputs no task reads and that access that memory, such as updates of parameters. Without
    a route out of the processor's memory and back, the answer is that of `dag-auto`. If a required transfer crosses a
    link in one direction only, the answer is the listed order with these transfers, if that fits. If a required
    transfer has no route, the problem is infeasible.
    """
    if problem.unreachable is not None:
        return Proposal(infeasible_within=ALL_SCHEDULES, notes=(problem.unreachable,))
    setting = Setting(problem)
    if not setting.ways:
        return _without_ways(setting, options, context)
    if problem.exceeded is not None:
        return Proposal(termination=context.termination)
    best = Best(setting, context)
    steps = None if options.iterations is not None else context.known_steps
    first(setting, best)
    best.consider_runs(Runs(tuple(setting.listed)), message="as listed")
    walker = Walk(setting, best, reorder=options.reorder)
    begin_with(steps, setting, best, walker)
    known = orders(setting, best, walker)
    more = MORE if setting.compiles and len(setting.listed) >= LARGE else 1
    rounds = options.iterations
    if rounds is None:
        rounds = more * (ROUNDS if context.deadline is not None else min(ROUNDS, WORK // max(1, len(setting.listed))))
    relaxing = Relaxing(setting, best, walker, rounds)
    relaxing.first()
    bound(setting, best, listed=False)
    known = rules(setting, best, walker, rounds) or known
    if not best.done:
        relaxing.go_on()
        walker.go(min(FIRST, rounds))
    known = _improve(setting, best, relaxing, walker, rounds, more) or known
    bound(setting, best, listed=True)
    proposal = best.proposal()
    if proposal.steps is None and known is not None:
        proposal = known
    if options.iterations is not None and not context.stopped and not best.proved:
        proposal = replace(proposal, termination=Termination.ITERATION_LIMIT)
    return proposal


def _without_ways(setting: Setting, options: DagOffloadBestOptions, context: Context) -> Proposal:
    """Run `dag-auto`, which uses one memory; otherwise make only the transfers that inputs and outputs require."""
    try:
        for entry in DAG_AUTO:
            check_reach(setting.problem, entry)
    except OptionError:
        best = Best(setting, context)
        for helped in (frozenset[int](), frozenset(setting.movable)):
            best.consider_runs(Runs(tuple(setting.listed), helped), message="as listed")
        note = "links lead in one direction only: values are not offloaded or recomputed"
        return replace(best.proposal(), notes=(note,))
    without = DagAutoOptions(iterations=options.iterations, patience=None, reorder=False)
    return solve_dag_auto(setting.problem, without, context)


def _improve(setting: Setting, best: Best, relaxing: Relaxing, walker: Walk, rounds: int, more: int) -> Proposal | None:
    """Alternate between local search and the searches for reruns; return the result of `alone`."""
    turn = TURN * more
    further = relaxing.further(rounds // turn + 1)
    latest, since = best.makespan, 0
    patience = max(PATIENCE * more, PATIENCE_WORK // max(1, len(setting.listed)))
    known, asked = None, False
    for number in range(-(-rounds // turn)):
        if best.done or since >= patience:
            break
        walker.go(min(turn, rounds - number * turn))
        latest, since = best.makespan, 0 if best.makespan < latest else since + turn
        if not best.done:
            next(further, None)
            relaxing.around()
        if number + 1 == ALONE:
            known, asked = alone(setting, best, walker, rounds), True
    return known if asked else alone(setting, best, walker, rounds)
