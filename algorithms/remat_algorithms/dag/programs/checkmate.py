"""`checkmate` and `checkmate-lp`: Checkmate's integer program (Jain et al. 2020), and its rounded relaxation."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal, Termination
from remat_algorithms.dag.programs.formulation import TooLarge, formulate
from remat_algorithms.dag.programs.frontier import FRONTIER
from remat_algorithms.dag.programs.greedy_start import greedy_schedule
from remat_algorithms.dag.programs.rounding import kept_at_borders, least_runs
from remat_algorithms.dag.programs.search import Runs, Search, impossible, prune
from remat_algorithms.dag.programs.stage_program import Formulation
from remat_algorithms.kit.programs.program import Program
from remat_algorithms.kit.programs.solver_status import Outcome
from remat_algorithms.kit.programs.solvers import solve_program

SMALL = 400
"""Maximum number of columns of a program that is solved without a first schedule."""

MOST_ROUNDS = 100
"""Maximum number of solves of a program with cuts, if sizes had to be rounded."""

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHARES = (1.0, 0.95, 0.9, 0.8, 0.7)


class CheckmateOptions(Options):
    """Options of `checkmate`."""

    solver: str = Field(
        default="scip",
        pattern=r"^(scip|highs|cp-sat|pulp(:[A-Za-z_]\w*)?)$",
        description="solver: scip, highs or cp-sat through OR-Tools; pulp (CBC) or pulp:NAME for a solver that PuLP "
        "finds",
    )
    greedy: bool = Field(
        default=True, description="run the greedy of `dag-auto` first; its schedule makes the program smaller"
    )
    rounding: bool = Field(
        default=True, description="round the relaxation first; its schedule makes the program smaller"
    )
    reorder: bool = Field(default=False, description="improve the order of first runs before choosing recomputations")


class RoundingOptions(Options):
    """Options of `checkmate-lp`."""

    solver: Literal["highs", "glop", "pulp"] = Field(
        default="highs", description="solver: highs or glop through OR-Tools, or pulp (CBC)"
    )
    share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="share of the budget for the second relaxation, which leaves headroom for rounding; 1: skip it",
    )
    reorder: bool = Field(default=False, description="improve the order of first runs before choosing recomputations")


def solve(problem: Problem, options: CheckmateOptions, context: Context) -> Proposal:
    """Find the best frontier-advancing schedule, by integer programming.

    `remat_algorithms.dag.programs.formulation` states the program. A greedy and the rounded relaxation run first. A
    known schedule is the solver's start, and it makes the program smaller: a run that takes longer than all reruns of
    the schedule can be left out. Solutions are replayed with the true sizes. If rounding admitted one that does not
    fit, a cut excludes it and the program is solved again.

    Accepts instances of any kind; uses the first processor and its memory. Claims makespan and peak; optimal or
    infeasible within `FRONTIER` (`IMPROVED`, if a better order was found) if the solver proves it; otherwise the
    solver's bound.

    Raises
    ------
    OptionError
        If PuLP does not find the solver.
    """
    search = Search(problem, context, FRONTIER, "checkmate", reorder=options.reorder)
    early = search.without_reruns()
    if early is not None:
        return early
    if context.stopped:
        return search.propose(proved=False)
    if search.front.start > search.budget:
        return search.infeasible()
    try:
        return _solve(search, options)
    except TooLarge as error:
        search.notes.append(str(error))
        return _not_built(search)


def _not_built(search: Search) -> Proposal:
    late = search.context.stopped
    return search.propose(proved=False, termination=search.limit if late else Termination.SIZE_LIMIT)


def _solve(search: Search, options: CheckmateOptions) -> Proposal:
    front, context = search.front, search.context
    if options.greedy and front.slots > SMALL:
        greedy_schedule(search)
    large = front.slots > SMALL
    form = None if large else _formulated(search)
    if form is not None and impossible(form.builder.lower, form.builder.upper):
        return search.infeasible()
    if options.rounding and (form is None or len(form.builder.cost) > SMALL):
        possible = first_schedule(search, options.solver if options.solver.startswith("pulp") else "highs")
        if not possible:
            return search.infeasible()
        if context.stopped:
            return search.propose(proved=False)
        form = None
    form = form or _formulated(search)
    if impossible(form.builder.lower, form.builder.upper):
        return search.infeasible() if search.best is None else search.propose(proved=True)
    for _ in range(MOST_ROUNDS):
        if context.stopped:
            break
        hint = None if search.best_runs is None or form.base_cost else form.point(search.best_runs)
        program = form.program()
        answer = solve_program(program, options.solver, context, hint=hint)
        if answer.outcome is Outcome.INFEASIBLE:
            return search.infeasible() if search.best is None else search.propose(proved=True)
        if answer.outcome is Outcome.UNKNOWN or answer.solution is None:
            search.notes.append(unfinished(options.solver, program))
            break
        chosen = form.chosen(answer.solution)
        fits = search.offer(chosen)
        optimal = answer.outcome is Outcome.OPTIMAL
        search.raise_bound(form, answer.bound, proved=optimal)
        if not optimal:
            search.notes.append(unfinished(options.solver, program))
            break
        met = search.best is not None and search.best.makespan == search.bound
        if met or (fits and form.exact_time):
            return search.propose(proved=True)
        if fits:
            form = _refined(search, form, answer.bound)
        elif not form.cut_off(form.point(chosen), search.budget - front.fixed):
            search.notes.append(f"{options.solver} rounded more than its program allows: it is not finished")
            break
    else:
        search.notes.append("sizes differ too much in magnitude for the solver; it was given them rounded down")
        return search.propose(proved=False, termination=Termination.ITERATION_LIMIT)
    return search.propose(proved=False, termination=search.limit)


def _formulated(search: Search) -> Formulation:
    return formulate(search.front, search.budget, most_cost=search.most_cost, stopped=lambda: search.context.stopped)


def unfinished(solver: str, program: Program) -> str:
    """Return a note that a solver did not finish a program."""
    return f"{solver} did not finish the program of {program.columns:,} columns and {program.rows:,} rows"


def first_schedule(search: Search, solver: str, *, patience: float = 1.0) -> bool:
    """Round relaxations at several shares of the budget until no improvement follows; False if no schedule can fit.

    They take at most `patience`, a share of the remaining time.
    """
    left = search.context.seconds_left
    end = None if left is None else time.monotonic() + patience * left
    for share in SHARES:
        before = search.best
        seconds = None if end is None else end - time.monotonic()
        possible = round_relaxation(search, share, solver, seconds)
        if possible is False and share == 1:
            return False
        late = search.context.stopped or (end is not None and time.monotonic() >= end)
        if late or (search.best is not None and search.best is before):
            break
    return True


def _refined(search: Search, form: Formulation, objective: float) -> Formulation:
    """Return the program that finds the minimum true cost among the solutions of (almost) minimum rounded cost."""
    front = search.front
    assert search.best is not None
    extra = int(search.best.makespan - front.base_time)
    least = round(objective)
    return form.refined(front, least, max(0, extra // int(form.time_unit) - least))


def round_relaxation(search: Search, share: float, solver: str, seconds: float | None = None) -> bool | None:
    """Solve the relaxation at a share of the budget, round it at each threshold, replay and prune the best.

    Returns
    -------
    bool or None
        Whether the relaxation is feasible; None if a limit was hit.
    """
    front = search.front
    budget = int(search.budget * share) if share < 1 else search.budget
    form = formulate(front, budget, most_cost=search.most_cost, integral=False, stopped=lambda: search.context.stopped)
    if impossible(form.builder.lower, form.builder.upper):
        return False if share == 1 else None
    program = form.program()
    answer = solve_program(program, solver, search.context, seconds=seconds)
    if answer.outcome is Outcome.INFEASIBLE:
        # Since expensive runs were left out, this only means that no better schedule exists.
        return False if search.best is None else None
    if answer.solution is None:
        search.notes.append(unfinished(solver, program))
        return None
    if share == 1 and answer.outcome is Outcome.OPTIMAL:
        search.raise_bound(form, answer.bound, proved=False)
    seen: list[Runs] = []
    for threshold in THRESHOLDS:
        if search.context.stopped:
            break
        runs = least_runs(front, kept_at_borders(form, answer.solution, threshold))
        if runs is not None and runs not in seen:
            seen.append(runs)
            search.offer(runs)
    if search.best_runs is not None and search.best_runs in seen:
        search.offer(prune(search, search.best_runs))
    return True


def solve_rounded(problem: Problem, options: RoundingOptions, context: Context) -> Proposal:
    """Round the relaxation of Checkmate's program, in two phases.

    Jain et al. 2020, section 5: solve the relaxation at a share of the budget, round the values that are resident at
    the borders of the stages at a threshold, and derive the minimum set of runs. Here each of nine thresholds is tried,
    and every schedule is replayed: only schedules that fit the budget count. The relaxation at the whole budget gives a
    lower bound. O(n^2) columns, O(n^2) memory rows of O(n) entries.

    Accepts instances of any kind; uses the first processor and its memory. Claims makespan and peak; infeasible within
    `FRONTIER` if the relaxation at the whole budget is.
    """
    search = Search(problem, context, FRONTIER, "checkmate-lp", reorder=options.reorder)
    early = search.without_reruns()
    if early is not None:
        return early
    if context.stopped:
        return search.propose(proved=False)
    if search.front.start > search.budget:
        return search.infeasible()
    try:
        possible = round_relaxation(search, 1.0, options.solver)
        if possible is False:
            return search.infeasible()
        if possible and options.share < 1 and not context.stopped:
            round_relaxation(search, options.share, options.solver)
    except TooLarge as error:
        search.notes.append(str(error))
        return _not_built(search)
    if search.best is not None and search.best.makespan == search.bound:
        return search.propose(proved=True)
    return search.propose(proved=False, termination=None if possible and not context.stopped else search.limit)
