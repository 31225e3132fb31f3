"""`moccasin`: retention intervals in constraint programming (Bartan et al. 2023)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal, Termination
from remat_algorithms.dag.programs.checkmate import SMALL, first_schedule
from remat_algorithms.dag.programs.formulation import TooLarge
from remat_algorithms.dag.programs.frontier import FRONTIER
from remat_algorithms.dag.programs.greedy_start import greedy_schedule
from remat_algorithms.dag.programs.intervals import Intervals
from remat_algorithms.dag.programs.search import Runs, Search
from remat_algorithms.dag.programs.true_memory import execute
from remat_algorithms.kit.programs.cp_sat import CpSatJob
from remat_algorithms.kit.programs.solver_status import Answer, Outcome, watched

COPIES, MOST_COPIES = 2, 20
ROUNDING_TIME = 0.3
"""Maximum share of the remaining time for relaxations before the constraint program."""

DEFAULT_WORK = 1.0
"""Work limit of the constraint program without a time limit, in CP-SAT's units: ten to forty seconds."""

MOST_RUN_SLOTS = 400_000
"""Maximum number of (task, stage) pairs; beyond, building the model alone takes minutes."""


class MoccasinOptions(Options):
    """Options of `moccasin`."""

    copies: int = Field(
        default=COPIES, ge=1, le=MOST_COPIES, description="maximum number of runs of one task, including the first"
    )
    greedy: bool = Field(default=True, description="run the greedy of `dag-auto` first, for an initial schedule")
    rounding: bool = Field(
        default=True, description="round the relaxation of `checkmate` first, for an initial schedule"
    )
    reorder: bool = Field(default=False, description="improve the order of first runs before choosing recomputations")


def scope_of(copies: int) -> str:
    """Return the class that is searched with a number of copies."""
    return f"{FRONTIER}, at most {copies} runs a task"


class _InClass(Search):
    """A search that accepts only schedules with few enough runs of each task.

    Attributes
    ----------
    copies : int
        Maximum number of runs of a task.
    wanted : int or None
        The minimum of `copies` for which a rejected schedule that fits would have been accepted.
    """

    copies = COPIES
    wanted: int | None = None

    def offer(self, chosen: Runs) -> bool:  # type: ignore[override]
        own = {(self.front.first[position], position) for position, must in enumerate(self.front.forced) if must}
        count = Counter(position for _, position in own | set(chosen))
        most = max(count.values(), default=0)
        if most <= self.copies:
            return super().offer(chosen)
        news = self.best is None and (self.wanted is None or most < self.wanted)
        if news and execute(self.problem, self.front.runs_of(chosen)).peak <= self.budget:
            self.wanted = most
        return False

    def infeasible(self, scope: str | None = None) -> Proposal:
        return self._remarked(super().infeasible(scope))

    def propose(self, *, proved: bool, termination: Termination | None = None) -> Proposal:
        return self._remarked(super().propose(proved=proved, termination=termination))

    def _remarked(self, proposal: Proposal) -> Proposal:
        """Add a note with the option that would admit a rejected schedule, if no other was found."""
        if proposal.steps is not None or self.wanted is None:
            return proposal
        remedy = f"option copies={self.wanted}" if self.wanted <= MOST_COPIES else "algorithm checkmate"
        note = f"a schedule fits that runs a task {self.wanted} times, and {self.copies} are allowed: use {remedy}"
        return replace(proposal, notes=(*proposal.notes, note))


def solve(problem: Problem, options: MoccasinOptions, context: Context) -> Proposal:
    """Find the best frontier-advancing schedule in which no task runs more than a few times.

    `remat_algorithms.dag.programs.intervals` states the model: O(C n) retention intervals instead of O(n^2) binaries.

    Accepts instances of any kind; uses the first processor and its memory. Claims makespan and peak; optimal or
    infeasible within `scope_of(copies)` if that is proved. Without a time limit it ends after `DEFAULT_WORK`.
    """
    search = _InClass(problem, context, scope_of(options.copies), "moccasin", reorder=options.reorder)
    search.copies = options.copies
    early = search.without_reruns()
    if early is not None:
        return early
    if search.context.stopped:
        return search.propose(proved=False)
    front = search.front
    if front.start > search.budget:
        return search.infeasible()
    if front.slots > SMALL and options.greedy:
        greedy_schedule(search)
    if front.slots > MOST_RUN_SLOTS:
        search.notes.append(
            f"{front.stages:,} stages with {front.slots:,} runs: the program would take too long to be built"
        )
        return search.propose(proved=False, termination=Termination.SIZE_LIMIT)
    if options.rounding and front.slots > SMALL:
        if not _possible(search):
            return search.infeasible()
        if context.stopped:
            search.notes.append("the time was over before the constraint program was begun")
            return search.propose(proved=False, termination=search.limit)
    try:
        return _solve(search, options.copies)
    except TooLarge as error:
        search.notes.append(str(error))
        return search.propose(proved=False, termination=search.limit)


def _possible(search: Search) -> bool:
    """Search for a first schedule; False if the class contains none."""
    try:
        return first_schedule(search, "highs", patience=ROUNDING_TIME)
    except TooLarge:
        return True


def _solve(search: Search, copies: int) -> Proposal:
    context = search.context
    model = Intervals(search.front, search.budget, copies, search.most_cost, lambda: context.stopped)
    if model.infeasible:
        return search.infeasible() if search.best is None else search.propose(proved=True)
    if search.best_runs is not None:
        model.hint(search.best_runs)
    job = CpSatJob(
        model.model,
        threads=context.threads,
        seed=context.seed,
        seconds=context.seconds_left,
        chosen=model.chosen,
        found=search.offer,
        bounded=model.raise_bound(search),
    )
    job.solver.parameters.linearization_level = 2
    counted = context.seconds_left is None
    if counted:
        job.solver.parameters.max_deterministic_time = DEFAULT_WORK
    answer: Answer = watched(job, lambda: context.interrupted, context.seconds_left)
    if answer.outcome is Outcome.INFEASIBLE:
        return search.infeasible() if search.best is None else search.propose(proved=True)
    if np.isfinite(answer.bound):
        model.raise_bound(search)(answer.bound)
    if answer.outcome is not Outcome.OPTIMAL:
        limit = f" within {DEFAULT_WORK:g} units of work; with a time limit the search continues" if counted else ""
        search.notes.append(f"cp-sat did not finish the program of {len(model.demands):,} intervals{limit}")
        return search.propose(proved=False, termination=search.limit)
    if search.best is None:
        search.notes.append("sizes are too large for the solver; rounded down, its solution does not fit")
        return search.propose(proved=False, termination=Termination.ITERATION_LIMIT)
    proved = model.exact or (search.bound is not None and search.best.makespan <= search.bound)
    return search.propose(proved=proved, termination=Termination.COMPLETED)
