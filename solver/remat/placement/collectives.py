"""Collectives in orders per processor: a collective begins when its parts can read all inputs, and occupies a ring.

The orders of the processors do not list them. Among the events of one instant, collectives come last, in the order
of the graph. Like transfers, they take their channels in the order in which they became ready.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.units import Number

Event = tuple[Number, int, int]
"""Time, rank among the events of that instant, and item."""

LAST = 2**61
"""Rank after all other events of an instant."""


class Collectives:
    """The collectives of a graph: the operations that they wait for, and the operations that wait for them.

    Parameters
    ----------
    graph, machine
    processors : (operations,) int64
        Processor of each operation.
    fixed : (memories * values,) bool
        Values that are resident from the start, by memory, and stay.
    maker : (values,) int64
        The operation that writes each value; -1 for none.

    Attributes
    ----------
    tasks : list of int
    of_value : (values,) int64
        The collective (its index in `tasks`) that writes a value; -1 for others.
    touched : (values,) bool
        Values that collectives of several parts read or write. Those of one part free the values that they use last.
    sources, followers : list of lists of int
        Operations that write the values that the parts read, and operations that read the parts' results.
    members, held : list of lists of int
        For each part, a processor in its memory; and the resources of the ring.
    """

    def __init__(
        self, graph: TaskGraph, machine: Machine, processors: IntArray, fixed: BoolArray, maker: IntArray
    ) -> None:
        values = len(graph.values)
        self.tasks = sorted(graph.parts)
        self.graph = graph
        self.of_value = np.full(values, -1, dtype=np.int64)
        self.touched = np.zeros(values, dtype=bool)
        self.sources: list[list[int]] = []
        self.followers: list[list[int]] = [[] for _ in self.tasks]
        self.held: list[list[int]] = []
        self.members: list[list[int]] = []
        first = {processor.memory: index for index, processor in reversed([*enumerate(machine.processors)])}
        for number, task in enumerate(self.tasks):
            found: dict[int, None] = {}
            where = [machine.memory_index[part.memory or machine.memories[0].name] for part in graph.parts[task]]
            for part, memory in zip(graph.parts[task], where, strict=True):
                self.touched[[*part.reads, *part.writes]] |= len(where) > 1
                self.of_value[list(part.writes)] = number
                for value in part.reads:
                    made = int(maker[value])
                    if fixed[memory * values + value]:
                        continue
                    if made < 0 or machine.processors[int(processors[made])].memory != memory:
                        what = f"{graph.described(task)} reads {graph.values[value]} in {machine.memories[memory].name}"
                        raise OptionError(f"{what}, where no operation writes it", argument="orders")
                    found[made] = None
            ends = list(zip(where, [*where[1:], where[0]], strict=True))
            if len(where) == 1 and ends[0] not in machine.link_index:
                ends = []
            for pair in ends:
                machine.link_between(*pair)
            held = [resource for pair in ends for resource in machine.held_by_link[machine.link_index[pair]]]
            self.sources.append(sorted(found))
            self.members.append([first[memory] for memory in where])
            self.held.append(list(dict.fromkeys(held + (self.members[-1] if task in graph.busy else []))))

    def followed_by(self, collective: IntArray, reader: IntArray) -> None:
        """Record which operations read the results of collectives."""
        for number, waiting in sorted(set(zip(collective.tolist(), reader.tolist(), strict=True))):
            self.followers[number].append(waiting)


class Rings:
    """State of the collectives in a simulation: item ``first + k`` means ready, ``first + count + k`` ended.

    Attributes
    ----------
    first : int
    started : list of times
    number : list of int
        The event number of each collective in the simulation.
    """

    def __init__(self, collectives: Collectives, first: int, free_at: list[Number]) -> None:
        count = len(collectives.tasks)
        self.first, self.free_at, self.count = first, free_at, count
        self.held, self.followers = collectives.held, collectives.followers
        self.time: list[Number] = collectives.graph.time[collectives.tasks].tolist()
        self.left = [len(sources) for sources in collectives.sources]
        self.waiting: dict[int, list[int]] = {}
        for number, sources in enumerate(collectives.sources):
            for operation in sources:
                self.waiting.setdefault(operation, []).append(number)
        self.started: list[Number] = [0] * count
        self.number = [0] * count

    def begin(self) -> Iterator[Event]:
        """Yield the events of the collectives that wait for no operation."""
        return ((0, LAST + number, self.first + number) for number, left in enumerate(self.left) if not left)

    def ended(self, operation: int, now: Number, events: list[Event]) -> None:
        """Record that an operation has ended."""
        for number in self.waiting.get(operation, ()):
            self.left[number] -= 1
            if not self.left[number]:
                heapq.heappush(events, (now, LAST + number, self.first + number))

    def happens(self, item: int, now: Number, made: int, events: list[Event]) -> list[int]:
        """Begin a collective, or end it; return the operations that waited for its end."""
        number = item - self.first
        if number >= self.count:
            return self.followers[number - self.count]
        begin = max([now, *(self.free_at[resource] for resource in self.held[number])])
        self.started[number], self.number[number] = begin, made
        end = begin + self.time[number]
        for resource in self.held[number]:
            self.free_at[resource] = end
        heapq.heappush(events, (end, made, item + self.count))
        return []
