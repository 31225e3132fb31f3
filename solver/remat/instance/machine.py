"""The `machine` part of an instance: memories, processors and the links between memories."""

# Annotations are not postponed here: pydantic would have to evaluate each from its text at every start.

from collections.abc import Callable
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
    Size,
    Speed,
    Time,
    fail,
)
from remat.messages import unknown_memory

MOST_PROCESSORS = 4096

ANY = "any"
"""Placeholder in an instance for a memory that the schedule chooses, unless a memory has this name."""


class MemoryModel(Model):
    """A memory; `capacity` null means unbounded."""

    since_3 = frozenset(["static"])
    name: Name = Field(description="Its name, unique among the memories.")
    capacity: Size | None = Field(default=None, description="Bytes it holds at most; null: any number.")
    static: Size = Field(
        default=0,
        description="Bytes that lie there throughout, beside the instance's static_memory. Needs remat.instance/3.",
    )


class ProcessorModel(Model):
    """A processor, or `count` equal ones called name0, name1, ..., working in one memory.

    A task takes time / `speed`. The first listed processor of speed 1 is the reference: times are measured on it, its
    memory is the working memory, and no other one is faster.
    """

    since_2 = frozenset(["speed"])
    since_3 = frozenset(["type"])
    name: Name = Field(description="Its name, unique among the processors.")
    memory: Name = Field(description="The memory in which its tasks read and write.")
    count: Count = Field(default=1, description="How many equal ones there are.")
    speed: Speed = Field(
        default=1,
        description="A task takes time / speed; at least one processor has speed 1. Needs remat.instance/2.",
    )
    type: Name | None = Field(
        default=None, description="The type that times by type name; null: none. Needs remat.instance/3."
    )


class LinkModel(Model):
    """A link from one memory to another: a transfer takes latency + size/bandwidth on its channel, and then `delay`.

    A link from a memory to itself leads to equal ranks that are not modelled: collectives of one part occupy it.
    """

    since_3 = frozenset(["delay", "ratio", "codec", "energy"])
    source: Name = Field(description="The memory that it reads.")
    target: Name = Field(description="The memory that it writes.")
    bandwidth: Bandwidth = Field(default=None, description="Bytes per time; null: transfers take the latency only.")
    latency: Time = Field(default=0, description="Time that each transfer takes beside size/bandwidth.")
    delay: Time = Field(
        default=0,
        description="Time from when the channel is free again until the data has arrived: any number of transfers are "
        "under way at once. Needs remat.instance/3.",
    )
    ratio: Speed = Field(
        default=1,
        description="Bytes that are sent for each that crosses the link, where it packs them. Needs remat.instance/3.",
    )
    codec: Bandwidth = Field(
        default=None,
        description="Bytes per time that are packed and unpacked, before the link is free again; null: that takes no "
        "time. Needs remat.instance/3.",
    )
    energy: Energy = Field(
        default=0,
        description="Energy of each byte of a value that crosses the link, before compression. Needs remat.instance/3.",
    )
    channel: NameOrNames | None = Field(
        default=None,
        description="What a transfer occupies; null: a channel of the link's own. Links that share one take turns; one "
        "named after a processor keeps that from running tasks. A list (remat.instance/3): it occupies all of them.",
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
        plain = self.ratio == 1 and self.codec is None
        return None if plain else Packed(self.bandwidth, self.ratio, self.codec)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that a transfer occupies, as listed."""
        return () if self.channel is None else (self.channel,) if isinstance(self.channel, str) else self.channel


class MachineModel(Model):
    """The machine of an instance.

    The first processor of speed 1 is the *reference processor*. Its memory is the *working memory*, which budgets and
    static memory mean. Otherwise the order of memories, processors and links has no meaning.
    """

    memories: Annotated[tuple[MemoryModel, ...], Field(min_length=1, description="At least one."), Many] = (
        MemoryModel.model_construct(name="memory"),
    )
    processors: Annotated[tuple[ProcessorModel, ...], Field(min_length=1, description="At least one."), Many] = (
        ProcessorModel.model_construct(name="processor", memory="memory"),
    )
    links: Annotated[tuple[LinkModel, ...], Many] = Field(
        default=(), description="The only ways between memories, each in one direction."
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

    def build(self, uses: Callable[[], Uses] = Uses) -> Machine:
        """Build the machine for placement and the verifier, in canonical order.

        `uses` returns how an instance uses the parts of the machine (see `remat.graph.canonical`).
        """
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
                bandwidth=link.bandwidth if link.packed is None else link.packed.through,
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
