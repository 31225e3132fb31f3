"""Batch splitting: solve each admissible division of a pipeline's batch and return the best answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remat.errors import InstanceError, OptionError
from remat.graph.machine import Machine
from remat.instance.kinds import is_pipeline
from remat.plugin import registry
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Status, Termination
from remat.solving.auto import AUTO
from remat.solving.result import Result
from remat.solving.time_guard import grace
from remat.units import Number, format_time

if TYPE_CHECKING:
    from remat.instance import Instance, PipelineInstance
    from remat.solving.warm_start import WarmStart

SOURCE = "every division of the batch"
"""Source of a bound that holds for every division."""


def divisions(
    problem: Problem, solver: registry.Algorithm, options: Any, warm_start: WarmStart = None
) -> list[PipelineInstance]:
    """Return the instances to solve for an instance with an open division of its batch; empty for other instances.

    These are all listed sizes, or the cuts of sequences that the algorithm requests, and whole sequences. The portfolio
    uses the cuts of all its algorithms. An algorithm without cuts keeps sequences whole, as in the lowering.

    Raises
    ------
    remat.OptionError
        If an algorithm refuses the instance, or for a warm start, which fits only one division.
    """
    instance = problem.instance
    if not is_pipeline(instance) or not instance.is_open:
        return []
    if warm_start is not None:
        raise OptionError(
            "the division of the batch is open, and a warm start fits only one division", argument="warm_start"
        )
    if instance.sizes:
        assert instance.samples is not None
        return [
            instance.of_samples(size) for size in sorted([instance.samples, *(one.samples for one in instance.sizes)])
        ]
    if solver is not AUTO:
        return list(_asked(problem, solver, options))
    found: dict[tuple[int, ...], PipelineInstance] = {(): instance}
    for other in registry.algorithms(problem.kind, available=True):
        if other.divide:
            with suppress(OptionError):
                for one in _asked(problem, other, make_options(other, {})):
                    found.setdefault(one.cut, one)
    return list(found.values())


def _asked(problem: Problem, solver: registry.Algorithm, options: Any) -> Iterable[PipelineInstance]:
    divide = solver.load_divide()
    assert is_pipeline(problem.instance)
    return (problem.instance,) if divide is None else divide(problem, options)


def best_of(
    problem: Problem,
    parts: Sequence[PipelineInstance],
    ask: Callable[[Problem, Context], Result],
    context: Context,
) -> Result:
    """Solve each part on the problem's machine with an equal share of the remaining time; return the best answer.

    Parameters
    ----------
    problem : Problem
        With the open instance.
    parts : sequence of PipelineInstance
        Its divisions.
    ask : callable
        Solves one of them.
    context : Context
        Around all of them.
    """
    results: list[Result] = []
    refused: OptionError | None = None
    for index, part in enumerate(parts):
        late = context.deadline is not None and time.monotonic() > context.deadline + grace(context.limit)
        if (context.interrupted or late) and any(result.makespan is not None for result in results):
            break
        inner = context.aside(share=1 / (len(parts) - index))
        try:
            result = ask(Problem(part, problem.machine), inner)
        except OptionError as error:
            refused = error
            continue
        context.interrupted = context.interrupted or inner.interrupted
        results.append(result)
        known = context.best_makespan
        if result.makespan is not None and (known is None or result.makespan < known):
            context.report(result.columns, makespan=result.makespan, message=f"{result.algorithm}, {_named(part)}")
    if refused is not None and not results:
        raise refused
    assert is_pipeline(problem.instance)
    return _merged(problem.instance, problem.machine, results, whole=len(results) == len(parts))


def _merged(instance: PipelineInstance, machine: Machine, results: Sequence[Result], *, whole: bool) -> Result:
    """Return the best answer of several divisions, with the bounds that hold for all divisions.

    `whole` tells whether all divisions were solved.
    """
    best = min(results, key=_rank)
    by_size = bool(instance.sizes)
    if by_size:
        lower = min(result.lower_bound for result in results) if whole else 0
    else:
        lower = _least_work(instance, len(machine.processors))
    bound = Bound(lower, ALL_SCHEDULES, SOURCE)
    notes = (*best.notes, _summary(results)) if len(results) > 1 else best.notes
    termination = next(
        (one.termination for one in results if one.termination is not Termination.COMPLETED), Termination.COMPLETED
    )
    if best.makespan is None:
        # A class that is empty for every size is empty; not all cuts were tried.
        scopes = {result.scope for result in results} if by_size and whole else {None}
        if len(scopes) > 1:
            scopes.discard(ALL_SCHEDULES)  # a proof over all schedules covers every class
        scope = scopes.pop() if len(scopes) == 1 else None
        status = Status.INFEASIBLE if scope == ALL_SCHEDULES else Status.UNKNOWN
        return replace(
            best, status=status, scope=scope, lower_bound=lower, bounds=(bound,), notes=notes, termination=termination
        )
    proved = best.makespan <= lower
    within = ALL_SCHEDULES if proved else None
    if best.optimal_within not in (None, ALL_SCHEDULES) and not proved:
        within = best.optimal_within
    return replace(
        best,
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        optimal_within=within,
        lower_bound=lower,
        bounds=(bound, *(own for own in best.bounds if own.scope != ALL_SCHEDULES)),
        notes=notes,
        termination=Termination.COMPLETED if proved else termination,
    )


def _rank(result: Result) -> tuple[bool, Number, int]:
    """Return a sort key of answers: by makespan; without a schedule, by minimum budget."""
    least = result.least_budget
    return result.makespan is None, result.makespan or 0, 0 if least is None else least.size


def _summary(results: Sequence[Result]) -> str:
    """Describe the makespan of each division."""
    said = []
    for result in sorted(results, key=_rank):
        assert is_pipeline(result.instance)
        took = "no schedule found" if result.makespan is None else format_time(result.makespan, result.units)
        said.append(f"{_named(result.instance)}: {took}")
    listed = said if len(said) <= MOST_NAMED else [*said[:MOST_NAMED], f"{len(said) - MOST_NAMED} more"]
    return "makespan with " + "; with ".join(listed)


MOST_NAMED = 8


def _named(instance: PipelineInstance) -> str:
    cut = instance.cut
    if instance.tokens is None:
        return f"micro-batches of {instance.samples}"
    if not cut:
        return "whole sequences"
    return f"{len(cut)} slices of each sequence" if len(cut) > MOST_NAMED else "slices of " + ", ".join(map(str, cut))


def described(instance: Instance) -> str:
    """Describe the possible divisions of an instance's batch; empty if the division is fixed."""
    if not is_pipeline(instance) or not instance.is_open:
        return ""
    if instance.sizes:
        return "micro-batches of " + " or ".join(
            map(str, sorted([instance.samples or 1, *(one.samples for one in instance.sizes)]))
        )
    assert instance.tokens is not None
    lengths = sorted({one.tokens for one in instance.tokens.slices})
    span = f"{lengths[0]:,} tokens" if len(lengths) == 1 else f"{lengths[0]:,} to {lengths[-1]:,} tokens"
    return f"sequences of {instance.tokens.length:,} tokens, whole or in slices of {span}"


