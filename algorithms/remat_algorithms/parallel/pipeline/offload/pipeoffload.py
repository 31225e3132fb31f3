"""`pipeoffload`: named schedules with their longest-lived activations offloaded to the host (after Wan et al. 2025)."""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal, Termination
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps
from remat_algorithms.parallel.pipeline.offload.offload_model import check_host
from remat_algorithms.parallel.pipeline.offload.selective_offload import offload_selectively
from remat_algorithms.parallel.pipeline.order_search import PlacementOptions, report_named, stagings


def solve(problem: Problem, options: PlacementOptions, context: Context) -> Proposal:
    """Offload as little as necessary, longest-lived values first, spread evenly over the micro-batches.

    Notes
    -----
    The orders are those of the named schedules for each placement: one stage per device, two in a V, or several
    interleaved. Values that could not return in time for their backward are never sent. Bisection finds the smallest
    share of each device's candidates that fits; the full share is tried, too. O(log `PARTS`) schedules of O(operations)
    steps for each order.
    """
    check_host(problem)
    report_named(problem, context)
    best = BestSteps(problem, context)
    for staged in stagings(problem, options):
        if not context.stopped:
            offload_selectively(best, staged)
    return Proposal(
        steps=best.steps,
        makespan=best.makespan if best.steps is not None else None,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )
