"""The canonical machine: its parts in an order that depends on their properties, not on their order in a document.

Algorithms iterate over memories, processors and links by index. They may rely on this order:

- The *working memory* is memory 0. It is the memory of the *reference processor*, which is processor 0: the first
  listed processor of speed 1.
- The other memories follow from fast to slow, by the round-trip time of a value from the working memory, then by
  capacity. Memories that no value can use come last.
- Processors are sorted by memory, then from fast to slow. Links are sorted by their ends.
- Names decide only between parts that are equal in everything else.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from remat.graph.machine import Link, Machine
from remat.units import Number

Key = tuple[Any, ...]

ROUNDS = 3
"""Links away from a memory that are compared before its name."""


@dataclass(frozen=True)
class Uses:
    """The use of the machine's parts by an instance, without names.

    Attributes
    ----------
    size : int
        Bytes of the largest value that may be transferred.
    memories : mapping of str to tuple
        For each memory that the instance names: the values that must be resident there.
    processors, types : mapping of str to tuple
        For each processor to which tasks are tied, and each type with times: these tasks and times.
    """

    size: int = 1
    memories: Mapping[str, Key] = field(default_factory=dict[str, Key])
    processors: Mapping[str, Key] = field(default_factory=dict[str, Key])
    types: Mapping[str, Key] = field(default_factory=dict[str, Key])


def canonical(machine: Machine, uses: Callable[[], Uses] = Uses) -> Machine:
    """Return a machine with its parts in canonical order: O((memories + processors + links) log).

    Parameters
    ----------
    machine : Machine
        The parts in the order of the document.
    uses : callable
        Returns how the instance uses the machine; called only if the order can depend on that.
    """
    reference = next((k for k, processor in enumerate(machine.processors) if processor.speed == 1), 0)
    working = machine.processors[reference].memory
    if len(machine.memories) == len(machine.processors) == 1 and len(machine.links) < 2:
        return machine
    several = len(machine.memories) > 2 or len(machine.processors) > 2
    known = uses() if several else Uses()
    memories = _memory_order(machine, working, known) if len(machine.memories) > 1 else [0]
    new = {old: index for index, old in enumerate(memories)}
    machine = replace(
        machine,
        memories=tuple(machine.memories[old] for old in memories),
        processors=tuple(replace(one, memory=new[one.memory]) for one in machine.processors),
        links=tuple(replace(link, source=new[link.source], target=new[link.target]) for link in machine.links),
    )
    return _with_ordered_links(_with_ordered_processors(machine, reference, known))


def unused_memories(machine: Machine, named: Iterable[str] = ()) -> set[int]:
    """Return the memories that no value can use: they have no processor, and no value can be moved there and back.

    Parameters
    ----------
    machine : Machine
    named : iterable of str
        Memories that an instance names and therefore uses.
    """
    homes = {processor.memory for processor in machine.processors}
    kept = homes.union(machine.memory_index[name] for name in named if name in machine.memory_index)
    there = _reached(machine.links, kept, backwards=False)
    back = _reached(machine.links, kept, backwards=True)
    return set(range(len(machine.memories))) - (there & back) - kept


def without_unused(machine: Machine, named: Iterable[str] = (), *, own_links: bool = True) -> Machine:
    """Return the machine without unusable memories and without the links to and from them.

    Only memories at the end of the list are removed, where canonical machines have them. Therefore the indices of the
    others do not change. A memory whose static bytes exceed its capacity stays: then no schedule is valid.

    Parameters
    ----------
    machine : Machine
    named : iterable of str
        Memories that the instance names.
    own_links : bool
        Whether links from a memory to itself are used, for example by collectives.
    """
    unused = unused_memories(machine, named)
    count = len(machine.memories)
    while count - 1 in unused:
        last = machine.memories[count - 1]
        if last.capacity is not None and last.static > last.capacity:
            break
        count -= 1
    links = tuple(
        link
        for link in machine.links
        if max(link.source, link.target) < count and (own_links or link.source != link.target)
    )
    if count == len(machine.memories) and len(links) == len(machine.links):
        return machine
    return replace(machine, memories=machine.memories[:count], links=links)


def _reached(links: Iterable[Link], start: Iterable[int], *, backwards: bool) -> set[int]:
    following: dict[int, list[int]] = {}
    for link in links:
        source, target = (link.target, link.source) if backwards else (link.source, link.target)
        following.setdefault(source, []).append(target)
    found = set(start)
    waiting = list(found)
    while waiting:
        for memory in following.get(waiting.pop(), ()):
            if memory not in found:
                found.add(memory)
                waiting.append(memory)
    return found


def _memory_order(machine: Machine, working: int, uses: Uses) -> list[int]:
    """Return the memories in canonical order."""
    out, back = (_times_from(machine, working, uses.size, backwards=way) for way in (False, True))
    unused = unused_memories(machine, uses.memories)
    homes = {processor.memory for processor in machine.processors}
    reachable = homes | (
        _reached(machine.links, homes, backwards=False) & _reached(machine.links, homes, backwards=True)
    )
    first: list[Key] = []
    for index, memory in enumerate(machine.memories):
        group = 0 if index == working else 1 if index in reachable else 3 if index in unused else 2
        bounded = (1, 0) if memory.capacity is None else (0, memory.capacity)
        first.append((group, out[index] + back[index], bounded))
    colours = first if len(set(first)) == len(first) else _refined(machine, first, uses)
    names = [natural(memory.name) for memory in machine.memories]
    return sorted(range(len(first)), key=lambda index: (first[index], colours[index], names[index]))


def _times_from(machine: Machine, working: int, size: int, *, backwards: bool) -> list[Number]:
    """Return a value's time from the working memory to each other one, or back; `inf` if it cannot get there."""
    following: dict[int, list[tuple[int, Number]]] = {}
    for link in machine.links:
        source, target = (link.target, link.source) if backwards else (link.source, link.target)
        following.setdefault(source, []).append((target, link.time(size)))
    times: list[Number] = [inf] * len(machine.memories)
    times[working] = 0
    waiting: list[tuple[Number, int]] = [(0, working)]
    while waiting:
        time, memory = heapq.heappop(waiting)
        if time > times[memory]:
            continue
        for target, more in following.get(memory, ()):
            if time + more < times[target]:
                times[target] = time + more
                heapq.heappush(waiting, (time + more, target))
    return times


