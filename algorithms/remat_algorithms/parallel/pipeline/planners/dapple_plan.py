"""DAPPLE's planner: latency around a pivot stage, and cuts evaluated by the makespan of 1F1B.

Fan et al. 2021, section 4, with equally many devices for all stages (see `planned`). For any number of devices, the
planner looks for the cuts whose steps are fastest if one stage never waits (`pivoted`). That latency is at most the
makespan of 1F1B. Cuts are therefore simulated in its order until none of the remaining ones can be faster. The search
is exhaustive if `judged` suffices. Otherwise the cuts of other planners and moves of single cuts are simulated, too.

Devices are used in order, starting with the first. Memory as in 1F1B. O(devices x layers^2) array operations, times the
number of devices if these differ, and the simulations.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Context, Orders, Problem, Proposal
from remat_algorithms.parallel.pipeline.planners.latency import quickest
from remat_algorithms.parallel.pipeline.planners.planner_input import (
    MOST_SIMULATED,
    Site,
    StageOptions,
    planned,
    run_1f1b,
)
from remat_algorithms.parallel.pipeline.planners.simulation import makespan, one_forward_one_backward


class JudgedOptions(StageOptions):
    """Options of `dapple-plan`."""

    judged: int = Field(
        default=1_000,
        ge=0,
        le=1_000_000,
        description="maximum number of partitions to simulate; 0: rank them by latency only",
    )


def solve(problem: Problem, options: JudgedOptions, context: Context) -> Proposal:
    """Cut for the minimum makespan of 1F1B, guided by latencies and a limited number of simulations."""

    def plan(site: Site) -> Orders | None:
        line = site.line()
        depths = site.depths(options)

        def judge(cuts: list[int]) -> float:
            pipe = site.pipe(cuts, range(len(cuts) - 1))
            return makespan(pipe, one_forward_one_backward(pipe))

        operations = 2 * line.batches * max(depths)
        most = min(options.judged, max(1, MOST_SIMULATED // operations)) if options.judged else 0
        found = quickest(line, depths, judge, most)
        return None if found is None else run_1f1b(site, found.cuts, range(len(found.cuts) - 1))

    return planned(problem, plan, options)
