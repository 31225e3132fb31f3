"""Tasks and values of a graph, as models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from remat.instance.base import Text
from remat.instance.fields import (
    LONGEST_NAME,
    Count,
    EnergyByType,
    Flag,
    Many,
    Model,
    Name,
    Ratio,
    Size,
    TimeByType,
    fail,
)
from remat.messages import brief
from remat.units import LARGEST_SIZE, Number

Names = Annotated[tuple[Name, ...], Many]
Label = Annotated[str, Field(strict=True, max_length=LONGEST_NAME)]

MOST_DIMENSIONS = 64


def _shape(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise fail(f"expected a list of whole numbers, not {brief(value)}")
    if len(value) > MOST_DIMENSIONS:
        raise fail(f"{len(value):,} dimensions; at most {MOST_DIMENSIONS} are allowed")
    for index, extent in enumerate(value):
        if type(extent) is not int or not 0 <= extent <= LARGEST_SIZE:
            raise fail(f"expected a whole number from 0 to 2^62, not {brief(extent)}", f"[{index}]")
    return tuple(value)


def _listed(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else list(shape)


_SHAPE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {
            "type": "array",
            "maxItems": MOST_DIMENSIONS,
            "items": {"type": "integer", "minimum": 0, "maximum": LARGEST_SIZE},
        },
        {"type": "null"},
    ]
}
Shape = Annotated[
    tuple[int, ...] | None,
    PlainValidator(_shape),
    PlainSerializer(_listed),
    WithJsonSchema(_SHAPE_SCHEMA),
]


class Value(Model):
    """A value, which occupies memory while it is resident."""

    since_3 = frozenset(["ratio", "shape", "dtype"])
    id: Name = Field(description="Name, unique among the values.")
    size: Size = Field(description="Bytes that the value occupies while it is resident.")
    ratio: Ratio | None = Field(
        default=None,
        description="Bytes that a link with `ratio` or `codec` sends per byte of the value; null: the ratio of the "
        "link (remat.instance/3).",
    )
    shape: Shape = Field(default=None, description="Extents of the tensor, for people; null: unknown.")
    dtype: Label = Field(default="", description="Type of the elements, for people.")


class Origin(Model):
    """Source of a task in a program; tables show the module after the task's name."""

    module: Label = Field(default="", description="Part of the program, such as layer3.5.conv2.")
    op: Label = Field(default="", description="Operator, such as aten.convolution.")
    source: Label = Field(default="", description="Line of the source code, such as model.py:12.")


def _alpha(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) or hasattr(value, "is_finite") else -1.0  # type: ignore[arg-type]
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise fail(f"expected a number between 0 and 1, not {brief(value)}")
    return number


class Parallel(Model):
    """Rule for runs on p <= `max` processors of one memory, which take time / p^alpha."""

    max: Count = Field(description="Maximum number of processors of one run.")
    alpha: Annotated[float, PlainValidator(_alpha), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})] = (
        Field(default=1.0, description="Exponent of the speed-up: p processors are p^alpha times as fast.")
    )


NOWHERE = Origin.model_construct()

MOST_PARTS = 256


class Part(Model):
    """Part of a collective in one memory; part i uses the memory of the i-th processor of the run."""

    reads: Names = Field(default=(), description="Values that must be resident in this memory.")
    writes: Names = Field(
        default=(),
        description="Values that the part writes in this memory; other parts may write the same values elsewhere.",
    )
    memory: Name | None = Field(default=None, description="Name of the memory; null: any memory without another part.")


class Task(Model):
    """A task; with `size` instead of `writes`, it writes one value with the task's name."""

    since_3 = frozenset(["origin", "on", "parts", "busy", "energy"])
    id: Name = Field(description="Name, unique among the tasks.")
    time: TimeByType = Field(
        description="Time of one run on one processor, or an object with one time per processor type; other "
        "types cannot run it (remat.instance/3)."
    )
    energy: EnergyByType = Field(
        default=0,
        description="Energy of one run, or an object with one energy per processor type; all energies have one "
        "unit (remat.instance/3).",
    )
    reads: Names = Field(default=(), description="Values that must be resident during the run.")
    writes: Names | None = Field(
        default=None,
        description="Values that each run writes; several tasks that write one value are alternatives.",
    )
    size: Size | None = Field(
        default=None, description="Bytes of the only output, which has the task's name; replaces `writes`."
    )
    workspace: Size = Field(default=0, description="Additional bytes during the run.")
    in_place: Flag = Field(
        default=False,
        description="Whether outputs may overwrite inputs that are freed at the end of the run.",
    )
    required: Flag = Field(
        default=True,
        description="Whether the task runs at least once.",
    )
    recomputable: Flag = Field(default=True, description="Whether the task may run more than once.")
    once: Flag = Field(default=False, description="Whether the task runs exactly once, like a parameter update.")
    phase: Text = Field(
        default="",
        description="Phase (forward, loss or backward), for pictures and for algorithms that choose what the "
        "forward pass keeps.",
    )
    parallel: Parallel | None = Field(
        default=None, description="Rule for a run on several processors; null: one processor."
    )
    on: Annotated[tuple[Name, ...], Field(min_length=1), Many] | None = Field(
        default=None, description="Processors that may run the task; null: any (remat.instance/3)."
    )
    parts: Annotated[tuple[Part, ...], Field(min_length=1, max_length=MOST_PARTS), Many] | None = Field(
        default=None,
        description="Parts of a collective, one per memory, instead of reads, writes and size; it occupies the "
        "links from each part to the next, and back to the first (remat.instance/3).",
    )
    busy: Flag = Field(
        default=False, description="Whether a collective also occupies its processors (remat.instance/3)."
    )
    origin: Origin = Field(default=NOWHERE, description="Source of the task, for people.")

    def newer_keys(self, schema: int) -> frozenset[str]:
        """Times by type also need `remat.instance/3`."""
        by_type = frozenset(["time"]) if schema == 3 and isinstance(self.time, dict) else frozenset[str]()
        return super().newer_keys(schema) | by_type

    def time_on(self, type_name: str) -> Number | None:
        """Return the task's time on a processor of a type; None if it cannot run there."""
        return self.time.get(type_name) if isinstance(self.time, dict) else self.time

    def energy_on(self, type_name: str) -> Number:
        """Return the energy of a run on a processor of a type; 0 if the task cannot run there."""
        return self.energy.get(type_name, 0) if isinstance(self.energy, dict) else self.energy

    @property
    def written(self) -> tuple[str, ...]:
        """The values that the task writes."""
        if self.parts is not None:
            return tuple(dict.fromkeys(name for part in self.parts for name in part.writes))
        return (self.id,) if self.writes is None else self.writes

    @property
    def read(self) -> tuple[str, ...]:
        """The values that the task reads."""
        if self.parts is not None:
            return tuple(dict.fromkeys(name for part in self.parts for name in part.reads))
        return self.reads
