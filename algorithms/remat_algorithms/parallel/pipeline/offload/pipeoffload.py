"""`pipeoffload`: named schedules whose longest-living activations wait at the host (after Wan et al. 2025)."""

from __future__ import annotations

from remat.plugin import Context, Problem, Proposal, Termination
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps
from remat_algorithms.parallel.pipeline.offload.offload_model import check_host
from remat_algorithms.parallel.pipeline.offload.selective_offload import offload_selectively
from remat_algorithms.parallel.pipeline.order_search import PlacementOptions, report_named, stagings


def solve(problem: Problem, options: PlacementOptions, context: Context) -> Proposal:
    """Send away as little as fits, selectively: what lives longest first, spread evenly over the micro-batches.

    Notes
    -----
    The orders are those of the named schedules for each placement, of one stage a device, two in a V or several in
    turns. What comes back too late for its backward is never sent. Of what each device could send, the least share that
    fits is found by bisection; all is tried, too. O(log `PARTS`) schedules of O(operations) steps for each order.
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
