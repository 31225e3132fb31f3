"""Kind `chain`: the forward/backward chain of a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from remat.instance.base import BaseInstance, Text, check_in_memory_names
from remat.instance.data_parallel import ShardingModel
from remat.instance.fields import LARGEST_COUNT, Count, Flag, Many, Model, Name, Ratio, Size, Time, check_total, fail
from remat.instance.machine import ANY, MachineModel
from remat.instance.tasks import Origin
from remat.messages import brief
from remat.units import Number

Read = Literal["input", "output", "saved"]
Reads = Annotated[tuple[Read, ...], Field(max_length=3)]
ALL_READS: tuple[Read, ...] = ("input", "output", "saved")
MOST_VARIANTS = 1000
MOST_OPERATORS = 10_000
"""Maximum number of operators listed for one stage."""


class Variant(Model):
    """An alternative for a stage's saving forward and backward; omitted fields are those of the stage."""

    name: Text = Field(default="", description="Name of the variant in schedules and reports.")
    saving_forward_time: Time | None = Field(default=None, description="Time of the forward that saves.")
    backward_time: Time | None = Field(default=None, description="Time of the backward.")
    saved_size: Size | None = Field(
        default=None, description="Bytes that the backward reads besides the input and output of the stage."
    )
    saving_workspace: Size | None = Field(default=None, description="Temporary bytes of the forward that saves.")
    backward_workspace: Size | None = Field(default=None, description="Temporary bytes of the backward.")
    backward_reads: Reads | None = Field(
        default=None, description="What the backward reads of the input and output of the stage."
    )


