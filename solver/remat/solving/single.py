"""Solving: from an instance to a verified result. The one way through the house."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import IO, Any

from remat.errors import ClaimError, OptionError
from remat.graph.bounds import makespan_bound, memory_time_bound
from remat.graph.machine import Machine
from remat.instance import Instance, MachineModel, digest, load, load_machine
from remat.instance.lowering import machine_of
from remat.placement import Unplaceable, place
from remat.plugin import registry
from remat.plugin.auto import choose
from remat.plugin.context import Context, Progress, interruptible
from remat.plugin.options import make_options
from remat.plugin.problem import FOR_PARAMETERS, Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Proposal, Status, Termination
from remat.schedule.steps import Steps
from remat.solving.remedies import remedies
from remat.solving.result import Result
from remat.units import Number, Units, parse_duration, parse_size
from remat.verifier import Report, check

Budget = int | str | Mapping[str, int | str | None] | None
AnyInstance = str | os.PathLike[str] | IO[Any] | dict[str, Any] | Instance

AUTO_SECONDS = 60.0
"""Default time limit of the algorithm ``auto``."""

QUESTIONS = frozenset(["max_overhead", "max_makespan", "scale", "batch"])
"""Options that ask around a solve (see `solving.questions`), unless the algorithm has one of that name itself."""

CLAIM_TOLERANCE = 1e-9
"""Float claims may differ from the verified figure by this share (sums in another order)."""


def solve(
    instance: AnyInstance,
    *,
    algorithm: str = "auto",
    budget: Budget = None,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Solve an instance and verify the schedule.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithm : str
        A registry name, or ``auto`` (see `remat.plugin.auto`).
    budget : int, str or mapping, optional
        Capacity of the first memory (of the first storage level, for an adjoint with storage), or of each
        named memory: ``8_000_000``, ``"8GB"``, ``{"host": "64GB"}`` (the name ``""`` is the first memory again).
        Numbers are in the instance's unit.
    machine : path, dict or MachineModel, optional
        Replaces the instance's machine.
    options : mapping, optional
        The algorithm's options; and the questions of `solving.questions`: ``max_overhead``, ``max_makespan`` (the least
        budget for that), ``scale`` with ``batch`` (the largest batch within the budget).
    time_limit : float or str, optional
        Seconds, or ``"30s"``; algorithms that are not anytime may overrun it. Default 60 s for ``auto``.
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
    """
    loaded = load(instance)
    problem = make_problem(loaded, budget=budget, machine=machine)
    solver = choose(problem) if algorithm == "auto" else registry.find(algorithm, problem.kind)
    check_reach(problem, solver)
    if QUESTIONS.intersection(options or ()):
        from remat.solving.questions.least_budget import asked
        from remat.solving.questions.prober import Effort

        probed = choose(problem, many=True) if algorithm == "auto" else solver
        question, own = asked(options or {}, probed, problem)
        if question is not None:
            effort = Effort.of(algorithm, own, time_limit=time_limit, seed=seed, threads=threads, listener=progress)
            return question.answer(problem, effort, budget)
    chosen = make_options(solver, options or {})
    limit = read_seconds(time_limit, default=AUTO_SECONDS if algorithm == "auto" else None)
    context = Context(
        deadline=None if limit is None else time.monotonic() + limit,
        seed=read_whole(seed, "seed", 0),
        threads=read_whole(threads, "threads", 1),
        listener=progress,
    )
    proposal, taken = propose(problem, solver, chosen, context)
    return conclude(problem, solver, proposal, values_of(chosen), seed=seed, solve_seconds=taken)


def propose(problem: Problem, solver: registry.Algorithm, chosen: Any, context: Context) -> tuple[Proposal, float]:
    """Run an algorithm; return its proposal and the seconds that it took."""
    started = time.perf_counter()
    with interruptible(context):
        proposal: Proposal = solver.load()(problem, chosen, context)
    return proposal, time.perf_counter() - started


