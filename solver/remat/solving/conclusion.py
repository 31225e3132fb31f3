"""Conclusion of a solve: place and verify the proposal, check its claims, and set the status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remat.errors import ClaimError, OptionError
from remat.graph.bounds import memory_time_bound, no_recompute_time
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance.kinds import is_pipeline
from remat.placement import Unplaceable, place
from remat.plugin.problem import Problem, device_memories
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.schedule.steps import Steps, started
from remat.solving.hints import PORTFOLIO, remedies
from remat.solving.minimum_budget import setting_task
from remat.solving.result import Result
from remat.solving.scopes import scope_of, scoped
from remat.solving.strategy_minimum import least_of_strategy
from remat.units import Number
from remat.verifier import Report, Subject, Violation, check

if TYPE_CHECKING:
    from remat.solving.orders import Followed
    from remat.solving.streams import Stream

OWN_SOURCES = ("needed tasks", "memory x time")
"""Sources of bounds that hold for every solve of an instance on a machine, independent of the algorithm."""

CLAIM_TOLERANCE = 1e-9
"""Float claims may differ from the verified figure by this share (sums in another order)."""

ROUNDING = 2.0**-52
"""Largest share by which a step may round the end of its predecessor."""


def conclude(
    problem: Problem,
    solver: Algorithm,
    proposal: Proposal,
    options: Mapping[str, Any],
    *,
    seed: int = 0,
    solve_seconds: float = 0.0,
    verified: Result | None = None,
) -> Result:
    """Place and verify an algorithm's proposal, check its claims, and return the result.

    `verified` is the conclusion for the same steps on memories that are no smaller. If their peaks fit, they remain
    valid with the same start times.
    """
    _check_bounds(solver, proposal)
    proposal = scoped(problem, solver, proposal)
    least = proposal.least
    scope = proposal.infeasible_within
    steps, report = None, None
    stream: Stream | None = None
    own: TaskGraph | None = None  # of steps that are none of the instance's own graph alone
    if proposal.pattern is not None:
        stream, least = _streamed(problem, solver, proposal)
        if stream is not None:
            steps, report, own = stream.steps, stream.report, stream.graph
    elif proposal.period is not None:
        steps, report, least = _cycled(problem, solver, proposal)
    elif proposal.orders is not None:
        followed, report, excess, hangs = _followed(problem, solver, proposal)
        if followed is not None:
            steps, own = followed.steps, followed.graph
        if hangs:
            proposal = replace(proposal, orders=None, notes=(*proposal.notes, hangs))
        least = least if excess is None else excess
        if (excess is not None or hangs) and solver.guarantee == "strategy":
            scope = _of_strategy(problem, solver)
    elif verified is not None and verified.report is not None and _fits(verified.report, problem.machine):
        steps, report = verified.columns, verified.report
        _check_claims(problem, solver, proposal, report)
    elif proposal.steps is not None:
        placed, report = _placed(problem, solver, proposal.steps)
        if isinstance(placed, Unplaceable):
            if solver.guarantee == "strategy":
                scope = _of_strategy(problem, solver)
                again = partial(_place, problem, steps=proposal.steps)
                least = least_of_strategy(problem, proposal.steps, placed, again)
            elif solver.guarantee == "exact" and problem.exceeded is None:
                name = problem.machine.memories[placed.memory].name
                raise ClaimError(
                    f"{solver.name}: step {placed.step} needs {placed.needed} of {placed.capacity} in {name}, although "
                    "the algorithm says that its schedule fits",
                    solver.package,
                )
        else:
            assert report is not None
            steps = placed
            _check_claims(problem, solver, proposal, report)
    return _judge(
        problem,
        solver,
        proposal,
        steps,
        report,
        scope=scope,
        least=least,
        options=options,
        seed=seed,
        solve_seconds=solve_seconds,
        stream=stream,
        own=own,
    )


def _of_strategy(problem: Problem, solver: Algorithm) -> str:
    """Return the class of a strategy's only schedule, which does not fit."""
    return scope_of(problem.used.machine, solver, solver.within or f"the {solver.name} schedule", of_memory=True)


