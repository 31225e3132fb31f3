"""HetPipe's partition of one virtual worker: devices of several types and memories, without overlapped transfers.

Park et al. 2020, section 5, with the whole cluster as one worker. The paper has several workers and a parameter server,
which a step with a flush does not have. The objective is the largest time of a stage: its work and all its transfers,
to and from both neighbours, in sequence. Of k stages, the s-th (from 1) holds k - s + 1 micro-batches, or all if there
are fewer. All devices are used, in order. A table replaces the paper's program: O(devices x layers^2) array operations.
"""

from __future__ import annotations

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.planner_input import Site, StageOptions, planned, run_1f1b
from remat_algorithms.parallel.pipeline.planners.stage_measures import least_largest, serial


def solve(problem: Problem, options: StageOptions, context: Context) -> Proposal:
    """Minimise the largest time of a stage with its transfers, and run 1F1B."""

    def plan(site: Site) -> Orders | None:
        line = site.whole(options)
        found = least_largest(line, serial)
        return None if found is None else run_1f1b(site, found[1], range(len(line.positions)))

    return planned(problem, plan, options)
