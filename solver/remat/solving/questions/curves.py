"""Time-memory curves: the answers of a sweep, the Pareto points among them, the knee and the minimum budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from remat.errors import OptionError, QuantityError
from remat.messages import brief, listing
from remat.plugin.problem import budgeted_memories
from remat.plugin.proposal import ALL_SCHEDULES, Status, Termination
from remat.solving.display import Shown
from remat.solving.minimum_budget import largest_peak
from remat.solving.result import Result
from remat.units import Number, Units, parse_budget

SCHEMA = "remat.sweep/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The figures of one verified answer at one budget; times and sizes in the instance's units.

    Attributes
    ----------
    algorithm : str
        The algorithm that found it (for ``auto``, the chosen algorithm).
    budget : int or None
        Capacity of the swept memory; None is unbounded.
    status, termination
    peak : int or None
        Verified peak of the swept memory (for a pipeline, of the fullest device); None without a schedule, like all
        figures of schedules below.
    makespan, recompute_time : int, float or None
    overhead : float or None
        Makespan over the no-recompute time, minus 1.
    lower_bound : int or float
        On the makespan of every schedule.
    gap : float or None
        Distance of the makespan to `lower_bound`, as a share of the makespan.
    optimal_within, scope : str or None
        As in `Result`.
    least_budget : int or None
        For an answer without a schedule: the reported minimum budget of the swept memory. Its proof may cover a smaller
        class than `scope`; `Least` names that class.
    steps : int
        Steps of the schedule.
    solve_seconds : float
    notes : str
        Remarks for the user, for example why an algorithm refused this budget.
    """

    algorithm: str
    budget: int | None
    status: Status
    termination: Termination
    peak: int | None
    makespan: Number | None
    overhead: float | None
    recompute_time: Number | None
    lower_bound: Number
    gap: float | None
    optimal_within: str | None
    scope: str | None
    least_budget: int | None
    steps: int
    solve_seconds: float
    notes: str = ""

    @staticmethod
    def of(result: Result, memory: int) -> Point:
        """Take the figures from a result; `memory` (by index) is the budgeted memory."""
        asked = result.machine.memories[memory]
        least = result.least_budget
        own = [memory] if result.instance is None else budgeted_memories(result.instance, result.machine, memory)
        return Point(
            algorithm=result.algorithm,
            budget=asked.capacity,
            status=result.status,
            termination=result.termination,
            peak=largest_peak(result, memory),
            makespan=result.makespan,
            overhead=result.overhead,
            recompute_time=result.recompute_time,
            lower_bound=result.lower_bound,
            gap=result.gap,
            optimal_within=result.optimal_within,
            scope=result.scope,
            least_budget=least.size if least is not None and least.memory in own else None,
            steps=0 if result.columns is None else len(result.columns),
            solve_seconds=round(result.solve_seconds, 6),
            notes="; ".join(result.notes),
        )

    @property
    def solved(self) -> bool:
        """Whether there is a schedule."""
        return self.makespan is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures under their names, as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"status": str(self.status), "termination": str(self.termination)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Least:
    """The minimum budget at which an algorithm finds a schedule.

    Attributes
    ----------
    size : int
    sufficient : bool
        Whether solving at this budget finds a schedule; otherwise it is only a lower bound.
    proved_within : str or None
        The class of schedules for which the budget is proved minimal; None without a proof.
    """

    size: int
    sufficient: bool
    proved_within: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"size": self.size, "sufficient": self.sufficient, "proved_within": self.proved_within}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Time-memory curve of one algorithm; times and sizes are in the instance's units.

    Attributes
    ----------
    algorithm : str
        As requested: its name (may be ``auto``), or the user's label.
    registered : str
        The algorithm's name if `algorithm` is a label.
    options : mapping
    answers : tuple of Point
        All answers by ascending budget, including those without a schedule.
    least : Least or None
        The minimum budget; None if unknown.
    exhaustive : bool
        Whether the answers are all breakpoints of the algorithm.
    termination : Termination
        Why the sweep ended.
    default_limit : float or None
        Seconds of the default time limit; None if the caller gave a limit.
    """

    algorithm: str
    options: Mapping[str, Any]
    answers: tuple[Point, ...]
    least: Least | None
    exhaustive: bool
    termination: Termination
    default_limit: float | None = None
    registered: str = ""

    def __post_init__(self) -> None:
        """Call the budgets below a minimum that is proved for all schedules infeasible."""
        least = self.least
        if least is None or least.proved_within != ALL_SCHEDULES:
            return
        answers = [
            replace(point, status=Status.INFEASIBLE, scope=ALL_SCHEDULES, termination=Termination.COMPLETED)
            if not point.solved and point.budget is not None and point.budget < least.size
            else point
            for point in self.answers
        ]
        object.__setattr__(self, "answers", tuple(answers))

    def at(self, budget: int | float | str | None) -> Point:
        """Return the answer for a requested budget.

        Parameters
        ----------
        budget : int, float, str or None
            A size such as ``600_000_000`` or ``"600MB"``, as in `Point.budget`; shares are not accepted. None is
            unbounded.

        Raises
        ------
        remat.OptionError
            If the curve has no answer to this budget.
        """
        try:
            size = None if budget is None else parse_budget(budget)
        except QuantityError as error:
            raise OptionError(str(error), argument="budget") from None
        found = next((point for point in self.answers if point.budget == size), None)
        if found is None:
            known = listing(str(point.budget) for point in self.answers)
            raise OptionError(f"no answer to {brief(budget)}; the budgets are {known}", argument="budget")
        return found

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The Pareto points by ascending peak: each is faster than all points with at most its peak."""
        return pareto(self.answers)

    @cached_property
    def knee(self) -> Point | None:
        """The point after which more memory saves little time; memory is measured in ratios."""
        return knee(self.points)

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as JSON values; points are indices into the answers."""
        place = {id(point): k for k, point in enumerate(self.answers)}
        return {
            "algorithm": self.algorithm,
            **({"registered": self.registered} if self.registered else {}),
            "options": dict(self.options),
            "termination": str(self.termination),
            "exhaustive": self.exhaustive,
            "least_budget": None if self.least is None else self.least.to_dict(),
            "knee": None if self.knee is None else place[id(self.knee)],
            "points": [place[id(point)] for point in self.points],
            "answers": [point.to_dict() for point in self.answers],
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Sweep(Shown):
    """Time-memory curves of one instance on one machine, one per algorithm.

    Attributes
    ----------
    instance_name, instance_digest, kind : str
    units : Units
    machine : mapping
        The `machine` part of the instance, capacities as given.
    memory : str
        The memory with the swept budget; for a pipeline the first device, whose budget is that of all devices.
    no_recompute_time : int or float
        Reference for overheads; includes mandatory transfers (`Problem.reference_time`).
    seed : int
    curves : tuple of Curve
    """

    instance_name: str
    instance_digest: str
    kind: str
    units: Units
    machine: Mapping[str, Any]
    memory: str
    no_recompute_time: Number
    seed: int
    curves: tuple[Curve, ...]

    def to_records(self) -> list[dict[str, Any]]:
        """Return all answers as flat records: ``pandas.DataFrame(sweep.to_records())``.

        Each record has the figures of `Point`; ``algorithm`` is the requested algorithm, ``solver`` the one that
        answered. Further fields identify the solve (``instance``, ``digest``, ``kind``, ``memory``, ``seed``).
        ``pareto`` and ``knee`` tell whether the point is on the curve and is its knee.
        """
        records = []
        for curve in self.curves:
            on_curve = {id(point) for point in curve.points}
            for point in curve.answers:
                figures = point.to_dict()
                solver = figures.pop("algorithm")
                records.append(
                    {
                        "instance": self.instance_name,
                        "digest": self.instance_digest,
                        "kind": self.kind,
                        "memory": self.memory,
                        "algorithm": curve.algorithm,
                        "solver": solver,
                        "seed": self.seed,
                        **figures,
                        "pareto": id(point) in on_curve,
                        "knee": point is curve.knee,
                    }
                )
        return records

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as a document, `remat.sweep/1`."""
        return {
            "schema": SCHEMA,
            "instance": {"name": self.instance_name, "digest": self.instance_digest, "kind": self.kind},
            "units": {"time": self.units.time, "memory": self.units.memory},
            "machine": dict(self.machine),
            "memory": self.memory,
            "no_recompute_time": self.no_recompute_time,
            "seed": self.seed,
            "curves": [curve.to_dict() for curve in self.curves],
        }


