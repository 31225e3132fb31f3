"""Modulo schedules of a pipeline whose parameters change, as documents list them: operations of stages.

A *beat* is an operation of a stage, or the transfer of its output to the stage that reads it. It has a start within
the period, and a shift: micro-batch m executes it in period ``shift + m``, at ``start + (shift + m) * period``.
Placement turns beats into the turns of a `ModuloSchedule`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from remat.errors import InstanceError
from remat.graph.machine import Machine
from remat.messages import brief
from remat.schedule.modulo import ModuloSchedule, as_documented, folded, read_period, read_start
from remat.schedule.orders import Phase, Stage, read_stages, stages_document
from remat.units import Number, Units

ROUNDING = 2.0**-38
"""Rounding tolerance of start times, as a share of the period."""


class Beat(NamedTuple):
    """An operation of a stage (F, B, W, or BW: both halves together), or the transfer of its output.

    `shift` counts whole periods: the beat of micro-batch m starts at ``start + (shift + m) * period``.
    """

    phase: Phase
    stage: int
    start: Number
    shift: int
    is_copy: bool = False

    @classmethod
    def at(cls, phase: Phase, stage: int, time: Number, period: Number, *, is_copy: bool = False) -> Beat:
        """Return the beat that begins at a time for micro-batch 0."""
        return cls(phase, stage, *folded(time, period, ROUNDING), is_copy)

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return f"{self.phase.name}{self.stage}"

    def __str__(self) -> str:
        return f"copy of {self.operation}" if self.is_copy else self.operation


@dataclass(frozen=True)
class Pattern:
    """Beats of every micro-batch, and the period between micro-batches.

    Attributes
    ----------
    stages : tuple of Stage
        Each layer is in exactly one stage; a device may have several stages.
    period : int or float
    beats : tuple of Beat
        Every operation of every stage once, and every transfer from one device to another.
    versions : tuple of int, or None
        Number of parameter versions that each stage keeps; None: as many as needed.
    """

    stages: tuple[Stage, ...]
    period: Number
    beats: tuple[Beat, ...]
    versions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        period, beats = as_documented(self.period, self.beats)
        object.__setattr__(self, "period", period)
        object.__setattr__(self, "beats", beats)

    def __len__(self) -> int:
        return len(self.beats)

    def start_of(self, beat: Beat) -> Number:
        """Return the start time for micro-batch 0."""
        return beat.start + beat.shift * self.period

    def to_document(self, machine: Machine) -> dict[str, Any]:
        """Return the keys `stages`, `period` and `pattern` of a `remat.schedule/2` document."""
        stages = stages_document(self.stages, [processor.name for processor in machine.processors])
        if self.versions is not None:
            for stage, versions in zip(stages, self.versions, strict=True):
                stage["versions"] = versions
        pattern = [
            {"copy" if beat.is_copy else "run": beat.operation, "start": beat.start, "shift": beat.shift}
            for beat in self.beats
        ]
        return {"stages": stages, "period": self.period, "pattern": pattern}


PeriodicSchedule = Pattern | ModuloSchedule
"""The forms of a modulo schedule in documents: of stages or of samples."""

_OPERATION = re.compile(r"(BW|F|B|W)(0|[1-9][0-9]{0,8})")


def read_pattern(document: dict[str, Any], devices: Sequence[str], layers: int, units: Units) -> Pattern:
    """Read `stages`, `period` and `pattern` of a schedule document.

    Parameters
    ----------
    document : dict
        The schedule document.
    devices : sequence of str
        Names of the machine's processors.
    layers : int
        Number of layers of the instance.
    units : Units
        Units of bare times.

    Raises
    ------
    InstanceError
        If the document has no well-formed pattern. The verifier checks completeness and timing.
    """
    stages, versions = read_stages(document.get("stages"), devices, layers)
    for index, stage in enumerate(stages):
        if stage.tensor > 1:
            text = "in a pattern, each device runs its layers alone"
            raise InstanceError(text, f"$.stages[{index}].tensor")
    if any(stage.recompute for stage in stages):
        raise InstanceError("a plan without end runs everything once; recompute is for orders", "$.stages")
    period, listed = read_period(document, units, "operations")
    beats = tuple(_read_beat(entry, len(stages), period, units, f"$.pattern[{k}]") for k, entry in enumerate(listed))
    return Pattern(stages, period, beats, versions)


def _read_beat(entry: object, stages: int, period: Number, units: Units, path: str) -> Beat:
    keys = entry.keys() if isinstance(entry, dict) else set()
    if not isinstance(entry, dict) or keys not in ({"run", "start", "shift"}, {"copy", "start", "shift"}):
        raise InstanceError("expected an object with the keys run or copy, start, and shift", path)
    is_copy = "copy" in entry
    name = entry["copy" if is_copy else "run"]
    found = _OPERATION.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InstanceError(f"{brief(name)} is not an operation such as F2 (F, B, W or BW; stage)", path)
    phase, stage = Phase[found[1]], int(found[2])
    if stage >= stages:
        raise InstanceError(f"{name}: there are {stages} stages, counted from 0", path)
    return Beat(phase, stage, *read_start(entry, period, units, path), is_copy)
