"""The machine as placement, verifier and algorithms see it: memories, processors, links, resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from remat.errors import MissingLinkError, OptionError
from remat.messages import unknown_memory
from remat.units import Number


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory and its capacity in bytes (or units); `None` is unbounded. `static` bytes are resident throughout."""

    name: str
    capacity: int | None = None
    static: int = 0


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor that works in the memory of this index; a task takes time / `speed` on it, 0 < `speed` <= 1.

    `type` selects the times by type name; it is empty if the instance has no types.
    """

    name: str
    memory: int
    speed: Number = 1
    type: str = ""


class Packed(NamedTuple):
    """Compression on a link: it sends `ratio` of the bytes at `bandwidth`, overlapped with compression at `codec`."""

    bandwidth: Number | None
    ratio: Number
    codec: Number | None

    @property
    def through(self) -> Number | None:
        """Uncompressed bytes per time that cross the link: an integer if that is exact; None is infinite."""
        time = Fraction(0)
        if self.bandwidth is not None:
            time += Fraction(str(self.ratio)) / Fraction(str(self.bandwidth))
        if self.codec is not None:
            time += 1 / Fraction(str(self.codec))
        if not time:
            return None
        rate = 1 / time
        return rate.numerator if rate.denominator == 1 else float(rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A directed link between two memories (by index), or from a memory to its peers; `bandwidth` `None` is infinite.

    A transfer occupies the channel and the resources in `also` for `latency` + size / `bandwidth`. It arrives `delay`
    later. If the link compresses values, `bandwidth` is the rate of uncompressed bytes; if their ratios differ, it is
    that of the best ratio, and `with_ratio` returns the link for a value. Each byte of a value costs `energy`.
    """

    source: int
    target: int
    bandwidth: Number | None = None
    latency: Number = 0
    channel: str
    delay: Number = 0
    also: tuple[str, ...] = ()
    packed: Packed | None = None
    energy: Number = 0

    def time(self, size: int) -> Number:
        """Return the transfer time that an algorithm may expect: an integer if the division is exact.

        Placement and the verifier each have their own arithmetic, on purpose.
        """
        before = self.latency + self.delay
        if self.bandwidth is None:
            return before
        if isinstance(self.bandwidth, int) and size % self.bandwidth == 0:
            return before + size // self.bandwidth
        return before + size / self.bandwidth

    def with_ratio(self, ratio: Number | None) -> Link:
        """Return the link for values with a compression ratio; None is the ratio of the link."""
        return self if self.packed is None else _with_ratio(self, ratio)


@lru_cache(maxsize=10_000)
def _with_ratio(link: Link, ratio: Number | None) -> Link:
    assert link.packed is not None
    packed = link.packed if ratio is None else link.packed._replace(ratio=ratio)
    return replace(link, bandwidth=packed.through)


def ring_time(links: Iterable[Link], members: int, size: int, *, turns: int = 1) -> Number:
    """Return the time of a ring collective with this number of members and bytes.

    An all-gather or a reduce-scatter is one pass of members - 1 rounds; an all-reduce takes two passes (`turns`).
    The slowest link sets the time of a round: latency + delay + size / (members x bandwidth).
    """
    slowest: Number = 0
    for link in links:
        time: Number = link.latency + link.delay
        if link.bandwidth is not None:
            each = members * link.bandwidth
            time += size // each if isinstance(each, int) and size % each == 0 else size / each
        slowest = max(slowest, time)
    return turns * (members - 1) * slowest


