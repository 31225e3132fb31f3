"""Layers of a pipeline: their work on one micro-batch, and their resident parameters and states."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from remat.instance.base import Text
from remat.instance.chain import Reads
from remat.instance.fields import Count, Model, Size, Time, TimeByType
from remat.units import Number

PREVIOUS = "previous"
"""Name of the preceding layer in `reads`."""

OF_FORWARDS = frozenset(
    ["name", "reads", "repeat", "forward_time", "output_size", "forward_workspace", "parameter_size"]
)
"""Fields of a layer about its forward and its resident parameters."""

MOST_DEGREES = 16

PHASE_TIMES = ("forward_time", "backward_time", "weight_time")


class LayerWork(Model):
    """Times and sizes of a layer for one micro-batch.

    With `weight_time`, the backward has two halves: `backward_time` computes the gradient of the layer's input, and
    `weight_time`, at any later time, the gradient of its parameters. `weight_saved_size` is kept between the two
    halves. A time may be an object with one time for each device type; other types cannot run the layer.
    """

    forward_time: TimeByType = Field(description="Time of the forward of one micro-batch.")
    backward_time: TimeByType | None = Field(
        default=None,
        description="Time of its backward, or of the half that makes the input's gradient. Required, unless the "
        "pipeline's weights are fixed: then there are forwards only.",
    )
    weight_time: TimeByType = Field(default=0, description="Time of the half that makes the parameters' gradient.")
    paired_time: TimeByType | None = Field(
        default=None,
        description="Time of the forward of one micro-batch and the whole backward of another at once; null: the sum.",
    )
    output_size: Size = Field(default=0, description="Bytes of what the next layer reads.")
    saved_size: Size = Field(
        default=0, description="Bytes that the backward needs beyond the layer's input and output."
    )
    weight_saved_size: Size = Field(default=0, description="Bytes kept from `backward_time`'s half to the other.")
    gradient_size: Size | None = Field(default=None, description="Bytes of the output's gradient; null: as the output.")
    forward_workspace: Size = Field(default=0, description="Bytes used while the forward runs.")
    backward_workspace: Size = Field(default=0, description="Bytes used while a backward, or a half of it, runs.")

    @property
    def is_split(self) -> bool:
        """Whether the backward is split into two halves."""
        return self.weight_time != 0

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradient of the layer's output."""
        return self.output_size if self.gradient_size is None else self.gradient_size

    def time_on(self, phase: str, device: str) -> Number | None:
        """Return a time of the layer on a type of device; None if that type cannot run it."""
        time = getattr(self, phase)
        return time.get(device) if isinstance(time, dict) else time

    def spared_on(self, device: str) -> Number:
        """Return the time that a forward paired with a whole backward saves over both in sequence, on a type."""
        work, together = self.work_on(device), self.paired_on(device)
        return 0 if work is None or together is None else max(0, work - together)

    def paired_on(self, device: str) -> Number | None:
        """Return the time of a forward paired with a whole backward on a type of device, if given."""
        return self.paired_time.get(device) if isinstance(self.paired_time, dict) else self.paired_time

    def work_on(self, device: str) -> Number | None:
        """Return the time of forward and backward of one micro-batch on a type of device; None if it cannot run."""
        known = [time for phase in PHASE_TIMES if (time := self.time_on(phase, device)) is not None]
        return sum(known) if len(known) == len(PHASE_TIMES) else None


class TensorWork(LayerWork):
    """Times and sizes of one of several devices that run a layer together, each on a share of its tensors.

    Nothing is scaled: they are those of that device, for one whole micro-batch.
    """

    parameter_size: Size = Field(default=0, description="Bytes of its share of the parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes in which their gradients are added up; null: as the parameters."
    )
    optimizer_size: Size = Field(default=0, description="Bytes of its share of the optimizer's state.")
    update_time: Time = Field(
        default=0, description="Time in which a device updates its share of the parameters, at the end of a step."
    )
    forward_collective_size: Size = Field(
        default=0, description="Bytes that the devices add up, in a ring, in the course of each forward."
    )
    backward_collective_size: Size = Field(
        default=0, description="Bytes that the devices add up, in a ring, in the course of each backward."
    )

    @property
    def of_parameters(self) -> tuple[int, int, int]:
        """Bytes of the share's parameters, their gradients and the optimizer states."""
        gradients = self.parameter_gradient_size
        return self.parameter_size, self.parameter_size if gradients is None else gradients, self.optimizer_size


class Layer(LayerWork):
    """A layer (or `repeat` equal ones), with times and sizes of one micro-batch."""

    name: Text = Field(default="", description="What people call it.")
    reads: tuple[Text, ...] = Field(
        default=(PREVIOUS,),
        description='Whose outputs it reads: "previous", the layer before, or names of earlier layers; none: an input.',
    )
    backward_reads: Reads | None = Field(default=None, description="What the backward reads; null: as the instance.")
    parameter_size: Size = Field(default=0, description="Bytes of its parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes in which their gradients are added up; null: as the parameters."
    )
    bucket_size: Size | None = Field(
        default=None,
        description="Bytes in which a backward makes them, before they are added up, or reduced; null: as that.",
    )
    optimizer_size: Size = Field(default=0, description="Bytes of the optimizer's state.")
    update_time: Time = Field(
        default=0, description="Time in which a device updates its parameters, at the end of a step."
    )
    discrepancy_size: Size = Field(
        default=0,
        description="Bytes kept once beside the versions of its parameters, to correct for staleness or to predict.",
    )
    repeat: Count = Field(default=1, description="So many equal layers, one after the other.")
    tensor: Annotated[dict[str, TensorWork], Field(max_length=MOST_DEGREES)] = Field(
        default={},
        description='What one of 2, 4, ... devices has that run it together: an object "2" -> times and sizes.',
    )

    @property
    def parameter_gradient_bytes(self) -> int:
        """Bytes of the accumulated gradients of the layer's parameters."""
        return self.parameter_size if self.parameter_gradient_size is None else self.parameter_gradient_size

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the gradients that a backward writes before they are reduced."""
        return self.parameter_gradient_bytes if self.bucket_size is None else self.bucket_size

    @property
    def of_parameters(self) -> tuple[int, int, int]:
        """Bytes of one version of the parameters, of their gradients and of the optimizer states, on any device."""
        versions = self.parameter_size + self.discrepancy_size
        return versions, self.parameter_gradient_bytes, self.optimizer_size