def _refined(machine: Machine, first: list[Key], uses: Uses) -> list[Any]:
    """Return keys that differ if memories differ in their contents, their processors or the links that reach them."""
    there: list[list[Key]] = [[] for _ in machine.memories]
    for processor in machine.processors:
        own = (-processor.speed, uses.types.get(processor.type, ()), uses.processors.get(processor.name, ()))
        there[processor.memory].append(own)
    keys: list[Key] = [
        (first[index], memory.static, uses.memories.get(memory.name, ()), tuple(sorted(there[index])))
        for index, memory in enumerate(machine.memories)
    ]
    users = _users(machine)
    links = [_of_link(machine, link, users) for link in machine.links]
    colours = _ranks(keys)
    for _ in range(ROUNDS):
        ends: list[list[Key]] = [[] for _ in machine.memories]
        for link, own in zip(machine.links, links, strict=True):
            ends[link.source].append((0, colours[link.target], own))
            ends[link.target].append((1, colours[link.source], own))
        colours = _ranks([(colour, tuple(sorted(own))) for colour, own in zip(colours, ends, strict=True)])
    return colours


def _of_link(machine: Machine, link: Link, users: Mapping[str, list[tuple[int, int]]]) -> Key:
    """Return the properties of a link, without names."""
    channels = [(name in machine.processor_index, len(users[name])) for name in (link.channel, *link.also)]
    packed = () if link.packed is None else tuple(_number(one) for one in link.packed)
    return _number(link.bandwidth), link.latency, link.delay, packed, tuple(sorted(channels)), link.energy


def _users(machine: Machine) -> dict[str, list[tuple[int, int]]]:
    """Return the ends of the links that occupy each channel."""
    users: dict[str, list[tuple[int, int]]] = {}
    for link in machine.links:
        for name in (link.channel, *link.also):
            users.setdefault(name, []).append((link.source, link.target))
    return {name: sorted(ends) for name, ends in users.items()}


def _number(number: Number | None) -> Key:
    return (1, 0) if number is None else (0, number)


def _ranks(keys: list[Key]) -> list[int]:
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]


def _with_ordered_processors(machine: Machine, reference: int, uses: Uses) -> Machine:
    """Return the machine with the reference processor first; the memories are already in order."""
    if len(machine.processors) == 1:
        return machine
    users = _users(machine)

    def key(index: int) -> Key:
        one = machine.processors[index]
        own = (uses.types.get(one.type, ()), uses.processors.get(one.name, ()), users.get(one.name, []))
        return index != reference, one.memory, -one.speed, own, natural(one.name)

    order = sorted(range(len(machine.processors)), key=key)
    return replace(machine, processors=tuple(machine.processors[index] for index in order))


def _with_ordered_links(machine: Machine) -> Machine:
    """Return the machine with links and their channels in order; memories and processors are already in order."""
    links = sorted(machine.links, key=_ends)
    users = _users(machine)

    def key(name: str) -> Key:
        index = machine.processor_index.get(name)
        return index is not None, index or 0, users[name], natural(name)

    for number, link in enumerate(links):
        if link.also:
            channel, *also = sorted((link.channel, *link.also), key=key)
            links[number] = replace(link, channel=channel, also=tuple(also))
    return replace(machine, links=tuple(links))


def _ends(link: Link) -> tuple[int, int, int]:
    """Return the sort key of a link: links to and from a memory are adjacent."""
    return max(link.source, link.target), min(link.source, link.target), link.source


def natural(name: str) -> Key:
    """Return a key that sorts names alphabetically, and numbers in them by value: gpu2 before gpu10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name