def _streamed(problem: Problem, solver: Algorithm, proposal: Proposal) -> tuple[Stream | None, LeastBudget | None]:
    """Repeat and verify a pattern; if it exceeds a memory, return a sufficient budget."""
    pattern = proposal.pattern
    assert pattern is not None
    from remat.solving.streams import Stream, stream_of

    stream = stream_of(
        problem.instance, problem.graph, problem.machine, pattern, reference_time=problem.no_recompute_time
    )
    if not isinstance(stream, Stream):
        _refuse_missing_link(solver, stream[0])
        raise ClaimError(f"{solver.name}: the verifier rejects the pattern: {stream[0]}", solver.package)
    rules = {violation.rule for violation in stream.report.violations}
    if rules != {"capacity"}:
        _check_claims(problem, solver, proposal, stream.report)
        return stream, None
    assert stream.report.steady is not None
    # Within the tolerance of its longer time, the finite part may hold more than a period.
    sizes = {name: max(peak.size, stream.report.steady.peaks[name]) for name, peak in stream.report.peaks.items()}
    return None, _enough(problem, sizes, sufficient=solver.guarantee == "strategy")


def _cycled(
    problem: Problem, solver: Algorithm, proposal: Proposal
) -> tuple[Steps | None, Report | None, LeastBudget | None]:
    """Verify successive training steps; if they exceed a memory, return a sufficient budget.

    That is known only if one step alone fits.
    """
    from remat.verifier import check_cycle

    assert proposal.steps is not None
    assert proposal.period is not None
    graph, machine, steps = problem.graph, problem.machine, proposal.steps
    report = check(graph, machine, steps, reference_time=problem.no_recompute_time)
    steady, wrong = check_cycle(graph, machine, steps, proposal.period)
    report = replace(report, steady=steady, violations=(*report.violations, *wrong))
    if {violation.rule for violation in report.violations} != {"capacity"}:
        _check_claims(problem, solver, proposal, report)
        return steps, report, None
    sizes = {name: max(peak.size, steady.peaks[name]) for name, peak in report.peaks.items()}
    return None, None, _enough(problem, sizes, sufficient=False)


def _followed(
    problem: Problem, solver: Algorithm, proposal: Proposal
) -> tuple[Followed | None, Report | None, LeastBudget | None, str]:
    """Place and verify a pipeline's orders; if they exceed a memory, return a sufficient budget.

    If transfers block both devices, good orders may deadlock: the last entry then describes the deadlock.
    """
    assert proposal.orders is not None
    assert is_pipeline(problem.instance)
    from remat.solving.orders import Followed, follow, with_followers

    unbounded = problem.machine.with_capacities({memory.name: None for memory in problem.machine.memories})
    followed = follow(problem.instance, problem.graph, problem.machine, proposal.orders)
    if not isinstance(followed, Followed):
        transfers = problem.instance.cluster.transfers
        if followed[0].rule == "deadlock" and transfers in ("rendezvous", "grouped"):
            return None, None, None, f"hangs where transfers take both ends ({transfers}): {followed[0].message}"
        _refuse_missing_link(solver, followed[0])
        raise ClaimError(f"{solver.name}: the verifier rejects the orders: {followed[0]}", solver.package)
    steps, graph = followed.steps, followed.graph
    # The tasks at the end of a step are not recomputations.
    reference = problem.no_recompute_time if graph is problem.graph else no_recompute_time(graph)
    report = check(graph, problem.machine, steps, reference_time=reference)
    rules = {violation.rule for violation in report.violations}
    if rules == {"capacity"}:
        free = check(graph, unbounded, steps, reference_time=reference)
        sizes = {name: peak.size for name, peak in free.peaks.items()}
        return None, None, _enough(problem, sizes, sufficient=solver.guarantee == "strategy"), ""
    _check_claims(problem, solver, proposal, report)
    return followed, with_followers(report, problem.machine, proposal.orders), None, ""


