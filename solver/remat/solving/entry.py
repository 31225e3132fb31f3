"""`remat.solve`: from an instance to a verified result; the single entry point of all solves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError, checked_call
from remat.instance import load
from remat.instance.kinds import is_pipeline
from remat.plugin.applicability import check_reach
from remat.plugin.context import Context, Progress, interruptible
from remat.plugin.problem import Problem
from remat.plugin.proposal import Author, Proposal, Termination
from remat.plugin.registry import Algorithm, name_of
from remat.solving import auto
from remat.solving.budget import Budget, apply_budget
from remat.solving.conclusion import conclude
from remat.solving.named_budget import kept
from remat.solving.problem_setup import (
    AnyInstance,
    AnyMachine,
    Control,
    last_end_of,
    make_problem,
    propose,
    values_of,
)
from remat.solving.result import Result
from remat.solving.time_guard import guarded

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.cancel import Cancel
    from remat.plugin.forms import Forms
    from remat.solving.known_answers import Known
    from remat.solving.relative_budget import Wholes
    from remat.solving.warm_start import Warm, WarmStart


@checked_call(OptionError)
def solve(
    instance: AnyInstance,
    *,
    algorithm: str | Algorithm = "auto",
    budget: Budget = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    warm_start: WarmStart = None,
    layout: bool = False,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Result:
    """Solve an instance and verify the schedule.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithm : str or Algorithm
        A name that `remat.algorithms` lists, ``auto`` (see `remat.solving.portfolio`), or an algorithm of yours that is
        not registered.
    budget : int, float, str or mapping, optional
        Capacity of the working memory (of the fastest storage level, for an adjoint with storage; of every device, for
        a pipeline), or of each named memory: ``8_000_000``, ``"8GB"``, ``{"host": "64GB"}``. The name ``""`` means the
        working memory. Integers are in the instance's unit. A float below 1, or ``"80%"``, is a share of the peak
        without recomputation.
    machine : path, dict or MachineModel, optional
        Replaces the machine of the instance: see `remat.machine`.
    options : mapping, optional
        Options of the algorithm, by name: ``remat algorithms NAME`` lists them.
    time_limit : float or str, optional
        Seconds, or ``"30s"``. Default 60 s for ``auto``.
    gap : float or str, optional
        Stop at this gap to the lower bound over all schedules: ``0.01``, ``"1%"``; ``auto`` above 100 tasks: 0.1 %.
    patience : float or str, optional
        Stop if neither schedule nor bound improves for this time: seconds, or ``"5s"``.
    warm_start : path, open file, dict or Result, optional
        A schedule of this instance, such as one for another budget: the answer is never worse, if it fits.
    layout : bool
        Find a schedule whose addresses fit the budgets as well (`Result.addresses`).
    seed : int
        Seed of the random numbers. The same arguments and seed give the same answer, unless a time limit ends the
        solve.
    threads : int
        Maximum number of threads of an algorithm that can use several.
    progress : callable, optional
        Receives `remat.Progress` while an anytime algorithm runs. If it returns ``False``, the solve ends with the best
        schedule so far.
    cancel : Cancel, optional
        Stops the solve from another thread, with the best schedule so far.

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
    remat.prepare : many budgets of one instance.
    remat.solve_async : the same in a thread, for asyncio.
    remat.least_budget, remat.largest_batch, remat.sweep : questions that take many solves.
    """
    started = time.monotonic()
    loaded = load(instance)
    context = Control(time_limit, gap, patience, seed, threads, progress, cancel).context(name_of(algorithm), started)
    # An interrupt ends no program that calls this, and loses no schedule, from the first import to verification.
    with interruptible(context):
        setup = Setup.of(loaded, algorithm, machine, options or {})
        return setup.solve(budget, context, warm_start, layout=layout)


@dataclass
class Setup:
    """An instance on its machine and an algorithm: a solve without its budget and limits.

    Attributes
    ----------
    problem : Problem
        With the machine's own capacities; data that do not depend on them are computed once for all budgets.
    solver : Algorithm
    options : mapping
    forms, known : optional
        Data shared by all budgets: prepared forms of algorithms, and answers that hold for several budgets.
    """

    problem: Problem
    solver: Algorithm
    options: Mapping[str, Any]
    forms: Forms | None = None
    known: Known | None = field(default=None, repr=False)

    @staticmethod
    def of(instance: Instance, algorithm: str | Algorithm, machine: AnyMachine, options: Mapping[str, Any]) -> Setup:
        """Put an instance on its machine, and find the algorithm.

        Raises
        ------
        remat.OptionError
            If either cannot be used.
        """
        problem = make_problem(instance, machine=machine)
        return Setup(problem, auto.find(algorithm, problem.kind), options)

    @cached_property
    def wholes(self) -> Wholes:
        """Reference peaks of relative budgets."""
        from remat.solving.relative_budget import Wholes

        return Wholes(self.problem)

    @cached_property
    def chosen(self) -> Any:
        """The options of the algorithm, validated; those of `auto` depend on the budgets, too."""
        return auto.read_options(self.problem, self.solver, self.options)

    def share(self) -> None:
        """Compute the data that do not depend on the budget for later solves, and keep their answers.

        Raises
        ------
        remat.OptionError
            If the algorithm does not support a feature of the instance.
        """
        from remat.plugin.forms import Forms
        from remat.solving.known_answers import Known

        check_reach(self.problem, self.solver)
        self._compute()
        self.forms, self.known = Forms(self.problem.instance), Known(self.solver)

    def _compute(self) -> None:
        """Compute the data that do not depend on the budget."""
        known = self.problem
        _ = known.graph, known.no_recompute_time, known.least_objective, known.memory_bounds, known.unreachable
        if known.instance.is_chain and not known.instance.has_parameters:
            _ = known.chain

    def asking(self, algorithm: str, options: Mapping[str, Any]) -> Setup:
        """Return the same instance and machine for another algorithm; both share the data without a budget."""
        self._compute()
        other = Setup(self.problem, auto.find(algorithm, self.problem.kind), options)
        other.__dict__["wholes"] = self.wholes
        return other

    def solve_within(self, control: Control, budget: Budget, warm_start: WarmStart = None) -> Result:
        """Solve for a budget; the time limit counts from now on."""
        context = control.context(self.solver.name, time.monotonic())
        with interruptible(context):
            return self.solve(budget, context, warm_start)

    def solve(self, budget: Budget, context: Context, warm_start: WarmStart = None, *, layout: bool = False) -> Result:
        """Solve for a budget, optionally with addresses, in a running context."""
        problem, solver = apply_budget(self.problem, budget, self.wholes), self.solver
        if self.known is None:
            check_reach(problem, solver)
        chosen = auto.read_options(problem, solver, self.options) if solver is auto.AUTO else self.chosen
        if layout:
            result = _with_layout(problem, solver, chosen, context, warm_start)
        elif _is_open(problem):
            result = _divided(problem, solver, chosen, context, warm_start)
        else:
            context.forms = self.forms
            if self.known is None or warm_start is not None:
                result = _solved(problem, solver, chosen, context, warm_start)
            else:
                result = _known_or_solved(problem, solver, chosen, context, self.known)
        return replace(result, asked=solver.name, default_limit=context.default_limit)


def _is_open(problem: Problem) -> bool:
    """Whether a pipeline leaves the division of its batch to the schedule."""
    return is_pipeline(problem.instance) and problem.instance.is_open


def _divided(problem: Problem, solver: Algorithm, chosen: Any, context: Context, warm_start: WarmStart) -> Result:
    """Solve all divisions of an instance that leaves its division open."""
    from remat.solving.batch_splitting import best_of, divisions

    parts = divisions(problem, solver, chosen, warm_start)
    if not parts:
        return _solved(problem, solver, chosen, context, warm_start)
    result = best_of(problem, parts, lambda part, inner: _solved(part, solver, chosen, inner, None), context)
    return _ended(result, context)


def _known_or_solved(problem: Problem, solver: Algorithm, chosen: Any, context: Context, known: Known) -> Result:
    """Return a known answer if it is proved to hold; else run the algorithm."""
    found = known.at(problem)
    if found is None:
        proposal, taken = propose(problem, solver, chosen, context)
        before = None if proposal.steps is None else known.verified(proposal)
    else:
        (proposal, before), taken = found, 0.0
    result = _concluded(problem, solver, proposal, values_of(chosen), context, taken, before)
    if found is None:
        known.note(problem, proposal, result)
    return _ended(_promised(problem, solver, chosen, result, context), context)


def _with_layout(problem: Problem, solver: Algorithm, chosen: Any, context: Context, warm_start: WarmStart) -> Result:
    """Solve for a schedule whose addresses fit, too."""
    if _is_open(problem):
        raise OptionError("the division of the batch is open; give one division", argument="layout")
    from remat.solving.layout_search import solve_with_layout

    def solve_one(asked: Problem, inner: Context) -> Result:
        return _solved(asked, solver, chosen, inner, warm_start)

    return solve_with_layout(problem, solver, context, solve_one)


def _solved(problem: Problem, solver: Algorithm, chosen: Any, context: Context, warm_start: WarmStart) -> Result:
    warm = None
    if warm_start is not None:
        from remat.solving.warm_start import AUTHOR, read_warm_start

        warm = read_warm_start(problem, warm_start)
        if warm is not None and warm.steps is not None:
            context.report(warm.steps, orders=warm.orders, makespan=warm.makespan, message=AUTHOR)
    proposal, taken = propose(problem, solver, chosen, context)
    result = _concluded(problem, solver, proposal, values_of(chosen), context, taken)
    if warm is not None:
        result = _at_least_as_good(problem, solver, proposal, result, warm)
    return _ended(_promised(problem, solver, chosen, result, context), context)


def _promised(problem: Problem, solver: Algorithm, chosen: Any, result: Result, context: Context) -> Result:
    """Return an answer that names no budget as sufficient at which the algorithm finds no schedule."""

    def solve(other: Problem, inner: Context) -> Result:
        proposal, taken = propose(other, solver, chosen, inner)
        return _concluded(other, solver, proposal, values_of(chosen), inner, taken)

    return kept(problem, solver, result, context, solve)


def _concluded(
    problem: Problem,
    solver: Algorithm,
    proposal: Proposal,
    options: Mapping[str, Any],
    context: Context,
    taken: float,
    verified: Result | None = None,
) -> Result:
    """Place and verify a proposal; without time left for this, a schedule is not an answer."""
    judge = partial(
        conclude, problem, solver, options=options, seed=context.seed, solve_seconds=taken, verified=verified
    )
    result, _ = guarded(partial(judge, proposal), last_end_of(context))
    if result is not None:
        return result
    return judge(Proposal(bounds=proposal.bounds, termination=Termination.TIME_LIMIT, notes=(UNVERIFIED,)))


UNVERIFIED = "a schedule was found; the time limit left no time to place and verify its steps: give more"


def _ended(result: Result, context: Context) -> Result:
    """Return the result with its history."""
    return replace(result, history=(*context.history, *_end(result, context)))


def _end(result: Result, context: Context) -> Iterator[Progress]:
    """Yield the verified answer as the last event, unless it was already reported."""
    figures = (context.best_makespan, context.best_bound)
    if result.makespan is not None and figures != (result.makespan, result.lower_bound):
        seconds = time.monotonic() - context.started
        yield Progress(seconds, result.makespan, result.lower_bound, "verified", result.algorithm)


def _at_least_as_good(problem: Problem, solver: Algorithm, proposal: Proposal, result: Result, warm: Warm) -> Result:
    """Return the warm start instead of a worse result, with all proofs of the result."""
    from remat.solving.warm_start import AUTHOR

    if warm.steps is None:
        return replace(result, notes=(*result.notes, warm.note))
    assert warm.makespan is not None
    if result.makespan is not None and result.makespan <= warm.makespan:
        return result
    kept = Proposal(
        steps=warm.steps if warm.orders is None else None,
        orders=warm.orders,
        makespan=warm.makespan,
        bounds=proposal.bounds,
        termination=result.termination,
        notes=proposal.notes,
        author=Author(AUTHOR),
    )
    return conclude(problem, solver, kept, {}, seed=result.seed, solve_seconds=result.solve_seconds)
