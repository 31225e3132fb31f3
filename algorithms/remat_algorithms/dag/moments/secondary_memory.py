"""Memories behind the processor's own one, and the ways between: how long bytes occupy them at least."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from remat.plugin import Link, Machine

MOST_MEMORIES = 3
"""Memories behind up to which all sets of them are looked at; of more, each by itself and all together."""


@dataclass(frozen=True)
class Way:
    """Links over which bytes get into a set of memories, or out of it.

    Attributes
    ----------
    links : tuple of Link
    channel : int or None
        The resource that all of them occupy; None where they occupy several.
    channels : int
        How many they are.
    synchronous : bool
        Whether the one is the processor.
    unit : Fraction
        Time of the instance that one unit stands for.
    """

    links: tuple[Link, ...]
    channel: int | None
    channels: int
    synchronous: bool
    unit: Fraction

    def time(self, size: int) -> int:
        """Return for how many units, rounded down, a value's bytes occupy the way at least, in parts or whole.

        A part takes a part of that at least. Of several channels each carries what it can.
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
    """A set of memories behind the processor's own.

    Attributes
    ----------
    memories : frozenset of int
    into, back : Way or None
        How bytes from elsewhere get into one of them, and from one of them elsewhere; None: not at all.
    """

    memories: frozenset[int]
    into: Way | None
    back: Way | None


@dataclass(frozen=True)
class Behind:
    """All memories but the processor's own.

    Attributes
    ----------
    memories : tuple of int
    room : dict of int to int
        Bytes for values in each memory that is bounded.
    cuts : tuple of Cut
        The first one is all of them.
    """

    memories: tuple[int, ...]
    room: dict[int, int]
    cuts: tuple[Cut, ...]

    @staticmethod
    def of(machine: Machine, unit: Fraction, taken: Sequence[int]) -> Behind | None:
        """Collect the memories of a machine; None where there is but one.

        Parameters
        ----------
        machine : Machine
        unit : Fraction
            Time of the instance that one unit stands for.
        taken : sequence of int
            Bytes that are not for values, of each memory.
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