def values_of(chosen: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, as a result records them."""
    return {} if chosen is None else chosen.model_dump(mode="json", exclude_defaults=True)


def make_problem(
    instance: Instance,
    *,
    budget: Budget = None,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
) -> Problem:
    """Put an instance on its machine, with the budgets applied."""
    units = instance.units.build()
    if machine is None:
        base = machine_of(instance)
    else:
        model = machine if isinstance(machine, MachineModel) else load_machine(machine, units)
        base = model.build()
    return Problem(instance, apply_budget(base, budget, instance, units))


def budget_memory(instance: Instance, machine: Machine) -> int:
    """Return the memory (by index) that a bare budget means: the first, or an adjoint's first storage level."""
    return 1 if instance.has_storage and len(machine.memories) > 1 else 0


def apply_budget(machine: Machine, budget: Budget, instance: Instance, units: Units) -> Machine:
    """Override capacities; a bare budget means the first memory, or an adjoint's first storage level."""
    if budget is None:
        return machine
    # A bare budget among named ones has the empty name; no memory has it.
    given: Mapping[str, int | str | None] = budget if isinstance(budget, Mapping) else {"": budget}
    default = machine.memories[budget_memory(instance, machine)].name
    capacities: dict[str, int | None] = {}
    for key, size in given.items():
        name = key or default
        if name in capacities:
            raise OptionError(f"--budget: memory {name!r} is given twice")
        try:
            capacities[name] = None if size is None else parse_size(size, units)
        except ValueError as error:
            raise OptionError(f"--budget: {error}") from None
    return machine.with_capacities(capacities)


def check_reach(problem: Problem, solver: registry.Algorithm) -> None:
    """Refuse what begins or ends beyond the one memory that an algorithm knows."""
    machine = problem.machine
    if solver.several_memories or len(machine.memories) == 1:
        return
    graph, first, own = problem.graph, machine.memories[0].name, machine.memories[machine.processors[0].memory].name
    begin = {(place.value, place.memory or first) for place in graph.inputs}
    end = {(place.value, place.memory or first) for place in graph.outputs}
    for value, memory in sorted(begin | end):
        if memory != own and ((value, memory) not in begin or (value, own) not in begin):
            hint = FOR_PARAMETERS if problem.instance.has_parameters else ""
            raise OptionError(
                f"--algorithm: {solver.name!r} works in memory {own!r} only, and {graph.values[value]!r} lies in "
                f"{memory!r}{hint}"
            )


def read_seconds(limit: float | str | None, default: float | None) -> float | None:
    """Read a time limit."""
    if limit is None:
        return default
    try:
        return parse_duration(limit if isinstance(limit, str) else repr(float(limit)))
    except (TypeError, ValueError):
        raise OptionError(f"--time-limit: {str(limit)[:60]!r} is not a duration; write 30, 30s, 5min or 1h") from None


def read_whole(value: object, name: str, least: int) -> int:
    """Check an argument that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"--{name}: expected a whole number >= {least}, not {value!r:.60}")
    return value


def conclude(
    problem: Problem,
    solver: registry.Algorithm,
    proposal: Proposal,
    options: Mapping[str, Any],
    *,
    seed: int = 0,
    solve_seconds: float = 0.0,
) -> Result:
    """Place and verify what an algorithm proposes, check its claims, and draw the conclusion."""
    least = proposal.least
    scope = proposal.infeasible_within
    steps, report = None, None
    if proposal.steps is not None:
        placed = _place(problem, problem.machine, proposal.steps)
        if isinstance(placed, Unplaceable):
            if solver.guarantee == "strategy":
                scope, least = (
                    solver.within or f"the {solver.name} schedule",
                    _own_peak(problem, proposal.steps, placed),
                )
            elif solver.guarantee == "exact" and problem.exceeded is None:
                name = problem.machine.memories[placed.memory].name
                raise ClaimError(
                    f"{solver.name}: step {placed.step} needs {placed.needed} of {placed.capacity} in {name}, although "
                    "the algorithm says that its schedule fits"
                )
        else:
            steps, report = (
                placed,
                check(problem.graph, problem.machine, placed, reference_time=problem.no_recompute_time),
            )
            _check_claims(problem, solver, proposal, report)
    return _judge(problem, solver, proposal, steps, report, scope, least, options, seed, solve_seconds)


def _place(problem: Problem, machine: Machine, steps: Steps) -> Steps | Unplaceable:
    overfull = _overfull(problem, machine)
    if overfull is not None or steps.start is not None:
        return overfull or steps
    outcome = place(problem.graph, machine, steps)
    return outcome if isinstance(outcome, Unplaceable) else steps.placed(outcome.start)


def _overfull(problem: Problem, machine: Machine) -> Unplaceable | None:
    """What lies in a memory from the start may be too much for it, before any step."""
    graph, first = problem.graph, machine.memories[0].name
    for index, memory in enumerate(machine.memories):
        if memory.capacity is None:
            continue
        inputs = sum(int(graph.size[place.value]) for place in graph.inputs if (place.memory or first) == memory.name)
        resident = inputs + (graph.static_memory if index == 0 else 0)
        if resident > memory.capacity:
            return Unplaceable(0, index, resident, memory.capacity)
    return None


def _own_peak(problem: Problem, steps: Steps, overrun: Unplaceable) -> LeastBudget | None:
    """The budget at which a strategy's one schedule fits: its peak without the memory that is too small."""
    name = problem.machine.memories[overrun.memory].name
    unbounded = problem.machine.with_capacities({name: None})
    placed = _place(problem, unbounded, steps)
    if isinstance(placed, Unplaceable):
        return None
    report = check(problem.graph, unbounded, placed, reference_time=problem.no_recompute_time)
    peak = report.peaks[name]
    task = None
    if peak.step is not None and steps.kind[peak.step] == 0:
        task = int(steps.item[peak.step])
    return LeastBudget(peak.size, task, True, overrun.memory)


def _check_claims(problem: Problem, solver: registry.Algorithm, proposal: Proposal, report: Report) -> None:
    if report.violations:
        raise ClaimError(f"{solver.name}: the verifier rejects the schedule: {report.violations[0]}")
    if proposal.makespan is not None and not _equal(proposal.makespan, report.makespan):
        raise ClaimError(f"{solver.name} claims makespan {proposal.makespan}, verified is {report.makespan}")
    memory = problem.machine.memories[problem.machine.processors[0].memory].name
    if proposal.peak is not None and proposal.peak != report.peaks[memory].size:
        raise ClaimError(f"{solver.name} claims peak {proposal.peak}, verified is {report.peaks[memory].size}")
    for bound in proposal.bounds:
        holds = bound.scope == ALL_SCHEDULES or proposal.optimal_within == bound.scope
        if holds and bound.value > report.makespan and not _equal(bound.value, report.makespan):
            raise ClaimError(f"{solver.name} claims bound {bound.value}, above the verified makespan {report.makespan}")


def _equal(claimed: Number, verified: Number) -> bool:
    if isinstance(claimed, int) and isinstance(verified, int):
        return claimed == verified
    return abs(claimed - verified) <= CLAIM_TOLERANCE * max(abs(claimed), abs(verified))


def _judge(
    problem: Problem,
    solver: registry.Algorithm,
    proposal: Proposal,
    steps: Steps | None,
    report: Report | None,
    scope: str | None,
    least: LeastBudget | None,
    options: Mapping[str, Any],
    seed: int,
    solve_seconds: float,
) -> Result:
    simple = Bound(makespan_bound(problem.graph, problem.machine, problem.needed), ALL_SCHEDULES, "needed tasks")
    bounds = (*proposal.bounds, simple)
    if len(problem.machine.processors) > 1:
        value = memory_time_bound(problem.graph, problem.machine, problem.needed)
        bounds = (*bounds, Bound(value, ALL_SCHEDULES, "memory x time"))
    lower = max(bound.value for bound in bounds if bound.scope == ALL_SCHEDULES)
    optimal_within = proposal.optimal_within
    if report is not None:
        scope, least = None, None
        if lower >= report.makespan or _equal(lower, report.makespan):
            optimal_within = ALL_SCHEDULES
        status = Status.OPTIMAL if optimal_within == ALL_SCHEDULES else Status.FEASIBLE
    else:
        optimal_within = None
        status, scope, least = _without_schedule(problem, scope, least)
    termination = proposal.termination
    proved = status is Status.OPTIMAL or (status is Status.INFEASIBLE and scope == ALL_SCHEDULES)
    if proved and termination is not Termination.INTERRUPTED:
        termination = Termination.COMPLETED  # no limit kept the solver from anything
    named = {
        memory.name: bound
        for memory, bound in zip(problem.machine.memories, problem.memory_bounds, strict=True)
        if bound is not None
    }
    return Result(
        instance_name=problem.instance.name,
        instance_digest=digest(problem.instance),
        graph=problem.graph,
        machine=problem.machine,
        units=problem.units,
        algorithm=solver.name,
        options=options,
        seed=seed,
        status=status,
        termination=termination,
        columns=steps,
        report=report,
        lower_bound=lower,
        no_recompute_time=problem.no_recompute_time,
        bounds=bounds,
        optimal_within=optimal_within,
        scope=scope,
        least_budget=least,
        memory_bounds=named,
        solve_seconds=solve_seconds,
        notes=(*proposal.notes, *remedies(problem, solver, options, scope)),
    )


def _without_schedule(
    problem: Problem, scope: str | None, least: LeastBudget | None
) -> tuple[Status, str | None, LeastBudget | None]:
    """Decide between infeasible and unknown; a bound that exceeds a capacity is a proof over all schedules."""
    if least is not None:
        known = problem.memory_bounds[least.memory]
        holds = known is not None and least.size <= known.size
        least = replace(least, scope=ALL_SCHEDULES if holds else scope)
    proof = problem.exceeded
    if proof is not None:
        if least is None or least.memory != proof.memory or (not least.sufficient and least.size < proof.size):
            least = proof
        return Status.INFEASIBLE, ALL_SCHEDULES, least
    if scope is not None:
        return Status.INFEASIBLE, scope, least
    first = problem.machine.processors[0].memory
    known = problem.memory_bounds[first]
    if least is None and known is not None:
        least = LeastBudget(known.size, known.task, False, first, ALL_SCHEDULES)
    return Status.UNKNOWN, None, least
