"""`remat.solve`: from an instance to a verified result. The one way through the house."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remat.instance import load
from remat.instance.kinds import is_pipeline
from remat.plugin.applicability import check_reach
from remat.plugin.context import Context, Progress, interruptible
from remat.plugin.problem import Problem
from remat.plugin.proposal import Author, Proposal, Termination
from remat.plugin.registry import Algorithm
from remat.solving import portfolio
from remat.solving.budget import Budget
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import (
    AUTO_SECONDS,
    AnyInstance,
    AnyMachine,
    last_end_of,
    make_problem,
    propose,
    read_seconds,
    read_share,
    read_whole,
    values_of,
)
from remat.solving.result import Result
from remat.solving.time_guard import guarded

if TYPE_CHECKING:
    from remat.solving.warm_start import Warm, WarmStart


def solve(
    instance: AnyInstance,
    *,
    algorithm: str = "auto",
    budget: Budget = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    warm_start: WarmStart = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Solve an instance and verify the schedule.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithm : str
        A registry name, or ``auto`` (see `remat.solving.portfolio`).
    budget : int, float, str or mapping, optional
        Capacity of the working memory (of the quickest storage level, for an adjoint with storage), or of each
        named memory: ``8_000_000``, ``"8GB"``, ``{"host": "64GB"}`` (the name ``""`` is the working memory again).
        Integers are in the instance's unit; ``0.8`` or ``"80%"`` is a share of the peak when nothing is recomputed.
    machine : path, dict or MachineModel, optional
        Replaces the instance's machine.
    options : mapping, optional
        The algorithm's own (`remat algorithms NAME` lists them).
    time_limit : float or str, optional
        Seconds, or ``"30s"``. Default 60 s for ``auto``.
    gap : float or str, optional
        Stop where the makespan is so near to the lower bound over all schedules: ``0.01`` or ``"1%"`` of the makespan.
        Default 0.1 % for ``auto`` on instances of more than 100 tasks, otherwise none.
    patience : float or str, optional
        Stop where nothing better was found for so many seconds, schedule or bound, by whichever algorithm.
    warm_start : path, open file, dict or Result, optional
        A schedule of this instance, such as one for another budget: the answer is never worse, if it fits.
    seed, threads : int
    progress : callable, optional
        Receives `remat.plugin.context.Progress` while an anytime algorithm runs.

    Returns
    -------
    Result
        Infeasible and unknown are statuses, not exceptions.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.
    remat.errors.ClaimError
        If the algorithm's schedule or claim does not survive verification (a bug in the algorithm).

    See Also
    --------
    remat.least_budget, remat.largest_batch, remat.sweep : questions that take many solves.
    """
    started = time.monotonic()
    loaded = load(instance)
    context = Context(
        deadline=_deadline(time_limit, algorithm, started),
        limit_given=time_limit is not None,
        started=started,
        gap=None if gap is None else float(read_share(gap, "gap")),
        patience=read_seconds(patience, default=None, argument="patience"),
        seed=read_whole(seed, "seed", 0),
        threads=read_whole(threads, "threads", 1),
        listener=progress,
    )
    # An interrupt ends no program that calls this, and loses no schedule, from the first import to verification.
    with interruptible(context):
        problem = make_problem(loaded, budget=budget, machine=machine)
        solver = portfolio.find(algorithm, problem.kind)
        check_reach(problem, solver)
        chosen = portfolio.read_options(problem, solver, options or {})
        is_open = is_pipeline(problem.instance) and problem.instance.is_open
        return (_divided if is_open else _solved)(problem, solver, chosen, context, warm_start)


def _deadline(time_limit: float | str | None, algorithm: str, started: float) -> float | None:
    limit = read_seconds(time_limit, default=AUTO_SECONDS if algorithm == portfolio.NAME else None)
    return None if limit is None else started + limit


def _divided(problem: Problem, solver: Algorithm, chosen: Any, context: Context, warm_start: WarmStart) -> Result:
    """Solve all divisions of an instance that leaves its division open."""
    from remat.solving.batch_splitting import best_of, divisions

    parts = divisions(problem, solver, chosen, warm_start)
    if not parts:
        return _solved(problem, solver, chosen, context, warm_start)
    result = best_of(problem, parts, lambda part, inner: _solved(part, solver, chosen, inner, None), context)
    return replace(result, history=(*context.history, *_end(result, context)))


def _solved(problem: Problem, solver: Algorithm, chosen: Any, context: Context, warm_start: WarmStart) -> Result:
    warm = None
    if warm_start is not None:
        from remat.solving.warm_start import AUTHOR, read_warm_start

        warm = read_warm_start(problem, warm_start)
        if warm is not None and warm.steps is not None:
            context.report(warm.steps, makespan=warm.makespan, message=AUTHOR)
    proposal, taken = propose(problem, solver, chosen, context)
    result = _concluded(problem, solver, proposal, values_of(chosen), context, taken)
    if warm is not None:
        result = _at_least_as_good(problem, solver, proposal, result, warm)
    return replace(result, history=(*context.history, *_end(result, context)))


def _concluded(
    problem: Problem,
    solver: Algorithm,
    proposal: Proposal,
    options: Mapping[str, Any],
    context: Context,
    taken: float,
) -> Result:
    """Place and verify a proposal; a schedule for which the time limit leaves no time to do so is no answer."""
    judge = partial(conclude, problem, solver, options=options, seed=context.seed, solve_seconds=taken)
    result, _ = guarded(partial(judge, proposal), last_end_of(context))
    if result is not None:
        return result
    return judge(Proposal(bounds=proposal.bounds, termination=Termination.TIME_LIMIT, notes=(UNVERIFIED,)))


UNVERIFIED = "a schedule was found; the time limit left no time to place and verify its steps"


def _end(result: Result, context: Context) -> Iterator[Progress]:
    """Yield the verified answer as the last event, where it was not reported just so."""
    figures = (context.best_makespan, context.best_bound)
    if result.makespan is not None and figures != (result.makespan, result.lower_bound):
        seconds = time.monotonic() - context.started
        yield Progress(seconds, result.makespan, result.lower_bound, "verified", result.algorithm)


def _at_least_as_good(problem: Problem, solver: Algorithm, proposal: Proposal, result: Result, warm: Warm) -> Result:
    """Return the warm start instead of a worse result, with all that was proved."""
    from remat.solving.warm_start import AUTHOR

    if warm.steps is None:
        return replace(result, notes=(*result.notes, warm.note))
    assert warm.makespan is not None
    if result.makespan is not None and result.makespan <= warm.makespan:
        return result
    kept = Proposal(
        steps=warm.steps,
        makespan=warm.makespan,
        bounds=proposal.bounds,
        termination=result.termination,
        notes=proposal.notes,
        author=Author(AUTHOR),
    )
    return conclude(problem, solver, kept, {}, seed=result.seed, solve_seconds=result.solve_seconds)