def _refuse_missing_link(solver: Algorithm, violation: Violation) -> None:
    """Refuse a machine that lacks a link of the devices on which an algorithm puts stages."""
    if violation.rule == "unknown-link":
        raise OptionError(f"{violation.message}, which {solver.name} needs", argument="machine")


def _enough(problem: Problem, sizes: Mapping[str, int], *, sufficient: bool) -> LeastBudget:
    """Return the budget of the fullest memory above its capacity, given the bytes in each memory.

    The budget of a pipeline is that of every device. It is enough if no other memory exceeds its capacity.
    """
    machine = problem.machine
    over = {
        index
        for index, memory in enumerate(machine.memories)
        if memory.capacity is not None and sizes[memory.name] > memory.capacity
    }
    budgeted = device_memories(problem.instance, machine)
    own = budgeted if over & budgeted else over
    size, index = max((sizes[machine.memories[index].name], -index) for index in own)
    return LeastBudget(size, None, sufficient and over <= (budgeted or {-index}), -index)


def _fits(report: Report, machine: Machine) -> bool:
    """Whether an otherwise valid schedule fits the memories of a machine."""
    sizes = report.peak_memory
    return all(memory.capacity is None or sizes[memory.name] <= memory.capacity for memory in machine.memories)


def _placed(problem: Problem, solver: Algorithm, steps: Steps) -> tuple[Steps | Unplaceable, Report | None]:
    """Place and verify steps.

    The verifier finds bytes that do not fit. Placement therefore searches for them in two cases only: if the verifier
    rejects steps, to name the step and its need, and for strategies, whose only schedule often does not fit.
    """
    graph, machine = problem.graph, problem.machine
    if steps.start is None and steps.paired is None and solver.guarantee != "strategy":
        placed = place(graph, machine, steps, check_bytes=False)
        if not isinstance(placed, Unplaceable):
            quick = steps.placed(placed.start)
            report = check(graph, machine, quick, reference_time=problem.no_recompute_time)
            if report.ok:
                return quick, report
    found = _place(problem, machine, steps)
    if isinstance(found, Unplaceable):
        return found, None
    return found, check(graph, machine, found, reference_time=problem.no_recompute_time)


def _place(problem: Problem, machine: Machine, steps: Steps) -> Steps | Unplaceable:
    overfull = _overfull(problem, machine)
    if overfull is not None or steps.start is not None:
        return overfull or steps
    outcome = place(problem.graph, machine, steps)
    return outcome if isinstance(outcome, Unplaceable) else steps.placed(outcome.start)


def _overfull(problem: Problem, machine: Machine) -> Unplaceable | None:
    """Return the failure if the initial contents of a memory exceed its capacity."""
    graph, first = problem.graph, machine.memories[0].name
    for index, memory in enumerate(machine.memories):
        if memory.capacity is None:
            continue
        inputs = sum(int(graph.size[place.value]) for place in graph.inputs if (place.memory or first) == memory.name)
        resident = inputs + graph.static_bytes(machine, index)
        if resident > memory.capacity:
            return Unplaceable(0, index, resident, memory.capacity)
    return None


def _check_bounds(solver: Algorithm, proposal: Proposal) -> None:
    """Reject bounds that are not times, before they reach a JSON document."""
    for bound in proposal.bounds:
        if type(bound.value) not in (int, float) or not math.isfinite(bound.value) or bound.value < 0:
            raise ClaimError(f"{solver.name} claims bound {bound.value!r}, which is not a finite time", solver.package)