class Stage(Model):
    """One stage of a chain (or `repeat` equal ones).

    The forward that saves may take longer and need more temporary bytes than the plain forward. The update of a stage
    with parameters replaces the parameters and the optimizer state. `bucket_size` is the size of a gradient before it
    is summed or reduced.
    """

    since_2 = frozenset(["parameter_size", "parameter_gradient_size", "optimizer_size", "update_time"])
    since_3 = frozenset(["bucket_size", "origin", "output_ratio", "saved_ratio"])
    name: Text = Field(default="", description="Name in reports.")
    forward_time: Time = Field(description="Time of the forward.")
    backward_time: Time = Field(description="Time of the backward.")
    output_size: Size = Field(description="Bytes of the output.")
    saved_size: Size = Field(
        default=0, description="Bytes that the backward reads besides the input and output of the stage."
    )
    forward_workspace: Size = Field(default=0, description="Temporary bytes of the forward.")
    saving_workspace: Size | None = Field(
        default=None, description="Temporary bytes of the forward that saves; null: as `forward_workspace`."
    )
    saving_forward_time: Time | None = Field(
        default=None, description="Time of the forward that saves; null: as `forward_time`."
    )
    backward_workspace: Size = Field(default=0, description="Temporary bytes of the backward.")
    gradient_size: Size | None = Field(
        default=None, description="Bytes of the gradient of the output; null: as `output_size`."
    )
    backward_reads: Reads | None = Field(
        default=None,
        description="What the backward reads of the stage's input and output; null: the instance's value.",
    )
    variants: Annotated[tuple[Variant, ...], Field(max_length=MOST_VARIANTS)] = Field(
        default=(), description="All alternatives of the stage; the first is the default."
    )
    parameter_size: Size = Field(default=0, description="Bytes of the parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes of the gradient of the parameters; null: as `parameter_size`."
    )
    bucket_size: Size | None = Field(
        default=None,
        description="Bytes of the parameter gradient that a backward writes; null: as the gradient.",
    )
    optimizer_size: Size = Field(default=0, description="Bytes of the optimizer state.")
    update_time: Time = Field(default=0, description="Time of the update of parameters and optimizer state.")
    repeat: Count = Field(default=1, description="Number of equal stages that this entry stands for.")
    output_ratio: Ratio | None = Field(
        default=None,
        description="Bytes that a link with compression sends per byte of the output; null: the ratio of the link.",
    )
    saved_ratio: Ratio | None = Field(
        default=None,
        description="Bytes that a link with compression sends per saved byte; null: the ratio of the link.",
    )
    origin: Annotated[tuple[Origin, ...], Field(max_length=MOST_OPERATORS)] = Field(
        default=(), description="Operators of the forward; for people, not part of the digest."
    )

    @property
    def has_parameters(self) -> bool:
        """Whether the stage has parameters or optimizer states, and therefore an update."""
        return self.parameter_size > 0 or self.optimizer_size > 0

    @property
    def parameter_gradient_bytes(self) -> int:
        """Bytes of the gradient of the stage's parameters."""
        return self.parameter_size if self.parameter_gradient_size is None else self.parameter_gradient_size

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the parameter gradient that a backward writes, before it is reduced."""
        return self.parameter_gradient_bytes if self.bucket_size is None else self.bucket_size

    @property
    def alternatives(self) -> tuple[Stage, ...]:
        """The variants as stages without variants; the stage itself if it lists none."""
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
        """Time of the saving forward."""
        return self.forward_time if self.saving_forward_time is None else self.saving_forward_time

    @property
    def saving_bytes(self) -> int:
        """Workspace of the saving forward."""
        return self.forward_workspace if self.saving_workspace is None else self.saving_workspace


MOST_STALE = 1000


def _staleness(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_STALE:
        raise fail(f"expected a number of updates, 0 to {MOST_STALE:,}, not {brief(value)}")
    return value


Staleness = Annotated[
    int, PlainValidator(_staleness), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MOST_STALE})
]

_OF_VARIANTS = tuple(key for key in Variant.model_fields if key != "name")


class Loss(Model):
    """The loss between the last forward and the first backward."""

    time: Time = Field(default=0, description="Time of the loss.")
    workspace: Size = Field(default=0, description="Temporary bytes of the loss.")


def sizes_of_stages(stages: Iterable[Stage]) -> int:
    """Return the sum of all sizes of the stages, including repeats."""
    total = 0
    for stage in stages:
        gradient = stage.output_size if stage.gradient_size is None else stage.gradient_size
        alternatives = sum(
            other.saved_size + other.saving_bytes + other.backward_workspace for other in stage.alternatives
        )
        parameters = 4 * stage.parameter_size + 2 * stage.optimizer_size + stage.parameter_gradient_bytes
        parameters += stage.bucket_bytes
        total += stage.repeat * (stage.output_size + gradient + stage.forward_workspace + alternatives + parameters)
    return total


class ChainInstance(BaseInstance):
    """A chain of stages, each with a forward and a backward.

    `parameter_memory` and `optimizer_memory` name the memories of parameters and optimizer states at start and end.
    None is the working memory; with `any`, the schedule chooses, stage by stage. With `master_copy`, the optimizer
    states contain the parameters (mixed precision), so an update reads only the gradient and the state. `sharding`
    declares equal ranks. With a `staleness`, steps repeat without end, each with parameters that are that many updates
    old.
    """

    annotations = MappingProxyType({"stages": ("origin",)})
    since_2 = frozenset(["parameter_memory", "optimizer_memory", "master_copy"])
    since_3 = frozenset(["input_ratio", "sharding", "staleness"])
    kind: Literal["chain"] = Field(default="chain", description="Kind of the instance.")
    input_size: Size = Field(description="Bytes of the input of the first stage.")
    input_ratio: Ratio | None = Field(
        default=None,
        description="Bytes that a link with compression sends per byte of the input; null: the ratio of the link.",
    )
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, description="Stages from the input to the loss."), Many]
    loss: Loss = Field(
        default=Loss.model_construct(), description="Loss, which runs between the forwards and the backwards."
    )
    in_place: Flag = Field(default=False, description="Whether outputs may overwrite inputs that are dropped.")
    backward_reads: Reads = Field(
        default=ALL_READS,
        description="Values that backwards read in addition to the gradient: any of input, output, saved.",
    )
    input_gradient: Flag = Field(default=True, description="Whether the gradient of the input is an output.")
    parameter_memory: Name | None = Field(
        default=None,
        description="Memory of the parameters at start and end; null: the working memory; `any`: the schedule chooses.",
    )
    optimizer_memory: Name | None = Field(
        default=None,
        description="Memory of the optimizer states at start and end; null: the working memory; `any`: the "
        "schedule chooses.",
    )
    master_copy: Flag = Field(
        default=False,
        description="Whether the optimizer states contain the parameters, so that an update reads only gradient "
        "and state.",
    )
    sharding: ShardingModel | None = Field(
        default=None,
        description="Equal ranks that share the batch, and by ZeRO also parameters, gradients or states; null: none.",
    )
    staleness: Staleness | None = Field(
        default=None,
        description="Number of updates by which the parameters of a periodic step are old; null: one step, not "
        "periodic.",
    )

    def newer_keys(self, schema: int) -> frozenset[str]:
        """Placement of parameters by the schedule also needs `remat.instance/3`."""
        homes = ("parameter_memory", "optimizer_memory")
        is_open = frozenset(key for key in homes if schema == 3 and getattr(self, key) == ANY)
        return super().newer_keys(schema) | is_open

    @property
    def compression_ratios(self) -> Iterable[Number]:
        """The compression ratios of the input, of outputs and of saved values that have one of their own."""
        stages = (ratio for stage in self.stages for ratio in (stage.output_ratio, stage.saved_ratio))
        return {ratio for ratio in (self.input_ratio, *stages) if ratio is not None}

    @property
    def is_chain(self) -> bool:
        """Always true: the instance is a chain of stages."""
        return True

    @property
    def listed_variants(self) -> int:
        """Number of (stage, variant) pairs, including repeats; 0 if no stage has several variants."""
        counts = [(stage.repeat, len(stage.alternatives)) for stage in self.stages]
        several = any(count > 1 for _, count in counts)
        return sum(repeat * count for repeat, count in counts) if several else 0

    @property
    def named_memories(self) -> frozenset[str]:
        """The named memories of parameters and optimizer states."""
        homes = (self.parameter_memory, self.optimizer_memory) if self.has_parameters else ()
        return frozenset(home for home in homes if home is not None)

    @property
    def has_parameters(self) -> bool:
        """Whether any stage has parameters or optimizer states."""
        return any(stage.has_parameters for stage in self.stages)

    @property
    def ranks(self) -> int:
        """Number of ranks that split the batch."""
        return 1 if self.sharding is None else self.sharding.data

    @property
    def is_stream(self) -> bool:
        """Whether steps follow each other without end."""
        return self.staleness is not None

    def parts_with_newer_fields(self) -> Iterator[tuple[Model, str]]:
        """Yield the instance, its processors and its stages."""
        yield from super().parts_with_newer_fields()
        for index, stage in enumerate(self.stages):
            yield stage, f".stages[{index}]"

    @property
    def length(self) -> int:
        """Number of stages, including repeats."""
        return sum(stage.repeat for stage in self.stages)

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.length > LARGEST_COUNT:
            raise fail(f"{self.length:,} stages with repeats; at most {LARGEST_COUNT:,} are allowed", ".stages")
        variants = sum(stage.repeat * max(1, len(stage.variants)) for stage in self.stages)
        if variants > LARGEST_COUNT:
            raise fail(f"{variants:,} variants with repeats; at most {LARGEST_COUNT:,} are allowed", ".stages")
        total = self.static_memory + 2 * self.input_size + self.loss.workspace
        check_total(total + sizes_of_stages(self.stages), "the sizes of the chain")
        return self

    @model_validator(mode="after")
    def _parameters(self) -> Self:
        for index, stage in enumerate(self.stages):
            given = ("parameter_gradient_size", "bucket_size", "update_time")
            key = next((name for name in given if getattr(stage, name)), None)
            if key is not None and not stage.has_parameters:
                raise fail("a stage without parameter_size and optimizer_size has no update", f".stages[{index}].{key}")
        for key in ("parameter_memory", "optimizer_memory"):
            if getattr(self, key) != ANY or not (self.machine or MachineModel()).leaves_places_open:
                check_in_memory_names([getattr(self, key)], self.machine, f".{key}")
        for key in ("sharding", "staleness"):
            if getattr(self, key) is not None and not self.has_parameters:
                raise fail("no stage has parameters", f".{key}")
        if self.staleness:
            for index, stage in enumerate(self.stages):
                if stage.parameter_size and not (self.master_copy and stage.optimizer_size):
                    why = "an update needs the newest parameters: give it a master_copy in the optimizer's state"
                    raise fail(why, f".stages[{index}].optimizer_size" if self.master_copy else ".master_copy")
        return self
