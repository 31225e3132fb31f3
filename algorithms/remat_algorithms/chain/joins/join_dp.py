"""`join-dp`: the best schedule of chains that join in one loss, among those in which all stored values nest.

For k chains of l_j equal steps that keep only states, and M slots (original to this project; on small cases it equals
an exhaustive search of all schedules):

    chain(0, M) = 0,  chain(1, M) = 1 where M >= 3,
    chain(l, M) = min over i of  i + chain(l - i, M - 1) + chain(i, M)         where M >= 3 (i = 1) or 4
    join(0..0, M) = 0 where M >= 2k,
    join(l, M)  = min over j, i of  i + join(l with l_j - i, M - 1) + chain(i, M - (k - 1))
                                                                              where M >= k + 1 (i = 1) or k + 2

`tables` generalises this to arbitrary sizes, times and workspaces, saving forwards and variants, in exact bytes.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from remat.plugin import (
    Bound,
    Context,
    LeastBudget,
    Options,
    Problem,
    Proposal,
    Termination,
    run_in_order,
    total_time,
)
from remat_algorithms.chain.joins.recognition import join_of
from remat_algorithms.chain.joins.tables import JoinTable, Work

NESTED = "nested memory-persistent schedules on one processor"
"""Class of schedules in which a stored value stays until the backward that needs it, and all stored values nest.

Across all chains, values stored later are used earlier.
"""

LARGEST_EXACT = 2**61
"""Integer makespans from which sums of times in 64 bits are not trusted."""


class JoinDpOptions(Options):
    """Options of `join-dp`."""

    ways: int = Field(
        300_000,
        ge=1,
        description="maximum number of transitions in the tables; instances that need more are not solved",
    )
    points: int = Field(
        4096,
        ge=2,
        description="maximum number of points (bytes, time) on the front of each part; with more, some points are "
        "dropped, and optimality is not proved",
    )


def solve(problem: Problem, options: JoinDpOptions, context: Context) -> Proposal:
    """Solve a join.

    Parameters
    ----------
    problem : Problem
        A problem of kind `join`, or a `dag` that is one; only the first processor and its memory are used.
    options : JoinDpOptions
    context : Context

    Returns
    -------
    Proposal
        Optimal, or infeasible, within `NESTED`, unless fronts had more than `points` points. A schedule without
        recomputation is returned immediately if it fits.

    Notes
    -----
    O(product of (l_j + 1) x sum of l_j) sums of fronts: exponential in the number of different chains.

    Raises
    ------
    remat.OptionError
        If the graph is not a join.
    """
    table = JoinTable(join_of(problem, "join-dp"))
    need, whole = table.whole()
    room = None if problem.budget is None else problem.budget - table.resident
    if room is None or need <= room:
        return _proposed(problem, whole, proved=True)
    if table.size > options.ways:
        note = f"up to {table.size:,} transitions, and the option ways allows {options.ways:,}"
        return Proposal(termination=Termination.SIZE_LIMIT, notes=(note,))
    # With one point per front, the fronts are minimum bytes, which suffice for the minimum budget.
    least = Work(None, 1, lambda: context.stopped)
    table.fill(least)
    named = None if context.stopped else table.fronts[table.start].least
    if named is None:
        return Proposal(termination=context.termination, notes=("stopped before the minimum memory was known",))
    if named > room:
        size = LeastBudget(table.resident + max(0, named), None, sufficient=True)
        return Proposal(infeasible_within=NESTED, least=size)
    frugal = _proposed(problem, table.runs(room), proved=False)
    context.report(frugal.steps, makespan=frugal.makespan, message="least memory")
    work = Work(room + table.inputs, options.points, lambda: context.stopped)
    table.fill(work)
    if context.stopped or table.start not in table.fronts:
        return _proposed(problem, _runs_of(frugal), proved=False, notes=("stopped before the table was full",))
    notes = (f"fronts of more than {options.points:,} points were thinned out",) if work.thinned else ()
    if isinstance(frugal.makespan, int) and frugal.makespan >= LARGEST_EXACT:
        # Sums of the fronts may have left 64 bits.
        return _proposed(problem, _runs_of(frugal), proved=False, notes=("times are too large for exact sums",))
    return _proposed(problem, table.runs(room), proved=not work.thinned, notes=notes)


def _runs_of(proposal: Proposal) -> list[int]:
    assert proposal.steps is not None
    runs: list[int] = proposal.steps.item.tolist()  # only runs, one per step
    return runs


def _proposed(problem: Problem, runs: list[int], *, proved: bool, notes: tuple[str, ...] = ()) -> Proposal:
    """Propose runs in this order; if optimality is proved, their time is a bound of the class."""
    time = total_time(problem.graph.time[np.array(runs, dtype=np.int64)])
    return Proposal(
        steps=run_in_order(problem.graph, problem.machine, runs),
        makespan=time,
        bounds=(Bound(time, NESTED, "join-dp"),) if proved else (),
        optimal_within=NESTED if proved else None,
        notes=notes,
    )
