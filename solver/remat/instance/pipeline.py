"""Kind `pipeline`: one training step, cut into micro-batches, of a network whose layers lie on several devices."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.graph.machine import Machine
from remat.instance.base import SCHEMA_3, BaseInstance, Text
from remat.instance.chain import ALL_READS, Reads
from remat.instance.cluster import ClusterModel
from remat.instance.fields import LARGEST_COUNT, Count, Many, Model, Size, Time, TimeByType, check_total, fail
from remat.units import Number

ROUNDING = 1e-9
"""Share by which sums of given times may be off."""

PREVIOUS = "previous"
"""What `reads` calls the layer before."""

PHASE_TIMES = ("forward_time", "backward_time", "weight_time")


class Layer(Model):
    """A layer (or `repeat` equal ones), with times and sizes of one micro-batch.

    Where `weight_time` is given, the backward is in two halves: `backward_time` makes the gradient of the layer's
    input, and `weight_time`, any time later, that of its parameters; `weight_saved_size` is kept from the one to the
    other. A time may be an object, one time for each type of device: others cannot run the layer.
    """

    name: Text = Field(default="", description="What people call it.")
    reads: tuple[Text, ...] = Field(
        default=(PREVIOUS,),
        description='Whose outputs it reads: "previous", the layer before, or names of earlier layers; none: an input.',
    )
    forward_time: TimeByType = Field(description="Time of the forward of one micro-batch.")
    backward_time: TimeByType = Field(
        description="Time of its backward, or of the half that makes the input's gradient."
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
    backward_reads: Reads | None = Field(default=None, description="What the backward reads; null: as the instance.")
    parameter_size: Size = Field(default=0, description="Bytes of its parameters.")
    parameter_gradient_size: Size | None = Field(
        default=None, description="Bytes in which their gradients are added up; null: as the parameters."
    )
    optimizer_size: Size = Field(default=0, description="Bytes of the optimizer's state.")
    update_time: Time = Field(
        default=0, description="Time in which a device updates its parameters, at the end of a step."
    )
    discrepancy_size: Size = Field(
        default=0, description="Bytes kept beside the one version of its parameters, to correct for staleness."
    )
    repeat: Count = Field(default=1, description="So many equal layers, one after the other.")

    @property
    def is_split(self) -> bool:
        """Whether the backward is in two halves."""
        return self.weight_time != 0

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradient of its output."""
        return self.output_size if self.gradient_size is None else self.gradient_size

    @property
    def parameter_gradient_bytes(self) -> int:
        """Bytes in which the gradients of its parameters are added up."""
        return self.parameter_size if self.parameter_gradient_size is None else self.parameter_gradient_size

    @property
    def of_parameters(self) -> tuple[int, int, int]:
        """Bytes of one version of its parameters, of their gradients and the optimizer's state, wherever it runs."""
        versions = self.parameter_size + self.discrepancy_size
        return versions, self.parameter_gradient_bytes, self.optimizer_size

    def time_on(self, phase: str, device: str) -> Number | None:
        """Return a time of the layer on a type of device; None if that cannot run it."""
        time = getattr(self, phase)
        return time.get(device) if isinstance(time, dict) else time

    def spared_on(self, device: str) -> Number:
        """Return by how much a forward and a whole backward at once are quicker than one after the other, on a type."""
        work, together = self.work_on(device), self.paired_on(device)
        return 0 if work is None or together is None else max(0, work - together)

    def paired_on(self, device: str) -> Number | None:
        """Return the time of a forward and a whole backward at once on a type of device, where it is given."""
        return self.paired_time.get(device) if isinstance(self.paired_time, dict) else self.paired_time

    def work_on(self, device: str) -> Number | None:
        """Return the time of forward and backward of one micro-batch on a type of device; None if it cannot run it."""
        known = [time for phase in PHASE_TIMES if (time := self.time_on(phase, device)) is not None]
        return sum(known) if len(known) == len(PHASE_TIMES) else None


