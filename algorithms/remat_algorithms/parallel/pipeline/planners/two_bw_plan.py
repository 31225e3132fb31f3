"""The planner of PipeDream-2BW: the number of devices by exhaustion, each cut for the least largest stage.

Narayanan et al. 2021: of all depths (and widths, sizes of micro-batches, and recomputation or none: one device a stage,
micro-batches as they are given, and none, here), the one with the greatest throughput. A stage takes as long as its
work and what it waits for from its neighbours; a step whose slowest stage takes t, so it is estimated here, takes

    (m - 1) t + the time of one micro-batch through all stages, there and back

(theirs, without a flush, is m t). Of k stages, the one that is the s-th from the end holds min(s, m) micro-batches, and
one version of the parameters: with a flush there are no two. Devices are taken in their order, the first of them.
O(devices x layers^2) array operations, times the number of devices where these are not equal.
"""

from __future__ import annotations

import math

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.measures import each_depth, least_largest, received
from remat_algorithms.parallel.pipeline.planners.planning import Site, StageOptions, in_order, planned, run_1f1b


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Choose how many devices hold layers, cut for the least largest stage, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        line = site.line()
        best: tuple[float, int] | None = None

        def most() -> float:
            return math.inf if best is None or line.batches == 1 else best[0] / (line.batches - 1)

        for depth, slowest, table in each_depth(line, received, site.depths(options), most):
            way = site.pipe(table.cuts(depth), range(depth)).round_trip
            estimate = (line.batches - 1) * slowest + way, depth
            best = estimate if best is None else min(best, estimate)
        if best is None:
            return None
        depth = best[1]
        cut = least_largest(line.first(depth), received)
        assert cut is not None, "the table has it"
        return run_1f1b(site, cut[1], range(depth))

    return planned(problem, plan, f"1F1B, {in_order(options.stages)}")
