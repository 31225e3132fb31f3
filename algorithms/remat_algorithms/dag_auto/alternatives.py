"""Graphs whose tasks have alternatives, or whose values have several origins: other programs help out.

Ruin and recreate take other tasks for reruns only; which one runs first is the order's choice. The bounds of this
package do not hold there either. So the relaxation of `checkmate`, for a bound, and `moccasin`, which chooses among
all, work in their place, and their schedules and claims stand beside the plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from remat.context import Context, Progress
from remat.errors import OptionError
from remat.problem import Bound, Proposal, Termination
from remat.units import Number
from remat_algorithms.dag_auto.improving import Improver, aside, beside, first_plans
from remat_algorithms.dag_auto.race import Race
from remat_algorithms.dag_auto.state import Search

HEAD_START = 2.0
"""Seconds, or at most a third of the time, that ruin and recreate get before the program where there is one thread."""

RELAXED = 0.3
"""Share of the programs' time that the relaxation may take."""


class _Inside(Context):
    """A context whose solver stops with a race, and reports to it."""

    def __init__(self, race: Race, seconds: float | None) -> None:
        outer = race.context
        deadline = outer.deadline
        if seconds is not None:
            deadline = min(time.monotonic() + seconds, deadline if deadline is not None else float("inf"))
        self._race, self._own = race, False
        super().__init__(deadline=deadline, seed=outer.seed, threads=1, listener=self._tell)

    @property
    def interrupted(self) -> bool:
        """Whether the race is over."""
        return self._own or self._race.watch()

    @interrupted.setter
    def interrupted(self, value: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._own = value

    def _tell(self, _: Progress) -> None:
        """Hand over the schedule that was reported last; the claims come at the end."""
        if self.best_steps is not None and self.best_makespan is not None:
            self._race.offer_steps(self.best_steps, self.best_makespan)


def ask_programs(race: Race, seconds: float | None = None) -> None:
    """Ask for a bound, and then for schedules; the race ends if the best one known is proved."""
    from remat_algorithms.dag_ilp import checkmate, moccasin

    limits = [limit for limit in (seconds, race.context.seconds_left) if limit is not None]
    end = None if seconds is None else time.monotonic() + seconds
    relaxation = _asked(
        race,
        RELAXED * min(limits, default=race.patience),
        lambda context: checkmate.solve_rounded(race.problem, checkmate.RoundingOptions(share=1.0), context),
    )
    # What cannot be done at all cannot be done with two runs of a task.
    if relaxation is None or relaxation.infeasible_within is None:
        _asked(
            race,
            None if end is None else max(0.0, end - time.monotonic()),
            lambda context: moccasin.solve(race.problem, moccasin.MoccasinOptions(rounding=False), context),
        )


def _asked(race: Race, seconds: float | None, solve: Callable[[Context], Proposal]) -> Proposal | None:
    """Let another algorithm solve the problem; None if there is no time, or it does not accept the problem."""
    context = _Inside(race, seconds)
    if context.stopped:
        return None
    with suppress(OptionError):
        proposal = solve(context)
        race.claims.append(proposal)
        if proposal.steps is not None and proposal.makespan is not None:
            race.offer_steps(proposal.steps, proposal.makespan)
        least = race.least
        race.halted |= least is not None and proved_within(race, least) is not None
        return proposal
    return None


def proved_within(race: Race, makespan: Number) -> str | None:
    """Return the class in which some claim proves that nothing is quicker; the widest where there are several."""
    for claim in race.claims:
        if claim.optimal_within is not None and claim.makespan == makespan:
            return claim.optimal_within
        for bound in claim.bounds:
            if bound.value == makespan:
                return bound.scope
    return None


def together(race: Race, search: Search) -> Termination:
    """Improve, and let the program run beside that; with one thread, by turns."""
    improver, left = Improver(race, search), race.context.seconds_left
    if race.context.threads == 1:
        head = HEAD_START if left is None else min(HEAD_START, left / 3)
        end = time.monotonic() + head
        aside(race, search, lambda: first_plans(race, search))
        aside(race, search, lambda: improver.until(end))
        left = race.context.seconds_left
        ask_programs(race, race.patience if left is None else left / 2)
        aside(race, search, improver.work)
    else:
        with beside(race, search, improver.work):
            ask_programs(race)
    return race.context.termination if race.context.stopped else Termination.COMPLETED


def concluded(race: Race, proposal: Proposal) -> Proposal:
    """Return the better of a proposal and what the programs have found, with what they have proved."""
    if not race.claims:
        return proposal
    if race.elsewhere is not None and (proposal.makespan is None or race.elsewhere[1] <= proposal.makespan):
        steps, makespan = race.elsewhere
        proposal = Proposal(steps=steps, makespan=makespan, termination=proposal.termination)
    if proposal.makespan is None:
        for claim in race.claims:
            if claim.infeasible_within is not None:
                return Proposal(
                    infeasible_within=claim.infeasible_within, least=claim.least, termination=proposal.termination
                )
        return replace(proposal, bounds=_bounds(race.claims, None))
    return replace(
        proposal,
        bounds=_bounds(race.claims, proposal.makespan),
        optimal_within=proved_within(race, proposal.makespan),
    )


def _bounds(claims: Sequence[Proposal], makespan: Number | None) -> tuple[Bound, ...]:
    """Return all bounds, but those that a schedule of another class undercuts."""
    bounds = (bound for claim in claims for bound in claim.bounds)
    return tuple(bound for bound in bounds if makespan is None or bound.value <= makespan)
