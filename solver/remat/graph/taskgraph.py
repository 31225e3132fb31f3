"""The task graph to which every instance is lowered, as arrays with names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remat.graph.machine import Link, Machine
from remat.graph.names import Names, with_module
from remat.messages import counted
from remat.units import Number, Units

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
NumberArray = NDArray[Any]
"""int64 where all entries are integers, float64 otherwise."""


PARAMETERS, GRADIENTS, STATES = "parameters", "gradients", "optimizer states"
GATHERED, BUCKETS, ACTIVATIONS = "gathered parameters", "buckets", "activations"


def number_array(values: Iterable[Number]) -> NumberArray:
    """Return times as int64 if every one is an `int` (exact sums), else as float64."""
    items = list(values)
    return _numbers(items, largest=sum(items))


def instant_array(values: Iterable[Number]) -> NumberArray:
    """Return instants, which are never added to each other, as int64 if every one is an `int`, else as float64."""
    items = list(values)
    return _numbers(items, largest=max(items, default=0))


def _numbers(items: list[Number], largest: Number) -> NumberArray:
    exact = set(map(type, items)) <= {int} and largest < 2**62
    return np.array(items, dtype=np.int64 if exact else np.float64)


@dataclass(frozen=True, slots=True)
class Ragged:
    """A list of index lists, flattened: row i is ``items[start[i]:start[i+1]]``."""

    start: IntArray
    items: IntArray

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, row: int) -> IntArray:
        return self.items[self.start[row] : self.start[row + 1]]

    @property
    def counts(self) -> IntArray:
        """Length of each row."""
        return self.start[1:] - self.start[:-1]  # called often for few rows: `np.diff` takes five times as long

    @property
    def rows(self) -> IntArray:
        """Row number of each item."""
        return np.arange(len(self), dtype=np.int64).repeat(self.counts)

    def gather(self, rows: IntArray) -> Ragged:
        """Return the given rows, in that order."""
        counts = self.counts[rows]
        start = np.zeros(len(counts) + 1, dtype=np.int64)
        counts.cumsum(out=start[1:])
        # Position inside the source = start of the source row + offset inside the row.
        source = (self.start[rows] - start[:-1]).repeat(counts) + np.arange(start[-1], dtype=np.int64)
        return Ragged(start, self.items[source])

    def transposed(self, columns: int) -> Ragged:
        """Return, for each item value below `columns`, the rows that contain it, in order."""
        order = np.argsort(self.items, kind="stable")
        counts = np.bincount(self.items, minlength=columns)
        return Ragged(np.concatenate(([0], np.cumsum(counts))), self.rows[order])

    def to_lists(self) -> list[list[int]]:
        """Return plain lists of ints."""
        bounds = self.start.tolist()
        items = self.items.tolist()
        return [items[a:b] for a, b in itertools.pairwise(bounds)]

    @staticmethod
    def from_lists(rows: Sequence[Sequence[int]]) -> Ragged:
        """Flatten lists of ints."""
        start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=start[1:])
        items = np.fromiter((item for row in rows for item in row), dtype=np.int64, count=int(start[-1]))
        return Ragged(start, items)

    @staticmethod
    def empty(rows: int) -> Ragged:
        """Return rows without items."""
        return Ragged(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))


class Resident(NamedTuple):
    """A value that is resident in a memory at the start or at the end; memory None is the first one."""

    value: int
    memory: str | None = None


class Placeable(NamedTuple):
    """An input whose location the schedule chooses: one memory at the start, or up to `copies` of them.

    It stays there. If it has a `successor`, the successor must be resident there at the end instead.
    """

    value: int
    copies: int = 1
    successor: int | None = None


class Renewal(NamedTuple):
    """An input that an earlier step has produced, where steps follow each other without end.

    The value `old` of a step is the value `new` of the `lag`-th step before it.
    """

    old: int
    new: int
    lag: int


class Part(NamedTuple):
    """The values that a collective reads and writes in one of its memories; memory None: any."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    memory: str | None = None


