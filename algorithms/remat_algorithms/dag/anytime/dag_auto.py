"""`dag-auto`: greedy, ruin and recreate, and bounds that exchange what they find."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import Context, Options, Problem, Proposal, Steps, Termination
from remat_algorithms.dag.anytime.bounds.bounding import Bounding, speaks_for_all
from remat_algorithms.dag.anytime.conclusion import conclude
from remat_algorithms.dag.anytime.improving import SMALLER, Improver, aside, beside, first_plans
from remat_algorithms.dag.anytime.programs import ask_programs
from remat_algorithms.dag.anytime.race import Race, steps_of
from remat_algorithms.dag.anytime.starting import Starting
from remat_algorithms.dag.anytime.walks.reordering import Start, better_start
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.plans.state import Search
from remat_algorithms.kit.programs.answers import POLL_SECONDS

NOT_REORDERED = "reorder: the order stays as it is, since the graph has alternatives"
"""The note where an improved order was asked for, and there is no order of all tasks to improve."""

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
"""Share of the makespan within which of its bound the first program's solution is good enough at first, in graphs of more
tasks than that."""

PROGRAMS_START = 2.0
"""Seconds, or at most a third of the time, before the programs are asked where there is one thread."""


PATIENCE = 30.0
"""Seconds without a better schedule or bound after which to stop, where nobody has said when."""


class DagAutoOptions(Options):
    """Options of `dag-auto`."""

    iterations: int | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="rounds of ruin and recreate; the answer then depends on the seed and not on the clock. "
        "Default: until it is proved, the time is over, or patience is",
    )
    patience: float | None = Field(
        None,
        gt=0,
        description="the argument `patience` of every solve, under its old name; where neither is given nor a time "
        "limit, 30 s",
    )
    reorder: bool = Field(
        False,
        description="look for a better order of first runs, with reruns in view; graphs with alternatives keep theirs",
    )


def solve(problem: Problem, options: DagAutoOptions, context: Context) -> Proposal:
    """Solve a task graph.

    Takes instances of any kind; one processor and its memory are used. With one thread the sides take turns. Comes with
    a bound for all schedules, where there are no alternatives and no other memory or processor, and a bound within its
    class: schedules that run the needed tasks for the first time in the given order (or in the one that `reorder` has
    found), and between two first runs each earlier task at most once again, in that order.

    Notes
    -----
    O(accesses) for each schedule that is looked at; the bounds are mixed-integer programs. When everything fits
    without recomputation, that is returned at once.
    """
    start = Start(stage_model(problem))
    patience = options.patience or context.patience or PATIENCE
    notes = (NOT_REORDERED,) if options.reorder and not start.model.simple else ()
    if options.reorder and start.model.simple and problem.exceeded is None:
        start = better_start(problem, start.model, context, patience / 2, options.iterations)
    model, scope, budget = start.model, start.scope, problem.budget
    whole = keep_everything(model, problem)
    if whole is not None:
        within = scope if model.simple else None
        return Proposal(steps=whole, makespan=problem.no_recompute_time, optimal_within=within, notes=notes)
    assert budget is not None
    if problem.exceeded is not None:
        return Proposal(termination=context.termination, notes=notes)
    race = Race(problem, model, context, budget, patience, options.reorder and speaks_for_all(problem, model))
    race.offer(start.plan)
    if start.steps is not None:
        race.offer_steps(*start.steps)
    starting = Starting(race) if model.simple and model.stages > SMALL else None
    if starting is not None:
        starting.sketch()
    search = Search(model, budget, context.seed)
    if starting is not None:
        if race.best is None:
            aside(race, search, lambda: starting.mend(search))
        overall = speaks_for_all(problem, model)
        if not starting.prove(overall, NEAR if model.stages > LARGE else 0.0) and not race.over():
            starting.prove(overall, 0.0)
    if options.iterations is not None or model.stages <= SMALL:
        termination = _in_turns(race, search, options)
        if options.iterations is None and not race.over() and not ask_programs(race, patience, ONE_BY_ONE):
            termination = race.context.termination if race.context.stopped else Termination.TIME_LIMIT
    else:
        termination = _together(race, search)
    race.watch()
    conclusion = conclude(race, scope, termination)
    return replace(conclusion, notes=conclusion.notes + notes)


def keep_everything(model: StageModel, problem: Problem) -> Steps | None:
    """Return the schedule without reruns if it fits."""
    steps = steps_of(problem, model, model.runs_of(model.tables.first, [1] * model.stages))
    resident = sum(size for size, initial in zip(model.tables.size, model.tables.initial, strict=True) if initial)
    if problem.budget is not None and resident + model.tables.static[0] > problem.budget:
        return None
    return None if isinstance(place(problem.graph, problem.machine, steps), Unplaceable) else steps


def _in_turns(race: Race, search: Search, options: DagAutoOptions) -> Termination:
    """Construct, bound, improve, bound again: with limits that do not depend on the clock."""
    small = race.model.stages <= SMALL
    limited = options.iterations is not None
    aside(race, search, lambda: first_plans(race, search))
    improver = Improver(race, search)
    bounding = None
    if race.model.simple and not race.over():
        own = Search(race.model, race.budget, race.context.seed)
        bounding = Bounding(race, own, SMALL_WORK if small else WORK, improver.seeds.append)
        _bound_first(race, bounding)
        if small and not race.over():
            bounding.work()
    rounds = options.iterations if options.iterations is not None else SMALL_ROUNDS // race.model.stages
    made: list[int] = []
    aside(race, search, lambda: made.append(improver.rounds(rounds)))
    done = sum(made)
    if bounding is not None and not small and not race.over():
        bounding.refine(None)
    if race.proved or not race.context.stopped:
        return Termination.ITERATION_LIMIT if limited and done >= rounds and not race.proved else Termination.COMPLETED
    return race.context.termination


def _together(race: Race, search: Search) -> Termination:
    """Improve in a thread of its own, and bound in this one; with one thread, by turns of growing length."""
    improver = Improver(race, search)
    bounding = None
    if race.model.simple:
        own = Search(race.model, race.budget, race.context.seed)
        bounding = Bounding(race, own, None, improver.seeds.append)
    if race.context.threads == 1:
        if bounding is not None:
            _alternate(race, improver, bounding)
        _ask_in_turn(race, improver)
    else:
        with beside(race, search, improver.work):
            if bounding is not None:
                _head_start(race)
                _bound_first(race, bounding)
                bounding.work()
            if not race.over():
                ask_programs(race)
    return Termination.COMPLETED if race.proved or not race.context.stopped else race.context.termination


def _bound_first(race: Race, bounding: Bounding) -> None:
    """Bound all orders, at length where that is the aim, and the order at hand, whose solution may be a plan."""
    whole = bounding.widen_first(1)
    if not race.over():
        bounding.cover(None)
    if whole:
        bounding.widen_first()
    if race.any_order and race.context.threads > 1:
        bounding.widen_all()


def _head_start(race: Race) -> None:
    """Wait a moment for the first plan."""
    end = time.monotonic() + HEAD_START + HEAD_START_EACH * race.model.stages
    while race.best is None and time.monotonic() < end and not race.watch():
        time.sleep(POLL_SECONDS / 4)
    race.watch()


def _alternate(race: Race, improver: Improver, bounding: Bounding) -> None:
    """Take turns, each as long as all turns before, as long as there is something to bound."""
    turn, search = 0.5, improver.search
    aside(race, search, lambda: first_plans(race, search, (1.0,)))
    if not race.watch():
        _bound_first(race, bounding)
    if race.best is None and not race.watch():
        # Perhaps there is none.
        bounding.refine(None if race.context.seconds_left is None else race.context.seconds_left / 2)
    aside(race, search, lambda: first_plans(race, search, SMALLER))
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


def _ask_in_turn(race: Race, improver: Improver) -> None:
    """Let the programs have half of the time that is left, and improve before and after."""
    if race.over():
        return
    search, left = improver.search, race.context.seconds_left
    end = time.monotonic() + (PROGRAMS_START if left is None else min(PROGRAMS_START, left / 3))
    if not race.model.simple:
        aside(race, search, lambda: first_plans(race, search))
    aside(race, search, lambda: improver.until(end))
    left = race.context.seconds_left
    if not race.over():
        ask_programs(race, race.patience if left is None else left / 2)
    aside(race, search, improver.work)
