"""Kind `adjoint`: a time-stepping adjoint in Griewank and Walther's n-step convention."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator, TypeAdapter, WithJsonSchema, model_validator

from remat.instance.base import BaseInstance
from remat.instance.fields import Bandwidth, LazySchema, Many, Model, Name, Size, Time, check_total, fail
from remat.messages import brief

MOST_STEPS = 10**9
_LIVE = "live"


class Step(Model):
    """One step of a time loop; omitted fields are those of the instance."""

    forward_time: Time | None = None
    backward_time: Time | None = None
    state_size: Size | None = None
    adjoint_size: Size | None = None
    tape_size: Size | None = None
    tape_time: Time | None = None


_STEPS: TypeAdapter[tuple[Step, ...]] = TypeAdapter(
    Annotated[tuple[Step, ...], Many], config=ConfigDict(defer_build=True)
)


def _steps(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        raise fail(f"expected a number of steps or a list of steps, not {brief(value)}")
    if isinstance(value, int):
        if not 1 <= value <= MOST_STEPS:
            shown = value if abs(value) < 10**30 else "a number of more than 30 digits"
            raise fail(f"{shown} is out of range; the number of steps lies between 1 and {MOST_STEPS:,}")
        return value
    if not value:
        raise fail("the list of steps is empty; an adjoint has at least one step")
    return _STEPS.validate_python(value)


def _steps_schema() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 1, "maximum": MOST_STEPS}
    return {"anyOf": [number, {"type": "array", "minItems": 1, "items": Step.model_json_schema()}]}


def _slots(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STEPS:
        raise fail(f"expected a number of slots between 0 and {MOST_STEPS:,}, not {brief(value)}")
    return value


class StorageLevel(Model):
    """A level of checkpoint storage: `capacity` as a size, or `slots` of the largest state.

    `write_time` and `read_time` are per checkpoint; `bandwidth` adds size/bandwidth in both directions. By default,
    transfers occupy the processor; with a separate `channel`, they overlap with computation.
    """

    name: Name = Field(description="Name of the memory.")
    capacity: Size | None = Field(default=None, description="Capacity in bytes; null: `slots`, or unbounded.")
    slots: Annotated[
        int | None, PlainValidator(_slots), WithJsonSchema({"type": ["integer", "null"], "minimum": 0})
    ] = Field(default=None, description="Capacity as a number of the largest states.")
    write_time: Time = Field(default=0, description="Time to write a checkpoint, besides its size / bandwidth.")
    read_time: Time = Field(default=0, description="Time to read a checkpoint, besides its size / bandwidth.")
    bandwidth: Bandwidth = Field(default=None, description="Bytes per unit of time in each direction; null: unlimited.")
    channel: Name | None = Field(
        default=None,
        description="Channel of the transfers, which then overlap with computation; null: they occupy the processor.",
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if self.capacity is not None and self.slots is not None:
            raise fail(f"storage level {self.name!r} gives both capacity and slots; give one of them")
        return self


class AdjointInstance(BaseInstance):
    """n steps of a time loop and their adjoint."""

    kind: Literal["adjoint"] = Field(default="adjoint", description="Kind of the instance.")
    steps: Annotated[
        int | tuple[Step, ...],
        PlainValidator(_steps),
        PlainSerializer(lambda steps: steps),  # the union's own serializer would not recognise the validated steps
        LazySchema(_steps_schema),
    ] = Field(description="Number of steps, or a list of steps.")
    forward_time: Time = Field(default=1, description="Time of the forward of a step, unless the step gives its own.")
    backward_time: Time = Field(default=1, description="Time of the backward of a step, unless the step gives its own.")
    state_size: Size = Field(default=1, description="Bytes of a state, unless the step gives its own.")
    adjoint_size: Size | None = Field(default=None, description="Bytes of an adjoint; null: as the state.")
    storage: Annotated[tuple[StorageLevel, ...], Many] = Field(
        default=(), description="Storage levels for states, from fast to slow."
    )
    initial_state: Name = Field(
        default=_LIVE, description="Storage level that also holds the first state at the start, or `live` for none."
    )
    tape_size: Size | None = Field(
        default=None, description="Bytes that the backward of a step reads from its saving forward; null: no tape."
    )
    tape_time: Time | None = Field(
        default=None, description="Time of the forward that writes the tape; null: as the forward."
    )

    @property
    def length(self) -> int:
        """Number of steps."""
        return self.steps if isinstance(self.steps, int) else len(self.steps)

    @property
    def is_chain(self) -> bool:
        """An adjoint is a chain of steps."""
        return True

    @property
    def largest_state(self) -> int:
        """Bytes of the largest state of any step."""
        if isinstance(self.steps, int):
            return self.state_size
        return max(self.state_size if step.state_size is None else step.state_size for step in self.steps)

    @property
    def has_storage(self) -> bool:
        """Whether storage levels are listed."""
        return bool(self.storage)

    @property
    def has_states(self) -> bool:
        """Storage holds states."""
        return True

    @property
    def has_equal_steps(self) -> bool:
        """Whether the steps are given only by their number."""
        return isinstance(self.steps, int)

    @property
    def initial_level(self) -> str | None:
        """The storage level that also holds the initial state; None if only the working memory does."""
        return None if self.initial_state == _LIVE else self.initial_state

    @property
    def named_memories(self) -> frozenset[str]:
        """The storage level that holds the initial state, if any."""
        return frozenset() if self.initial_level is None else frozenset([self.initial_level])

    @property
    def taped(self) -> bool:
        """Whether a step's tape can be stored (a `tape_size` is given)."""
        if self.tape_size is not None:
            return True
        return not isinstance(self.steps, int) and any(step.tape_size is not None for step in self.steps)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        levels = [level.name for level in self.storage]
        if len({*levels, "working"}) <= len(levels):
            raise fail("storage levels need different names, other than 'working'", ".storage")
        if self.storage and self.machine is not None:
            raise fail("give either storage or machine: the machine is built from the storage", ".machine")
        if self.initial_state != _LIVE and self.initial_state not in levels:
            known = ", ".join(repr(name) for name in [_LIVE, *levels])
            raise fail(f"unknown level {self.initial_state!r}; it is one of {known}", ".initial_state")
        steps = () if isinstance(self.steps, int) else self.steps
        if self.taped and self.tape_size is None:
            for index, step in enumerate(steps):
                if step.tape_size is None:
                    raise fail("some steps give a tape_size and this one does not", f".steps[{index}].tape_size")
        check_total(self._total_size(steps), "the sizes of the adjoint")
        return self

    def _total_size(self, steps: tuple[Step, ...]) -> int:
        adjoint = self.state_size if self.adjoint_size is None else self.adjoint_size
        per_step = self.state_size + adjoint + (self.tape_size or 0)
        if not steps:
            return self.static_memory + (self.length + 1) * per_step
        total = self.static_memory + per_step
        for step in steps:
            state = self.state_size if step.state_size is None else step.state_size
            own_adjoint = step.adjoint_size
            if own_adjoint is None:
                own_adjoint = state if self.adjoint_size is None else self.adjoint_size
            total += state + own_adjoint + (step.tape_size or self.tape_size or 0)
        return total
