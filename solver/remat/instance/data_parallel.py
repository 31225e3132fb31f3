"""Sharded states: how data-parallel ranks divide parameters, gradients and optimizer states."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from remat.instance.fields import Count, Flag, Model, Size, fail
from remat.messages import brief

LARGEST_STAGE = 3


def _stage(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_STAGE:
        raise fail(f"expected a level of ZeRO, 0 to {LARGEST_STAGE}, not {brief(value)}")
    return value


_STAGE_SCHEMA: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": LARGEST_STAGE}
ZeroStage = Annotated[int, PlainValidator(_stage), WithJsonSchema(_STAGE_SCHEMA)]


class RanksModel(Model):
    """`data` equal ranks, of which one is modelled, and the data that they partition.

    The stages of ZeRO (Rajbhandari et al. 2020): stage 0 partitions nothing and sums gradients over all ranks; stage 1
    partitions the optimizer states, stage 2 also the gradients, stage 3 also the parameters.
    """

    data: Count = Field(description="Number of ranks that share the batch.")
    zero: ZeroStage = Field(
        default=0,
        description="Level of ZeRO: ranks share nothing (0), optimizer states (1), also gradients (2), also "
        "parameters (3).",
    )

    @model_validator(mode="after")
    def _among_several(self) -> Self:
        if self.zero and self.data == 1:
            raise fail(f"level {self.zero} of ZeRO partitions states over several ranks, but there is one", ".data")
        return self

    @property
    def shares_gradients(self) -> bool:
        """Whether each rank has only a share of the gradients."""
        return self.zero > 1

    def shares(self, parameters: int, gradients: int, states: int) -> tuple[int, int, int]:
        """Return a rank's bytes of a stage's parameters, their gradients and the optimizer states.

        The sum of the shared bytes is rounded up once.
        """
        found: list[int] = []
        together = 0
        kinds = ((self.zero > 2, parameters), (self.shares_gradients, gradients), (self.zero > 0, states))
        for is_shared, size in kinds:
            if not is_shared:
                found.append(size)
                continue
            found.append(self.share(together + size) - self.share(together))
            together += size
        return found[0], found[1], found[2]

    def share(self, size: int) -> int:
        """Return a rank's share of a number of bytes, rounded up."""
        return -(-size // self.data)

    def sent(self, size: int) -> int:
        """Return the bytes that each rank sends in an all-gather or a reduce-scatter of `size` bytes."""
        return size - size // self.data


class ShardingModel(RanksModel):
    """Ranks that train a chain."""

    bucket: Size = Field(
        default=0,
        description="Bytes at which gradients of neighbouring stages are exchanged together; 0: each stage alone.",
    )


class PipelineSharding(RanksModel):
    """Ranks that each have a pipeline and train on separate micro-batches."""

    keep: Flag = Field(
        default=False,
        description="Whether each layer is gathered, and its gradients reduced, once per step instead of per "
        "micro-batch.",
    )

    @property
    def shares_gradients(self) -> bool:
        """Whether each rank has only a share of the gradients."""
        return self.zero > 1 and not self.keep

    @property
    def gathers_each(self) -> bool:
        """Whether each use of a layer first gathers its parameters."""
        return self.zero > 2 and not self.keep

    @model_validator(mode="after")
    def _keeps_something(self) -> Self:
        if self.keep and self.zero < 2:
            raise fail(f"level {self.zero} of ZeRO gathers and reduces once a step anyway", ".keep")
        return self
