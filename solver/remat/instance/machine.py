"""The `machine` part of an instance: memories, processors and the links between memories."""

# Annotations are not postponed here: pydantic would have to evaluate each from its text at every start.

from collections.abc import Callable, Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from remat.graph.canonical import Uses, canonical
from remat.graph.machine import Link, Machine, Memory, Packed, Processor
from remat.instance.fields import (
    Bandwidth,
    Count,
    Energy,
    Many,
    Model,
    Name,
    NameOrNames,
    Ratio,
    Size,
    Speed,
    Time,
    fail,
)
from remat.messages import unknown_memory
from remat.units import Number

MOST_PROCESSORS = 4096

ANY = "any"
"""Placeholder in an instance for a memory that the schedule chooses, unless a memory has this name."""


class MemoryModel(Model):
    """A memory."""

    since_3 = frozenset(["static"])
    name: Name = Field(description="Name, unique among the memories.")
    capacity: Size | None = Field(default=None, description="Capacity in bytes; null: unbounded.")
    static: Size = Field(
        default=0,
        description="Bytes that are occupied throughout, in addition to the instance's `static_memory` "
        "(remat.instance/3).",
    )


class ProcessorModel(Model):
    """A processor, or `count` equal ones called name0, name1, ..., working in one memory.

    A task takes time / `speed`. Times refer to the first listed processor of speed 1; its memory is the working memory.
    """

    since_2 = frozenset(["speed"])
    since_3 = frozenset(["type"])
    name: Name = Field(description="Name, unique among the processors.")
    memory: Name = Field(description="Memory in which its tasks read and write.")
    count: Count = Field(default=1, description="Number of equal ones.")
    speed: Speed = Field(
        default=1,
        description="Relative speed, at most 1: a task takes time / speed; at least one processor has speed 1 "
        "(remat.instance/2).",
    )
    type: Name | None = Field(
        default=None, description="Type that times by type refer to; null: none (remat.instance/3)."
    )


def packed_of(bandwidth: Number | None, ratio: Number, codec: Number | None) -> Packed | None:
    """Return the compression of a link; None if it has none."""
    return None if ratio == 1 and codec is None else Packed(bandwidth, ratio, codec)


