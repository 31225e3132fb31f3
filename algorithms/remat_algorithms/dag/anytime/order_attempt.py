"""One attempt at a task graph in one order: the first plans, what is proved at once, and the two sides that meet."""

from __future__ import annotations

import time
from functools import partial

from remat.plugin import Termination
from remat_algorithms.dag.anytime.bounds.bound_search import Bounding, speaks_for_all
from remat_algorithms.dag.anytime.improvement import SMALLER, Improver, aside, beside, first_plans
from remat_algorithms.dag.anytime.initial_moment import Starting
from remat_algorithms.dag.anytime.program_delegation import ask_programs
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.plans.search_state import Search
from remat_algorithms.kit.programs.solver_status import POLL_SECONDS

SMALL = 32
"""Tasks up to which the two sides take turns, with limits that do not depend on the clock."""

SMALL_ROUNDS = 300
"""Rounds of ruin and recreate there, divided by the number of tasks."""

SMALL_WORK, WORK = 0.1, 2.0
"""Work that a program may take where the clock does not count, in CP-SAT's units: in small graphs, and in others."""

ONE_BY_ONE = 1.0, 1.0, 1.0
"""Shares of the time left that the programs may take in small graphs: else the answer would be left to the clock."""

HEAD_START, HEAD_START_EACH = 0.5, 0.002
"""Seconds, and those for each task, that the first plan may take before the bounding side loads its solver."""

NEAR, LARGE = 8e-6, 1000
"""Share of the makespan within which of its bound the first program's solution is good enough at first, in graphs of
more tasks than that."""

CLOSE = 0.01
"""Share of the makespan within which of the bound a plan of such a graph is not built anew from the order alone."""

PROGRAMS_START = 2.0
"""Seconds, or at most a third of the time, before the programs are asked where there is one thread."""


