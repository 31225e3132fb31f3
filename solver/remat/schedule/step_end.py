"""End of a pipeline's training step: gradient exchange between copies of a layer, and parameter updates.

Orders do not list these tasks, since they follow from the orders. `A{l}` sums the gradients of layer l over all devices
that hold it. It is a collective that begins after the last backward of the layer on all of them, and occupies the links
of a ring. Then `U{l}.{k}` updates the k-th copy, in the order of devices, after the order of its device: stages in the
order of their last backwards, within a stage the last layer first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine, ring_time
from remat.graph.names import NameRun, NumberedNames
from remat.graph.taskgraph import IntArray, NumberArray, Part, Ragged, TaskGraph, number_array
from remat.instance.lowering.chain import with_stage_names
from remat.schedule.data_parallel import sharded_plan
from remat.schedule.device_plan import Plan
from remat.schedule.orders import Orders, Phase, PipelineTasks, tasks_of
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance import PipelineInstance


def plan_of(
    instance: PipelineInstance,
    graph: TaskGraph,
    machine: Machine,
    orders: Orders,
    places: tuple[tuple[int, int], ...],
    tasks: PipelineTasks | None = None,
) -> Plan:
    """Expand orders into tasks, followed by the exchanges and updates.

    Parameters
    ----------
    instance : PipelineInstance
    graph : TaskGraph
        The lowered instance.
    machine : Machine
    orders : Orders
        Every operation occurs exactly once.
    places : tuple of (value, memory)
        Memories of the parameters.
    tasks : PipelineTasks, optional
        Task indices of the graph; by default no micro-batch is shared.

    Notes
    -----
    A ring of r copies takes 2 (r - 1) rounds, each as long as its slowest link needs for the r-th part of the
    gradients: latency + delay + bytes / (r bandwidth). O(operations + layers x copies), and a copy of the graph.
    """
    tasks = tasks_of(instance) if tasks is None else tasks
    operations, beside = tasks.of_units(orders)
    plan = Plan(graph, orders.columns[0][orders.units.start[:-1]], operations, beside)
    if instance.sharding is not None:
        return sharded_plan(instance, machine, places, plan, tasks, orders)
    if not instance.closes:
        return plan
    return _Closing(instance, machine, places, plan, tasks).plan(orders)


class _Closing:
    def __init__(
        self,
        instance: PipelineInstance,
        machine: Machine,
        places: tuple[tuple[int, int], ...],
        plan: Plan,
        tasks: PipelineTasks,
    ) -> None:
        self.instance, self.machine, self.before, self.tasks = instance, machine, plan, tasks
        self.layers = instance.each_layer(tasks.degrees)
        self.counts = [instance.micro_batches * int(parts) for parts in tasks.parts]
        graph = plan.graph
        device_of = {processor.memory: index for index, processor in enumerate(machine.processors)}
        self.parameters = [
            {name: value for name in "wgo" if (value := graph.values.find(f"{name}{layer + 1}")) is not None}
            for layer in range(len(self.layers))
        ]
        lies: dict[int, set[int]] = {}
        for value, memory in places:
            lies.setdefault(value, set()).add(device_of[memory])
        self.homes = [
            sorted(set().union(*(lies.get(value, set()) for value in own.values()))) for own in self.parameters
        ]
        self.task_names: list[NameRun] = []
        self.value_names: list[NameRun] = []
        self.times: list[Number] = []
        self.reads: list[list[int]] = []
        self.writes: list[list[int]] = []
        self.parts: dict[int, tuple[Part, ...]] = {}
        self.tied: dict[int, frozenset[str]] = {}
        self.updates: dict[tuple[int, int], int] = {}  # layer and device
        self.made: dict[int, int] = {}  # layer: the first of the values that say that its gradients are there
        self.values = len(graph.values)

    def plan(self, orders: Orders) -> Plan:
        graph, before = self.before.graph, self.before
        device = np.full(len(graph.tasks), -1, dtype=np.int64)
        device[before.operations.items] = before.processors[before.operations.rows]
        for layer in range(len(self.layers)):
            self._add(layer, device)
        if not self.times:
            return before
        listed = [[task] for _, task in self._in_turn(orders)]
        processors = np.array([home for home, _ in self._in_turn(orders)], dtype=np.int64)
        order = np.argsort(np.concatenate((before.processors, processors)), kind="stable")
        more = Ragged.from_lists(listed)
        start = np.concatenate((before.operations.start, before.operations.start[-1] + more.start[1:]))
        operations = Ragged(start, np.concatenate((before.operations.items, more.items)))
        beside = Ragged(start, np.concatenate((before.beside, np.zeros(len(more.items), dtype=bool))).astype(np.int64))
        return Plan(
            self._graph(),
            np.concatenate((before.processors, processors))[order],
            operations.gather(order),
            beside.gather(order).items.astype(bool),
        )

    def _last_halves(self, layer: int) -> int:
        """Return the first of the tasks that complete a layer's gradients."""
        return self.tasks.first(Phase.W if self.layers[layer].is_split else Phase.B, layer)

    def _value(self, prefix: str, first: int | None, count: int) -> int:
        at = self.values
        self.value_names.append((prefix, first, count))
        self.values += count
        return at

    def _task(self, time: Number, reads: list[int], writes: list[int]) -> int:
        self.times.append(time)
        self.reads.append(reads)
        self.writes.append(writes)
        return len(self.before.graph.tasks) + len(self.times) - 1

    def _add(self, layer: int, device: IntArray) -> None:
        """Add the exchange and the updates of a layer."""
        homes, own, given = self.homes[layer], self.parameters[layer], self.layers[layer]
        together = self.instance.exchange == "ring" and len(homes) > 1 and "g" in own
        if not homes or not (together or given.update_time):
            return
        first = self.made[layer] = self._value(f"d{layer + 1}.", 0, self.counts[layer])
        begin = self._last_halves(layer)
        ran = device[begin : begin + self.counts[layer]]
        done = {home: (first + np.flatnonzero(ran == home)).tolist() for home in homes}
        added: int | None = None
        if together:
            added = self._value("r", layer + 1, 1)
            size = int(self.before.graph.size[own["g"]])
            self.task_names.append(("A", layer + 1, 1))
            every = [value for home in homes for value in done[home]]
            task = self._task(_ring(self.machine, homes, size), [own["g"], *every], [added])
            self.parts[task] = tuple(
                Part((own["g"], *done[home]), (added,), self.machine.memories[self._memory(home)].name)
                for home in homes
            )
        if given.update_time:
            self.task_names.append((f"U{layer + 1}.", 0, len(homes)))
            for home in homes:
                reads = [*own.values(), *(done[home] if added is None else [added])]
                task = self.updates[layer, home] = self._task(given.update_time, reads, [])
                self.tied[task] = frozenset([self.machine.processors[home].name])

    def _memory(self, device: int) -> int:
        return self.machine.processors[device].memory

    def _in_turn(self, orders: Orders) -> Iterator[tuple[int, int]]:
        """Yield the updates with their devices, in order for each device."""
        _, phase, stage, _ = orders.columns
        last = np.full(len(orders.stages), -1, dtype=np.int64)
        backwards = np.flatnonzero(phase != Phase.F)
        np.maximum.at(last, stage[backwards], backwards)
        found: dict[tuple[int, int], None] = {}
        for number in np.argsort(last, kind="stable").tolist():
            if last[number] < 0:
                continue
            own = orders.stages[number]
            found |= dict.fromkeys((layer, own.device) for layer in reversed(own.layers))
        found |= dict.fromkeys(sorted(self.updates))  # of layers on devices that run none of their tasks
        for layer, home in found:
            if (layer, home) in self.updates:
                yield home, self.updates[layer, home]

    def _graph(self) -> TaskGraph:
        graph, count = self.before.graph, len(self.times)
        assert isinstance(graph.tasks, NumberedNames)
        assert isinstance(graph.values, NumberedNames)
        marks = [(self._last_halves(layer), first, self.counts[layer]) for layer, first in self.made.items()]
        rows = np.concatenate([np.arange(task, task + count) for task, _, count in marks])
        items = np.concatenate([np.arange(value, value + count) for _, value, count in marks])
        order = np.argsort(np.concatenate((graph.writes.rows, rows)), kind="stable")
        counts = np.bincount(np.concatenate((graph.writes.rows, rows)), minlength=len(graph.tasks))
        writes = Ragged(
            np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts))),
            np.concatenate((graph.writes.items, items))[order],
        )
        times = number_array(self.times)
        pairs = graph.pairs
        if pairs is not None:
            alone = np.zeros((len(pairs.spared), count), dtype=pairs.spared.dtype)
            side = np.concatenate((pairs.side, np.zeros(count, dtype=np.int8)))
            pairs = replace(pairs, side=side, spared=np.concatenate((pairs.spared, alone), axis=1))
        yes, no = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        made = replace(
            graph,
            tasks=NumberedNames([*graph.tasks.runs, *self.task_names]),
            values=NumberedNames([*graph.values.runs, *self.value_names]),
            time=_joined(graph.time, times),
            size=np.concatenate((graph.size, np.zeros(self.values - len(graph.size), dtype=np.int64))),
            reads=_behind(graph.reads, self.reads),
            writes=_behind(writes, self.writes),
            workspace=np.concatenate((graph.workspace, np.zeros(count, dtype=np.int64))),
            in_place=np.concatenate((graph.in_place, no)),
            required=np.concatenate((graph.required, yes)),
            recomputable=np.concatenate((graph.recomputable, no)),
            once=np.concatenate((graph.once, yes)),
            times=None if graph.times is None else np.array([_joined(row, times) for row in graph.times]),
            tied={**graph.tied, **self.tied},
            parts=self.parts,
            pairs=pairs,
            modules=None,
        )
        return with_stage_names(made, [self.instance.layers])


def _ring(machine: Machine, homes: list[int], size: int) -> Number:
    """Return the time of an all-reduce of gradients among the copies on these devices."""
    memories = [machine.processors[home].memory for home in homes]
    links = [machine.link_between(*ends) for ends in zip(memories, [*memories[1:], memories[0]], strict=True)]
    return ring_time(links, len(homes), size, turns=2)


def _joined(one: NumberArray, other: NumberArray) -> NumberArray:
    exact = one.dtype == other.dtype
    return np.concatenate((one, other) if exact else (one.astype(np.float64), other.astype(np.float64)))


def _behind(rows: Ragged, more: list[list[int]]) -> Ragged:
    added = Ragged.from_lists(more)
    start = np.concatenate((rows.start, rows.start[-1] + added.start[1:]))
    return Ragged(start, np.concatenate((rows.items, added.items)))
