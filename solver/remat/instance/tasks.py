"""Tasks and values of a graph, as models."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from remat.instance.base import Text
from remat.instance.fields import LONGEST_NAME, Count, EnergyByType, Flag, Many, Model, Name, Size, TimeByType, fail
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
    """Something that occupies memory while it is resident."""

    since_3 = frozenset(["shape", "dtype"])
    id: Name = Field(description="Its name, unique among the values.")
    size: Size = Field(description="Bytes that it occupies while it is resident.")
    shape: Shape = Field(default=None, description="Its extents, for people; null: not known.")
    dtype: Label = Field(default="", description="Type of its elements, for people.")


class Origin(Model):
    """The place of a task in the user's program; views show the module next to the task's name."""

    module: Label = Field(default="", description="The part of the program, such as layer3.5.conv2.")
    op: Label = Field(default="", description="The operator, such as aten.convolution.")
    source: Label = Field(default="", description="The place in the source, such as model.py:12.")


def _alpha(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) or hasattr(value, "is_finite") else -1.0  # type: ignore[arg-type]
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise fail(f"expected a number between 0 and 1, not {brief(value)}")
    return number


class Parallel(Model):
    """On p <= `max` processors of one memory the task takes time / p^alpha."""

    max: Count = Field(description="Most processors for one run.")
    alpha: Annotated[float, PlainValidator(_alpha), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})] = (
        Field(default=1.0, description="1: p processors are p times as fast; 0: no faster than one.")
    )


NOWHERE = Origin.model_construct()

MOST_PARTS = 256


class Part(Model):
    """The part of a collective in one memory: part i is in the memory of the i-th processor of its run."""

    reads: Names = Field(default=(), description="Values that must be resident in that memory.")
    writes: Names = Field(default=(), description="Values that it makes there; others may make them elsewhere.")
    memory: Name | None = Field(default=None, description="The memory; null: any that no other part is in.")


class Task(Model):
    """A task; with `size` instead of `writes`, it writes one value with the task's name."""

    since_3 = frozenset(["origin", "on", "parts", "busy", "energy"])
    id: Name = Field(description="Its name, unique among the tasks.")
    time: TimeByType = Field(
        description="Time of one run, on one processor. An object, type of processor -> time (remat.instance/3): it "
        "cannot run on other types."
    )
    energy: EnergyByType = Field(
        default=0,
        description="Energy of one run, in any one unit. An object, type of processor -> energy: of a run on a "
        "processor of that type. Needs remat.instance/3.",
    )
    reads: Names = Field(default=(), description="Values that must be resident while it runs.")
    writes: Names | None = Field(
        default=None,
        description="Values that each run makes, all of them. Several tasks may write one value: alternatives.",
    )
    size: Size | None = Field(
        default=None, description="Instead of writes: it writes one value of this size, which has the task's name."
    )
    workspace: Size = Field(
        default=0, description="Bytes that it needs beside what it reads and writes, while it runs."
    )
    in_place: Flag = Field(
        default=False,
        description="What it writes may take the place of values that it reads and that are freed at its end.",
    )
    required: Flag = Field(
        default=True,
        description="Runs at least once. False: it need not run, unless only it makes a value that is wanted.",
    )
    recomputable: Flag = Field(default=True, description="May run more than once.")
    once: Flag = Field(default=False, description="Runs exactly once, as an update of parameters does.")
    phase: Text = Field(
        default="",
        description="forward, loss or backward: for pictures, and algorithms that choose what the forward pass keeps. "
        "Other texts mean nothing.",
    )
    parallel: Parallel | None = Field(default=None, description="How it may run on several processors; null: on one.")
    on: Annotated[tuple[Name, ...], Field(min_length=1), Many] | None = Field(
        default=None, description="Names of the processors on which it may run; null: any. Needs remat.instance/3."
    )
    parts: Annotated[tuple[Part, ...], Field(min_length=1, max_length=MOST_PARTS), Many] | None = Field(
        default=None,
        description="Instead of reads, writes and size: a collective, which runs in as many memories at once. It "
        "occupies the links from each to the next, and from the last to the first. Needs remat.instance/3.",
    )
    busy: Flag = Field(
        default=False, description="A collective occupies the processors of its run, too. Needs remat.instance/3."
    )
    origin: Origin = Field(default=NOWHERE, description="Where it comes from, for people.")

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
