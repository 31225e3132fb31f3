"""`placement-bound`: lower bounds on the time per sample of a stream, by source.

Bounds over all schedules are `needed tasks`, which the core counts, `rates` and `longest unit` (`bounds`), and `blocks`
(`block_bound`). The last requires that every unit stays in one place, on accelerators around a host. The bound over
contiguous placements is `down-sets`, the optimum of `tarnawski-dp`. The schedule is the contiguous one,
improved by local search.
"""

from __future__ import annotations

from pydantic import Field

from remat.plugin import Bound, Context, Options, Problem, Proposal
from remat_algorithms.parallel.placement.best_pattern import CONTIGUOUS, Best, sharpened
from remat_algorithms.parallel.placement.bounds import cheap_bounds
from remat_algorithms.parallel.placement.feasibility import refuse
from remat_algorithms.parallel.placement.model import model_of
from remat_algorithms.parallel.placement.tarnawski_dp import DownSetOptions, contiguous
from remat_algorithms.parallel.placement.tarnawski_ip import block_bound, walk_on


class BoundOptions(Options):
    """Options of `placement-bound`."""

    work: float = Field(
        default=20.0,
        ge=0,
        le=1e6,
        description="work limit of the block bound, in CP-SAT's deterministic units, on instances for which it is "
        "valid",
    )
    moves: int = Field(
        default=2_000_000, ge=0, le=10**10, description="maximum number of moves in the local search for a schedule"
    )
    sets: int = Field(default=400_000, ge=2, le=10_000_000, description="maximum number of down-sets to examine")


def solve(problem: Problem, options: BoundOptions, context: Context) -> Proposal:
    """Prove bounds."""
    model = model_of(problem, "placement-bound")
    refused = refuse(problem, model, context)
    if refused is not None:
        return refused
    bounds = list(cheap_bounds(model, context))
    for bound in bounds:
        context.report(bound=bound.value, scope=bound.scope)
    best = Best(problem, model, context)
    found = contiguous(best, DownSetOptions(sets=options.sets))
    within = None
    if found.bound is not None:
        bounds.append(sharpened(Bound(found.bound, CONTIGUOUS, found.source), best.time))
        within = CONTIGUOUS if bounds[-1].value == best.time else None
    walk_on(best, options.moves)
    within = None if within is not None and best.time != bounds[-1].value else within
    bounds += block_bound(best, bounds, options.work)
    infeasible = CONTIGUOUS if found.none else None
    return best.proposal(bounds, optimal_within=within, infeasible_within=infeasible, termination=found.termination)
