"""PipeDream's partition, `pipedream-dp`, and the planner of PipeDream-2BW, `2bw-plan`.

`pipedream-dp` has the slowest stage, or transfer, as quick as can be: Narayanan et al. 2019, section 3.1, all stages
on equally many devices (see `planned`). With T(i..j) the time of the layers i .. j, and a_i that of the transfers
behind layer i, there and back,

    A(j, n) = min over i < j of max(A(i, n - 1), a_i, T(i+1..j))

Transfers go on beside the work. Under 1F1B the stage that is the k-th from the end holds min(k, m) micro-batches, which
with its parameters must fit into its device (theirs has as many versions of these; a step that ends with a flush has
one). Devices are taken in their order, all of them. O(devices x layers^2) array operations.

`2bw-plan` tries every number of devices: Narayanan et al. 2021, of all depths, widths and sizes of micro-batches (and
recomputation or none: none, here) the one with the greatest throughput; widths and sizes are tried around this. A
stage takes as long as its work and what it waits for from its neighbours; a step whose slowest stage takes t, so it is
estimated here, takes

    (m - 1) t + the time of one micro-batch through all stages, there and back

(theirs, without a flush, m t). Memory is that of `pipedream-dp`: with a flush there are no two versions. Devices are
taken in their order, the first of them. O(devices x layers^2) array operations, times the number of devices where these
are not equal.
"""

from __future__ import annotations

import math

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.planner_input import Site, StageOptions, planned, run_1f1b
from remat_algorithms.parallel.pipeline.planners.stage_measures import each_depth, least_largest, overlapped, received


def solve_dp(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Cut for the least largest time of a stage or transfer, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        line = site.whole(options)
        found = least_largest(line, overlapped)
        return None if found is None else run_1f1b(site, found[1], range(len(line.positions)))

    return planned(problem, plan, options)


def solve_2bw(problem: Problem, options: StageOptions, context: Context) -> Proposal:
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

    return planned(problem, plan, options)