@dataclass(frozen=True)
class Machine:
    """Memories, processors and links; a *resource* is anything that a step occupies.

    Resources are the processors (first, in order) and the channels of the links. A channel with the name of a
    processor is that processor: its transfers are synchronous.
    """

    memories: tuple[Memory, ...] = (Memory("memory"),)
    processors: tuple[Processor, ...] = (Processor("processor", 0),)
    links: tuple[Link, ...] = ()

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Names of all resources, processors first."""
        names = dict.fromkeys(processor.name for processor in self.processors)
        names.update(dict.fromkeys(name for link in self.links for name in (link.channel, *link.also)))
        return tuple(names)

    @cached_property
    def resource_of_link(self) -> tuple[int, ...]:
        """Index of the resource that each link's transfers occupy."""
        index = {name: i for i, name in enumerate(self.resources)}
        return tuple(index[link.channel] for link in self.links)

    @cached_property
    def held_by_link(self) -> tuple[tuple[int, ...], ...]:
        """Indices of all resources that each link's transfers occupy, its channel first."""
        index = {name: i for i, name in enumerate(self.resources)}
        return tuple(tuple(index[name] for name in (link.channel, *link.also)) for link in self.links)

    @cached_property
    def link_index(self) -> Mapping[tuple[int, int], int]:
        """Index of the link between two memories (by index), if it exists."""
        return {(link.source, link.target): i for i, link in enumerate(self.links)}

    @cached_property
    def memory_index(self) -> Mapping[str, int]:
        """Index of each memory by its name."""
        return {memory.name: i for i, memory in enumerate(self.memories)}

    @cached_property
    def processor_index(self) -> Mapping[str, int]:
        """Index of each processor by its name."""
        return {processor.name: i for i, processor in enumerate(self.processors)}

    def link_between(self, source: int, target: int) -> Link:
        """Return the link from one memory to another (by index).

        Raises
        ------
        MissingLinkError
            If there is none.
        """
        index = self.link_index.get((source, target))
        if index is None:
            raise MissingLinkError(self.memories[source].name, self.memories[target].name)
        return self.links[index]

    def share_a_resource(self, one: int, other: int) -> bool:
        """Whether the transfers of two links (by index) occupy some resource that serves only one of them at a time."""
        return not set(self.held_by_link[one]).isdisjoint(self.held_by_link[other])

    def with_capacities(self, capacities: Mapping[str, int | None]) -> Machine:
        """Return the machine with other capacities for the named memories.

        Raises
        ------
        OptionError
            If a name is not one of this machine's memories.
        """
        for name in capacities:
            if name not in self.memory_index:
                raise OptionError(unknown_memory(name, self.memory_index), argument="budget")
        memories = tuple(
            replace(memory, capacity=capacities.get(memory.name, memory.capacity)) for memory in self.memories
        )
        return replace(self, memories=memories)

    def link_name(self, link: int) -> str:
        """Print a link as ``device->host``."""
        ends = self.links[link]
        return f"{self.memories[ends.source].name}->{self.memories[ends.target].name}"

    def to_document(self) -> dict[str, Any]:
        """Return the machine as the `machine` part of a document, with the processors listed one by one."""
        document: dict[str, Any] = {
            "memories": [
                {"name": memory.name}
                | ({} if memory.capacity is None else {"capacity": memory.capacity})
                | ({"static": memory.static} if memory.static else {})
                for memory in self.memories
            ],
            "processors": [
                {"name": processor.name, "memory": self.memories[processor.memory].name}
                | ({} if processor.speed == 1 else {"speed": processor.speed})
                | ({"type": processor.type} if processor.type else {})
                for processor in self.processors
            ],
        }
        if self.links:
            document["links"] = [
                {
                    "source": self.memories[link.source].name,
                    "target": self.memories[link.target].name,
                    **_rates_document(link),
                    **({} if link.latency == 0 else {"latency": link.latency}),
                    **({} if link.delay == 0 else {"delay": link.delay}),
                    **({} if link.energy == 0 else {"energy": link.energy}),
                    "channel": [link.channel, *link.also] if link.also else link.channel,
                }
                for link in self.links
            ]
        return document


def _rates_document(link: Link) -> dict[str, Number]:
    """Return the fields of a document that describe the speed of a link."""
    packed = link.packed
    named = {"bandwidth": link.bandwidth} if packed is None else {"bandwidth": packed.bandwidth, "codec": packed.codec}
    found = {key: value for key, value in named.items() if value is not None}
    return found if packed is None else found | {"ratio": packed.ratio}
