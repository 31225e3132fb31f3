"""The proposal at the end of a race: the best schedule, and the strongest proofs of any algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence

from remat.plugin import ALL_SCHEDULES, Bound, LeastBudget, Number, Proposal, Termination
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.programs.frontier import FRONTIER


def conclude(race: Race, scope: str, termination: Termination) -> Proposal:
    """Return the proposal at the end of a race.

    Parameters
    ----------
    race : Race
    scope : str
        The class of the plans, and of the race's bound for them.
    termination : Termination
        Why it ended.
    """
    steps, makespan = race.answer
    if steps is None or makespan is None:
        return _without_schedule(race, scope, termination)
    within = proved_within(race, makespan)
    if race.model.simple and race.optimal:
        within = ALL_SCHEDULES
    elif race.model.simple and race.settled:
        within = scope
    return Proposal(
        steps=steps,
        makespan=makespan,
        bounds=_bounds(race, scope, makespan),
        optimal_within=within,
        termination=termination,
    )


def _without_schedule(race: Race, scope: str, termination: Termination) -> Proposal:
    if race.model.simple and race.bound == math.inf:
        beyond = LeastBudget(race.budget + 1, None, False, race.model.own)
        anywhere = ALL_SCHEDULES if race.overall == math.inf else scope
        return Proposal(infeasible_within=anywhere, least=beyond, termination=termination)
    within = _widest([claim.infeasible_within for claim in race.claims])
    if within is not None:
        least = next(claim.least for claim in race.claims if claim.infeasible_within == within)
        return Proposal(infeasible_within=within, least=least, termination=termination)
    return Proposal(bounds=_bounds(race, scope, None), termination=termination)


def proved_within(race: Race, makespan: Number) -> str | None:
    """Return the widest class in which claims prove that no schedule is faster; None if there is no proof."""
    scopes = [claim.optimal_within for claim in race.claims if claim.makespan == makespan]
    scopes += [bound.scope for claim in race.claims for bound in claim.bounds if bound.value == makespan]
    return _widest(scopes)


def _widest(scopes: Sequence[str | None]) -> str | None:
    known = [scope for scope in scopes if scope is not None]
    return min(known, key=lambda scope: scope != FRONTIER, default=None)


def _bounds(race: Race, scope: str, makespan: Number | None) -> tuple[Bound, ...]:
    """Return the bounds of the race and of the claims, except those that a schedule of another class undercuts."""
    bounds = [bound for claim in race.claims for bound in claim.bounds]
    if race.model.simple and race.bound > race.overall:
        bounds.append(Bound(race.makespan_bound(race.bound, race.settled, makespan), scope, "dag-auto"))
    if race.model.simple and race.overall > 0:
        bounds.append(Bound(race.makespan_bound(race.overall, race.optimal, makespan), ALL_SCHEDULES, "dag-auto"))
    return tuple(bound for bound in bounds if makespan is None or bound.value <= makespan)
