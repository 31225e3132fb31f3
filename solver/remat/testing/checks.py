"""Checks of the suite, as functions of results; each raises `AssertionError` with the figures."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from remat.plugin.problem import budgeted_memories
from remat.plugin.proposal import ALL_SCHEDULES, Status, Termination
from remat.plugin.registry import Algorithm
from remat.solving.result import Result
from remat.solving.scopes import scope_of
from remat.units import Number

TOLERANCE = 1e-9
"""Relative difference allowed between sums of fractional times in different orders."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A budget (None: unbounded) for one memory, and the algorithm's answer."""

    budget: int | None
    result: Result

    @property
    def capacity(self) -> float:
        """The budget as a comparable number."""
        return math.inf if self.budget is None else self.budget


def require(holds: bool, message: str) -> None:
    """Raise `AssertionError` unless a condition holds (also under ``python -O``)."""
    if not holds:
        raise AssertionError(message)


def at_most(one: Number, other: Number) -> bool:
    """Whether one figure is at most the other: exactly for integers, else within `TOLERANCE`."""
    if isinstance(one, int) and isinstance(other, int):
        return one <= other
    return one - other <= TOLERANCE * max(abs(one), abs(other))


# --- one result -------------------------------------------------------------------------------------------------------


def check_answer(algorithm: Algorithm, document: Mapping[str, Any], result: Result) -> None:
    """Check one result: its status, its schedule (verified independently), its figures and its bounds."""
    name = algorithm.name
    require(result.algorithm == name, f"the result names {result.algorithm!r} as its algorithm, not {name!r}")
    require(isinstance(result.status, Status), f"{result.status!r} is not a Status")
    require(isinstance(result.termination, Termination), f"{result.termination!r} is not a Termination")
    require(all(result.notes), "notes are non-empty texts")
    solved = result.status in (Status.OPTIMAL, Status.FEASIBLE)
    require(
        solved == (result.columns is not None),
        f"status {result.status} contradicts the presence or absence of a schedule",
    )
    check_bounds(result)
    if solved:
        check_schedule(document, result)
    elif result.status is Status.INFEASIBLE:
        require(result.scope == ALL_SCHEDULES, f"infeasible must refer to all schedules, not to {result.scope!r}")
    else:
        require(result.scope != ALL_SCHEDULES, "the scope is all schedules, but the status is unknown")


def check_schedule(document: Mapping[str, Any], result: Result) -> None:
    """Verify the schedule from its own document, and compare every figure."""
    from remat.solving.verifying import verify

    written = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    report = verify(dict(document), written)
    require(report.ok, f"the schedule is not valid: {'; '.join(map(str, report.violations[:3]))}")
    stated = [note for note in report.notes if "states" in note or "digest" in note]
    require(not stated, f"the document contradicts the verifier: {stated}")
    require(result.makespan == report.objective, f"makespan {result.makespan}, verified afresh {report.objective}")
    require(result.peak_memory == report.peak_memory, f"peaks {result.peak_memory}, afresh {report.peak_memory}")
    for memory in result.machine.memories:
        peak = report.peak_memory[memory.name]
        fits = memory.capacity is None or peak <= memory.capacity
        require(fits, f"peak {peak} in {memory.name} is over its capacity {memory.capacity}")
    if result.pattern is not None:
        require(len(written["pattern"]) == len(result.pattern), "the document has another pattern than the result")
        assert result.report is not None
        require(report.steady == result.report.steady, f"a period takes {report.steady}, not {result.report.steady}")
    elif result.orders is None:
        same = len(result.steps) == len(written["steps"])
        require(same, "the document has another number of steps than the result")
    else:
        listed = sum(text.count("&") + 1 for operations in written["orders"].values() for text in operations)
        require(listed == len(result.orders), "the document has another number of operations than the result")