def _least_work(instance: PipelineInstance, devices: int) -> Number:
    """Return a bound for all cuts of sequences: the minimum work of every sequence, shared by all devices.

    On one device, the slices of a sequence take at least the smallest sum of slices from its first token to its last,
    or the time of the whole sequence. O(slices x layers x types).
    """
    tokens = instance.tokens
    assert tokens is not None
    types = set(instance.cluster.types)

    def taken(works: Iterable[Any]) -> Number:
        total: Number = 0
        for work, layer in zip(works, instance.layers, strict=True):
            on = [time for name in types if (time := work.work_on(name)) is not None]
            total += layer.repeat * min(on, default=0)
        return total

    ways: dict[int, list[tuple[int, Number]]] = {}
    for one in tokens.slices:
        ways.setdefault(one.before, []).append((one.before + one.tokens, taken(one.layers)))
    least: dict[int, Number] = {0: 0}
    for before in sorted(ways):
        if before in least:
            for end, time in ways[before]:
                least[end] = min(least.get(end, least[before] + time), least[before] + time)
    own = taken(instance.layers)
    each = min(own, least.get(tokens.length, own))
    if any(layer.paired_time is not None for layer in instance.layers):
        # Two operations at once may take half as long.
        each = each / 2
    total = each * instance.micro_batches
    return total // devices if isinstance(total, int) and total % devices == 0 else total / devices


def of_schedule(instance: Instance, document: Mapping[str, Any]) -> Instance:
    """Return the division of an instance's batch that a schedule document is for.

    Raises
    ------
    remat.InstanceError
        If it names no division but the instance has several, or one that the instance does not have.
    """
    given = [key for key in ("samples", "cut") if key in document]
    if not is_pipeline(instance):
        if given:
            raise InstanceError(f"{given[0]} is for pipelines, and the instance is a {instance.kind}", f"$.{given[0]}")
        return instance
    samples, cut = document.get("samples"), document.get("cut")
    if "samples" in given:
        known = [size for size in (instance.samples, *(one.samples for one in instance.sizes)) if size is not None]
        if type(samples) is not int or samples not in known:
            listed = f", only of {', '.join(map(str, known))}" if known else ""
            raise InstanceError(f"the instance has no micro-batches of {samples!r:.60} samples{listed}", "$.samples")
        instance = instance.of_samples(samples)
    elif instance.sizes:
        raise InstanceError("the instance leaves the size of micro-batches open: expected samples", "$.samples")
    if "cut" in given:
        if instance.tokens is None:
            raise InstanceError("the instance has no tokens to cut", "$.cut")
        if not isinstance(cut, list) or not cut or any(type(one) is not int or one < 1 for one in cut):
            raise InstanceError("expected a list of slices, in tokens", "$.cut")
        try:
            instance = instance.of_cut(tuple(cut)) if instance.cut != tuple(cut) else instance
        except ValueError as error:
            raise InstanceError(str(error), "$.cut") from None
    return instance


def one_division(instance: Instance) -> Instance:
    """Return an instance whose batch has a fixed division, for questions about one division.

    Raises
    ------
    remat.OptionError
        For an instance with several divisions.
    """
    if is_pipeline(instance) and instance.is_open:
        key, hint = ("sizes", "layers of one size, without sizes") if instance.sizes else ("tokens", "a cut")
        raise OptionError(
            f"the instance leaves the division of its batch to the schedule ({key}), but this function needs one "
            f"division: give a document with {hint}"
        )
    return instance
