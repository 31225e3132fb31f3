"""Kind `chain`: the forward/backward chain of a network."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.instance.base import BaseInstance, Text
from remat.instance.fields import LARGEST_COUNT, Count, Flag, Model, Size, Time, check_total, fail

Read = Literal["input", "output", "saved"]
Reads = Annotated[tuple[Read, ...], Field(max_length=3)]
ALL_READS: tuple[Read, ...] = ("input", "output", "saved")


class Stage(Model):
    """One stage of a chain (or `repeat` equal ones).

    `saved_size` is what the backward needs beyond the stage's input and output. `saving_workspace` and
    `saving_forward_time` belong to the forward that saves, and default to the plain forward's.
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
    repeat: Count = 1


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
        total = self.static_memory + 2 * self.input_size + self.loss.workspace
        for stage in self.stages:
            gradient = stage.output_size if stage.gradient_size is None else stage.gradient_size
            saving = stage.forward_workspace if stage.saving_workspace is None else stage.saving_workspace
            workspaces = stage.forward_workspace + saving + stage.backward_workspace
            total += stage.repeat * (stage.output_size + stage.saved_size + gradient + workspaces)
        check_total(total, "the sizes of the chain")
        return self