def check_bounds(result: Result) -> None:
    """Check that every bound is a number with a scope and a source, and holds for the result's own schedule."""
    whole = _only_whole_times(result)
    for bound in result.bounds:
        shown = f"bound {bound.value!r} (scope {bound.scope!r}, source {bound.source!r})"
        number = type(bound.value) in (int, float) and math.isfinite(bound.value)
        require(number and bound.value >= 0, f"{shown} is not a finite time")
        require(bool(bound.scope) and bool(bound.source), f"{shown} lacks its scope or its source")
        require(not whole or type(bound.value) is int, f"{shown} is not an integer, although all times are whole")
        if result.makespan is not None and bound.scope in (ALL_SCHEDULES, result.optimal_within):
            require(at_most(bound.value, result.makespan), f"{shown} is above the makespan {result.makespan}")
    if result.makespan is not None:
        below = at_most(result.lower_bound, result.makespan)
        require(below, f"lower bound {result.lower_bound} is above the makespan {result.makespan}")
        if result.optimal_within == ALL_SCHEDULES:
            require(result.status is Status.OPTIMAL, "optimal over all schedules, and yet the status does not say so")
    else:
        require(result.optimal_within is None, "there is no schedule to be optimal")


def _only_whole_times(result: Result) -> bool:
    """Whether every run and every transfer, of any size, takes an integer time."""
    if result.instance is not None and result.instance.is_stream:
        return False  # there may be several samples in a period
    graph, machine = result.graph, result.machine
    slowed = graph.parallel_max is not None or any(processor.speed != 1 for processor in machine.processors)
    links = all(type(link.latency) is int and link.bandwidth in (None, 1) for link in machine.links)
    return graph.exact_times and not slowed and links


# --- results at several budgets ---------------------------------------------------------------------------------------


def check_budgets(algorithm: Algorithm, memory: str, rungs: Sequence[Rung]) -> None:
    """Check answers at different budgets for one memory against each other.

    A schedule is valid for every budget of at least its peak. A proof at such a budget (a bound, optimality,
    infeasibility) must hold for the schedule if its scope includes it.
    """
    for found in rungs:
        if found.result.columns is None:
            continue
        for proof in rungs:
            if algorithm.guarantee in ("exact", "strategy"):
                _check_not_above(found, proof, memory)
            if proof.capacity >= found.result.peak_memory[memory]:
                _check_proof(algorithm, found, proof, memory)
            if algorithm.guarantee == "exact" and proof.capacity >= found.capacity:
                _check_monotone(found, proof)
    if algorithm.guarantee == "strategy":
        _check_same_steps(rungs)


def own_peak(result: Result, memory: int) -> int:
    """Return the smallest budget of a memory (by index) that a schedule fits; for pipelines, of the fullest device."""
    assert result.instance is not None
    peaks = result.peak_memory if result.steady is None else result.steady.peaks
    budgeted = budgeted_memories(result.instance, result.machine, memory)
    return max(peaks[result.machine.memories[index].name] for index in budgeted)


def _check_not_above(found: Rung, proof: Rung, memory: str) -> None:
    """Check that no reported minimum budget exceeds the peak of a schedule of the same algorithm.

    For pipelines, a minimum budget applies to every device, and the peak is that of the fullest one.
    """
    least, machine = proof.result.least_budget, proof.result.machine
    if least is None or not least.sufficient:
        return
    if machine.memories[least.memory].name == memory:
        assert proof.result.instance is not None
        budgeted = budgeted_memories(proof.result.instance, machine, least.memory)
        peak = max(found.result.peak_memory[machine.memories[index].name] for index in budgeted)
        here = f"(budget {found.budget}: peak {peak}; budget {proof.budget}: least {least.size})"
        require(least.size <= peak, f"the minimum budget is above the peak of a schedule {here}")


def _check_proof(algorithm: Algorithm, found: Rung, proof: Rung, memory: str) -> None:
    makespan, peak = found.result.makespan, found.result.peak_memory[memory]
    assert makespan is not None
    answer = proof.result
    own = {ALL_SCHEDULES, found.result.optimal_within} - {None}
    if algorithm.guarantee in ("exact", "strategy"):
        own |= {scope_of(answer.machine, algorithm, algorithm.within, of_memory=of) for of in (False, True)}
    here = f"(budget {found.budget}: makespan {makespan}, peak {peak}; budget {proof.budget}: "
    bound = answer.lower_bound
    require(at_most(bound, makespan), f"a schedule beats a bound {here}bound {bound})")
    refuted = answer.columns is None and answer.scope in own
    require(not refuted, f"a schedule exists despite a proof of infeasibility {here}none within {answer.scope!r})")
    if answer.makespan is not None and answer.optimal_within in own:
        best = at_most(answer.makespan, makespan)
        require(best, f"a schedule beats an optimal one {here}{answer.makespan}, optimal in {answer.optimal_within!r})")