def pareto(answers: Sequence[Point]) -> tuple[Point, ...]:
    """Return the Pareto points by ascending peak: each is faster than all answers with at most its peak."""
    found: list[Point] = []
    solved = [(point.peak or 0, point.makespan, k) for k, point in enumerate(answers) if point.makespan is not None]
    for _, makespan, k in sorted(solved):
        last = found[-1].makespan if found else None
        if last is None or makespan < last:
            found.append(answers[k])
    return tuple(found)


def knee(points: Sequence[Point]) -> Point | None:
    """Return the knee of a curve: the point furthest below the chord from its first to its last point.

    Memory is measured in ratios (logarithm of the peak), time in differences, both scaled to 0..1 along the curve: with

        x = log(peak / smallest peak) / log(largest peak / smallest peak),
        y = (makespan - shortest makespan) / (longest makespan - shortest makespan),

    the chord is x + y = 1, and the knee has the largest 1 - x - y; ties go to the smaller peak. If the smallest peak is
    0, memory is measured in differences, too.

    Parameters
    ----------
    points : sequence of Point
        Pareto points, by peak, ascending.

    Returns
    -------
    Point or None
        None if no point is below the chord.
    """
    if len(points) < 3:
        return None
    peaks = [float(point.peak or 0) for point in points]
    sizes = [math.log(peak) for peak in peaks] if peaks[0] > 0 else peaks
    times = [float(point.makespan or 0) for point in points]
    width, height = sizes[-1] - sizes[0], times[0] - times[-1]
    if width <= 0 or height <= 0:
        return None
    depth = [
        1 - (size - sizes[0]) / width - (time - times[-1]) / height for size, time in zip(sizes, times, strict=True)
    ]
    deepest = max(range(len(points)), key=lambda k: (round(depth[k], 9), -k))
    return points[deepest] if depth[deepest] > 1e-9 else None
