"""One solve of a task graph in one order: first plans, first proofs, and improvement and bounding until they meet."""

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
"""Maximum number of tasks for which the two sides alternate, with limits that do not depend on the clock."""

SMALL_ROUNDS = 300
"""Rounds of ruin and recreate for a small graph: this number divided by its number of tasks."""

SMALL_WORK, WORK = 0.1, 2.0
"""Work limit of a program if the clock does not count, in CP-SAT's units: for small graphs, and for others."""

ONE_BY_ONE = 1.0, 1.0, 1.0
"""Shares of the remaining time for the programs of small graphs, so that the answer does not depend on the clock."""

HEAD_START, HEAD_START_EACH = 0.5, 0.002
"""Head start of the first plan before the bounding side loads its solver: seconds, and seconds per task."""

NEAR, LARGE = 8e-6, 1000
"""Sufficient gap of the first program's first solution, as a share of the makespan, in graphs with more than `LARGE`
tasks.
"""

CLOSE = 0.01
"""Gap, as a share of the makespan, up to which a large graph keeps its plan and the greedy builds no others."""

PROGRAMS_START = 2.0
"""Delay of the programs with one thread: seconds, but at most a third of the time."""


class Attempt:
    """A race with its two sides.

    Attributes
    ----------
    race : Race
    iterations : int or None
        Rounds of ruin and recreate; excludes the other programs.
    """

    def __init__(self, race: Race, iterations: int | None = None) -> None:
        self.race, self.iterations = race, iterations
        self._small = race.model.stages <= SMALL
        self._starting = Starting(race) if race.model.simple and not self._small else None
        self._search: Search | None = None

    @property
    def search(self) -> Search:
        """The search of the improving side; its tables are built on first use."""
        if self._search is None:
            self._search = Search(self.race.model, self.race.budget, self.race.context.seed)
        return self._search

    def begin(self) -> None:
        """Derive a first plan from the first program, in little time."""
        if self._starting is not None and not self.race.over():
            self._starting.sketch()
            if self._starting.rough and self.race.best is None:
                aside(self.race, self.search, partial(self._starting.mend, self.search))

    def prove(self) -> None:
        """Solve the first program for its bounds, including the one for all schedules."""
        race, starting = self.race, self._starting
        if starting is None:
            return
        overall = speaks_for_all(race.problem, race.model)
        near = NEAR if race.model.stages > LARGE else 0.0
        if not starting.prove(near, overall=overall) and not race.over():
            starting.prove(0.0, overall=overall)

    def build(self) -> None:
        """Search for a first plan at length."""
        aside(self.race, self.search, partial(first_plans, self.race, self.search))

    def finish(self) -> Termination:
        """Improve and bound until both meet or a limit is reached."""
        race = self.race
        if self.iterations is None and not self._small:
            return self._together()
        termination = self._in_turns()
        if self.iterations is None and not race.over() and not ask_programs(race, race.patience, ONE_BY_ONE):
            return race.context.termination if race.context.stopped else Termination.TIME_LIMIT
        return termination

    def _first_plans(self, shares: tuple[float, ...] = (1.0, *SMALLER)) -> None:
        """Let the greedy build plans, unless the present plan leaves it little to improve."""
        race = self.race
        gap = race.overhead - race.bound
        if race.model.stages <= LARGE or race.best is None or gap > CLOSE * race.model.once_time:
            first_plans(race, self.search, shares)

    def _in_turns(self) -> Termination:
        """Construct, bound, improve and bound again, with limits that do not depend on the clock."""
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
        """Improve in a separate thread and bound in this one; with one thread, alternate between both."""
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
        """Bound all orders, at length if that is the goal, and the current order, whose solution may be a plan."""
        race = self.race
        whole = bounding.widen_first(1)
        if not race.over():
            bounding.cover(None)
        if whole:
            bounding.widen_first()
        if race.any_order and race.context.threads > 1:
            bounding.widen_all()

    def _head_start(self) -> None:
        """Wait briefly for the first plan."""
        race = self.race
        end = time.monotonic() + HEAD_START + HEAD_START_EACH * race.model.stages
        while race.best is None and time.monotonic() < end and not race.watch():
            time.sleep(POLL_SECONDS / 4)
        race.watch()

    def _alternate(self, improver: Improver, bounding: Bounding) -> None:
        """Alternate in intervals of growing length until the bounding side is exhausted."""
        race, search, turn = self.race, self.search, 0.5
        aside(race, search, lambda: self._first_plans((1.0,)))
        if not race.watch():
            self._bound_first(bounding)
        if race.best is None and not race.watch():
            # There may be no plan at all.
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
        """Give the programs half of the remaining time, and improve before and after."""
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