class Attempt:
    """A race, and those who run it.

    Attributes
    ----------
    race : Race
    iterations : int or None
        Rounds of ruin and recreate, without the other programs.
    """

    def __init__(self, race: Race, iterations: int | None = None) -> None:
        self.race, self.iterations = race, iterations
        self._small = race.model.stages <= SMALL
        self._starting = Starting(race) if race.model.simple and not self._small else None
        self._search: Search | None = None

    @property
    def search(self) -> Search:
        """The improving side's; its tables are made when it is first asked for."""
        if self._search is None:
            self._search = Search(self.race.model, self.race.budget, self.race.context.seed)
        return self._search

    def begin(self) -> None:
        """Look for a plan in what the first program says, in little time."""
        if self._starting is not None and not self.race.over():
            self._starting.sketch()
            if self._starting.rough and self.race.best is None:
                aside(self.race, self.search, partial(self._starting.mend, self.search))

    def prove(self) -> None:
        """Prove what the first program says, of all schedules, too."""
        race, starting = self.race, self._starting
        if starting is None:
            return
        overall = speaks_for_all(race.problem, race.model)
        near = NEAR if race.model.stages > LARGE else 0.0
        if not starting.prove(near, overall=overall) and not race.over():
            starting.prove(0.0, overall=overall)

    def build(self) -> None:
        """Look for a plan at length, where there is none."""
        aside(self.race, self.search, partial(first_plans, self.race, self.search))

    def finish(self) -> Termination:
        """Improve and bound until both meet, or the limits say so."""
        race = self.race
        if self.iterations is None and not self._small:
            return self._together()
        termination = self._in_turns()
        if self.iterations is None and not race.over() and not ask_programs(race, race.patience, ONE_BY_ONE):
            return race.context.termination if race.context.stopped else Termination.TIME_LIMIT
        return termination

    def _first_plans(self, shares: tuple[float, ...] = (1.0, *SMALLER)) -> None:
        """Let the greedy build plans, unless there is one that it would hardly better."""
        race = self.race
        gap = race.overhead - race.bound
        if race.model.stages <= LARGE or race.best is None or gap > CLOSE * race.model.once_time:
            first_plans(race, self.search, shares)

    def _in_turns(self) -> Termination:
        """Construct, bound, improve, bound again: with limits that do not depend on the clock."""
        race, search = self.race, self.search
        aside(race, search, partial(first_plans, race, search))
        improver = Improver(race, search)
        bounding = self._bounding(improver, SMALL_WORK if self._small else WORK) if not race.over() else None
        if bounding is not None:
            self._bound_first(bounding)
            if self._small and not race.over():
                bounding.work()
        rounds = self.iterations if self.iterations is not None else SMALL_ROUNDS // race.model.stages
        made: list[int] = []
        aside(race, search, lambda: made.append(improver.rounds(rounds)))
        if bounding is not None and not self._small and not race.over():
            bounding.refine(None)
        if race.proved or not race.context.stopped:
            limited = self.iterations is not None and sum(made) >= rounds and not race.proved
            return Termination.ITERATION_LIMIT if limited else Termination.COMPLETED
        return race.context.termination

    def _bounding(self, improver: Improver, effort: float | None) -> Bounding | None:
        race = self.race
        if not race.model.simple:
            return None
        own = Search(race.model, race.budget, race.context.seed)
        return Bounding(race, own, effort, improver.seeds.append)

    def _together(self) -> Termination:
        """Improve in a thread of its own, and bound in this one; with one thread, by turns of growing length."""
        race, search = self.race, self.search
        improver = Improver(race, search)
        bounding = self._bounding(improver, None)

        def improve() -> None:
            self._first_plans()
            improver.work()

        if race.context.threads == 1:
            if bounding is not None:
                self._alternate(improver, bounding)
            self._ask_in_turn(improver)
        else:
            with beside(race, search, improve):
                if bounding is not None:
                    self._head_start()
                    self._bound_first(bounding)
                    bounding.work()
                if not race.over():
                    ask_programs(race)
        return Termination.COMPLETED if race.proved or not race.context.stopped else race.context.termination

    def _bound_first(self, bounding: Bounding) -> None:
        """Bound all orders, at length where that is the aim, and the order at hand, whose solution may be a plan."""
        race = self.race
        whole = bounding.widen_first(1)
        if not race.over():
            bounding.cover(None)
        if whole:
            bounding.widen_first()
        if race.any_order and race.context.threads > 1:
            bounding.widen_all()

    def _head_start(self) -> None:
        """Wait a moment for the first plan."""
        race = self.race
        end = time.monotonic() + HEAD_START + HEAD_START_EACH * race.model.stages
        while race.best is None and time.monotonic() < end and not race.watch():
            time.sleep(POLL_SECONDS / 4)
        race.watch()

    def _alternate(self, improver: Improver, bounding: Bounding) -> None:
        """Take turns, each as long as all turns before, as long as there is something to bound."""
        race, search, turn = self.race, self.search, 0.5
        aside(race, search, lambda: self._first_plans((1.0,)))
        if not race.watch():
            self._bound_first(bounding)
        if race.best is None and not race.watch():
            # Perhaps there is none.
            bounding.refine(None if race.context.seconds_left is None else race.context.seconds_left / 2)
        aside(race, search, lambda: self._first_plans(SMALLER))
        while not race.watch() and not bounding.exhausted:
            end = time.monotonic() + turn
            aside(race, search, partial(improver.until, end))
            start = time.monotonic()
            while time.monotonic() - start < turn and not race.watch() and not bounding.exhausted:
                if race.any_order and bounding.may_widen:
                    bounding.widen(turn)
                else:
                    bounding.refine(turn)
            turn = min(1.4 * turn, 20.0)

    def _ask_in_turn(self, improver: Improver) -> None:
        """Let the programs have half of the time that is left, and improve before and after."""
        race, search = self.race, self.search
        if race.over():
            return
        left = race.context.seconds_left
        end = time.monotonic() + (PROGRAMS_START if left is None else min(PROGRAMS_START, left / 3))
        if not race.model.simple:
            aside(race, search, partial(first_plans, race, search))
        aside(race, search, partial(improver.until, end))
        left = race.context.seconds_left
        if not race.over():
            ask_programs(race, race.patience if left is None else left / 2)
        aside(race, search, improver.work)
