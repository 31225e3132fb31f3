"""Secondary memories and the links between memories, with the minimum time for which bytes occupy them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import Link, Machine

MOST_MEMORIES = 3
"""Maximum number of secondary memories for which all subsets are cuts; with more, each memory and the set of all."""


@dataclass(frozen=True)
class Way:
    """Links over which bytes enter or leave a set of memories.

    Attributes
    ----------
    links : tuple of Link
    channel : int or None
        The resource that all of them occupy; None if they occupy several.
    channels : int
        Number of these resources.
    synchronous : bool
        Whether the single resource is the processor.
    unit : Fraction
        One unit of time, in the instance's unit.
    """

    links: tuple[Link, ...]
    channel: int | None
    channels: int
    synchronous: bool
    unit: Fraction

    def time(self, size: int) -> int:
        """Return the minimum units of time, rounded down, for which a value's bytes occupy the links, whole or split.

        A part takes at least the same part of that time. With several channels, each carries bytes at its full
        bandwidth.
        """
        if any(link.bandwidth is None for link in self.links):
            return int(min(_latency(link) for link in self.links) / self.unit) if self.channel is not None else 0
        if self.channel is not None:
            return int(min(_latency(link) + size / _bandwidth(link) for link in self.links) / self.unit)
        fastest: dict[str, Fraction] = {}
        for link in self.links:
            fastest[link.channel] = max(fastest.get(link.channel, Fraction(0)), _bandwidth(link))
        return int(size / sum(fastest.values()) / self.unit)


@dataclass(frozen=True)
class Cut:
    """A set of secondary memories.

    Attributes
    ----------
    memories : frozenset of int
    into, back : Way or None
        Links into the set, and out of it; None if it has none.
    """

    memories: frozenset[int]
    into: Way | None
    back: Way | None


@dataclass(frozen=True)
class Behind:
    """All memories except the processor's own.

    Attributes
    ----------
    memories : tuple of int
    room : dict of int to int
        Bytes for values in each memory with a capacity.
    cuts : tuple of Cut
        The first one contains all memories.
    """

    memories: tuple[int, ...]
    room: dict[int, int]
    cuts: tuple[Cut, ...]

    @staticmethod
    def of(machine: Machine, unit: Fraction, taken: Sequence[int]) -> Behind | None:
        """Collect the secondary memories of a machine; None if it has only one memory.

        Parameters
        ----------
        machine : Machine
        unit : Fraction
            One unit of time, in the instance's unit.
        taken : sequence of int
            Bytes of each memory that are not available for values.
        """
        own = machine.processors[0].memory
        memories = tuple(index for index in range(len(machine.memories)) if index != own)
        if not memories:
            return None
        room = {}
        for index in memories:
            capacity = machine.memories[index].capacity
            if capacity is not None:
                room[index] = capacity - taken[index]
        parts: list[tuple[int, ...]] = [memories]
        if len(memories) > 1:
            counts = range(1, len(memories)) if len(memories) <= MOST_MEMORIES else (1,)
            parts += [part for count in counts for part in itertools.combinations(memories, count)]
        return Behind(memories, room, tuple(_cut(machine, frozenset(part), unit) for part in parts))


def _cut(machine: Machine, memories: frozenset[int], unit: Fraction) -> Cut:
    numbers = range(len(machine.links))
    into = [n for n in numbers if machine.links[n].target in memories and machine.links[n].source not in memories]
    back = [n for n in numbers if machine.links[n].source in memories and machine.links[n].target not in memories]
    return Cut(memories, _way(machine, into, unit), _way(machine, back, unit))


def _way(machine: Machine, numbers: Sequence[int], unit: Fraction) -> Way | None:
    if not numbers:
        return None
    channels = {machine.resource_of_link[number] for number in numbers}
    channel = min(channels) if len(channels) == 1 else None
    links = tuple(machine.links[number] for number in numbers)
    return Way(links, channel, len(channels), channel == 0, unit)


def _latency(link: Link) -> Fraction:
    return Fraction(link.latency)


def _bandwidth(link: Link) -> Fraction:
    assert link.bandwidth is not None
    return Fraction(link.bandwidth)
