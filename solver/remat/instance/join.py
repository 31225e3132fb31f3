"""Kind `join`: chains that meet in one loss, as in Siamese and cross-modal networks."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.instance.base import SCHEMA_3, BaseInstance, Text
from remat.instance.chain import ALL_READS, ChainInstance, Loss, Reads, Stage, sizes_of_stages
from remat.instance.fields import LARGEST_COUNT, Flag, Many, Model, Ratio, Size, check_total, fail
from remat.units import Number

MOST_CHAINS = 1000

_OF_PARAMETERS = ("parameter_size", "parameter_gradient_size", "optimizer_size", "update_time")


class Branch(Model):
    """One of the chains of a join, from its input to the loss."""

    name: Text = Field(default="", description="Name for people.")
    input_size: Size = Field(description="Bytes of the input of the chain.")
    input_ratio: Ratio | None = Field(
        default=None,
        description="Bytes that a link with compression sends per byte of the input; null: the ratio of the link.",
    )
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, description="Stages from the input to the loss."), Many]

    @property
    def length(self) -> int:
        """Number of stages, including repeats."""
        return sum(stage.repeat for stage in self.stages)


class JoinInstance(BaseInstance):
    """Chains of stages that meet in one loss."""

    schema_: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Literal["remat.instance/3"], Field(alias="schema", description="Format.")
    ] = SCHEMA_3
    annotations = MappingProxyType({"stages": ("origin",)})
    kind: Literal["join"] = Field(default="join", description="Kind of the instance.")
    chains: Annotated[tuple[Branch, ...], Field(min_length=1, max_length=MOST_CHAINS)] = Field(
        description="Chains that meet in the loss."
    )
    loss: Loss = Field(default=Loss.model_construct(), description="Loss, which reads the outputs of all chains.")
    in_place: Flag = Field(default=False, description="Whether outputs may overwrite inputs that are dropped.")
    backward_reads: Reads = Field(
        default=ALL_READS,
        description="Values that backwards read in addition to the gradient: any of input, output, saved.",
    )
    input_gradient: Flag = Field(default=True, description="Whether the gradients of the inputs are outputs.")

    @property
    def least_schema(self) -> str:
        """The lowest schema that can express this instance."""
        return SCHEMA_3

    @property
    def length(self) -> int:
        """Number of stages of all chains, including repeats."""
        return sum(chain.length for chain in self.chains)

    @property
    def listed_variants(self) -> int:
        """Number of (stage, variant) pairs, including repeats; 0 if no stage has several variants."""
        stages = [stage for chain in self.chains for stage in chain.stages]
        several = any(len(stage.alternatives) > 1 for stage in stages)
        return sum(stage.repeat * len(stage.alternatives) for stage in stages) if several else 0

    @property
    def compression_ratios(self) -> Iterable[Number]:
        """The compression ratios of inputs, of outputs and of saved values that have one of their own."""
        return {ratio for chain in self.each_chain() for ratio in chain.compression_ratios}

    def each_chain(self) -> list[ChainInstance]:
        """Return the chains separately, each with a loss that takes no time and no memory."""
        return [
            ChainInstance.model_construct(
                input_size=chain.input_size,
                input_ratio=chain.input_ratio,
                stages=chain.stages,
                units=self.units,
                in_place=self.in_place,
                backward_reads=self.backward_reads,
                input_gradient=self.input_gradient,
            )
            for chain in self.chains
        ]

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.length > LARGEST_COUNT:
            raise fail(f"{self.length:,} stages with repeats; at most {LARGEST_COUNT:,} are allowed", ".chains")
        variants = sum(stage.repeat * max(1, len(stage.variants)) for chain in self.chains for stage in chain.stages)
        if variants > LARGEST_COUNT:
            raise fail(f"{variants:,} variants with repeats; at most {LARGEST_COUNT:,} are allowed", ".chains")
        total = self.static_memory + self.loss.workspace
        for chain in self.chains:
            total += 2 * chain.input_size + sizes_of_stages(chain.stages)
        check_total(total, "the sizes of the chains")
        return self

    @model_validator(mode="after")
    def _no_parameters(self) -> Self:
        for number, chain in enumerate(self.chains):
            for index, stage in enumerate(chain.stages):
                for key in _OF_PARAMETERS:
                    if getattr(stage, key):
                        at = f".chains[{number}].stages[{index}].{key}"
                        raise fail("stages of a join have no parameters; count them as static_memory", at)
        return self