@dataclass(frozen=True)
class PairTimes:
    """The tasks that a processor may run in pairs, a forward with a backward, and the time that a pair saves.

    A pair takes time(f) + time(b) - min(spared(f), spared(b)), but no less than either task alone.

    Attributes
    ----------
    side : (tasks,) int8
        1 for a forward, 2 for a backward, 0 for tasks that run alone.
    spared : (types or 1, tasks) int64 or float64
        Time saved on a processor of each type; 0 or more.
    """

    side: NDArray[np.int8]
    spared: NumberArray

    @property
    def work_spared(self) -> NumberArray:
        """Return twice the maximum time by which each task can reduce the work of its processor."""
        most: NumberArray = self.spared.max(axis=0)
        return most


@dataclass(frozen=True)
class TaskEnergy:
    """Energy of one run of each task.

    Attributes
    ----------
    types : tuple of str
        Processor types that `of_type` distinguishes; empty if no energy depends on the type.
    of_type : (types or 1, tasks) int64 or float64
        On a processor of each type; 0 where the task cannot run.
    """

    types: tuple[str, ...]
    of_type: NumberArray

    def on(self, type_name: str) -> NumberArray:
        """Return the energy of each task on a processor of a type."""
        row: NumberArray = self.of_type[self.types.index(type_name) if type_name in self.types else 0]
        return row


