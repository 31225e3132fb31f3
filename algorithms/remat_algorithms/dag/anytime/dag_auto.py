"""`dag-auto`: greedy construction, ruin and recreate, and bounding programs that exchange plans and bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from remat.placement import Unplaceable, place
from remat.plugin import Context, Options, Problem, Proposal, Steps, run_in_order
from remat_algorithms.dag.anytime.bounds.bound_search import speaks_for_all
from remat_algorithms.dag.anytime.decomposition import solve_in_parts
from remat_algorithms.dag.anytime.final_answer import conclude
from remat_algorithms.dag.anytime.initial_moment import plan_of
from remat_algorithms.dag.anytime.known_schedule import known_runs
from remat_algorithms.dag.anytime.local_search.reordering import Start, better_start
from remat_algorithms.dag.anytime.order_attempt import Attempt
from remat_algorithms.dag.anytime.separators import Parts, find_parts
from remat_algorithms.dag.anytime.shared_incumbent import Race
from remat_algorithms.dag.first_schedule import report_first
from remat_algorithms.dag.plans.model import StageModel, stage_model
from remat_algorithms.dag.steps import steps_of

NOT_REORDERED = "reorder: the order stays as it is, since a value has several origins"
"""The note if the caller asked for a better order, but needed tasks or inputs share a value."""

PATIENCE = 30.0
"""Default time without a better schedule or bound after which the solve stops, in seconds."""


class DagAutoOptions(Options):
    """Options of `dag-auto`."""

    iterations: int | None = Field(
        None,
        ge=0,
        le=10_000_000,
        description="number of rounds of ruin and recreate; if set, the result depends only on the seed, and the "
        "solve ignores known schedules. Default: until optimality is proved, or the time limit or the patience is over",
    )
    patience: float | None = Field(
        None,
        gt=0,
        description="old name of the `patience` argument, in seconds; default: 30 s if neither `patience` nor a time "
        "limit is set",
    )
    reorder: bool = Field(
        False,
        description="search for an order of first runs with less recomputation; has no effect if a value has several "
        "origins, alternatives aside",
    )


def solve(problem: Problem, options: DagAutoOptions, context: Context) -> Proposal:
    """Solve a task graph.

    Accepts instances of any kind; uses one processor and its memory. With one thread, improvement and bounding
    alternate. The bound for all schedules requires a graph without alternatives, one memory and one processor. Another
    bound holds within the class of the plans. Plans run the needed tasks for the first time in the given order (with
    `reorder`: in the improved order). Between two first runs, they rerun each earlier task at most once, in that order.

    Notes
    -----
    O(accesses) for each schedule that the search evaluates; the bounds are mixed-integer programs. If everything fits
    without recomputation, that schedule is returned at once. A known schedule (a warm start, or the best one of other
    algorithms) is the first plan if its first runs follow the order; with `reorder`, the search also takes its order.
    """
    known_steps = None if options.iterations is not None else context.known_steps
    patience = options.patience or context.patience or PATIENCE
    report_first(problem, context)
    parts = None if options.reorder or problem.exceeded is not None else _parts(problem)
    if parts is not None:
        joined = solve_in_parts(parts, context, patience, options.iterations)
        if joined is not None:
            return joined
    start = Start(stage_model(problem))
    plain = start.model if start.model.simple else stage_model(problem, alternatives=False)
    known = known_runs(problem, plain, known_steps)
    notes = (NOT_REORDERED,) if options.reorder and not plain.simple else ()
    if options.reorder and plain.simple and problem.exceeded is None:
        better = better_start(problem, plain, context, patience / 2, options.iterations, known)
        start = better if start.model.simple else _with_alternatives(problem, better)
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
    attempt = Attempt(race, options.iterations)
    attempt.begin()
    # Not earlier: the first plans of the program are often better than an early schedule of others.
    race.offer(None if known is None else known.plan(model))
    attempt.prove()
    termination = attempt.finish()
    race.watch()
    conclusion = conclude(race, scope, termination)
    return replace(conclusion, notes=conclusion.notes + notes)


def _parts(problem: Problem) -> Parts | None:
    """Return the parts between separators; None if the graph has none, or everything fits without reruns."""
    parts = find_parts(problem)
    if parts is None:
        return None
    steps = run_in_order(problem.graph, problem.machine, parts.order)
    return parts if isinstance(place(problem.graph, problem.machine, steps), Unplaceable) else None


def _with_alternatives(problem: Problem, start: Start) -> Start:
    """Return a start whose reruns may run alternatives, in the same order."""
    model = stage_model(problem, np.array(start.model.task, dtype=np.int64))
    plan = None if start.plan is None else plan_of(model, start.model.tasks_of(start.plan.item, start.plan.full))
    return Start(model, start.scope, plan, start.steps)


def keep_everything(model: StageModel, problem: Problem) -> Steps | None:
    """Return the schedule without reruns if it fits."""
    steps = steps_of(problem, model.runs_of(model.tables.first, [1] * model.stages))
    resident = sum(size for size, initial in zip(model.tables.size, model.tables.initial, strict=True) if initial)
    if problem.budget is not None and resident + model.tables.static[0] > problem.budget:
        return None
    return None if isinstance(place(problem.graph, problem.machine, steps), Unplaceable) else steps
