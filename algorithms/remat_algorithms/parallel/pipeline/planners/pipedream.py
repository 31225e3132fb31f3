"""PipeDream's partition, `pipedream-dp`, and the planner of PipeDream-2BW, `2bw-plan`.

`pipedream-dp` minimises the time of the slowest stage or transfer: Narayanan et al. 2019, section 3.1, with equally
many devices for all stages (see `planned`). Let T(i..j) be the time of layers i .. j, and a_i that of the transfers
after layer i, in both directions:

    A(j, n) = min over i < j of max(A(i, n - 1), a_i, T(i+1..j))

Transfers overlap with computation. In 1F1B, the k-th stage from the end holds min(k, m) micro-batches. These and its
parameters must fit into its device. The paper keeps as many versions of the parameters; a step that ends with a flush
needs one. All devices are used, in order. O(devices x layers^2) array operations.

`2bw-plan` tries every number of devices. Narayanan et al. 2021 choose the highest throughput over all depths, widths
and micro-batch sizes, with or without recomputation. Here, nothing is recomputed, and widths and sizes are tried around
this search. The time of a stage is its work plus its wait for its neighbours. If the slowest stage takes t, the
estimated time of a step is

    (m - 1) t + the time of one micro-batch through all stages and back

The paper's time without a flush is m t. Memory is that of `pipedream-dp`: with a flush there are no two versions.
Devices are used in order, starting with the first. O(devices x layers^2) array operations, times the number of devices
if these differ.
"""

from __future__ import annotations

import math

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.planner_input import Site, StageOptions, planned, run_1f1b
from remat_algorithms.parallel.pipeline.planners.stage_measures import each_depth, least_largest, overlapped, received


def solve_dp(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Minimise the largest time of a stage or transfer, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        line = site.whole(options)
        found = least_largest(line, overlapped)
        return None if found is None else run_1f1b(site, found[1], range(len(line.positions)))

    return planned(problem, plan, options)


def solve_2bw(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Choose how many devices hold layers, minimise the largest stage, and run 1F1B."""

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
