"""Placement of one order per processor: an event simulation that adds the copies and the drops.

Each processor runs its operations in the given order, each as early as its data are there. What another memory needs is
sent when the operation that makes it has ended; of the transfers that wait for one channel, the one that was ready
first goes first. Values are dropped after their last use in each memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import NumberArray, Ragged, TaskGraph
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import Number

Tasks = Sequence[int]
"""The tasks of one operation, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Orders in which operations wait for each other for ever: (processor, position) of each of a cycle."""

    cycle: tuple[tuple[int, int], ...]


def place_orders(
    graph: TaskGraph, machine: Machine, orders: Sequence[Sequence[Tasks]], initial: Sequence[tuple[int, int]] = ()
) -> Steps | Stuck:
    """Turn one order per processor into placed steps.

    Parameters
    ----------
    graph, machine
        What is to be computed, and on what.
    orders : sequence, one a processor, of sequences of operations
        Every task stands in at most one operation.
    initial : sequence of (value, memory)
        Where placeable inputs lie from the start, and stay.

    Returns
    -------
    Steps or Stuck
        Runs, copies and drops with start times, in their order.

    Raises
    ------
    OptionError
        For a value that no operation makes, or a copy for which there is no link.

    Notes
    -----
    O(accesses log operations). Capacities play no part: the verifier says whether it fits.
    """
    return _Orders(graph, machine, orders, initial).steps()


class _Orders:
    def __init__(
        self,
        graph: TaskGraph,
        machine: Machine,
        orders: Sequence[Sequence[Tasks]],
        initial: Sequence[tuple[int, int]],
    ) -> None:
        self.graph, self.machine, self.orders = graph, machine, orders
        self.initial = tuple(initial)
        self.memory_of = [processor.memory for processor in machine.processors]
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.maker: dict[int, tuple[int, int]] = {}
        for processor, operations in enumerate(orders):
            for position, tasks in enumerate(operations):
                for task in tasks:
                    for value in self.writes[task]:
                        self.maker[value] = (processor, position)
        self.there = {(value, memory) for value, memory in self.initial}
        first = machine.memories[0].name
        self.there |= {(place.value, machine.memory_index[place.memory or first]) for place in graph.inputs}
        self.fixed = {value for value, _ in self.there}
        # What each operation still waits for, who waits for a value in a memory, and where a value is to be sent.
        self.missing: list[list[int]] = [[0] * len(operations) for operations in orders]
        self.waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self.targets: dict[int, list[int]] = {}
        # One entry a step: start, end, kind, item, source, target, processor.
        self.rows: list[tuple[Number, Number, int, int, int, int, int]] = []
        self._find_waits()

    def _find_waits(self) -> None:
        for processor, operations in enumerate(self.orders):
            memory = self.memory_of[processor]
            for position, tasks in enumerate(operations):
                wanted: set[int] = set()
                made: set[int] = set()
                for task in tasks:
                    wanted.update(value for value in self.reads[task] if value not in made)
                    made.update(self.writes[task])
                count = 0
                for value in sorted(wanted):
                    if (value, memory) in self.there:
                        continue
                    if value not in self.maker:
                        name, reader = self.graph.values[value], self.graph.tasks[tasks[0]]
                        raise OptionError(f"{reader} reads {name}, which no operation makes", argument="orders")
                    count += 1
                    self.waiting.setdefault((value, memory), []).append((processor, position))
                    if self.memory_of[self.maker[value][0]] != memory:
                        targets = self.targets.setdefault(value, [])
                        if memory not in targets:
                            targets.append(memory)
                self.missing[processor][position] = count

    def steps(self) -> Steps | Stuck:
        """Run the simulation, and list what happened."""
        next_up = [0] * len(self.orders)
        idle = [True] * len(self.orders)
        free_at: list[Number] = [0] * len(self.machine.resources)
        # Events: (time, number, memory or processor, position or -1, value or -1).
        events: list[tuple[Number, int, int, int, int]] = []
        number = 0

        def start_next(processor: int, now: Number) -> None:
            nonlocal number
            position = next_up[processor]
            if idle[processor] and position < len(self.orders[processor]) and not self.missing[processor][position]:
                idle[processor] = False
                end = self._run(processor, position, now)
                number += 1
                heapq.heappush(events, (end, number, processor, position, -1))

        def arrived(value: int, memory: int, now: Number) -> None:
            for processor, position in self.waiting.get((value, memory), ()):
                self.missing[processor][position] -= 1
                if position == next_up[processor]:
                    start_next(processor, now)

        for processor in range(len(self.orders)):
            start_next(processor, 0)
        while events:
            now, _, where, position, value = heapq.heappop(events)
            if position < 0:
                arrived(value, where, now)
                continue
            memory = self.memory_of[where]
            next_up[where] += 1
            idle[where] = True
            for task in self.orders[where][position]:
                for made in self.writes[task]:
                    for target in self.targets.get(made, ()):
                        end = self._copy(made, memory, target, now, free_at)
                        number += 1
                        heapq.heappush(events, (end, number, target, -1, made))
                    arrived(made, memory, now)
            start_next(where, now)
        if any(done < len(operations) for done, operations in zip(next_up, self.orders, strict=True)):
            return Stuck(self._cycle(next_up))
        return self._listed()

    def _run(self, processor: int, position: int, now: Number) -> Number:
        for task in self.orders[processor][position]:
            end = now + self._duration(task, processor)
            self.rows.append((now, end, StepKind.RUN, task, -1, -1, processor))
            now = end
        return now

    def _duration(self, task: int, processor: int) -> Number:
        place = self.machine.processors[processor]
        times: NumberArray = self.graph.time
        if self.graph.times is not None:
            times = self.graph.times[self.graph.types.index(place.type)]
        duration: Number = times[task].item()
        if duration < 0:
            raise OptionError(f"{place.name} cannot run {self.graph.tasks[task]}", argument="orders")
        return duration if place.speed == 1 else duration / place.speed

    def _copy(self, value: int, source: int, target: int, now: Number, free_at: list[Number]) -> Number:
        link = self.machine.link_index.get((source, target))
        if link is None:
            ends = [self.machine.memories[memory].name for memory in (source, target)]
            raise OptionError(f"there is no link from {ends[0]} to {ends[1]}", argument="orders")
        ends_of = self.machine.links[link]
        channel = self.machine.resource_of_link[link]
        begin = max(now, free_at[channel])
        size = int(self.graph.size[value])
        occupied: Number = ends_of.latency
        if ends_of.bandwidth is not None:
            exact = isinstance(ends_of.bandwidth, int) and size % ends_of.bandwidth == 0
            occupied += size // ends_of.bandwidth if exact else size / ends_of.bandwidth
        free_at[channel] = begin + occupied
        end = begin + occupied + ends_of.delay
        self.rows.append((begin, end, StepKind.COPY, value, source, target, -1))
        return end

    def _cycle(self, next_up: list[int]) -> tuple[tuple[int, int], ...]:
        """Follow who waits for whom, from a processor that has not ended, until one comes twice."""
        path: list[tuple[int, int]] = []
        at = next(k for k, operations in enumerate(self.orders) if next_up[k] < len(operations))
        seen: dict[int, int] = {}
        while at not in seen:
            seen[at] = len(path)
            position = next_up[at]
            path.append((at, position))
            memory = self.memory_of[at]
            at = next(
                self.maker[value][0]
                for value, where in self.waiting
                if where == memory
                and (at, position) in self.waiting[value, where]
                and self.maker[value][1] >= next_up[self.maker[value][0]]
            )
        return tuple(path[seen[at] :])

    def _listed(self) -> Steps:
        """Sort what happened, and drop each value after its last use in each memory."""
        # Events were met in the order of time: of steps that start together, who waits for whom comes later.
        rows = sorted(self.rows, key=lambda row: row[0])
        count = len(rows)
        last: dict[tuple[int, int], int] = {}

        def use(value: int, memory: int, step: int) -> None:
            before = last.get((value, memory))
            if before is None or (rows[before][1], rows[before][0]) <= (rows[step][1], rows[step][0]):
                last[value, memory] = step

        for step, (_, _, kind, item, source, target, processor) in enumerate(rows):
            if kind == StepKind.RUN:
                memory = self.memory_of[processor]
                for value in self.reads[item]:
                    use(value, memory, step)
                for value in self.writes[item]:
                    use(value, memory, step)
            else:
                use(item, source, step)
                use(item, target, step)
        first = self.machine.memories[0].name
        stays = {(place.value, self.machine.memory_index[place.memory or first]) for place in self.graph.outputs}
        drops: list[list[int]] = [[] for _ in range(count)]
        for (value, memory), step in last.items():
            if value not in self.fixed and (value, memory) not in stays:
                drops[step].append(value)
        return _columns(rows, drops, self.initial)


def _columns(
    rows: list[tuple[Number, Number, int, int, int, int, int]],
    drops: list[list[int]],
    initial: tuple[tuple[int, int], ...],
) -> Steps:
    count = len(rows)
    start, _, kind, item, source, target, on = ([*column] for column in zip(*rows, strict=True)) if rows else [[]] * 7
    exact = set(map(type, start)) <= {int}
    places = np.array(on, dtype=np.int64)
    named = places >= 0
    return Steps(
        kind=np.array(kind, dtype=np.int8),
        item=np.array(item, dtype=np.int64),
        source=np.array(source, dtype=np.int64),
        target=np.array(target, dtype=np.int64),
        amount=np.full(count, WHOLE, dtype=np.int64),
        drop=Ragged.from_lists(drops),
        on=Ragged(np.concatenate(([0], np.cumsum(named))).astype(np.int64), places[named]),
        start=np.array(start, dtype=np.int64 if exact else np.float64),
        initial=initial,
    )
