"""`dtr`: dynamic tensor rematerialisation (Kirisame et al. 2020, arXiv:2006.09616), run offline on the reference order.

The stages run in order. If the next run does not fit within a limit, values are evicted in ascending order of
h(v) = cost / (size * staleness). An evicted value that is needed again is recomputed, which may evict others. Staleness
is the time since the last access, on a clock that the runs advance. A value that no later stage reads is evicted for
free at its last use (the paper's eager eviction). It may be recomputed later as an ancestor.

| heuristic | cost | divided by |
|---|---|---|
| h (h_DTR) | c(v) + c of the evicted neighbourhood e*(v) | size * staleness |
| eq | the same with e* approximated by union-find classes of evicted values | size * staleness |
| local | c(v) | size * staleness |
| lru | 1 | staleness |
| size | 1 | size |
| msps | c(v) + c of the evicted ancestors (Peng et al. 2020) | size |

e*(v): the evicted values that paths of evicted values connect to v, either along inputs or (separately) along outputs.
A class of `eq` joins evicted neighbours. A value that becomes resident leaves its class's sum, but does not split the
class.

DTR is not monotone in its limit. All limits of a fixed grid are run, and the fastest schedule that fits is kept. More
memory therefore never gives a longer schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from remat.plugin import Context, Number, Options, Problem, Proposal
from remat_algorithms.dag.literature.dtr_state import GaveUp, Heuristic, Program, Simulation
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention import Stages, stages_of

HOPELESS = 6
"""Number of consecutive failed limits, from above, after which smaller limits are not tried."""


class DtrOptions(Options):
    """Options of `dtr`."""

    heuristic: Heuristic = Field(
        Heuristic.FULL, description="eviction heuristic of the paper: h, eq, local, lru, size or msps"
    )
    limits: int = Field(
        48,
        ge=1,
        le=1000,
        description="number of memory limits to try, evenly spaced between the memory bound and the peak of keep-all",
    )
    longest: float = Field(
        3, gt=1, description="abandon a memory limit if the runs take more than this multiple of the time of keep-all"
    )


def solve(problem: Problem, options: DtrOptions, context: Context) -> Proposal:
    """Return the fastest of DTR's schedules that fits the budget.

    Each limit takes O(evictions * values), times the evicted neighbourhood for `h` and `msps`.

    Claims time and peak.
    """
    stages = stages_of(problem, "dtr")
    return fastest(problem, stages, _schedules(problem, stages, options, context), context)


def _schedules(problem: Problem, stages: Stages, options: DtrOptions, context: Context) -> Iterator[list[int] | None]:
    everything = stages.nothing_held()
    everything[:] = True
    high = stages.replay(stages.runs(everything))
    bound = problem.memory_bounds[stages.machine.processors[0].memory]
    low = 0 if bound is None else bound.size
    longest: Number = high.time * options.longest
    program = Program(stages)
    failed = 0
    for step in range(options.limits, -1, -1):
        limit = low + (high.peak - low) * step // options.limits
        runs = simulate(program, limit, options.heuristic, longest, context)
        failed = failed + 1 if runs is None else 0
        yield runs
        if failed == HOPELESS:
            return


def simulate(
    program: Program, limit: int, heuristic: Heuristic, longest: Number | None, context: Context
) -> list[int] | None:
    """Run the program within a limit.

    Returns
    -------
    list of int or None
        The tasks run, in order. None if something does not fit, the time exceeds `longest`, or the context is
        stopped.
    """
    simulation = Simulation(program, limit, heuristic, longest)
    for stage in range(len(program.stages) + 1):
        if context.stopped:
            return None
        try:
            simulation.perform(stage, context)
        except GaveUp:
            return None
    return simulation.runs
