"""Kind `chain`: the forward/backward chain of a network."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.instance.base import BaseInstance, Text
from remat.instance.fields import LARGEST_COUNT, Count, Flag, Model, Size, Time, check_total, fail
from remat.units import Number

Read = Literal["input", "output", "saved"]
Reads = Annotated[tuple[Read, ...], Field(max_length=3)]
ALL_READS: tuple[Read, ...] = ("input", "output", "saved")
MOST_VARIANTS = 1000


class Variant(Model):
    """One way to run a stage's saving forward and its backward; what is left out is the stage's own."""

    name: Text = ""
    saving_forward_time: Time | None = None
    backward_time: Time | None = None
    saved_size: Size | None = None
    saving_workspace: Size | None = None
    backward_workspace: Size | None = None
    backward_reads: Reads | None = None


class Stage(Model):
    """One stage of a chain (or `repeat` equal ones).

    `saved_size` is what the backward needs beyond the stage's input and output. `saving_workspace` and
    `saving_forward_time` belong to the forward that saves, and default to the plain forward's. Where `variants` are
    listed, they are the stage's alternatives (all of them), the first one the default.
    """

    name: Text = ""
    forward_time: Time
    backward_time: Time
    output_size: Size
    saved_size: Size = 0
    forward_workspace: Size = 0
    saving_workspace: Size | None = None
    saving_forward_time: Time | None = None
    backward_workspace: Size = 0
    gradient_size: Size | None = None
    backward_reads: Reads | None = None
    variants: Annotated[tuple[Variant, ...], Field(max_length=MOST_VARIANTS)] = ()
    repeat: Count = 1

    @property
    def alternatives(self) -> tuple[Stage, ...]:
        """The variants as stages without variants; the stage itself where it lists none."""
        if not self.variants:
            return (self,)
        return tuple(
            self.model_copy(
                update={key: value for key in _OF_VARIANTS if (value := getattr(variant, key)) is not None}
                | {"variants": ()}
            )
            for variant in self.variants
        )

    @property
    def saving_time(self) -> Number:
        """Time of the forward that saves."""
        return self.forward_time if self.saving_forward_time is None else self.saving_forward_time

    @property
    def saving_bytes(self) -> int:
        """Workspace of the forward that saves."""
        return self.forward_workspace if self.saving_workspace is None else self.saving_workspace


_OF_VARIANTS = tuple(key for key in Variant.model_fields if key != "name")


class Loss(Model):
    """The loss between the last forward and the first backward."""

    time: Time = 0
    workspace: Size = 0


class ChainInstance(BaseInstance):
    """A chain of stages, each with a forward and a backward."""

    kind: Literal["chain"] = "chain"
    input_size: Size
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    loss: Loss = Loss()
    in_place: Flag = False
    backward_reads: Reads = ALL_READS
    input_gradient: Flag = True

    @property
    def length(self) -> int:
        """Number of stages, repeats counted."""
        return sum(stage.repeat for stage in self.stages)

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.length > LARGEST_COUNT:
            raise fail(f"{self.length:,} stages with repeats; at most {LARGEST_COUNT:,} are allowed", ".stages")
        variants = sum(stage.repeat * max(1, len(stage.variants)) for stage in self.stages)
        if variants > LARGEST_COUNT:
            raise fail(f"{variants:,} variants with repeats; at most {LARGEST_COUNT:,} are allowed", ".stages")
        total = self.static_memory + 2 * self.input_size + self.loss.workspace
        for stage in self.stages:
            gradient = stage.output_size if stage.gradient_size is None else stage.gradient_size
            alternatives = sum(
                other.saved_size + other.saving_bytes + other.backward_workspace for other in stage.alternatives
            )
            total += stage.repeat * (stage.output_size + gradient + stage.forward_workspace + alternatives)
        check_total(total, "the sizes of the chain")
        return self
