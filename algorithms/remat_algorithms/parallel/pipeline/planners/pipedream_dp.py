"""PipeDream's partition: the slowest stage, or transfer, as quick as can be.

Narayanan et al. 2019, section 3.1, without replicated stages: with T(i..j) the time of the layers i .. j, and a_i that
of the transfers behind layer i, there and back,

    A(j, n) = min over i < j of max(A(i, n - 1), a_i, T(i+1..j))

Transfers go on beside the work. Under 1F1B the stage that is the k-th from the end holds min(k, m) micro-batches, which
with its parameters must fit into its device (theirs has as many versions of these; a step that ends with a flush has
one). Devices are taken in their order, all of them. O(devices x layers^2) array operations.
"""

from __future__ import annotations

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.measures import least_largest, overlapped
from remat_algorithms.parallel.pipeline.planners.planning import Site, StageOptions, in_order, planned, run_1f1b


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Cut for the least largest time of a stage or transfer, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        line = site.whole(options)
        found = least_largest(line, overlapped)
        return None if found is None else run_1f1b(site, found[1], range(len(line.positions)))

    count = options.stages or len(problem.machine.processors)
    return planned(problem, plan, f"1F1B, {in_order(count)}")