class PipelineInstance(BaseInstance):
    """Layers in a row, micro-batches that pass them forwards and back, and a cluster to run that on.

    `weights` says when parameters change: ``flush``, after all micro-batches of a step. Otherwise micro-batches follow
    each other without end, `micro_batches` of them are looked at, and each `update_every` of them the parameters
    change, while others are under way: both halves of a micro-batch then use the version that was the newest when its
    forward began (``stash``: as many versions as that takes; ``double``: two at most), or whichever is there
    (``single``). A layer may lie on up to `copies` devices, with its parameters on each; a micro-batch passes one of
    them.
    """

    schema_: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Literal["remat.instance/3"], Field(alias="schema", description="The format.")
    ] = SCHEMA_3
    kind: Literal["pipeline"] = "pipeline"
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, description="From the input to the loss."), Many]
    micro_batches: Count = Field(description="How many micro-batches a step has.")
    cluster: ClusterModel = Field(description="Devices, and how they reach each other.")
    weights: Literal["flush", "stash", "double", "single"] = Field(
        default="flush",
        description="When parameters change: between two steps (flush), or while micro-batches are under way, which "
        "keep the version they began with (stash), of at most two (double), or use what is there (single).",
    )
    update_every: Count | None = Field(
        default=None, description="Micro-batches from one change of the parameters to the next; null: 1. For double."
    )
    backward_reads: Reads = Field(
        default=ALL_READS, description="What backwards read beside the gradient: any of input, output, saved."
    )
    copies: Count = Field(default=1, description="Devices on which one layer may lie at the same time, at most.")
    exchange: Literal["none", "ring"] = Field(
        default="none",
        description="How copies of a layer add up their gradients when a step ends: not counted (none), or in a ring.",
    )

    @property
    def least_schema(self) -> str:
        """The lowest schema that can say what this instance says."""
        return SCHEMA_3

    @property
    def has_parameters(self) -> bool:
        """Whether any layer has parameters, or an optimizer's state."""
        return any(any(layer.of_parameters) for layer in self.layers)

    @property
    def length(self) -> int:
        """Number of layers, repeats counted."""
        return sum(layer.repeat for layer in self.layers)

    @property
    def is_split(self) -> bool:
        """Whether any layer's backward is in two halves."""
        return any(layer.is_split for layer in self.layers)

    @property
    def closes(self) -> bool:
        """Whether a step ends with anything: an exchange of gradients, or updates of parameters."""
        return (self.exchange != "none" and self.copies > 1) or any(layer.update_time for layer in self.layers)

    @property
    def is_stream(self) -> bool:
        """Whether micro-batches follow each other without end, while the parameters change."""
        return self.weights != "flush"

    @property
    def budgets_are_for_all(self) -> bool:
        """A bare budget is the memory of every device."""
        return True

    @property
    def has_skips(self) -> bool:
        """Whether layers are no chain: some layer does not read just the one before it."""
        return any(layer.reads != (PREVIOUS,) for layer in self.layers)

    def sources(self) -> list[tuple[int, ...]]:
        """Return, for each layer (repeats one by one), those whose outputs it reads, ascending."""
        found: list[tuple[int, ...]] = []
        last: dict[str, int] = {}
        for layer in self.layers:
            first = len(found)
            skipped = sorted(last[name] for name in layer.reads if name != PREVIOUS)
            found.append((*skipped, *(range(max(0, first - 1), first) if PREVIOUS in layer.reads else ())))
            found += [(index,) for index in range(first, first + layer.repeat - 1)]
            last[layer.name] = len(found) - 1
        return found

    def each_layer(self) -> list[Layer]:
        """Return all layers, repeats one by one."""
        return [layer for layer in self.layers for _ in range(layer.repeat)]

    def build_machine(self) -> Machine:
        """Build the cluster's machine."""
        return self.cluster.build()

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        operations = self.length * self.micro_batches
        if operations > LARGEST_COUNT:
            raise fail(
                f"{operations:,} pairs of layer and micro-batch; at most {LARGEST_COUNT:,} are allowed", ".layers"
            )
        if self.machine is not None:
            raise fail("a pipeline has a cluster, and no machine beside it", ".machine")
        if self.static_memory:
            raise fail("a pipeline has no first memory: give bytes that always lie there to a layer", ".static_memory")
        if self.update_every is not None and self.weights != "double":
            raise fail(f"only weights double are updated in groups, and these are {self.weights}", ".update_every")
        if self.update_every is None and self.weights == "double":
            raise fail("weights double need an update_every, at least the most micro-batches in flight", ".weights")
        if self.is_stream and self.cluster.transfers != "overlap":
            raise fail(
                f"with weights {self.weights}, transfers go on beside the work (overlap), and these are "
                f"{self.cluster.transfers}",
                ".cluster.transfers",
            )
        if self.is_stream and self.copies > 1:
            raise fail(f"weights {self.weights} change on one device: a layer has one copy there", ".copies")
        self._check_closing()
        total = 0
        for index, layer in enumerate(self.layers):
            if layer.discrepancy_size and self.weights != "single":
                at = f".layers[{index}].discrepancy_size"
                raise fail(f"only weights single are corrected, and these are {self.weights}", at)
            versions = self.micro_batches if self.weights == "stash" else 2
            each = layer.output_size + layer.gradient_bytes + layer.saved_size + layer.weight_saved_size
            total += layer.repeat * (self.micro_batches * each + self.copies * sum(layer.of_parameters))
            total += layer.repeat * (versions * layer.parameter_size + layer.discrepancy_size)
            total += layer.repeat * (layer.forward_workspace + layer.backward_workspace)
        check_total(total, "the sizes of the pipeline")
        return self

    def _check_closing(self) -> None:
        """A step that ends, with transfers beside the work, may end with an exchange and updates."""
        at = ".exchange" if self.exchange != "none" else ".layers"
        if not self.closes:
            return
        if self.is_stream:
            raise fail(f"with weights {self.weights} no step ends: no exchange, and no update_time", at)
        if self.cluster.transfers != "overlap":
            raise fail(
                "an exchange and updates want transfers that go on beside the work (overlap), and these are "
                f"{self.cluster.transfers}",
                at,
            )

    @model_validator(mode="after")
    def _skips(self) -> Self:
        names = [layer.name for layer in self.layers]
        for index, layer in enumerate(self.layers):
            if layer.reads == (PREVIOUS,):
                continue
            at = f".layers[{index}].reads"
            if self.is_stream:
                raise fail(f"with weights {self.weights}, a layer reads the one before, and no other", at)
            if len(set(layer.reads)) < len(layer.reads):
                raise fail("a layer is named twice", at)
            for name in layer.reads:
                if name == PREVIOUS:
                    continue
                if names.count(name) > 1:
                    raise fail(f"{names.count(name)} layers are called {name!r}", at)
                if name not in names[:index]:
                    near = get_close_matches(name, filter(None, names[:index]), 1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise fail(f"no layer before is called {name!r}{hint}", at)
                if names.index(name) == index - 1:
                    raise fail(f'{name!r} is the layer before, which "{PREVIOUS}" means', at)
        return self

    @model_validator(mode="after")
    def _all_lead_to_the_loss(self) -> Self:
        """What nobody reads has no gradient; only the last layer's output goes to the loss."""
        named = {name for layer in self.layers for name in layer.reads}
        for index, (layer, following) in enumerate(pairwise(self.layers)):
            if PREVIOUS not in following.reads and layer.name not in named:
                what = f"{layer.name!r}" if layer.name else f"layer {index + 1}"
                hint = "" if layer.name else ", which needs a name for that"
                raise fail(
                    f"no later layer reads {what}{hint}; the loss belongs to the last layer", f".layers[{index}]"
                )
        return self

    @model_validator(mode="after")
    def _devices(self) -> Self:
        types = set(self.cluster.types)
        for index, layer in enumerate(self.layers):
            at = f".layers[{index}]"
            able = set(types)
            for key in PHASE_TIMES:
                time = getattr(layer, key)
                if isinstance(time, dict):
                    able &= set(time)
            if not able:
                known = ", ".join(sorted(types))
                raise fail(f"no device of the cluster can run this layer; its types are {known}", at)
            if layer.weight_saved_size and not layer.is_split:
                raise fail("only a layer with a weight_time keeps something for it", f"{at}.weight_saved_size")
            if layer.paired_time is not None:
                self._check_pairs(layer, able, f"{at}.paired_time")
        return self

    def _check_pairs(self, layer: Layer, able: set[str], at: str) -> None:
        if self.is_stream:
            raise fail(f"with weights {self.weights}, operations run one at a time", at)
        for name in sorted(able):
            forward, backward, weight = (layer.time_on(phase, name) or 0 for phase in PHASE_TIMES)
            least, most = weight + max(forward, backward), forward + backward + weight
            together = layer.paired_on(name)
            if together is not None and not least * (1 - ROUNDING) <= together <= most * (1 + ROUNDING):
                raise fail(
                    f"{together:g} on {name}; a forward and a backward at once take at least {least:g} (W, and the "
                    f"longer one of F and B) and at most {most:g} (one after the other)",
                    at,
                )
