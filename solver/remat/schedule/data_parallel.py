"""Graph of one data-parallel rank: gathers, reductions and updates of equal ranks that run the same pipeline plan.

Orders do not list these tasks, since they follow from the orders. For layer l and micro-batch m:

- `A{l}` all-reduces the gradients of a step or, from stage 1 of ZeRO on, reduces them to the rank's share. If ranks
  partition gradients, each backward (or weight half) instead writes a bucket `b{l}.{m}`, which `A{l}.{m}` reduces into
  the share `g{l}`. A device has at most two buckets: a backward waits for the reduction of the bucket before the last.
- `U{l}` updates the layer after the device's order: stages in the order of their last backwards, within a stage the
  last layer first. A sharded rank updates only its share; `N{l}` gathers the shares from all ranks in stages 1 and 2.
- In stage 3 `P{l}.{m}` gathers a layer for its forward (`f{l}.{m}`), and `Q{l}.{m}` for its backward (`h{l}.{m}`). A
  gather overlaps with the previous task on the device and does not start earlier. Otherwise `P{l}` gathers the layer
  once, from the start of the step (`f{l}`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine, ring_time
from remat.graph.names import NameRun, NumberedNames
from remat.graph.taskgraph import (
    BUCKETS,
    GATHERED,
    IntArray,
    NumberArray,
    Part,
    Ragged,
    TaskGraph,
    number_array,
)
from remat.instance.lowering.chain import with_stage_names
from remat.schedule.orders import Orders, Phase, PipelineTasks
from remat.units import Number

if TYPE_CHECKING:
    from remat.instance import PipelineInstance
    from remat.schedule.device_plan import Plan


def sharded_plan(
    instance: PipelineInstance,
    machine: Machine,
    places: tuple[tuple[int, int], ...],
    plan: Plan,
    tasks: PipelineTasks,
    orders: Orders,
) -> Plan:
    """Return a plan extended by the exchanges, gathers and updates of the ranks.

    Raises
    ------
    OptionError
        If a recomputed layer is gathered, or its gradients reduced, for each micro-batch.

    Parameters
    ----------
    instance : PipelineInstance
        With a `sharding`.
    machine : Machine
        Each device has a link to itself.
    places : tuple of (value, memory)
        Memories of the parameters.
    plan : Plan
        The plan of the orders alone.
    tasks : PipelineTasks
    orders : Orders

    Notes
    -----
    O(operations + layers x micro-batches).
    """
    ranks = instance.sharding
    each = ranks is not None and (ranks.gathers_each or ranks.shares_gradients)
    if ranks is not None and each and any(stage.recompute for stage in orders.stages):
        raise OptionError(
            f"level {ranks.zero} of ZeRO gathers or reduces for each micro-batch and does not allow recomputation; "
            "with keep, it gathers or reduces once per step and allows it",
            argument="orders",
        )
    return _Sharded(instance, machine, places, plan, tasks).plan(orders)


BUFFERS = 2
"""Buckets of a device that may be full at a time."""


@dataclass
class _Added:
    """Collects tasks and values to add to a graph."""

    names: list[str] = field(default_factory=list[str])
    time: list[Number] = field(default_factory=list[Number])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    writes: list[list[int]] = field(default_factory=list[list[int]])
    values: list[str] = field(default_factory=list[str])
    size: list[int] = field(default_factory=list[int])


class _Sharded:
    def __init__(
        self,
        instance: PipelineInstance,
        machine: Machine,
        places: tuple[tuple[int, int], ...],
        plan: Plan,
        tasks: PipelineTasks,
    ) -> None:
        assert instance.sharding is not None
        self.instance, self.machine, self.before, self.tasks = instance, machine, plan, tasks
        self.ranks = instance.sharding
        self.layers, self.whole = instance.each_layer(), instance.whole_layers()
        graph = plan.graph
        self.first_task, self.first_value = len(graph.tasks), len(graph.values)
        self.reads, self.writes = graph.reads.to_lists(), graph.writes.to_lists()
        self.own = [
            {name: value for name in "wgo" if (value := graph.values.find(f"{name}{layer + 1}")) is not None}
            for layer in range(len(self.layers))
        ]
        home = {processor.memory: index for index, processor in enumerate(machine.processors)}
        lies = {value: home[memory] for value, memory in places}
        self.device = [next((lies[value] for value in own.values() if value in lies), 0) for own in self.own]
        self.added = _Added()
        self.parts: dict[int, tuple[Part, ...]] = {}
        self.moved: dict[int, int] = {}
        self.updates: dict[int, int] = {}  # of a layer
        self.emptied: dict[int, int] = {}  # of the task that fills a bucket: the value that marks its reduction
        self.waits: dict[int, list[int]] = {}  # of a task: the collectives that overlap with the task before it

    def plan(self, orders: Orders) -> Plan:
        """Return the plan."""
        for layer in range(len(self.layers)):
            reduced = self._reduce(layer)
            self._update(layer, reduced)
            if self.ranks.zero > 2 and "w" in self.own[layer]:
                self._gather(layer)
        processors, operations, beside = self._operations(orders)
        self._hold_back(processors, operations)
        return replace(self.before, graph=self._graph(), processors=processors, operations=operations, beside=beside)

    # --- tasks --------------------------------------------------------------------------------------------------------

    def _value(self, name: str, size: int = 0) -> int:
        self.added.values.append(name)
        self.added.size.append(size)
        return self.first_value + len(self.added.values) - 1

    def _task(self, name: str, time: Number, reads: Sequence[int], writes: Sequence[int]) -> int:
        added = self.added
        added.names.append(name)
        added.time.append(time)
        added.reads.append(list(reads))
        added.writes.append(list(writes))
        return self.first_task + len(added.names) - 1

    def _collective(
        self, name: str, layer: int, size: int, reads: Sequence[int], writes: Sequence[int], *, turns: int = 1
    ) -> int:
        memory = self.machine.processors[self.device[layer]].memory
        way = self.machine.link_index.get((memory, memory))
        ways = [] if way is None else [self.machine.links[way]]
        task = self._task(name, ring_time(ways, self.ranks.data, size, turns=turns), reads, writes)
        self.parts[task] = (Part(tuple(reads), tuple(writes), self.machine.memories[memory].name),)
        self.moved[task] = turns * self.ranks.sent(size)
        return task

    def _last_halves(self, layer: int) -> range:
        """Return the tasks that produce a layer's gradients, one for each micro-batch."""
        first = self.tasks.first(Phase.W if self.layers[layer].is_split else Phase.B, layer)
        return range(first, first + self.instance.micro_batches)

    def _reduce(self, layer: int) -> list[int]:
        """Add the reduction of a layer's gradients; return the values that signal its completion."""
        own, whole, number = self.own[layer], self.whole[layer], layer + 1
        halves = self._last_halves(layer)
        if self.ranks.shares_gradients and "g" in own:
            made: list[int] = []
            for batch, task in enumerate(halves):
                bucket = self._value(f"b{number}.{batch}", whole.bucket_bytes)
                self.reads[task] = [value for value in self.reads[task] if value != own["g"]]
                self.writes[task].append(bucket)
                made.append(self._value(f"r{number}.{batch}"))
                self.emptied[task] = made[-1]
                self._collective(f"A{number}.{batch}", layer, whole.bucket_bytes, [bucket, own["g"]], [made[-1]])
            return made
        marks: list[int] = []
        if own:
            for batch, task in enumerate(halves):
                marks.append(self._value(f"d{number}.{batch}"))
                self.writes[task].append(marks[-1])
        if "g" not in own:
            return marks
        reduced = self._value(f"r{number}")
        turns = 1 if self.ranks.zero else 2
        size = whole.parameter_gradient_bytes
        self._collective(f"A{number}", layer, size, [own["g"], *marks], [reduced], turns=turns)
        return [reduced]

    def _update(self, layer: int, ready: list[int]) -> None:
        """Add a layer's update (of its share, if sharded) and the gather of the new parameters."""
        own, whole, number = self.own[layer], self.whole[layer], layer + 1
        if not own:
            return
        time = whole.update_time
        gathers = 0 < self.ranks.zero < 3 and "w" in own
        if time or gathers:
            if self.ranks.zero:
                shared = isinstance(time, int) and time % self.ranks.data == 0
                time = time // self.ranks.data if shared else time / self.ranks.data
            done = self._value(f"u{number}")
            self.updates[layer] = self._task(f"U{number}", time, [*own.values(), *ready], [done])
            ready = [done]
        if gathers:
            self._collective(f"N{number}", layer, whole.parameter_size, [own["w"], *ready], [self._value(f"n{number}")])

    def _gather(self, layer: int) -> None:
        """Add the gathers of a layer's parameters, one per use or one per step."""
        number, share, size = layer + 1, self.own[layer]["w"], self.whole[layer].parameter_size
        uses = [(Phase.F, "P", "f"), (Phase.B, "Q", "h")]
        once = None
        if self.ranks.keep:
            once = self._value(f"f{number}", size)
            self._collective(f"P{number}", layer, size, [share], [once])
        for phase, letter, value in uses:
            first = self.tasks.first(phase, layer)
            for batch in range(self.instance.micro_batches):
                gathered = self._value(f"{value}{number}.{batch}", size) if once is None else once
                reads = self.reads[first + batch]
                reads[reads.index(share)] = gathered
                if once is None:
                    task = self._collective(f"{letter}{number}.{batch}", layer, size, [share], [gathered])
                    self.waits.setdefault(first + batch, []).append(task)

    # --- what devices run ---------------------------------------------------------------------------------------------

    def _operations(self, orders: Orders) -> tuple[IntArray, Ragged, np.ndarray]:
        """Return operations followed by the updates; split into tasks if these gather or reduce individually."""
        before = self.before
        if self.ranks.gathers_each or self.ranks.shares_gradients:
            cut = np.flatnonzero(~before.beside)
            owner = before.processors[before.operations.rows[cut]]
            pieces = Ragged(np.append(cut, len(before.beside)), before.operations.items)
        else:
            owner, pieces = before.processors, before.operations
        listed = list(self._in_turn(orders))
        processors = np.concatenate((owner, np.array([home for home, _ in listed], dtype=np.int64)))
        more = Ragged.from_lists([[task] for _, task in listed])
        start = np.concatenate((pieces.start, pieces.start[-1] + more.start[1:]))
        operations = Ragged(start, np.concatenate((pieces.items, more.items)))
        flags = np.concatenate((before.beside, np.zeros(len(more.items), dtype=bool))).astype(np.int64)
        order = np.argsort(processors, kind="stable")
        beside = Ragged(start, flags).gather(order).items.astype(bool)
        return processors[order], operations.gather(order), beside

    def _in_turn(self, orders: Orders) -> Iterator[tuple[int, int]]:
        """Yield the updates with their devices, in order for each device."""
        _, phase, stage, _ = orders.columns
        last = np.full(len(orders.stages), -1, dtype=np.int64)
        backwards = np.flatnonzero(phase != Phase.F)
        np.maximum.at(last, stage[backwards], backwards)
        found: dict[int, None] = {}
        for number in np.argsort(last, kind="stable").tolist():
            if last[number] >= 0:
                found |= dict.fromkeys(reversed(orders.stages[number].layers))
        for layer in found | dict.fromkeys(sorted(self.updates)):
            if layer in self.updates:
                yield self.device[layer], self.updates[layer]

    def _hold_back(self, processors: IntArray, operations: Ragged) -> None:
        """Delay each gather until the task before its user begins, and each bucket's producer until a bucket is free.

        The former is when the task before that one has ended.
        """
        rows, owners = operations.to_lists(), processors.tolist()
        emptied: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            for task in row:
                if task in self.emptied:
                    before = emptied.setdefault(owners[number], [])
                    self.reads[task] += before[-BUFFERS:][:1] if len(before) >= BUFFERS else []
                    before.append(self.emptied[task])
        for number, row in enumerate(rows):
            gathers = [gather for task in row for gather in self.waits.get(task, ())]
            earlier = number - 2
            if not gathers or earlier < 0 or owners[earlier] != owners[number]:
                continue
            mark = self._value(f"t{len(self.added.values)}")
            self._written(rows[earlier][-1]).append(mark)
            for gather in gathers:
                self.added.reads[gather - self.first_task].append(mark)
                (part,) = self.parts[gather]
                self.parts[gather] = (part._replace(reads=(*part.reads, mark)),)

    def _written(self, task: int) -> list[int]:
        return self.writes[task] if task < self.first_task else self.added.writes[task - self.first_task]

    def _graph(self) -> TaskGraph:
        graph, added, count = self.before.graph, self.added, len(self.added.names)
        assert isinstance(graph.tasks, NumberedNames)
        assert isinstance(graph.values, NumberedNames)
        times = number_array(added.time)
        pairs = graph.pairs
        if pairs is not None:
            alone = np.zeros((len(pairs.spared), count), dtype=pairs.spared.dtype)
            side = np.concatenate((pairs.side, np.zeros(count, dtype=np.int8)))
            pairs = replace(pairs, side=side, spared=np.concatenate((pairs.spared, alone), axis=1))
        yes, no = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
        made = replace(
            graph,
            tasks=NumberedNames([*graph.tasks.runs, *_runs(added.names)]),
            values=NumberedNames([*graph.values.runs, *_runs(added.values)]),
            time=_joined(graph.time, times),
            size=np.concatenate((graph.size, np.array(added.size, dtype=np.int64))),
            reads=Ragged.from_lists(self.reads + added.reads),
            writes=Ragged.from_lists(self.writes + added.writes),
            workspace=np.concatenate((graph.workspace, np.zeros(count, dtype=np.int64))),
            in_place=np.concatenate((graph.in_place, no)),
            required=np.concatenate((graph.required, yes)),
            recomputable=np.concatenate((graph.recomputable, no)),
            once=np.concatenate((graph.once, yes)),
            times=None if graph.times is None else np.array([_joined(row, times) for row in graph.times]),
            parts=self.parts,
            moved=self.moved,
            terms={**graph.terms, "f": GATHERED, "h": GATHERED, "b": BUCKETS},
            pairs=pairs,
            modules=None,
        )
        return with_stage_names(made, [self.instance.layers])


def _runs(names: Sequence[str]) -> list[NameRun]:
    """Return names that end in numbers, grouped into ranges of numbers."""
    runs: list[NameRun] = []
    for name in names:
        prefix = name.rstrip("0123456789")
        number = int(name[len(prefix) :])
        before = runs[-1] if runs else ("", 0, 0)
        if before[0] == prefix and (before[1] or 0) + before[2] == number:
            runs[-1] = (prefix, before[1], before[2] + 1)
        else:
            runs.append((prefix, number, 1))
    return runs


def _joined(one: NumberArray, other: NumberArray) -> NumberArray:
    exact = one.dtype == other.dtype
    return np.concatenate((one, other) if exact else (one.astype(np.float64), other.astype(np.float64)))
