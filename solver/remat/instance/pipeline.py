"""Kind `pipeline`: one training step, divided into micro-batches, of a network whose layers are on several devices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.graph.machine import Machine
from remat.instance.base import SCHEMA_3, BaseInstance
from remat.instance.batch_splitting import (
    SizeModel,
    SliceWork,
    TokensModel,
    check_parts,
    check_sizes,
    check_tokens,
    least_work,
    with_work,
    works_of,
)
from remat.instance.chain import ALL_READS, Reads
from remat.instance.cluster import ClusterModel
from remat.instance.data_parallel import PipelineSharding
from remat.instance.fields import LARGEST_COUNT, Count, Many, check_total, fail
from remat.instance.layers import OF_FORWARDS, PHASE_TIMES, PREVIOUS, Layer, LayerWork
from remat.instance.tensor import Degree, check_tensor, in_groups, of_group, ways_of
from remat.instance.validation_errors import MISSING
from remat.messages import nearest

ROUNDING = 1e-9
"""Rounding tolerance for sums of given times, as a share."""

MOST_SIZES = 64


class PipelineInstance(BaseInstance):
    """A training step of layers in micro-batches on several devices.

    Unless `weights` is ``flush``, micro-batches follow each other without end, and the verifier checks `micro_batches`
    of them step by step. With ``fixed`` weights, layers may read any earlier ones, and may be on several devices. A
    layer may be on up to `copies` devices, with its parameters on each. With `sizes` or `tokens`, the schedule divides
    the batch.
    """

    schema_: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        Literal["remat.instance/3"], Field(alias="schema", description="Format.")
    ] = SCHEMA_3
    kind: Literal["pipeline"] = Field(default="pipeline", description="Kind of the instance.")
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, description="Layers from the input to the loss."), Many]
    micro_batches: Count = Field(description="Number of micro-batches of a step.")
    cluster: ClusterModel = Field(description="Devices and their links.")
    weights: Literal["flush", "stash", "double", "single", "predicted", "fixed"] = Field(
        default="flush",
        description="Version of the parameters: they change between steps (flush), or a micro-batch uses the "
        "newest at its start (stash; double: of two), the current (single) or a predicted one; "
        "fixed: they never change.",
    )
    update_every: Count | None = Field(
        default=None,
        description="Number of micro-batches from one change of the parameters to the next, for `double`; null: 1.",
    )
    backward_reads: Reads = Field(
        default=ALL_READS,
        description="Values that backwards read in addition to the gradient: any of input, output, saved.",
    )
    copies: Count = Field(default=1, description="Maximum number of devices that hold one layer.")
    exchange: Literal["none", "ring"] = Field(
        default="none",
        description="Exchange of the gradients of copies at the end of a step: not counted (none), or in a ring.",
    )
    sharding: PipelineSharding | None = Field(
        default=None,
        description="Equal ranks of neighbouring devices that train on parts of the batch, each with a "
        "pipeline; null: one rank.",
    )
    samples: Count | None = Field(
        default=None, description="Number of samples of a micro-batch of the listed `layers`."
    )
    sizes: Annotated[
        tuple[SizeModel, ...],
        Field(max_length=MOST_SIZES, description="Other sizes of micro-batches, for the same total number of samples."),
    ] = ()
    parts: Annotated[
        tuple[SizeModel, ...],
        Field(
            max_length=MOST_SIZES,
            description="Parts into which copies of a layer divide a micro-batch, by their samples.",
        ),
    ] = ()
    tokens: TokensModel | None = Field(
        default=None, description="Slices into which each sequence may be cut; null: none."
    )

    @property
    def least_schema(self) -> str:
        """The lowest schema that can express this instance."""
        return SCHEMA_3

    @property
    def has_parameters(self) -> bool:
        """Whether any layer has parameters or optimizer states."""
        return any(any(layer.of_parameters) for layer in self.layers)

    @property
    def device_types(self) -> list[str]:
        """The type of each modelled device; a group of ranks counts as its first one."""
        return self.cluster.types[:: self.ranks]

    @property
    def length(self) -> int:
        """Number of layers, including repeats."""
        return sum(layer.repeat for layer in self.layers)

    @property
    def is_split(self) -> bool:
        """Whether the backward of any layer is split into two halves."""
        return any(layer.is_split for layer in self.layers)

    @property
    def closes(self) -> bool:
        """Whether a step ends with an exchange of gradients or updates of parameters."""
        if self.sharding is not None:
            return True
        return (self.exchange != "none" and self.copies > 1) or any(layer.update_time for layer in self.layers)

    @property
    def ranks(self) -> int:
        """Number of ranks that split the batch."""
        return 1 if self.sharding is None else self.sharding.data

    @property
    def is_stream(self) -> bool:
        """Whether micro-batches follow each other without end while the parameters change."""
        return self.weights != "flush"

    @property
    def is_inference(self) -> bool:
        """Whether only forwards run, for micro-batches without end."""
        return self.weights == "fixed"

    @property
    def samples_seen(self) -> int | None:
        """Number of micro-batches of an inference that are examined step by step."""
        return self.micro_batches if self.is_inference else None

    @property
    def budgets_are_for_all(self) -> bool:
        """Always true: a bare budget is the memory of every device."""
        return True

    @property
    def is_open(self) -> bool:
        """Whether the schedule chooses the division of the batch."""
        return bool(self.sizes) or (self.tokens is not None and not self.cut)

    @property
    def cut(self) -> tuple[int, ...]:
        """Slices of each sequence, in tokens; empty if sequences are not cut."""
        return () if self.tokens is None else self.tokens.cut or ()

    @property
    def slices(self) -> int:
        """Number of slices of a sequence; 1 if sequences are not cut."""
        return len(self.cut) or 1

    def of_samples(self, samples: int) -> Self:
        """Return the instance with another micro-batch size: one of `sizes`, or its own.

        Raises
        ------
        KeyError
            If the instance does not list that size.
        """
        assert self.samples is not None
        if samples == self.samples and not self.sizes:
            return self  # as given, so that the digest stays
        listed = {size.samples: size.layers for size in self.sizes}
        layers = self.layers if samples == self.samples else with_work(self.layers, listed[samples])
        batches = self.samples * self.micro_batches // samples
        parts = self.parts
        if self.copies > 1:
            known = {part.samples: part for part in (*self.parts, *self.sizes)}
            known.setdefault(
                self.samples, SizeModel.model_construct(samples=self.samples, layers=works_of(self.layers))
            )
            parts = tuple(known[size] for size in sorted(known) if size < samples and samples % size == 0)
        return self.model_copy(
            update={"layers": layers, "samples": samples, "sizes": (), "parts": parts, "micro_batches": batches}
        )

    def of_cut(self, cut: tuple[int, ...]) -> Self:
        """Return the instance with each sequence cut into slices of these numbers of tokens.

        Raises
        ------
        ValueError
            If this is not a cut of a sequence into its slices; the message gives the reason.
        """
        assert self.tokens is not None
        used = tuple(self.tokens.of_cut(cut))
        if self.length * self.micro_batches * len(cut) > LARGEST_COUNT:
            raise ValueError(f"{len(cut)} slices of each sequence make more than {LARGEST_COUNT:,} pairs with layers")
        tokens = self.tokens.model_copy(update={"slices": used, "cut": cut})
        return self.model_copy(update={"tokens": tokens, "micro_batches": self.micro_batches // self.slices * len(cut)})

    def of_tensor(self, count: int) -> Self:
        """Return the instance in which each group of `count` neighbours runs all layers together, as one device.

        Micro-batches have the instance's own size and are not cut.

        Raises
        ------
        ValueError
            If a layer has no work for this degree, or the cluster has no such groups; the message gives the reason.
        """
        layers, cluster = in_groups(self.layers, self.cluster, count)
        return self.model_copy(update={"layers": layers, "cluster": cluster, "sizes": (), "parts": ()})

    def of_own_size(self) -> Self:
        """Return the instance with its own micro-batch size, if it leaves the size open."""
        return self.of_samples(self.samples) if self.sizes and self.samples is not None else self

    def of_degrees(self, counts: Collection[int]) -> Self:
        """Return the instance with only these numbers of devices that may run a layer together."""
        kept = [{key: work for key, work in layer.tensor.items() if int(key) in counts} for layer in self.layers]
        pairs = zip(self.layers, kept, strict=True)
        return self.model_copy(
            update={"layers": tuple(layer.model_copy(update={"tensor": own}) for layer, own in pairs)}
        )

    def alone(self) -> Self:
        """Return the instance in which each device runs its layers alone."""
        return self.of_degrees(())

    @property
    def has_tensor(self) -> bool:
        """Whether several devices may run a layer together."""
        return any(layer.tensor for layer in self.layers)

    @property
    def tensor_degrees(self) -> list[int]:
        """All listed numbers of devices that may run some layer together, ascending."""
        return sorted({int(key) for layer in self.layers for key in layer.tensor})

    @property
    def is_shareable(self) -> bool:
        """Whether devices may share a layer's micro-batches: in parts, or by running the layer together."""
        return bool(self.parts) or self.has_tensor

    @property
    def degrees(self) -> tuple[int, ...]:
        """The numbers of devices among which a micro-batch may be divided into `parts`."""
        return tuple((self.samples or 1) // part.samples for part in self.parts)

    def shared(self, count: int, *, parts: bool) -> Self:
        """Return the instance as seen by one of `count` devices that hold the same layers.

        The device has its share of the micro-batches. With `parts`, it has its part of each; `count` is in `degrees`.
        """
        update: dict[str, object] = {"copies": self.copies // count, "parts": ()}
        if parts:
            works = self.parts[self.degrees.index(count)].layers
            update |= {"layers": with_work(self.layers, works), "samples": (self.samples or count) // count}
        else:
            update["micro_batches"] = self.micro_batches // count
        return self.model_copy(update=update)

    def loosened(self, *, work: bool) -> Self:
        """Return the instance with the minimum times and sizes of each layer, whole or in parts: for lower bounds.

        With `work`, the times are those of all parts of a micro-batch; otherwise those of one part.
        """
        ways: list[tuple[int, Sequence[LayerWork]]] = [(1, self.layers)]
        ways += [(degree, part.layers) for degree, part in zip(self.degrees, self.parts, strict=True)]
        layers = [
            least_work(
                layer,
                [
                    *((count if work else 1, works[index]) for count, works in ways),
                    *((count if work else 1, own) for count, own in ways_of(layer)),
                ],
            ).model_copy(update={"tensor": {}})
            for index, layer in enumerate(self.layers)
        ]
        return self.model_copy(update={"layers": tuple(layers), "parts": ()})

    def works(self, degrees: Sequence[Degree] = ()) -> list[tuple[LayerWork, ...]]:
        """Return, for each layer (repeats separately), its work on micro-batch 0, 1, ... of one cycle.

        Later micro-batches repeat the cycle.
        `degrees` states, for each layer, how devices share every micro-batch: then the work is that of one device.
        """
        if self.tokens is not None and self.cut:
            slices = self.tokens.of_cut(self.cut)
            sliced = zip(*(one.layers for one in slices), strict=True)
            return [own for own, layer in zip(sliced, self.layers, strict=True) for _ in range(layer.repeat)]
        listed: list[tuple[LayerWork, ...]] = [(layer,) for layer in self.each_layer(degrees)]
        if all(degree.parts == 1 for degree in degrees):
            return listed
        index = [number for number, layer in enumerate(self.layers) for _ in range(layer.repeat)]
        parts = {degree: part.layers for degree, part in zip(self.degrees, self.parts, strict=True)}
        return [
            own if degree.parts == 1 else (parts[degree.parts][number],)
            for own, number, degree in zip(listed, index, degrees, strict=True)
        ]

    @property
    def has_skips(self) -> bool:
        """Whether the layers are not a chain: some layer reads other outputs than that of its predecessor."""
        return any(layer.reads != (PREVIOUS,) for layer in self.layers)

    def sources(self) -> list[tuple[int, ...]]:
        """Return, for each layer (repeats separately), the layers whose outputs it reads, ascending."""
        found: list[tuple[int, ...]] = []
        last: dict[str, int] = {}
        for layer in self.layers:
            first = len(found)
            skipped = sorted(last[name] for name in layer.reads if name != PREVIOUS)
            found.append((*skipped, *(range(max(0, first - 1), first) if PREVIOUS in layer.reads else ())))
            found += [(index,) for index in range(first, first + layer.repeat - 1)]
            last[layer.name] = len(found) - 1
        return found

    def each_layer(self, degrees: Sequence[Degree] = ()) -> list[Layer]:
        """Return all layers, repeats separately; with sharded states, as one rank has them.

        If `degrees` lets devices run a layer together, it is returned as one of these devices has it.
        """
        ranks = self.sharding
        own = self.layers if ranks is None else [_of_rank(layer, ranks) for layer in self.layers]
        found = [layer for layer in own for _ in range(layer.repeat)]
        if degrees:
            found = [of_group(layer, degree) for layer, degree in zip(found, degrees, strict=True)]
        return found

    def whole_layers(self) -> list[Layer]:
        """Return all layers, repeats separately, with all their parameters."""
        return [layer for layer in self.layers for _ in range(layer.repeat)]

    def build_machine(self) -> Machine:
        """Build the cluster's machine."""
        return self.cluster.build(self.ranks)

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        check_tensor(self.layers)
        operations = self.length * self.micro_batches
        if operations > LARGEST_COUNT:
            raise fail(
                f"{operations:,} pairs of layer and micro-batch; at most {LARGEST_COUNT:,} are allowed", ".layers"
            )
        if self.machine is not None:
            raise fail("a pipeline has a cluster instead of a machine", ".machine")
        if self.static_memory:
            raise fail("a pipeline has several working memories: give static bytes to a layer", ".static_memory")
        if self.update_every is not None and self.weights != "double":
            raise fail(f"only weights double are updated in groups, and these are {self.weights}", ".update_every")
        if self.update_every is None and self.weights == "double":
            raise fail("weights double need an update_every, at least the most micro-batches in flight", ".weights")
        self._check_forwards()
        able = ("overlap", "blocking") if self.is_inference else ("overlap",)
        if self.is_stream and self.cluster.transfers not in able:
            also = " or blocking" if self.is_inference else ""
            raise fail(
                f"with weights {self.weights}, transfers must be overlap{also}, not {self.cluster.transfers}",
                ".cluster.transfers",
            )
        if self.is_stream and self.copies > 1 and not self.is_inference:
            raise fail(f"weights {self.weights} change on one device: a layer has one copy there", ".copies")
        self._check_closing()
        self._check_host()
        for index, layer in enumerate(self.layers):
            if layer.discrepancy_size and self.weights not in ("single", "predicted"):
                at = f".layers[{index}].discrepancy_size"
                raise fail(f"only weights single or predicted are corrected, and these are {self.weights}", at)
        check_total(self._total(), "the sizes of the pipeline")
        return self

    def _check_forwards(self) -> None:
        """Check that layers have backwards, or that all have only forwards."""
        works: list[tuple[LayerWork, str]] = [(layer, f".layers[{k}]") for k, layer in enumerate(self.layers)]
        for key, listed in (("sizes", self.sizes), ("parts", self.parts)):
            for number, size in enumerate(listed):
                works += [(work, f".{key}[{number}].layers[{index}]") for index, work in enumerate(size.layers)]
        for number, part in enumerate(self.tokens.slices if self.tokens else ()):
            works += [(work, f".tokens.slices[{number}].layers[{index}]") for index, work in enumerate(part.layers)]
        for index, layer in enumerate(self.layers):
            works += [(work, f".layers[{index}].tensor.{key}") for key, work in layer.tensor.items()]
        for work, at in works:
            given = work.model_fields_set
            if self.is_inference and (more := sorted(given - OF_FORWARDS)):
                raise fail("with weights fixed there are forwards only", f"{at}.{more[0]}")
            if not self.is_inference and work.backward_time is None:
                raise fail(MISSING, f"{at}.backward_time")

    def _total(self) -> int:
        """Return an upper bound on the bytes of all values, over all divisions of the batch."""
        versions = self.micro_batches if self.weights == "stash" else 2
        listed: list[tuple[tuple[LayerWork, ...], int]] = [(self.layers, self.micro_batches)]
        listed += [(size.layers, self.micro_batches * (self.samples or 1)) for size in self.sizes]
        listed += [(part.layers, self.micro_batches * (self.samples or 1)) for part in self.parts]
        if self.tokens is not None:
            listed += [(one.layers, self.micro_batches) for one in self.tokens.slices]
        total = 0
        for layer in self.layers if self.sharding is not None else ():  # gathered, and buckets, for each micro-batch
            total += layer.repeat * self.micro_batches * (2 * layer.parameter_size + layer.bucket_bytes)
        for works, batches in listed:
            for layer, work in zip(self.layers, works, strict=False):
                each = work.output_size + work.gradient_bytes + work.saved_size + work.weight_saved_size
                each += work.cache_gradient_size if isinstance(work, SliceWork) else 0
                readers = self.length if self.has_skips else 1
                total += layer.repeat * (batches * (each + readers * work.gradient_bytes))
                total += layer.repeat * (work.forward_workspace + work.backward_workspace)
        for layer in self.layers:
            total += layer.repeat * self.copies * sum(layer.of_parameters)
            total += layer.repeat * (versions * layer.parameter_size + layer.discrepancy_size)
            for _, work in ways_of(layer):
                each = work.output_size + work.saved_size + work.weight_saved_size
                readers = self.length if self.has_skips else 1
                total += layer.repeat * (self.micro_batches * (each + readers * work.gradient_bytes))
                total += layer.repeat * (work.forward_workspace + work.backward_workspace)
                total += layer.repeat * self.copies * sum(work.of_parameters)
        return total

    def _check_closing(self) -> None:
        """Check the end of a step: an exchange and updates need a step that ends and overlapped transfers."""
        at = ".exchange" if self.exchange != "none" else ".layers" if self.sharding is None else ".sharding"
        if not self.closes:
            return
        if self.is_stream:
            raise fail(f"with weights {self.weights} no step ends: no exchange, and no update_time", at)
        if self.cluster.transfers != "overlap":
            raise fail(
                f"an exchange and updates need the transfers overlap, not {self.cluster.transfers}",
                at,
            )

    def _check_host(self) -> None:
        """Check the host: it needs a step that ends, overlapped transfers and a single rank."""
        if self.cluster.host is None:
            return
        at = ".cluster.host"
        if self.is_stream:
            raise fail(f"a host needs steps that end, but with weights {self.weights} they do not", at)
        if self.cluster.transfers != "overlap":
            raise fail(
                f"a host needs the transfers overlap, not {self.cluster.transfers}",
                at,
            )
        if self.sharding is not None:
            raise fail("a host cannot be combined with sharding: it would serve all ranks, but one is modelled", at)

    @model_validator(mode="after")
    def _ranks(self) -> Self:
        ranks = self.sharding
        if ranks is None:
            return self
        for key, there in (("exchange", self.exchange != "none"), ("copies", self.copies > 1)):
            if there:
                raise fail(f"ranks cannot be combined with {key}: they exchange gradients themselves", f".{key}")
        for key in ("parts", "tokens"):
            if getattr(self, key):
                raise fail("one rank is modelled, with whole micro-batches", f".{key}")
        if self.is_stream:
            raise fail(
                f"ranks exchange gradients when a step ends, and with weights {self.weights} none does", ".weights"
            )
        types = [(device.type_name, device.memory) for device in self.cluster.devices for _ in range(device.count)]
        if len(types) % ranks.data:
            raise fail(f"{ranks.data} does not divide the {len(types)} devices of the cluster", ".sharding.data")
        for first in range(0, len(types), ranks.data):
            if len(set(types[first : first + ranks.data])) > 1:
                names = self.cluster.names[first : first + ranks.data]
                raise fail(f"the ranks {', '.join(names[:8])} are devices of different kinds", ".sharding.data")
        return self

    @model_validator(mode="after")
    def _divisions(self) -> Self:
        if (self.sizes or self.parts) and self.samples is None:
            what = "other sizes want" if self.sizes else "parts want"
            raise fail(f"{what} the samples of these layers' micro-batches", ".samples")
        if self.sizes and self.tokens is not None:
            raise fail("either sizes of micro-batches or slices of sequences are left to the schedule", ".sizes")
        if self.parts and self.tokens is not None:
            raise fail("the slices of a sequence stay on one device: they have no parts", ".parts")
        check_parts(self.parts, self.samples or 1, self.layers)
        for key, there in (("sizes", self.sizes), ("tokens", self.tokens is not None), ("parts", self.parts)):
            if there and self.is_stream:
                raise fail(f"with weights {self.weights}, micro-batches are as they are given, and whole", f".{key}")
        if self.sizes:
            check_sizes(self.sizes, self.samples or 1, self.micro_batches, self.layers)
            largest = self.length * self.micro_batches * (self.samples or 1) // min(one.samples for one in self.sizes)
            if largest > LARGEST_COUNT:
                raise fail(f"{largest:,} pairs of layer and micro-batch; at most {LARGEST_COUNT:,} are allowed")
        if self.tokens is not None:
            if self.copies > 1:
                raise fail("the slices of a sequence stay on one device: a layer has one copy", ".copies")
            check_tokens(self.tokens, self.micro_batches, self.layers)
        return self

    @model_validator(mode="after")
    def _groups(self) -> Self:
        for index, layer in enumerate(self.layers):
            at = f".layers[{index}].tensor"
            if not layer.tensor:
                continue
            if self.is_stream:
                raise fail(f"with weights {self.weights}, each device runs its layers alone", at)
            if self.sharding is not None:
                raise fail("one rank is modelled, whose devices run their layers alone", at)
            if self.tokens is not None:
                raise fail("the slices of a sequence are run by one device each", at)
        return self

    @model_validator(mode="after")
    def _skips(self) -> Self:
        names = [layer.name for layer in self.layers]
        for index, layer in enumerate(self.layers):
            if layer.reads == (PREVIOUS,):
                continue
            at = f".layers[{index}].reads"
            if self.is_stream and not self.is_inference:
                raise fail(f"with weights {self.weights}, a layer reads the one before, and no other", at)
            if len(set(layer.reads)) < len(layer.reads):
                raise fail("a layer is named twice", at)
            for name in layer.reads:
                if name == PREVIOUS:
                    continue
                if names.count(name) > 1:
                    raise fail(f"{names.count(name)} layers are called {name!r}", at)
                if name not in names[:index]:
                    near = nearest(name, filter(None, names[:index]))
                    hint = f"; did you mean {near!r}?" if near else ""
                    raise fail(f"no layer before is called {name!r}{hint}", at)
                if names.index(name) == index - 1:
                    raise fail(f'{name!r} is the layer before, which "{PREVIOUS}" means', at)
        return self

    @model_validator(mode="after")
    def _all_lead_to_the_loss(self) -> Self:
        """Check that every output is read: an unread output has no gradient, and only the last one goes to the loss."""
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
                    f"{together:g} on {name}; a simultaneous forward and backward take at least {least:g} "
                    f"(W + max(F, B)) and at most {most:g} (F + B + W)",
                    at,
                )


def _of_rank(layer: Layer, ranks: PipelineSharding) -> Layer:
    """Return a layer as one of several ranks has it."""
    parameters, gradients, states = ranks.shares(
        layer.parameter_size, layer.parameter_gradient_bytes, layer.optimizer_size
    )
    update: dict[str, object] = {"parameter_size": parameters, "parameter_gradient_size": gradients}
    bucket = layer.bucket_size or 0
    if not ranks.shares_gradients and bucket:
        update["backward_workspace"] = layer.backward_workspace + bucket
    return layer.model_copy(update=update | {"optimizer_size": states})