def _check_monotone(small: Rung, large: Rung) -> None:
    makespan, answer = small.result.makespan, large.result
    if makespan is None or small.result.optimal_within is None:
        return
    here = f"(budget {small.budget}: makespan {makespan}; budget {large.budget}: "
    refuted = answer.columns is None and answer.scope is not None
    require(not refuted, f"more memory, and no schedule {here}none within {answer.scope})")
    if answer.makespan is not None and answer.optimal_within is not None:
        better = at_most(answer.makespan, makespan)
        require(better, f"more memory, a longer schedule {here}makespan {answer.makespan})")


def _check_same_steps(rungs: Sequence[Rung]) -> None:
    found = [rung for rung in rungs if rung.result.columns is not None]
    for rung in found[1:]:
        same = steps_without_times(rung.result) == steps_without_times(found[0].result)
        require(
            same, f"a strategy builds one schedule: budgets {found[0].budget} and {rung.budget} get different steps"
        )


def check_least(result: Result, memory: int, budget: int) -> None:
    """Check the form of the minimum budget that an answer without a schedule reports for the varied memory."""
    least, searched = result.least_budget, result.columns is None and result.scope is not None
    if searched and len(result.machine.memories) == 1:
        require(
            least is not None, f"no schedule within {result.scope} at {budget}, but no minimum budget or bound is given"
        )
    if least is None:
        return
    require(
        0 <= least.memory < len(result.machine.memories), f"the minimum budget refers to unknown memory {least.memory}"
    )
    task = least.task
    require(task is None or 0 <= task < len(result.graph.tasks), f"the minimum budget refers to unknown task {task}")
    if searched and least.memory == memory:
        require(
            least.size > budget, f"no schedule was found at {budget}, but the minimum budget is given as {least.size}"
        )


# --- sameness ---------------------------------------------------------------------------------------------------------


def steps_without_times(result: Result) -> list[dict[str, Any]]:
    """Return the steps as a document, without start times."""
    steps = result.to_dict().get("steps", [])
    return [{key: value for key, value in step.items() if key != "start"} for step in steps]


def document_of(result: Result) -> str:
    """Return the schedule document as text, without fields that differ between runs."""
    document = result.to_dict()
    del document["solve_seconds"]
    return json.dumps(document, sort_keys=True)


def stopped_by_a_limit(document: str) -> bool:
    """Whether a schedule document (see `document_of`) is the incumbent at a limit."""
    try:
        termination = json.loads(document).get("termination")
    except (ValueError, AttributeError):  # compare objects of other types as they are
        return False
    return termination in (Termination.TIME_LIMIT, Termination.INTERRUPTED)


def first_difference(one: str, other: str) -> str:
    """Show the first difference of two texts."""
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"{one[max(0, at - 20) : at + 40]!r} and {other[max(0, at - 20) : at + 40]!r}"


def fingerprint(thing: Any, within: tuple[int, ...] = ()) -> Any:
    """Return the content of nested dataclasses, sequences and arrays, as comparable values.

    Self-references are followed once; `within` has the identities of the enclosing objects.
    """
    if id(thing) in within:
        return "itself"
    if isinstance(thing, np.ndarray):
        return (str(thing.dtype), thing.shape, thing.tobytes())
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        # The instance's dictionary, where there is one, holds cached properties, too.
        held = getattr(thing, "__dict__", None)
        if held is None:
            held = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return {key: fingerprint(value, (*within, id(thing))) for key, value in held.items()}
    if isinstance(thing, (list, tuple)):
        return [fingerprint(item, (*within, id(thing))) for item in thing]
    return thing


def changed(before: Any, after: Any, where: str = "problem") -> str | None:
    """Name the first difference of two fingerprints, ignoring properties that were cached in the meantime."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            found = changed(value, after.get(key), f"{where}.{key}")
            if found is not None:
                return found
        return None
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        places = (changed(one, other, f"{where}[{index}]") for index, (one, other) in pairs)
        return next((place for place in places if place is not None), None)
    return None if before == after else where