@dataclass(frozen=True, repr=False)
class TaskGraph:
    """Tasks and values as arrays.

    Attributes
    ----------
    tasks, values : Names
    time : (tasks,) int64 or float64
    size : (values,) int64
    reads, writes : Ragged
        Values that each task reads and writes.
    workspace : (tasks,) int64
    in_place, required, recomputable, once : (tasks,) bool
    inputs, outputs : tuple of Resident
        Values that are resident at the start, and values that must be at the end.
    pinned : frozenset of int
        Input values that may not be freed.
    placeable : tuple of Placeable
        Inputs whose memory a schedule's `initial` chooses; they, or their successors, stay there.
    types : tuple of str
        Processor types that `times` distinguishes; empty if all processors are of one type.
    times : (types, tasks) int64 or float64, or None
        Time of each task on a processor of each type; negative if it cannot run there. `time` is the minimum.
    energy : TaskEnergy or None
        None if no task has an energy.
    tied : mapping of int to frozenset of str
        For each task that only some processors may run: the names of these processors.
    ratios : mapping of int to number
        Share of the bytes of each value that a link with compression sends, if it is not that of the link. Empty if no
        link of the machine compresses.
    static_memory : int
        Bytes resident in the working memory throughout, in addition to the machine's own (see `static_bytes`).
    parallel_max : (tasks,) int64
    parallel_alpha : (tasks,) float64
        On p <= `parallel_max` processors a task takes time / p^alpha.
    parts : mapping of int to tuple of Part
        The parts of each task that is a collective. It runs in as many memories at once as it has parts; the
        processors of its run name them. It takes its time whatever their speed. Its reads and writes are those of all
        parts, each once. Each of these memories needs its workspace.
    busy : frozenset of int
        Collectives that also occupy the processors of their memories; the others occupy only the links between them.
    moved : mapping of int to int
        Bytes that each collective sends from each of its memories, if the lowering knows them.
    renewals : tuple of Renewal
        Values handed on from step to step, where steps follow each other without end.
    phase : tuple of str or None
    cheapest : (tasks,) bool or None
        Tasks that together run everything once in the minimum total time of any schedule, if the lowering knows them.
    pairs : PairTimes or None
        Tasks that may run in pairs.
    modules : sequence of str or None
        For each task, the user's name of the part of the program that it belongs to: a module, a stage, a layer.
    terms : mapping of str to str
        In training: the kind of the values by the letters before their number, such as parameters or gradients.
        All other values are activations.
    units : Units
    """

    tasks: Names
    values: Names
    time: NumberArray
    size: IntArray
    reads: Ragged
    writes: Ragged
    workspace: IntArray
    in_place: BoolArray
    required: BoolArray
    recomputable: BoolArray
    once: BoolArray
    inputs: tuple[Resident, ...] = ()
    outputs: tuple[Resident, ...] = ()
    pinned: frozenset[int] = frozenset()
    placeable: tuple[Placeable, ...] = ()
    types: tuple[str, ...] = ()
    times: NumberArray | None = None
    energy: TaskEnergy | None = None
    tied: Mapping[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    ratios: Mapping[int, Number] = field(default_factory=dict[int, Number])
    static_memory: int = 0
    parallel_max: IntArray | None = None
    parallel_alpha: NDArray[np.float64] | None = None
    parts: Mapping[int, tuple[Part, ...]] = field(default_factory=dict[int, tuple[Part, ...]])
    busy: frozenset[int] = frozenset()
    moved: Mapping[int, int] = field(default_factory=dict[int, int])
    renewals: tuple[Renewal, ...] = ()
    phase: tuple[str, ...] | None = None
    cheapest: BoolArray | None = None
    pairs: PairTimes | None = None
    modules: Sequence[str] | None = None
    terms: Mapping[str, str] = field(default_factory=dict[str, str])
    units: Units = field(default_factory=Units)

    def __repr__(self) -> str:
        return f"<TaskGraph: {counted(len(self.tasks), 'task')}, {counted(len(self.values), 'value')}>"

    @cached_property
    def producers(self) -> Ragged:
        """For each value, the tasks that write it, in reference order."""
        return self.writes.transposed(len(self.values))

    @cached_property
    def readers(self) -> Ragged:
        """For each value, the tasks that read it, in reference order."""
        return self.reads.transposed(len(self.values))

    @cached_property
    def available(self) -> frozenset[int]:
        """Values that are available from the start, in any memory."""
        return frozenset([place.value for place in self.inputs] + [place.value for place in self.placeable])

    def link_for(self, link: Link, value: int) -> Link:
        """Return a link with the bandwidth that a value finds there, by its compression ratio."""
        return link.with_ratio(self.ratios.get(value)) if self.ratios else link

    def static_bytes(self, machine: Machine, memory: int) -> int:
        """Return the bytes that are resident in a memory of the machine throughout."""
        return machine.memories[memory].static + (self.static_memory if memory == 0 else 0)

    def starting_with(self, initial: Iterable[tuple[int, str]]) -> TaskGraph:
        """Return the graph with its placeable inputs in these memories, as (value, memory).

        The inputs, or their successors, stay there.
        """
        places = tuple(Resident(value, memory) for value, memory in initial)
        if not self.placeable and not places:
            return self
        follows = {place.value: place.successor for place in self.placeable if place.successor is not None}
        pinned = self.pinned | {place.value for place in places if place.value not in follows}
        ends = tuple(Resident(follows[place.value], place.memory) for place in places if place.value in follows)
        outputs = (*self.outputs, *ends)
        return replace(self, inputs=(*self.inputs, *places), pinned=pinned, placeable=(), outputs=outputs)

    @cached_property
    def on_processors(self) -> BoolArray:
        """Whether each task occupies a processor: all but the collectives that only use links."""
        found = np.ones(len(self.tasks), dtype=bool)
        found[list(self.parts.keys() - self.busy)] = False
        return found

    @cached_property
    def exact_times(self) -> bool:
        """Whether all times are integers."""
        own = [self.time] if self.times is None else [self.time, self.times]
        return all(times.dtype == np.int64 for times in [*own, *([] if self.pairs is None else [self.pairs.spared])])

    def task(self, name: str) -> int:
        """Return the index of a task by its name.

        Raises
        ------
        KeyError
            If there is no such task.
        """
        index = self.tasks.find(name)
        if index is None:
            raise KeyError(name)
        return index

    def module(self, task: int) -> str:
        """Return the user's name of the part of the program that a task belongs to; empty if it has none."""
        return "" if self.modules is None else self.modules[task]

    def term(self, value: int) -> str:
        """Return the kind of a value, as `terms` defines it."""
        return self.terms.get(self.values[value].rstrip("0123456789."), ACTIVATIONS)

    def described(self, task: int, shown: Callable[[str], str] = str) -> str:
        """Return a task's display name, with its module; `shown` is applied to each name."""
        return with_module(self.tasks[task], self.module(task), shown)

    def value_module(self, value: int) -> str:
        """Return the module of the task that first writes a value, or first reads it; empty if it has none."""
        if self.modules is None:
            return ""
        tasks = self.producers[value] if len(self.producers[value]) else self.readers[value]
        return self.modules[int(tasks[0])] if len(tasks) else ""

    def described_value(self, value: int, shown: Callable[[str], str] = str) -> str:
        """Return a value's display name, with its module; `shown` is applied to each name."""
        return with_module(self.values[value], self.value_module(value), shown)

    def value(self, name: str) -> int:
        """Return the index of a value by its name (KeyError if there is none)."""
        index = self.values.find(name)
        if index is None:
            raise KeyError(name)
        return index