def _check_claims(problem: Problem, solver: Algorithm, proposal: Proposal, report: Report) -> None:
    if report.violations:
        raise ClaimError(f"{solver.name}: the verifier rejects the schedule: {report.violations[0]}", solver.package)
    verified = report.objective
    if proposal.makespan is not None and not _equal(proposal.makespan, verified):
        raise ClaimError(f"{solver.name} claims makespan {proposal.makespan}, verified is {verified}", solver.package)
    memory = problem.machine.memories[problem.machine.processors[0].memory].name
    if proposal.peak is not None and proposal.peak != report.peaks[memory].size:
        raise ClaimError(
            f"{solver.name} claims peak {proposal.peak}, verified is {report.peaks[memory].size}", solver.package
        )
    for bound in proposal.bounds:
        holds = bound.scope == ALL_SCHEDULES or proposal.optimal_within == bound.scope
        if holds and bound.value > verified and not _equal(bound.value, verified):
            raise ClaimError(
                f"{solver.name} claims bound {bound.value}, above the verified makespan {verified}", solver.package
            )


def holds(bound: Bound, result: Result) -> bool:
    """Whether a bound over all schedules is at most a verified makespan, up to rounding."""
    makespan = result.makespan
    return makespan is None or bound.value <= makespan or _equal(bound.value, makespan)


def _equal(claimed: Number, verified: Number) -> bool:
    if isinstance(claimed, int) and isinstance(verified, int):
        return claimed == verified
    return abs(claimed - verified) <= CLAIM_TOLERANCE * max(abs(claimed), abs(verified))


def _no_more(bound: Bound, makespan: Number) -> Bound:
    """Lower a bound that exceeds the verified makespan by rounding; a larger excess is an error of the algorithm."""
    above = bound.value > makespan and _equal(bound.value, makespan)
    return replace(bound, value=makespan) if above else bound


def is_met(lower: Number, report: Report, steps: int) -> bool:
    """Whether a makespan equals a lower bound, up to the rounding of its steps.

    Rounding may not hide a whole unit: the next smaller integer could be a makespan.
    """
    makespan, rounding = report.objective, ROUNDING * steps * report.objective
    if isinstance(makespan, int) and (isinstance(lower, int) or rounding >= 1):
        return lower >= makespan
    return makespan - lower <= rounding


