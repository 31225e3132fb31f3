"""`dag-offload-best`: of every value, keep it, make it again, or send it away; on any task graph; anytime."""

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
from remat_algorithms.joint.dag_offload_best.starts import alone, first, orders, rules

ROUNDS, WORK = 4000, 1_000_000
"""Rounds of the walk: so many, or fewer for large graphs, whose rounds take O(runs)."""

MORE = 12
"""Times as many where rounds are compiled."""

FIRST, TURN = 40, 40
"""Rounds of the walk after the first searches for reruns, and between two further ones."""

ALONE = 10
"""Turns after which `dag-auto` is asked, if it may still be quicker."""

PATIENCE, PATIENCE_WORK = 1000, 40_000
"""Rounds after the latest better schedule, more for small graphs: then there is little hope, and time is saved."""

LARGE = 65
"""Tasks from which compiled rounds are so many more."""


class DagOffloadBestOptions(Options):
    """Options of `dag-offload-best`."""

    iterations: int | None = Field(
        None,
        ge=0,
        description="rounds of the walk; the same seed and rounds, the same schedule. Default: some seconds' worth, or "
        "until the time limit",
    )
    reorder: bool = Field(
        True,
        description="look at other orders of first runs, too; `false` keeps the listed one, as frameworks may need",
    )


def solve(problem: Problem, options: DagOffloadBestOptions, context: Context) -> Proposal:
    """Solve a task graph by recomputation and offloading together.

    Takes instances of kinds `chain`, `adjoint` and `dag`; tasks run on the first processor, but for those whose results
    nobody reads and that have to do with other memories (updates of parameters): a processor there may do them. Without
    a way out of the processor's memory and back, the answer is that of `dag-auto`; where something must cross a link in
    one direction, it is the listed order with these transfers, if that fits. Where a required transfer has no route at
    all, that is the answer: there is no schedule.
    """
    if problem.unreachable is not None:
        return Proposal(infeasible_within=ALL_SCHEDULES, notes=(problem.unreachable,))
    setting = Setting(problem)
    if not setting.ways:
        return _without_ways(setting, options, context)
    if problem.exceeded is not None:
        return Proposal(termination=context.termination)
    best = Best(setting, context)
    first(setting, best)
    best.consider_runs(Runs(tuple(setting.listed)), message="as listed")
    walker = Walk(setting, best, reorder=options.reorder)
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
    """Ask `dag-auto`, which knows one memory; else transfer what must begin or end elsewhere, and choose nothing."""
    try:
        for entry in DAG_AUTO:
            check_reach(setting.problem, entry)
    except OptionError:
        best = Best(setting, context)
        for helped in (frozenset[int](), frozenset(setting.movable)):
            best.consider_runs(Runs(tuple(setting.listed), helped), message="as listed")
        note = "links lead in one direction only: values are neither offloaded nor made again"
        return replace(best.proposal(), notes=(note,))
    without = DagAutoOptions(iterations=options.iterations, patience=None, reorder=False)
    return solve_dag_auto(setting.problem, without, context)


def _improve(setting: Setting, best: Best, relaxing: Relaxing, walker: Walk, rounds: int, more: int) -> Proposal | None:
    """Let the walk and the searches for reruns take turns; return what `alone` does."""
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
