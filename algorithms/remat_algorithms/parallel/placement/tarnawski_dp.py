"""`tarnawski-dp`: contiguous placements of a stream by dynamic programming over down-sets (Tarnawski et al. 2020).

In this class, every unit is on one processor, and each device has the difference of two down-sets. No value then flows
to an earlier device in some order of the devices. In a training graph, this applies to the forward pass; a backward
task is placed with its unit.

`downset_table` gives the recurrence, by classes of identical devices. On a star (accelerators around a host), the load
of a stage is its work and the values that it receives and sends, each once. On other machines, each value counts as
sent and received once over the slowest link, and nothing is proved for the class. If there are more than `sets`
down-sets, consecutive groups are joined until there are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import Field

from remat.plugin import Bound, Context, Options, Problem, Proposal, Termination
from remat_algorithms.parallel.placement.best_pattern import CONTIGUOUS, ROUNDS, Best, sharpened
from remat_algorithms.parallel.placement.bounds import cheap_bounds
from remat_algorithms.parallel.placement.downset_table import Search, Staged, homes_of, orders, staged
from remat_algorithms.parallel.placement.downsets import DownSets, down_sets, of_order
from remat_algorithms.parallel.placement.feasibility import refuse
from remat_algorithms.parallel.placement.groups import Groups, coarser, groups_of
from remat_algorithms.parallel.placement.model import Model, model_of
from remat_algorithms.parallel.placement.training_stages import solve_training

MOST_CELLS = 2 * 10**7
"""Maximum number of table entries: down-sets times numbers of devices of each class."""

MANY_GROUPS = 200
"""Number of groups from which a first answer is computed before their down-sets are enumerated."""

JOINED = 0.9
"""Factor by which the number of groups shrinks when there are too many down-sets."""


class DownSetOptions(Options):
    """Options of `tarnawski-dp`."""

    sets: int = Field(default=400_000, ge=2, le=10_000_000, description="maximum number of down-sets to examine")
    work: float = Field(default=4e9, gt=0, description="maximum number of candidate stages to examine")


def solve(problem: Problem, options: DownSetOptions, context: Context) -> Proposal:
    """Find the best contiguous placement, and prove it if all down-sets were examined."""
    if problem.kind == "pipeline" and problem.samples is None:
        return solve_training(problem, options.sets, options.work, context)
    model = model_of(problem, "tarnawski-dp")
    refused = refuse(problem, model, context)
    if refused is not None:
        return refused
    bounds = list(cheap_bounds(model, context))
    for bound in bounds:
        context.report(bound=bound.value, scope=bound.scope)
    best = Best(problem, model, context)
    found = contiguous(best, options)
    proved = class_bound(found, best)
    return conclude_class(best, bounds if proved is None else [*bounds, proved], found)


def class_bound(found: Found, best: Best) -> Bound | None:
    """Return the known bound on contiguous placements."""
    return None if found.bound is None else sharpened(Bound(found.bound, CONTIGUOUS, found.source), best.time)


def conclude_class(best: Best, bounds: Sequence[Bound], found: Found) -> Proposal:
    """Return the proposal with the best contiguous placement, proved if a bound of the class equals its time."""
    proved = any(bound.scope == CONTIGUOUS and bound.value == best.time for bound in bounds)
    return best.proposal(
        bounds,
        optimal_within=CONTIGUOUS if proved else None,
        infeasible_within=CONTIGUOUS if found.none else None,
        termination=found.termination,
    )


class Found:
    """Knowledge about contiguous placements: a bound on all of them, or their nonexistence."""

    def __init__(self) -> None:
        self.bound: float | int | None = None
        self.source = "down-sets"
        self.none = False
        self.termination = Termination.COMPLETED


def contiguous(best: Best, options: DownSetOptions) -> Found:
    """Find the best contiguous placement; if transient values do not fit, retry with less memory."""
    model, context = best.model, best.context
    groups = groups_of(model)
    found = Found()
    less = [0] * len(model.machine.memories)
    sets: DownSets | None = None
    work = options.work
    if len(groups) > MANY_GROUPS:
        # Enumerating their down-sets takes long, so compute a first answer before.
        for own in _from_orders(staged(model, groups, less), lambda: context.stopped)[-1:]:
            best.consider(groups.placed(own))
    for turn in range(ROUNDS):
        costs = staged(model, groups, less)
        if sets is None:
            sets, groups = _down_sets(groups, min(options.sets, MOST_CELLS // costs.states), context)
            if groups is not costs.groups:
                costs = staged(model, groups, less)
        homes = _from_orders(costs)
        for own in homes[-1:]:
            best.consider(groups.placed(own))
        upper = round(model.load(groups.placed(homes[-1])) / costs.step) if homes else None
        search = Search(costs, sets, lambda: context.stopped, work)
        stages = search.best(costs.bound, None if upper is None else upper + costs.error)
        work -= search.visits
        if turn == 0:
            _conclude(found, search, groups, stages)
        if not search.ended and not context.stopped:
            found.termination = Termination.ITERATION_LIMIT
        last = homes_of(costs, sets, stages) if stages is not None else (homes[-1] if homes else None)
        if last is None:
            break
        excess = best.consider(groups.placed(last))
        if not any(excess) or context.stopped:
            break
        less = [room + more for room, more in zip(less, excess, strict=True)]
    return found


def _conclude(found: Found, search: Search, groups: Groups, stages: Sequence[tuple[int, int]] | None) -> None:
    """Record what a search proves about all contiguous placements."""
    costs, model = search.costs, groups.model
    separable = model.star is not None and model.star.separable
    if not groups.exact or not model.settled or model.shared:  # shared parameters count for each unit
        return
    shared = not model.alone and any(model.room[memory] is not None for memory in model.memory_of)
    if shared or not (separable or model.free):
        # The load of transfers may be overestimated, and a shared memory underestimated. The work alone is a lower
        # bound for every placement.
        upper = max(search.loads(stages)) if stages is not None else None
        search = Search(staged(model, groups, whole=True).without_transfers(), search.sets, search.stopped, search.most)
        stages = search.best(search.costs.bound, upper)
        found.source = "down-sets without transfers"
    if stages is not None:
        value = max(0, max(search.loads(stages)) - costs.error)
        found.bound = value if costs.step == 1.0 else value * costs.step
    elif not search.ended:
        value = max(0, search.refuted + 1 - costs.error)
        found.bound = value if costs.step == 1.0 else value * costs.step
    else:
        found.none = True


def _down_sets(groups: Groups, most: int, context: Context) -> tuple[DownSets, Groups]:
    """Return the down-sets of groups, joined until there are at most `most` down-sets."""
    while True:
        sets = down_sets(groups, most, lambda: context.stopped)
        if sets is not None:
            return sets, groups
        fewer = coarser(groups, int(len(groups) * JOINED), lambda: context.stopped)
        if len(fewer) == len(groups) or context.stopped:
            # No groups can be joined, or no time is left: use a single order.
            chain = tuple(frozenset(range(max(0, group - 1), group)) for group in range(len(groups)))
            groups = replace(groups, after=chain, exact=False)
            sets = down_sets(groups, max(most, len(groups) + 1))
            assert sets is not None  # one for each position in the order
            return sets, groups
        else:
            groups = fewer


def _from_orders(costs: Staged, stopped: Callable[[], bool] = lambda: False) -> list[list[int]]:
    """Return improving placements that cut some orders of the groups, fewer on a stop."""
    found: list[list[int]] = []
    upper = None
    for order in orders(costs.groups):
        if found and stopped():
            break
        sets = of_order(order)
        search = Search(costs, sets)
        stages = search.best(costs.bound, upper)
        if stages is not None:
            found.append(homes_of(costs, sets, stages))
            upper = max(search.loads(stages)) - 1
    return found


def start_of(model: Model) -> list[int] | None:
    """Return a quick contiguous placement; None if the orders of the groups have none."""
    groups = groups_of(model)
    found = _from_orders(staged(model, groups))
    return groups.placed(found[-1]) if found else None
