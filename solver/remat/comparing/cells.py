"""A cell of a comparison: one algorithm on one instance with one budget and one seed, and its answer."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from remat.plugin.proposal import ALL_SCHEDULES
from remat.units import LARGEST_TOTAL, Number


class Outcome(enum.StrEnum):
    """The outcome of a job. The first four are the statuses of a solve; the others explain a missing answer."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    TIME_LIMIT = "time limit"
    MEMORY_LIMIT = "memory limit"
    CLAIM = "claim differs"
    CRASHED = "crashed"
    UNREADABLE = "unreadable"


SOLVED = frozenset({Outcome.OPTIMAL, Outcome.FEASIBLE})
"""Outcomes with a verified schedule."""

FAILED = frozenset({Outcome.TIME_LIMIT, Outcome.MEMORY_LIMIT, Outcome.CLAIM, Outcome.CRASHED, Outcome.UNREADABLE})
"""Outcomes that may differ in another run: ``rerun="failed"`` repeats these jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a job; times and sizes in the instance's units.

    Attributes
    ----------
    outcome : Outcome
    detail : str
        The reason why there is no schedule, or the notes of the algorithm.
    makespan, recompute_time, no_recompute_time, lower_bound : int, float or None
    class_bound : int, float or None
        The algorithm's bound, which may hold only for the schedules of its class.
    floor : int, float or None
        The bound that remat computes, whichever algorithm runs: for ratios that do not depend on the other algorithms.
    overhead : float or None
        Makespan over the no-recompute time, minus 1.
    peak_memory : mapping of memory name to int
    optimal_within, scope : str or None
        As in `remat.solving.result.Result`.
    least_budget : int or None
        Minimum budget that an answer without a schedule names, if solving again at that budget succeeds.
    least_needed : int or None
        Otherwise the budget that it names, if every schedule needs at least that much.
    steps : int or None
    transferred : mapping of link to int
    termination : str
    solve_seconds : float
        Time of the solver alone.
    seconds : float
        Time of the whole job, including placement and verification.
    picture : str
        Picture of the schedule for the report (see `remat.report.views.minimap`); empty unless requested.
    """

    outcome: Outcome
    detail: str = ""
    makespan: Number | None = None
    no_recompute_time: Number | None = None
    recompute_time: Number | None = None
    overhead: float | None = None
    lower_bound: Number | None = None
    floor: Number | None = None
    class_bound: Number | None = None
    peak_memory: Mapping[str, int] = field(default_factory=dict)
    transferred: Mapping[str, int] = field(default_factory=dict)
    optimal_within: str | None = None
    scope: str | None = None
    least_budget: int | None = None
    least_needed: int | None = None
    steps: int | None = None
    termination: str = ""
    solve_seconds: float = 0.0
    seconds: float = 0.0
    picture: str = ""

    @property
    def solved(self) -> bool:
        """Whether a verified schedule exists."""
        return self.outcome in SOLVED

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON, without empty fields."""
        kept = {name: value for name in _NAMES if (value := getattr(self, name)) not in (None, "", {})}
        kept["outcome"] = str(self.outcome)
        return kept

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Answer:
        """Read an answer from JSON.

        Raises
        ------
        ValueError, TypeError
            If the document is not an answer.
        """
        given: dict[str, Any] = {name: value for name, value in document.items() if name in _KINDS}
        for name, value in given.items():
            if type(value) not in _KINDS[name]:
                raise TypeError(f"{name}: {type(value).__name__}")
            if isinstance(value, dict) and not all(type(size) is int for size in value.values()):
                raise TypeError(f"{name}: sizes are whole numbers")
            numbers = value.values() if isinstance(value, dict) else () if isinstance(value, str) else (value,)
            if not all(abs(number) <= LARGEST_TOTAL for number in numbers):
                raise ValueError(f"{name}: out of range, or no number")
        given["outcome"] = Outcome(document["outcome"])
        if given["outcome"] is Outcome.INFEASIBLE and given.get("scope", ALL_SCHEDULES) != ALL_SCHEDULES:
            given["outcome"] = Outcome.UNKNOWN  # older journals also use it for a class of schedules
        if given["outcome"] in SOLVED and "makespan" not in given:
            raise ValueError("a schedule without a makespan")
        return Answer(**given)


_NAMES = tuple(item.name for item in fields(Answer))
_TEXT, _NUMBER, _WHOLE, _SIZES = (str,), (int, float), (int,), (dict,)
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("outcome", "detail", "optimal_within", "scope", "termination", "picture"), _TEXT),
    **dict.fromkeys(
        ("makespan", "no_recompute_time", "recompute_time", "lower_bound", "floor", "class_bound"), _NUMBER
    ),
    **dict.fromkeys(("overhead", "solve_seconds", "seconds"), _NUMBER),
    **dict.fromkeys(("least_budget", "least_needed", "steps"), _WHOLE),
    **dict.fromkeys(("peak_memory", "transferred"), _SIZES),
}
"""JSON types of each attribute: later computations rely on them, and users can edit a journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One solve of a comparison.

    Attributes
    ----------
    key : str
        Identifies the job in the journal: a hash of the instance's digest, the machine, the algorithm, its version and
        options, the capacities, the seed and the limits. Jobs with one key have one answer.
    instance : str
        Label: the path without its suffix, or ``example:NAME``.
    source : str
        Path of the document.
    family : str
        Folder of the instance.
    digest, kind : str
    time_unit, memory_unit : str
    algorithm, version : str
        The algorithm as tables name it: its name, or the user's label.
    registered : str
        The algorithm's name if `algorithm` is a label.
    options : mapping
    budget : str
        As requested: ``8GB``, ``70%``, or empty for the instance's own machine.
    capacity : int or None
        The same in the instance's unit.
    seed : int
    """

    key: str
    instance: str
    source: str
    family: str
    digest: str
    kind: str
    time_unit: str
    memory_unit: str
    algorithm: str
    version: str
    options: Mapping[str, Any]
    budget: str
    capacity: int | None
    seed: int
    registered: str = ""

    @property
    def solver(self) -> str:
        """The name under which the algorithm is registered."""
        return self.registered or self.algorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A job and its answer."""

    job: Job
    answer: Answer

    def to_record(self) -> dict[str, Any]:
        """Return one flat record, for a data frame or a CSV file."""
        job, answer = self.job, self.answer
        return {
            "instance": job.instance,
            "family": job.family,
            "kind": job.kind,
            "digest": job.digest,
            "algorithm": job.algorithm,
            "registered": job.solver,
            "version": job.version,
            "options": " ".join(f"{name}={value}" for name, value in job.options.items()),
            "budget": job.budget,
            "capacity": job.capacity,
            "seed": job.seed,
            "outcome": str(answer.outcome),
            "makespan": answer.makespan,
            "no_recompute_time": answer.no_recompute_time,
            "overhead": answer.overhead,
            "recompute_time": answer.recompute_time,
            "lower_bound": answer.lower_bound,
            "floor": answer.floor,
            "peak_memory": max(answer.peak_memory.values(), default=None) if len(answer.peak_memory) == 1 else None,
            "peaks": " ".join(f"{name}={size}" for name, size in answer.peak_memory.items()),
            "optimal_within": answer.optimal_within,
            "scope": answer.scope,
            "least_budget": answer.least_budget,
            "least_needed": answer.least_needed,
            "steps": answer.steps,
            "termination": answer.termination,
            "solve_seconds": answer.solve_seconds,
            "seconds": answer.seconds,
            "time_unit": job.time_unit,
            "memory_unit": job.memory_unit,
            "detail": answer.detail,
        }
