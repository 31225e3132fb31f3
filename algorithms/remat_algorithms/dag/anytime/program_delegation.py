"""Delegation to other programs where the bounds of this package do not hold, or end without a proof.

The bounds do not hold if tasks have alternatives or values have several origins. Ruin and recreate uses alternative
tasks for reruns only, since the order fixes which one runs first. In these cases the solve asks the relaxation of
`checkmate` for a bound, then `moccasin`, then `checkmate` itself. It keeps their schedules and claims next to the
plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from remat.plugin import Context, OptionError, Progress, Proposal
from remat_algorithms.dag.anytime.final_answer import proved_within
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.programs.frontier import FRONTIER

SHARES = 0.4, 0.6, 1.0
"""Shares of the remaining time for the relaxation, `moccasin` and `checkmate`."""


def _inside(race: Race, seconds: float) -> Context:
    """Return a context that stops with a race and offers it each reported schedule."""
    context = race.context.aside(seconds=seconds, threads=1, over=race.watch)

    def told(_: Progress) -> None:
        # The claims follow at the end.
        if context.best_steps is not None and context.best_makespan is not None:
            race.offer_steps(context.best_steps, context.best_makespan)

    context.listener = told
    return context


def ask_programs(race: Race, seconds: float | None = None, shares: Sequence[float] = SHARES) -> bool:
    """Ask for a bound, then for schedules with few runs of each task, then for any schedules.

    The race ends with the proof that the best known schedule is optimal among the frontier-advancing ones.

    Returns
    -------
    bool
        Whether no limit cut a program short.
    """
    from remat_algorithms.dag.programs import checkmate, moccasin

    problem, end = race.problem, None if seconds is None else time.monotonic() + seconds

    def left() -> float:
        mine = None if end is None else max(0.0, end - time.monotonic())
        return min((limit for limit in (mine, race.context.seconds_left) if limit is not None), default=race.patience)

    def relaxation(context: Context) -> Proposal:
        return checkmate.solve_rounded(problem, checkmate.RoundingOptions(share=1.0), context)

    def few_runs(context: Context) -> Proposal:
        return moccasin.solve(problem, moccasin.MoccasinOptions(rounding=False), context)

    def any_runs(context: Context) -> Proposal:
        return checkmate.solve(problem, checkmate.CheckmateOptions(), context)

    whole = True
    for ask, share in zip((relaxation, few_runs, any_runs), shares, strict=True):
        context = _inside(race, share * left())
        if context.stopped:
            return False
        claim = _asked(race, ask, context)
        if race.proved or _settles(race, claim):
            race.halted = True
            return whole
        whole &= not context.stopped
    return whole


def _asked(race: Race, solve: Callable[[Context], Proposal], context: Context) -> Proposal | None:
    """Solve the problem by another algorithm; None if it does not accept it."""
    with suppress(OptionError):
        claim = solve(context)
        race.claims.append(claim)
        if claim.steps is not None and claim.makespan is not None:
            race.offer_steps(claim.steps, claim.makespan)
        return claim
    return None


def _settles(race: Race, claim: Proposal | None) -> bool:
    """Whether the best known schedule is proved optimal, or that no schedule exists."""
    if race.least is None:
        return claim is not None and claim.infeasible_within == FRONTIER
    return proved_within(race, race.least) == FRONTIER