def _judge(
    problem: Problem,
    solver: Algorithm,
    proposal: Proposal,
    steps: Steps | None,
    report: Report | None,
    *,
    scope: str | None,
    least: LeastBudget | None,
    options: Mapping[str, Any],
    seed: int,
    solve_seconds: float,
    stream: Stream | None = None,
    own: TaskGraph | None = None,
) -> Result:
    simple = Bound(problem.least_objective, ALL_SCHEDULES, OWN_SOURCES[0])
    bounds = (*proposal.bounds, simple)
    if report is not None and proposal.optimal_within == ALL_SCHEDULES:
        # An optimal makespan is also a bound: figures and words agree by construction.
        bounds = (*bounds, Bound(report.objective, ALL_SCHEDULES, solver.name))
    if len(problem.machine.processors) > 1 and not problem.in_parts and not problem.instance.is_stream:
        value = memory_time_bound(problem.graph, problem.used.machine, problem.needed)
        bounds = (*bounds, Bound(value, ALL_SCHEDULES, OWN_SOURCES[1]))
    optimal_within = proposal.optimal_within
    if report is not None:
        holding = (ALL_SCHEDULES, optimal_within)
        bounds = tuple(_no_more(bound, report.objective) if bound.scope in holding else bound for bound in bounds)
    lower = max(bound.value for bound in bounds if bound.scope == ALL_SCHEDULES)
    if report is not None:
        scope, least = None, None
        # The only place that decides this, from the figures alone.
        optimal = is_met(lower, report, 0 if steps is None else len(steps))
        optimal_within = ALL_SCHEDULES if optimal else optimal_within
        status = Status.OPTIMAL if optimal else Status.FEASIBLE
    else:
        optimal_within = None
        status, scope, least = _without_schedule(problem, scope, least, named=solver.name != PORTFOLIO)
    termination = proposal.termination
    proved = status is Status.OPTIMAL or (status is Status.INFEASIBLE and scope == ALL_SCHEDULES)
    if proved and termination is not Termination.INTERRUPTED:
        termination = Termination.COMPLETED  # no limit kept the solver from anything
    named = {
        memory.name: bound
        for memory, bound in zip(problem.machine.memories, problem.memory_bounds, strict=True)
        if bound is not None
    }
    graph, report = _with_subject(problem, problem.graph if own is None else own, steps, report)
    notes = (*proposal.notes, *remedies(problem, solver, options, scope))
    if status is Status.UNKNOWN and scope is None and not notes and termination is Termination.COMPLETED:
        notes = (f"{solver.name}: no schedule that fits; another algorithm may find one",)
    return Result(
        instance_name=problem.instance.name,
        instance=problem.instance,
        graph=graph,
        orders=proposal.orders if stream is None else stream.orders,
        pattern=None if stream is None else stream.pattern,
        machine=problem.machine,
        units=problem.units,
        algorithm=solver.name if proposal.author is None else proposal.author.algorithm,
        options=options if proposal.author is None else proposal.author.options,
        seed=seed,
        status=status,
        termination=termination,
        columns=steps,
        report=report,
        lower_bound=lower,
        no_recompute_time=problem.no_recompute_time,
        transfer_bound=problem.transfer_bound,
        bounds=bounds,
        optimal_within=optimal_within,
        scope=scope,
        least_budget=least,
        memory_bounds=named,
        total_bound=problem.total_bound if report is None else None,
        solve_seconds=solve_seconds,
        notes=notes,
        log=proposal.log,
        untried=proposal.untried,
    )


def _with_subject(
    problem: Problem, graph: TaskGraph, steps: Steps | None, report: Report | None
) -> tuple[TaskGraph, Report | None]:
    """Return the graph with parameters in the memories that the schedule chose, and the report that names it."""
    if steps is None or report is None:
        return graph, report
    graph = started(graph, problem.machine, steps)
    return graph, replace(report, subject=Subject(graph, problem.machine, steps, problem.units))


def _without_schedule(
    problem: Problem, scope: str | None, least: LeastBudget | None, *, named: bool
) -> tuple[Status, str | None, LeastBudget | None]:
    """Decide between infeasible and unknown; a bound that exceeds a capacity is a proof over all schedules.

    A fruitless search of a class is no such proof: the scope names the class, and the status is unknown. `named` says
    whether the minimum budget refers to the same class; a portfolio states its class itself.
    """
    if least is not None:
        known = problem.least_of(least.memory)
        holds = known is not None and least.size <= known.size
        least = replace(least, scope=ALL_SCHEDULES if holds else least.scope or (scope if named else None))
        least = replace(least, task=setting_task(problem, least))
    if problem.unreachable is not None:
        return Status.INFEASIBLE, ALL_SCHEDULES, None
    proof = problem.exceeded
    if proof is not None:
        own = problem.memory_bounds[proof.memory]
        alone = own is not None and own.size == proof.size  # else a larger budget of another memory may be enough
        if (
            least is None
            or (alone and least.memory != proof.memory)
            or (not least.sufficient and (least.memory != proof.memory or least.size < proof.size))
        ):
            least = proof
        return Status.INFEASIBLE, ALL_SCHEDULES, least
    if scope is not None:
        return Status.INFEASIBLE if scope == ALL_SCHEDULES else Status.UNKNOWN, scope, least
    first = problem.machine.processors[0].memory
    known = problem.least_of(first)
    if least is None and known is not None:
        least = LeastBudget(known.size, known.task, False, first, ALL_SCHEDULES)
    return Status.UNKNOWN, None, least
