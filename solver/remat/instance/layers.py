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

    With a `weight_time`, the backward has two halves. The first one, of `backward_time`, writes the gradient of the
    layer's input. The second one runs at any later time and writes the gradient of the parameters. `weight_saved_size`
    is kept from the first to the second. A time may be an object with one time per device type; other types cannot run
    the layer.
    """

    forward_time: TimeByType = Field(description="Time of the forward of one micro-batch.")
    backward_time: TimeByType | None = Field(
        default=None,
        description="Time of the backward, or of its first half (gradient of the input); required, unless the "
        "weights are fixed.",
    )
    weight_time: TimeByType = Field(
        default=0, description="Time of the second half of the backward (gradient of the parameters); 0: no halves."
    )
    paired_time: TimeByType | None = Field(
        default=None,
        description="Time of a forward and the whole backward of another micro-batch at once; null: the sum.",
    )
    output_size: Size = Field(default=0, description="Bytes of the output, which later layers read.")
    saved_size: Size = Field(
        default=0, description="Bytes that the backward reads in addition to the layer's input and output."
    )
    weight_saved_size: Size = Field(
        default=0, description="Bytes kept from the first half of the backward to the second."
    )
    gradient_size: Size | None = Field(
        default=None, description="Bytes of the gradient of the output; null: as the output."
    )
    forward_workspace: Size = Field(default=0, description="Additional bytes during the forward.")
    backward_workspace: Size = Field(
        default=0, description="Additional bytes during the backward, or during each half."
    )

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

    They are those of this device for one whole micro-batch; nothing is scaled.
    """

    parameter_size: Size = Field(default=0, description="Bytes of the device's share of the parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes of the summed gradient of the parameters; null: as the parameters."
    )
    optimizer_size: Size = Field(default=0, description="Bytes of the device's share of the optimizer state.")
    update_time: Time = Field(default=0, description="Time of the update of the device's share, at the end of a step.")
    forward_collective_size: Size = Field(
        default=0, description="Bytes that the devices sum in a ring during each forward."
    )
    backward_collective_size: Size = Field(
        default=0, description="Bytes that the devices sum in a ring during each backward."
    )

    @property
    def of_parameters(self) -> tuple[int, int, int]:
        """Bytes of the share's parameters, their gradients and the optimizer states."""
        gradients = self.parameter_gradient_size
        return self.parameter_size, self.parameter_size if gradients is None else gradients, self.optimizer_size


class Layer(LayerWork):
    """A layer (or `repeat` equal ones), with times and sizes of one micro-batch."""

    name: Text = Field(default="", description="Name for people.")
    reads: tuple[Text, ...] = Field(
        default=(PREVIOUS,),
        description='Layers whose outputs it reads: "previous", or names of earlier layers; empty: a separate input.',
    )
    backward_reads: Reads | None = Field(
        default=None, description="Values that the backward reads in addition to the gradient; null: as the instance."
    )
    parameter_size: Size = Field(default=0, description="Bytes of the parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes of the summed gradient of the parameters; null: as the parameters."
    )
    bucket_size: Size | None = Field(
        default=None,
        description="Bytes of a gradient as a backward writes it, before it is summed or reduced; null: as the "
        "summed gradient.",
    )
    optimizer_size: Size = Field(default=0, description="Bytes of the optimizer state.")
    update_time: Time = Field(
        default=0, description="Time of the parameter update on one device, at the end of a step."
    )
    discrepancy_size: Size = Field(
        default=0,
        description="Bytes kept once, in addition to the versions of the parameters, for correction or prediction.",
    )
    repeat: Count = Field(default=1, description="Number of equal layers in a row.")
    tensor: Annotated[dict[str, TensorWork], Field(max_length=MOST_DEGREES)] = Field(
        default={},
        description="Times and sizes of one device if 2, 4, ... share the layer, by the number of devices.",
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
