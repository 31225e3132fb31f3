"""`remat.least_budget`: the minimum budget, of schedules that meet a time limit or of all schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError, checked_call
from remat.instance import load
from remat.plugin.context import Progress, interruptible
from remat.plugin.forms import Forms
from remat.plugin.problem import Problem, budget_memory
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Termination
from remat.solving import auto
from remat.solving.batch_splitting import one_division
from remat.solving.budget import Budget
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import AnyInstance, AnyMachine, Control, make_problem
from remat.solving.questions.bisection import Limit, Search, search_least
from remat.solving.questions.pool import Answered, with_budget
from remat.solving.questions.prober import Effort, Prober
from remat.solving.questions.time_limits import Limits
from remat.solving.result import Answer, Result
from remat.units import budget_to_paste, format_time

if TYPE_CHECKING:
    from remat.plugin.cancel import Cancel
    from remat.plugin.registry import Algorithm

FASTEST_SHARE = 0.25
"""Share of the time left in which the fastest schedule at the answer's budget is searched."""

RESOLUTION = 1e-3
"""Share of the budget at which the search with a heuristic ends."""


@checked_call(OptionError)
def least_budget(
    instance: AnyInstance,
    *,
    max_overhead: float | str | None = None,
    max_makespan: float | str | None = None,
    algorithm: str | Algorithm = "auto",
    budget: Budget = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Result:
    """Find the smallest budget of the working memory that meets a time limit.

    For an adjoint it is the budget of the fastest storage level, for a pipeline that of every device.

    Without a limit, it is the smallest budget of any schedule.

    Parameters
    ----------
    instance : path, open file, dict or instance
    max_overhead : float or str, optional
        Maximum overhead as a share of the reference time (`Result.reference_time`): ``0.2`` or ``"20%"``.
    max_makespan : float or str, optional
        Longest makespan: in the instance's unit, or ``"1.5s"``.
    budget : mapping, optional
        Capacities of other memories, by name.
    algorithm, machine, options, time_limit, gap, patience, seed, threads, progress, cancel
        As in `remat.solve`; the time limit is for all solves together.

    Returns
    -------
    Result
        The schedule at the budget that was found. `Result.answer` has the budget, whether it is proved minimal, and the
        number of solves. If no budget meets the limit, the status says so.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.

    Notes
    -----
    Any algorithm can be used. The answer is proved if the algorithm proves that one grid step less is infeasible; with
    a heuristic the search ends at a thousandth.
    """
    problem = make_problem(load(instance), budget=budget, machine=machine)
    control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
    return least_budget_of(problem, algorithm, (max_overhead, max_makespan), budget, options or {}, control)


def least_budget_of(
    problem: Problem,
    algorithm: str | Algorithm,
    price: tuple[object, object],
    budget: Budget,
    options: Mapping[str, Any],
    control: Control,
    forms: Forms | None = None,
) -> Result:
    """Answer `least_budget` for a problem with the budgets of other memories; the price is overhead and makespan."""
    divided = one_division(problem.instance)
    if divided is not problem.instance:
        problem = Problem(divided, problem.machine)
    limits = Limits.of(*price, problem)
    effort = Effort.of(algorithm, options, control, forms or Forms(problem.instance))
    memory = budget_memory(problem.instance, problem.machine)
    name = problem.machine.memories[memory].name
    asked = {problem.machine.memories[index].name for index in problem.budgeted_memories}
    whose, quoted = (name, repr(name)) if len(asked) == 1 else ("every device", "every device")
    if budget.keys() & {"", *asked} if isinstance(budget, Mapping) else budget is not None:
        raise OptionError(
            f"the budget of {quoted} is the answer of this question; give only budgets of other memories",
            argument="budget",
        )
    prober = Prober(with_budget(problem, memory, None), memory, effort)
    auto.read_options(problem, prober.solver, effort.options)  # reject wrong options early
    limit = limits.of_problem(problem)
    answer = Answer(
        question=f"the minimum budget of {whose} for {limits.text or 'any schedule'}",
        quantity="budget",
        value=None,
        memory=name,
    )
    bound = problem.least_objective
    if not limit.admits(bound):
        shown = format_time(bound, problem.units)
        reason = f"no budget is enough: with any memory, {_what(problem)} is at least {shown}"
        return _refused(prober, answer, reason, ALL_SCHEDULES)
    with interruptible(effort.outer):
        search = search_least(prober, limit, resolution=RESOLUTION)
        if search.best is None:
            return _unmet(prober, answer, search, limit)
        return _met(prober, answer, search, search.best, limit)


def _what(problem: Problem) -> str:
    return "the time per sample" if problem.instance.is_stream else "the makespan"


def _met(prober: Prober, answer: Answer, search: Search, best: Answered, limit: Limit) -> Result:
    effort, size = prober.effort, best.peak or 0
    if effort.is_auto:
        best = _fastest(prober, best)
    notes, ask = best.result.notes, size if effort.is_auto or prober.repeats(best) else best.asked
    if ask != size and not effort.stopped:
        if limit.met_by(prober.at(size, left=2)):
            ask = size
        else:
            shown = "" if ask is None else budget_to_paste(ask, best.result.units, exact=True)
            keep = "keep this schedule" + ("" if ask is None else f", or ask for a budget of {shown}")
            notes = (*notes, f"{keep}: at its peak, {best.solver.name} finds a slower one or none")
    answer = replace(
        answer,
        value=size,
        ask=ask,
        slots=prober.slots(size),
        bound=size if search.complete else prober.grid.above(search.refuted),
        scope=search.scope,
        solves=effort.solves,
    )
    if not answer.proved:
        notes = (*notes, "the budget is the least that was found; it is not proved that no smaller one will do")
    return replace(
        best.result,
        answer=answer,
        notes=notes,
        solve_seconds=effort.seconds,
        termination=best.result.termination if effort.termination is Termination.COMPLETED else effort.termination,
        default_limit=effort.default_limit,
    )


def _fastest(prober: Prober, best: Answered) -> Answered:
    """Return the fastest schedule at the budget of an answer of the portfolio, in the remaining time."""
    size = best.peak or 0
    if not prober.effort.stopped and prober.pool.gap(size) != 0:
        with prober.effort.within(FASTEST_SHARE):
            prober.at(size, member=auto.ALONE)
    return prober.pool.best(size) or best


def _unmet(prober: Prober, answer: Answer, search: Search, limit: Limit) -> Result:
    """Return that no budget suffices; proved if the answer with unbounded memory is a proof."""
    refusal = search.refusal
    if refusal is None:
        return _refused(prober, answer, "stopped before the first answer", None)
    result, scope = refusal.result, limit.refuted_by(refusal)
    if result.makespan is None:  # no schedule at any makespan
        return replace(result, answer=replace(answer, scope=scope, solves=prober.effort.solves))
    if refusal.solver.guarantee == "strategy":
        scope = scope or refusal.solver.within or f"the {refusal.solver.name} schedule"
    least = format_time(result.makespan, result.units)
    outcome = "nothing was found" if scope is None else "no budget will do"
    reason = f"{outcome}: even without a budget, {_what(prober.problem)} of {refusal.solver.name} is {least}"
    return _refused(prober, answer, reason, scope)


def _refused(prober: Prober, answer: Answer, reason: str, scope: str | None) -> Result:
    effort = prober.effort
    proposal = Proposal(infeasible_within=scope, notes=(reason,), termination=effort.termination)
    solver = prober.solver
    result = conclude(prober.problem, solver, proposal, {}, seed=effort.seed, solve_seconds=effort.seconds)
    answer = replace(answer, scope=scope, solves=effort.solves)
    return replace(result, answer=answer, least_budget=None, default_limit=effort.default_limit)
