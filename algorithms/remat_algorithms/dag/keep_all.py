"""`keep-all`: run every needed task once, in the reference order, and free each value after its last use."""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal, reference_order, run_in_order


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Return the no-recompute schedule.

    The order is the listed one if that is topological, else the topological order that is closest to it. Of
    alternative producers it takes the cheapest. O(size of the graph, times log tasks).

    Accepts instances of any kind. Claims the no-recompute time as makespan.
    """
    order = reference_order(problem.graph, problem.needed.once)
    steps = run_in_order(problem.graph, problem.machine, order)
    return Proposal(steps=steps, makespan=problem.no_recompute_time)
