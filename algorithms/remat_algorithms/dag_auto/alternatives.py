"""Graphs whose tasks have alternatives, or whose values have several origins: a constraint program helps out.

Ruin and recreate take other tasks for reruns only; which one runs first is the order's choice. The bounds of this
package do not hold there either. So `moccasin`, which chooses among all, works in their place, and its schedules and
claims stand beside the plans.
"""

from __future__ import annotations

import time
from contextlib import suppress

from remat.context import Context, Progress
from remat.errors import OptionError
from remat.problem import Proposal, Termination
from remat_algorithms.dag_auto.improving import Improver, aside, beside, first_plans
from remat_algorithms.dag_auto.race import Race
from remat_algorithms.dag_auto.state import Search

HEAD_START = 2.0
"""Seconds, or at most a third of the time, that ruin and recreate get before the program where there is one thread."""


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


def ask_program(race: Race, seconds: float | None = None) -> None:
    """Let `moccasin` look for schedules; the race ends if its best is proved and no plan is better."""
    from remat_algorithms.dag_ilp.moccasin import MoccasinOptions, solve

    context = _Inside(race, seconds)
    if context.stopped:
        return
    with suppress(OptionError):
        race.program = solve(race.problem, MoccasinOptions(rounding=False), context)
        proposal = race.program
        if proposal.steps is not None and proposal.makespan is not None:
            race.offer_steps(proposal.steps, proposal.makespan)
            best = race.least
            race.halted |= proposal.optimal_within is not None and best is not None and best >= proposal.makespan


def together(race: Race, search: Search) -> Termination:
    """Improve, and let the program run beside that; with one thread, by turns."""
    improver, left = Improver(race, search), race.context.seconds_left
    if race.context.threads == 1:
        head = HEAD_START if left is None else min(HEAD_START, left / 3)
        end = time.monotonic() + head
        aside(race, search, lambda: first_plans(race, search))
        aside(race, search, lambda: improver.until(end))
        left = race.context.seconds_left
        ask_program(race, race.patience if left is None else left / 2)
        aside(race, search, improver.work)
    else:
        with beside(race, search, improver.work):
            ask_program(race)
    return race.context.termination if race.context.stopped else Termination.COMPLETED


def concluded(race: Race, proposal: Proposal) -> Proposal:
    """Return what the program has found, where that is better than a proposal, or what it has proved."""
    found, program = race.elsewhere, race.program
    bounds = () if program is None else program.bounds
    if found is None:
        if proposal.steps is None and program is not None and program.infeasible_within is not None:
            return Proposal(
                infeasible_within=program.infeasible_within, least=program.least, termination=proposal.termination
            )
        return proposal
    steps, makespan = found
    if proposal.makespan is not None and proposal.makespan < makespan:
        return proposal
    proved = program is not None and program.makespan == makespan
    return Proposal(
        steps=steps,
        makespan=makespan,
        bounds=tuple(bound for bound in bounds if bound.value <= makespan),
        optimal_within=program.optimal_within if proved and program is not None else None,
        termination=proposal.termination,
    )