class LinkModel(Model):
    """A link from one memory to another: a transfer takes latency + size/bandwidth on its channel, and then `delay`.

    A link from a memory to itself connects to identical devices that are not listed; collectives of one part use it.
    """

    since_3 = frozenset(["delay", "ratio", "codec", "energy"])
    source: Name = Field(description="Memory from which values are sent.")
    target: Name = Field(description="Memory to which values are sent.")
    bandwidth: Bandwidth = Field(default=None, description="Bytes per time; null: transfers take only the latency.")
    latency: Time = Field(default=0, description="Time of each transfer in addition to size/bandwidth.")
    delay: Time = Field(
        default=0,
        description="Time from the release of the channel to the arrival of the data (remat.instance/3).",
    )
    ratio: Ratio = Field(
        default=1,
        description="Sent bytes per byte of a value, if the link compresses and the value has no ratio of its own "
        "(remat.instance/3).",
    )
    codec: Bandwidth = Field(
        default=None,
        description="Bytes per time that the link compresses and decompresses while it is occupied; null: no "
        "time (remat.instance/3).",
    )
    energy: Energy = Field(
        default=0,
        description="Energy per byte of a value that crosses the link, before compression (remat.instance/3).",
    )
    channel: NameOrNames | None = Field(
        default=None,
        description="Channel that a transfer occupies; links that share one take turns, one named like a "
        "processor blocks it; null: a separate one; a list: all of them (remat.instance/3).",
    )

    def newer_keys(self, schema: int) -> frozenset[str]:
        """Several channels, and links from a memory to itself, also need `remat.instance/3`."""
        newer = super().newer_keys(schema)
        if schema == 3 and isinstance(self.channel, tuple):
            newer |= {"channel"}
        return newer | {"target"} if schema == 3 and self.source == self.target else newer

    @property
    def packed(self) -> Packed | None:
        """The link's compression; None if it has none."""
        return packed_of(self.bandwidth, self.ratio, self.codec)

    def through(self, best: Number) -> Number | None:
        """Return the bytes per time that cross the link, uncompressed, for values of the ratio `best` or its own."""
        packed = self.packed
        return self.bandwidth if packed is None else packed._replace(ratio=min(best, packed.ratio)).through

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that a transfer occupies, as listed."""
        return () if self.channel is None else (self.channel,) if isinstance(self.channel, str) else self.channel


class MachineModel(Model):
    """The machine of an instance.

    The first processor of speed 1 is the *reference processor*. Its memory is the *working memory*, to which budgets
    and static memory refer. The order of memories, processors and links has no other meaning.
    """

    memories: Annotated[tuple[MemoryModel, ...], Field(min_length=1, description="Memories, at least one."), Many] = (
        MemoryModel.model_construct(name="memory"),
    )
    processors: Annotated[
        tuple[ProcessorModel, ...], Field(min_length=1, description="Processors, at least one."), Many
    ] = (ProcessorModel.model_construct(name="processor", memory="memory"),)
    links: Annotated[tuple[LinkModel, ...], Many] = Field(
        default=(), description="Links between memories, each in one direction."
    )

    @model_validator(mode="after")
    def _references(self) -> Self:
        memories = [memory.name for memory in self.memories]
        _unique(memories, "memory")
        _unique([processor.name for processor in self.processors], "processor")
        if sum(processor.count for processor in self.processors) > MOST_PROCESSORS:
            raise fail(f"more than {MOST_PROCESSORS} processors")
        _unique([name for processor in self.processors for name in _expanded(processor)], "processor")
        if all(processor.speed != 1 for processor in self.processors):
            raise fail("no processor has speed 1, on which the instance's times are measured", ".processors[0].speed")
        for index, processor in enumerate(self.processors):
            if processor.memory not in memories:
                raise fail(unknown_memory(processor.memory, memories), f".processors[{index}].memory")
        several = {processor.name for processor in self.processors if processor.count > 1}
        pairs = set()
        for index, link in enumerate(self.links):
            at = f".links[{index}]"
            for end, name in (("source", link.source), ("target", link.target)):
                if name not in memories:
                    raise fail(unknown_memory(name, memories), f"{at}.{end}")
            if (link.source, link.target) in pairs:
                raise fail(f"a second link from {link.source!r} to {link.target!r}", at)
            for channel in link.channels:
                if channel in several:
                    raise fail(f"channel {channel!r} names several processors; name one of them", f"{at}.channel")
            pairs.add((link.source, link.target))
        return self

    @property
    def leaves_places_open(self) -> bool:
        """Whether `any` means that the schedule chooses: true if no memory has that name."""
        return all(memory.name != ANY for memory in self.memories)

    @property
    def types(self) -> dict[str, str]:
        """The type of each processor, by its name; empty if it has none."""
        return {name: processor.type or "" for processor in self.processors for name in _expanded(processor)}

    @property
    def working_memory(self) -> str:
        """The memory of the reference processor, the first one of speed 1."""
        return next(processor.memory for processor in self.processors if processor.speed == 1)

    def build(self, uses: Callable[[], Uses] = Uses, ratios: Iterable[Number] = ()) -> Machine:
        """Build the machine for placement and the verifier, in canonical order.

        `uses` returns how an instance uses the parts of the machine (see `remat.graph.canonical`). `ratios` are the
        compression ratios of its values: the bandwidth of a link that compresses is that of the best one.
        """
        best = min(ratios, default=1)
        memories = tuple(Memory(memory.name, memory.capacity, memory.static) for memory in self.memories)
        index = {memory.name: i for i, memory in enumerate(memories)}
        processors = tuple(
            Processor(name, index[processor.memory], processor.speed, processor.type or "")
            for processor in self.processors
            for name in _expanded(processor)
        )
        links = tuple(
            Link(
                source=index[link.source],
                target=index[link.target],
                bandwidth=link.through(best),
                packed=link.packed,
                latency=link.latency,
                delay=link.delay,
                energy=link.energy,
                channel=(*link.channels, f"{link.source}->{link.target}")[0],
                also=link.channels[1:],
            )
            for link in self.links
        )
        return canonical(Machine(memories, processors, links), uses)


def _expanded(processor: ProcessorModel) -> list[str]:
    if processor.count == 1:
        return [processor.name]
    return [f"{processor.name}{i}" for i in range(processor.count)]


def _unique(names: list[str], what: str) -> set[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise fail(f"two {what} entries are called {name!r}")
        seen.add(name)
    return seen
