"""Programs: operations in the order in which a host issues them, their bytes in that order, and their streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.units import Number

Place = tuple[int, int]
"""A value and a memory."""


@dataclass(frozen=True, slots=True)
class Run:
    """Issue a task to the compute stream; later operations may use the bytes that it drops in its memory."""

    task: int
    drop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """Issue a copy of a value to the stream of its direction; it begins after all earlier operations.

    A copy from the first memory is an offload, a copy to it a reload. Its bytes in the target are taken when it is
    issued.
    """

    value: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Let the compute stream wait for copies (by their places in the program), then free values."""

    copies: tuple[int, ...]
    drop: tuple[Place, ...] = ()


Operation = Run | Copy | Wait


@dataclass(frozen=True)
class Program:
    """A host-ordered program of one processor.

    Attributes
    ----------
    operations : tuple of Run, Copy or Wait
    graph, machine
        The task graph of its runs, and the machine.
    """

    operations: tuple[Operation, ...]
    graph: TaskGraph
    machine: Machine

    @property
    def copies(self) -> int:
        """Number of copies."""
        return sum(isinstance(one, Copy) for one in self.operations)

    def peak_memory(self) -> dict[str, int]:
        """Return the peak of each memory, kept in program order: independent of all durations."""
        graph, machine = self.graph, self.machine
        size = graph.size.tolist()
        names = [memory.name for memory in machine.memories]
        used = [graph.static_bytes(machine, index) for index in range(len(names))]
        for place in graph.inputs:
            used[names.index(place.memory or names[0])] += size[place.value]
        peak = list(used)
        held = {(place.value, names.index(place.memory or names[0])) for place in graph.inputs}

        def free(places: Iterable[Place]) -> None:
            for place in places:
                held.discard(place)
                used[place[1]] -= size[place[0]]

        for one in self.operations:
            match one:
                case Run():
                    writes = graph.writes[one.task].tolist()
                    made = sum(size[value] for value in writes)
                    again = [(value, 0) for value in writes if (value, 0) in held]
                    dropped = sum(size[value] for value in one.drop) + sum(size[value] for value, _ in again)
                    reused = (
                        min(made, sum(size[v] for v in one.drop if v not in writes)) if graph.in_place[one.task] else 0
                    )
                    peak[0] = max(peak[0], used[0] + made - reused + int(graph.workspace[one.task]))
                    held.update((value, 0) for value in writes)
                    held.difference_update((value, 0) for value in one.drop)
                    used[0] += made - dropped
                case Copy():
                    held.add((one.value, one.target))
                    used[one.target] += size[one.value]
                    peak[one.target] = max(peak[one.target], used[one.target])
                case Wait():
                    free(one.drop)
        return dict(zip(names, peak, strict=True))

    def makespan(self, time_of: Callable[[Operation], Number]) -> Number:
        """Simulate the streams: one clock for the processor, and one for each channel.

        Parameters
        ----------
        time_of : callable
            Duration of a run or copy.

        Returns
        -------
        int or float
            A run begins after the previous run and all earlier waits. A copy begins when its channel is free and all
            earlier operations of the compute stream have ended, because another value may have had its bytes.
        """
        compute: Number = 0
        channels: dict[int, Number] = {}
        ends: dict[int, Number] = {}
        arrived: dict[Place, Number] = {}
        for index, one in enumerate(self.operations):
            match one:
                case Run():
                    compute += time_of(one)
                case Copy():
                    link = self.machine.link_index[one.source, one.target]
                    channel = self.machine.resource_of_link[link]
                    begin = max(compute, channels.get(channel, 0), arrived.get((one.value, one.source), 0))
                    channels[channel] = ends[index] = arrived[one.value, one.target] = begin + time_of(one)
                case Wait():
                    compute = max(compute, *(ends[copy] for copy in one.copies)) if one.copies else compute
        return max(compute, *channels.values()) if channels else compute

    def to_document(self) -> list[dict[str, object]]:
        """Return the operations with names: `run`, `offload` or `reload` (`copy` between others), `wait`."""
        names = [memory.name for memory in self.machine.memories]
        values, tasks = self.graph.values, self.graph.tasks
        found: list[dict[str, object]] = []
        for one in self.operations:
            match one:
                case Run():
                    shown: dict[str, object] = {"run": tasks[one.task]}
                    found.append(shown | ({"drop": [values[value] for value in one.drop]} if one.drop else {}))
                case Copy():
                    word = "offload" if one.source == 0 else "reload" if one.target == 0 else "copy"
                    ends: dict[str, object] = {"from": names[one.source], "to": names[one.target]}
                    found.append({word: values[one.value], **({} if len(names) == 2 else ends)})
                case Wait():
                    free: dict[str, list[str]] = {}
                    for value, memory in one.drop:
                        free.setdefault(names[memory], []).append(values[value])
                    waits: dict[str, object] = {"wait": list(one.copies)}
                    found.append(waits | ({"free": free} if free else {}))
        return found
