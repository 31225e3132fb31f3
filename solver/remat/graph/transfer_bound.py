"""A lower bound on the makespan from the transfers that every schedule of a task graph makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from remat.graph.bounds import NeededTasks, as_time, fastest_times, time_step
from remat.graph.machine import Link, Machine
from remat.graph.reachability import allowed_memories
from remat.graph.taskgraph import TaskGraph
from remat.units import Number


class _Transfer(NamedTuple):
    """A transfer that every schedule makes: minimum time before, during and after it."""

    head: Fraction
    time: Fraction
    tail: Fraction


def transfer_bound(graph: TaskGraph, machine: Machine, needed: NeededTasks) -> Number:
    """Return a lower bound on the makespan from values that must cross a link; 0 if no value must.

    Parameters
    ----------
    graph : TaskGraph
    machine : Machine
    needed : NeededTasks
        Those of the graph.

    Returns
    -------
    int or float

    Notes
    -----
    Let X be a set of memories: each memory with a processor alone, and all of them together. A value enters X if
    it starts only outside of X, and no task that may run in X can produce it first. It must also end in X, or a forced
    task that may run only in X reads it. A value leaves X if it must end outside of X, starts nowhere
    outside, and all tasks that can produce it run in X. Each of these values crosses at least once, over a link of its
    direction.

    If all links of a direction share one channel, its transfers are jobs on one machine. Job j takes p_j, begins no
    earlier than its head r_j, and is followed by at least its tail q_j. Hence for every subset S

        makespan >= min r_j + sum p_j + min q_j  (over S).

    The subsets considered are those with the largest tails and those with the largest heads. Heads and tails are the
    longest paths of forced tasks, including mandatory transfers. If both directions share a channel, their times add
    up. If that channel is the only processor, the times of the forced tasks add up with them. Otherwise the time of a
    direction is divided by its number of channels. O(n log n) in the size of the graph, for each X that a value must
    cross.
    """
    if len(machine.memories) == 1 or graph.parts or graph.placeable or not machine.links:
        return 0
    own = sorted({processor.memory for processor in machine.processors})
    regions = {frozenset(own)}
    if graph.times is not None or graph.tied:
        regions |= {frozenset([memory]) for memory in own}
    bound = max((_Region(graph, machine, needed, region).bound() for region in regions), default=Fraction(0))
    return as_time(bound, step=time_step(graph, machine)) if bound else 0


class _Region:
    """A set of memories, and the values that must cross its border."""

    def __init__(self, graph: TaskGraph, machine: Machine, needed: NeededTasks, memories: frozenset[int]) -> None:
        self.graph, self.machine, self.needed = graph, machine, needed
        self.memories = memories
        self.mask = sum(1 << memory for memory in memories)
        self.known: dict[int, int] = {}

    def bound(self) -> Fraction:
        """Return the bound from the transfers over the border; 0 if there are none."""
        entering, leaving = self._crossing()
        links = [
            [
                link
                for link in self.machine.links
                if (link.source in self.memories, link.target in self.memories) == ends
            ]
            for ends in ((False, True), (True, False))
        ]
        values = [found if ways else [] for found, ways in zip((entering, leaving), links, strict=True)]
        if not any(values):
            return Fraction(0)
        jobs = self._jobs(*(_least_times(self.graph, found, ways) for found, ways in zip(values, links, strict=True)))
        bound = max(job.head + job.time + job.tail for side in jobs for job in side)
        shared = [_common(ways) if side else set[str]() for side, ways in zip(jobs, links, strict=True)]
        for side, ways, channels in zip(jobs, links, shared, strict=True):
            bound = max(bound, _one_machine(side) if channels else _spread(side, ways))
        processors = self.machine.processors
        for channel in shared[0] | shared[1]:
            sides = [side for side, names in zip(jobs, shared, strict=True) if channel in names]
            busy = sum((job.time for side in sides for job in side), Fraction(0))
            if len(processors) == 1 and channel == processors[0].name and self.graph.pairs is None:
                busy += Fraction(self.graph.time[self.needed.forced].sum().item())
            bound = max(bound, busy)
        return bound

    def _within(self, task: int) -> bool:
        """Whether a task may run only in these memories."""
        return not self._allowed(task) & ~self.mask

    def _allowed(self, task: int) -> int:
        if task not in self.known:
            self.known[task] = allowed_memories(self.graph, self.machine, task)
        return self.known[task]

    def _crossing(self) -> tuple[list[int], list[int]]:
        """Return the values that enter these memories, and those that leave them, in every schedule."""
        graph, index = self.graph, self.machine.memory_index

        def inside(memory: str | None) -> bool:
            return (0 if memory is None else index[memory]) in self.memories

        begins: dict[int, set[bool]] = {}
        for place in graph.inputs:
            begins.setdefault(place.value, set()).add(inside(place.memory))
        outside = [value for value, places in begins.items() if places == {False}]
        ends_inside = {place.value for place in graph.outputs if inside(place.memory)}
        leaving = {place.value for place in graph.outputs if not inside(place.memory)}
        leaving = {value for value in leaving if False not in begins.get(value, ())}
        if not outside and not leaving:
            return [], []
        reads, producers, readers = graph.reads.to_lists(), graph.producers.to_lists(), graph.readers.to_lists()
        forced = self.needed.forced
        entering = [
            value
            for value in outside
            if (value in ends_inside or any(forced[task] and self._within(task) for task in readers[value]))
            and not any(value not in reads[task] and self._allowed(task) & self.mask for task in producers[value])
        ]
        return entering, [value for value in sorted(leaving) if all(self._within(task) for task in producers[value])]

    def _jobs(
        self, entering: dict[int, tuple[Fraction, Fraction]], leaving: dict[int, tuple[Fraction, Fraction]]
    ) -> tuple[list[_Transfer], list[_Transfer]]:
        """Return the mandatory transfers of both directions with their heads and tails."""
        graph = self.graph
        duration = [Fraction(time) for time in fastest_times(graph)]
        producers, readers = graph.producers.to_lists(), graph.readers.to_lists()
        reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
        forced: list[bool] = self.needed.forced.tolist()
        order = _order(graph)
        waits = {value: sum(times, Fraction(0)) for value, times in (entering | leaving).items()}
        kept = {value: [task for task in readers[value] if forced[task] and self._within(task)] for value in entering}
        held = {(task, value) for value, tasks in kept.items() for task in tasks}

        def made_by(value: int) -> int | None:
            """Return the only task that can write a value, if it is forced."""
            known = len(producers[value]) == 1 and value not in graph.available and forced[producers[value][0]]
            return producers[value][0] if known else None

        ended = [Fraction(0)] * len(duration)
        for task in order:
            begins = Fraction(0)
            for value in reads[task]:
                maker = made_by(value)
                if maker is not None:
                    begins = max(begins, ended[maker])
                elif (task, value) in held:
                    begins = max(begins, waits[value])
            ended[task] = begins + duration[task]
        rest = [Fraction(0)] * len(duration)  # from the start of a task to the end of the schedule
        for task in reversed(order):
            after = Fraction(0)
            for value in writes[task]:
                if made_by(value) == task:
                    after = max([after, *(rest[reader] for reader in readers[value] if forced[reader])])
                    if value in leaving:
                        after = max(after, waits[value])
            rest[task] = duration[task] + after
        arriving = [
            _Transfer(Fraction(0), time, delay + max((rest[task] for task in kept[value]), default=Fraction(0)))
            for value, (time, delay) in entering.items()
        ]
        makers = {value: made_by(value) for value in leaving}
        departing = [
            _Transfer(Fraction(0) if (maker := makers[value]) is None else ended[maker], time, delay)
            for value, (time, delay) in leaving.items()
        ]
        return arriving, departing


def _least_times(
    graph: TaskGraph, values: Sequence[int], links: Sequence[Link]
) -> dict[int, tuple[Fraction, Fraction]]:
    """Return for each value the minimum time that its transfer occupies one of the links, and the minimum delay."""
    found = {}
    delay = min((_exact(link.delay) for link in links), default=Fraction(0))
    for value in values:
        size = int(graph.size[value])
        found[value] = min(_occupied(graph.link_for(link, value), size) for link in links), delay
    return found


def _occupied(link: Link, size: int) -> Fraction:
    through = Fraction(0) if link.bandwidth is None else size / _exact(link.bandwidth)
    return _exact(link.latency) + through


def _exact(number: Number) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(str(number))


def _common(links: Iterable[Link]) -> set[str]:
    """Return the channels that transfers over every one of the links occupy."""
    return set.intersection(*({link.channel, *link.also} for link in links))


def _order(graph: TaskGraph) -> list[int]:
    """Return the tasks in a precedence order implied by values with one producer; tasks of a cycle are left out."""
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    producers, readers = graph.producers.to_lists(), graph.readers.to_lists()
    single = [len(tasks) == 1 and value not in graph.available for value, tasks in enumerate(producers)]
    waiting = [
        sum(single[value] and producers[value][0] != task for value in needs) for task, needs in enumerate(reads)
    ]
    order = [task for task, count in enumerate(waiting) if count == 0]
    for task in order:
        for value in writes[task]:
            if single[value]:
                for reader in readers[value]:
                    waiting[reader] -= reader != task
                    if waiting[reader] == 0 and reader != task:
                        order.append(reader)
    return order


def _one_machine(jobs: list[_Transfer]) -> Fraction:
    """Return the bound for mutually exclusive transfers, over the subsets with the largest tails or heads."""
    bound = Fraction(0)
    for largest, other in (("tail", "head"), ("head", "tail")):
        total, least = Fraction(0), None
        for job in sorted(jobs, key=lambda job: -getattr(job, largest)):
            total += job.time
            edge: Fraction = getattr(job, other)
            least = edge if least is None else min(least, edge)
            bound = max(bound, total + getattr(job, largest) + least)
    return bound


def _spread(jobs: list[_Transfer], links: Sequence[Link]) -> Fraction:
    """Return the minimum time of transfers over several channels at once."""
    return sum((job.time for job in jobs), Fraction(0)) / max(1, len({link.channel for link in links}))
