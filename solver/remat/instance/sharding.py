"""Sharded states: how equal ranks that train on parts of a batch share parameters, gradients and optimizer states."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from remat.instance.fields import Count, Flag, Model, Size, fail
from remat.units import brief

LARGEST_STAGE = 3


def _stage(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_STAGE:
        raise fail(f"expected a stage of ZeRO, 0 to {LARGEST_STAGE}, not {brief(value)}")
    return value


_STAGE_SCHEMA: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": LARGEST_STAGE}
ZeroStage = Annotated[int, PlainValidator(_stage), WithJsonSchema(_STAGE_SCHEMA)]


class ShardingModel(Model):
    """`data` equal ranks, of which one is modelled, and what they share out among them.

    The stages of ZeRO (Rajbhandari et al. 2020): 0, nothing, and gradients are added up over all ranks; from 1 on each
    rank has a share of the optimizer's states, from 2 on of the gradients, from 3 on of the parameters.
    """

    data: Count = Field(description="How many ranks share the batch.")
    zero: ZeroStage = Field(default=0, description="Stage of ZeRO: what each rank has a share of.")
    bucket: Size = Field(
        default=0,
        description="Gradients of neighbouring stages are exchanged together, once they have as many bytes; 0: each.",
    )

    @model_validator(mode="after")
    def _among_several(self) -> Self:
        if self.zero and self.data == 1:
            raise fail(f"stage {self.zero} of ZeRO shares states out among several ranks, and there is one", ".data")
        return self

    def shares(self, parameters: int, gradients: int, states: int) -> tuple[int, int, int]:
        """Return what a rank has of a stage's parameters, their gradients and the optimizer's states, in bytes.

        What is shared out is rounded up once, all together.
        """
        found: list[int] = []
        together = 0
        for since, size in ((3, parameters), (2, gradients), (1, states)):
            if self.zero < since:
                found.append(size)
                continue
            found.append(self.share(together + size) - self.share(together))
            together += size
        return found[0], found[1], found[2]

    def share(self, size: int) -> int:
        """Return a rank's share of so many bytes, rounded up."""
        return -(-size // self.data)

    def sent(self, size: int) -> int:
        """Return what each rank sends where all gather so many bytes, or reduce them to a share each."""
        return size - size // self.data


class PipelineSharding(ShardingModel):
    """As of a chain; a pipeline has micro-batches, too."""

    keep: Flag = Field(
        default=False,
        description="Gathered parameters and whole sums of gradients stay for the step: each layer is gathered, and its "
        "gradients reduced, once a step, and not for each micro-batch.",
    )
