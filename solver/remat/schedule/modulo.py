"""Modulo (periodic) schedules of an endless stream of samples; the operations of one period repeat in every period.

A *turn* runs a task, or copies a value, for one of the K samples of a period. It has a start within the period and a
shift. For sample ``q K + r`` of the stream, the turn of sample r runs in period ``shift + q``, at ``start + (shift + q)
* period``. A sample of a pipeline is a micro-batch. If parameters change, a document lists operations of stages instead
(`remat.schedule.patterns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from remat.errors import InstanceError
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.messages import brief
from remat.schedule.document import initial_of_places, read_initial
from remat.schedule.steps import StepKind
from remat.units import LARGEST_SIZE, LARGEST_TOTAL, Number, Units, parse_time

MOST_SHIFTS = 10**6
"""Largest shift of a turn."""

MOST_SAMPLES = 10**6
"""Maximum number of samples of a period."""


class Turn(NamedTuple):
    """A run of a task on a processor, or a copy of a value from one memory to another, for one sample of a period."""

    kind: StepKind
    item: int
    start: Number
    shift: int
    sample: int = 0
    on: int = -1
    source: int = -1
    target: int = -1


@dataclass(frozen=True, eq=False)
class ModuloSchedule:
    """Turns for the samples of one period, and the period.

    Attributes
    ----------
    graph : TaskGraph
        The graph of one sample; its indices number tasks and values.
    period : int or float
    turns : tuple of Turn
        In each memory, a value is dropped at the end of the last turn of its sample that uses it there.
    initial : tuple of (value, memory)
        Memories of placeable inputs.
    earlier_first : bool
        Whether, at one instant, turns of earlier samples precede those of later ones; otherwise turns with smaller
        shifts precede.
    """

    graph: TaskGraph
    period: Number
    turns: tuple[Turn, ...]
    initial: tuple[tuple[int, int], ...] = ()
    earlier_first: bool = False

    def __post_init__(self) -> None:
        period, turns = as_documented(self.period, self.turns)
        object.__setattr__(self, "period", period)
        object.__setattr__(self, "turns", turns)

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def samples(self) -> int:
        """Samples of a period."""
        return 1 + max((turn.sample for turn in self.turns), default=0)

    def start_of(self, turn: Turn) -> Number:
        """Return the start time of a turn for the samples of the first period."""
        return turn.start + turn.shift * self.period

    def to_document(self, machine: Machine) -> dict[str, Any]:
        """Return the keys `initial`, `period` and `pattern` of a `remat.schedule/2` document."""
        lines = [self._line(turn, machine) for turn in self.turns]
        document: dict[str, Any] = {"period": self.period, "pattern": lines}
        return ({"initial": initial_of_places(self.initial, self.graph, machine)} if self.initial else {}) | document

    def _line(self, turn: Turn, machine: Machine) -> dict[str, Any]:
        line: dict[str, Any]
        if turn.kind == StepKind.RUN:
            line = {"run": self.graph.tasks[turn.item], "on": [machine.processors[turn.on].name]}
        else:
            ends = machine.memories[turn.source].name, machine.memories[turn.target].name
            line = {"copy": self.graph.values[turn.item], "from": ends[0], "to": ends[1]}
        when = {"start": turn.start, "shift": turn.shift}
        return line | when | ({"sample": turn.sample} if turn.sample else {})


def as_documented(period: Number, entries: tuple[Any, ...]) -> tuple[Number, tuple[Any, ...]]:
    """Return a period and its beats or turns as documents hold them: a sum beyond 2^62 is a float.

    A start that then rounds to the period belongs to the next one.
    """
    if isinstance(period, float) or period <= LARGEST_SIZE:
        return period, entries
    period = float(period)
    return period, tuple(
        entry._replace(start=0.0, shift=entry.shift + 1)
        if float(entry.start) >= period
        else entry._replace(start=float(entry.start))
        for entry in entries
    )


def folded(time: Number, period: Number, rounding: float) -> tuple[Number, int]:
    """Return the start within the period, and the shift, of an entry that begins at a time for the first samples.

    A start within `rounding` periods of the next period belongs to that one.
    """
    shift, start = divmod(time, period)
    if isinstance(start, float) and period - start <= rounding * period:
        shift, start = shift + 1, 0.0
    return start, int(shift)


def read_modulo(document: dict[str, Any], graph: TaskGraph, machine: Machine, units: Units) -> ModuloSchedule:
    """Read `initial`, `period` and `pattern` of a schedule document.

    Parameters
    ----------
    document : dict
        The schedule document.
    graph : TaskGraph
        The graph of one sample.
    machine : Machine
    units : Units
        Units of bare times.

    Raises
    ------
    InstanceError
        If the document has no well-formed pattern. The verifier checks completeness and timing.
    """
    period, listed = read_period(document, units, "runs and copies")
    reader = _Reader(graph, machine, period, units)
    turns = tuple(reader.read(entry, f"$.pattern[{k}]") for k, entry in enumerate(listed))
    found = {turn.sample for turn in turns}
    missing = next((sample for sample in range(max(found)) if sample not in found), None)
    if missing is not None:
        raise InstanceError(
            f"sample {missing} of the {max(found) + 1} samples of a period has no operations", "$.pattern"
        )
    return ModuloSchedule(graph, period, turns, read_initial(document, graph, machine) or ())


def read_period(document: dict[str, Any], units: Units, entries: str) -> tuple[Number, list[Any]]:
    """Read the period and the list of entries of a pattern."""
    period = _read_time(document.get("period"), units, "$.period")
    if period <= 0:
        raise InstanceError("a period is longer than 0", "$.period")
    listed = document.get("pattern")
    if not isinstance(listed, list) or not listed:
        raise InstanceError(f"expected a list of {entries}, each with its start and its shift", "$.pattern")
    return period, listed


def read_start(entry: dict[str, Any], period: Number, units: Units, path: str) -> tuple[Number, int]:
    """Read the start and the shift of an entry of a pattern."""
    start, shift = _read_time(entry["start"], units, f"{path}.start"), entry["shift"]
    if start >= period:
        raise InstanceError(f"starts at {start}, and the period is {period}: later periods are shifts", f"{path}.start")
    if type(shift) is not int or not 0 <= shift <= MOST_SHIFTS:
        raise InstanceError(f"a shift is a whole number of periods, 0 to {MOST_SHIFTS:,}", f"{path}.shift")
    return start, shift


def _read_time(value: object, units: Units, path: str) -> Number:
    try:
        return parse_time(value, units, largest=LARGEST_TOTAL)
    except ValueError as error:
        raise InstanceError(str(error), path) from None


@dataclass(frozen=True)
class _Reader:
    graph: TaskGraph
    machine: Machine
    period: Number
    units: Units

    def read(self, entry: object, path: str) -> Turn:
        """Read one entry."""
        keys = entry.keys() - {"sample"} if isinstance(entry, dict) else set[str]()
        if isinstance(entry, dict) and keys == {"run", "on", "start", "shift"}:
            task = self._index(self.graph.tasks, entry["run"], "task", f"{path}.run")
            on = entry["on"]
            if not isinstance(on, list) or len(on) != 1:
                raise InstanceError("expected a list of one processor", f"{path}.on")
            processors = [processor.name for processor in self.machine.processors]
            processor = self._index(processors, on[0], "processor", f"{path}.on[0]")
            return Turn(StepKind.RUN, task, *self._when(entry, path), on=processor)
        if isinstance(entry, dict) and keys == {"copy", "from", "to", "start", "shift"}:
            value = self._index(self.graph.values, entry["copy"], "value", f"{path}.copy")
            memories = [memory.name for memory in self.machine.memories]
            ends = (self._index(memories, entry[key], "memory", f"{path}.{key}") for key in ("from", "to"))
            source, target = ends
            return Turn(StepKind.COPY, value, *self._when(entry, path), source=source, target=target)
        raise InstanceError(
            "expected an object with the keys run and on, or copy, from and to; and start, shift, and sample if not 0",
            path,
        )

    @staticmethod
    def _index(names: Sequence[str], name: object, what: str, path: str) -> int:
        found = None
        if isinstance(name, str):
            find = getattr(names, "find", None)
            found = find(name) if find is not None else (names.index(name) if name in names else None)
        if found is None:
            raise InstanceError(f"unknown {what} {brief(name)}", path)
        return int(found)

    def _when(self, entry: dict[str, Any], path: str) -> tuple[Number, int, int]:
        start, shift = read_start(entry, self.period, self.units, path)
        sample = entry.get("sample", 0)
        if type(sample) is not int or not 0 <= sample < MOST_SAMPLES:
            raise InstanceError(f"a sample of a period is a whole number, 0 to {MOST_SAMPLES - 1:,}", f"{path}.sample")
        return start, shift, sample
