"""The data of a problem for moment programs: tasks and values as lists, times and sizes as integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from remat.plugin import IntArray, Number, Problem, reference_order, unread_tasks

COARSE_BITS, FINE_BITS = 44, 40
"""Bits of the total time in units: if times are not exact, and the minimum if there are transfers."""

EXACT_BITS = 52
"""Maximum bits of a total of integer times for which bounds, which are floats, hold every integer."""


@dataclass(frozen=True)
class Facts:
    """A problem on one processor, in integers.

    Attributes
    ----------
    unit : Fraction
        One unit of time, in the instance's unit.
    base : int or float
        Time of all forced tasks, in the instance's unit.
    time, length, cost : list of int
        For each task, in units: time rounded down; time rounded up; cost of another run, 0 if no task reads its
        outputs.
    order : list of int
        Forced tasks, in the order of their first runs.
    place : list of int
        Position of each task in `order`; -1 for optional tasks.
    repeat, unread, in_place : list of bool
        For each task: it may be recomputed; no task reads its values; it overwrites its inputs.
    reads, writes : list of list of int
        Values of each task, without duplicates.
    makers, users : list of list of int
        Producers and readers of each value; a task that reads a value that it writes is not its producer.
    workspace, written : list of int
        Bytes of each task.
    size : list of int
        Size of each value.
    here, pinned, stays : list of bool
        For each value: in the processor's memory at the start, throughout, at the end.
    begins, ends : dict of int to list of int
        Other memories in which a value begins, or must end.
    static : int
        Bytes that occupy the processor's memory throughout, without pinned values.
    own : int
        The processor's memory.
    """

    unit: Fraction
    base: Number
    time: list[int]
    length: list[int]
    cost: list[int]
    order: list[int]
    place: list[int]
    repeat: list[bool]
    unread: list[bool]
    in_place: list[bool]
    reads: list[list[int]]
    writes: list[list[int]]
    makers: list[list[int]]
    users: list[list[int]]
    workspace: list[int]
    written: list[int]
    size: list[int]
    here: list[bool]
    pinned: list[bool]
    stays: list[bool]
    begins: dict[int, list[int]]
    ends: dict[int, list[int]]
    static: int
    own: int

    @property
    def tasks(self) -> range:
        """All tasks."""
        return range(len(self.time))

    @property
    def values(self) -> range:
        """All values."""
        return range(len(self.size))

    @cached_property
    def there(self) -> list[bool]:
        """Whether each value is in any memory at the start."""
        return [here or value in self.begins for value, here in enumerate(self.here)]

    @cached_property
    def maker(self) -> list[int]:
        """The only producer of each value; -1 if the value is present at the start or has several producers."""
        rows = zip(self.makers, self.there, strict=True)
        return [makers[0] if len(makers) == 1 and not there else -1 for makers, there in rows]

    @cached_property
    def always(self) -> int:
        """Bytes that occupy the processor's memory throughout."""
        return self.static + sum(itertools.compress(self.size, self.pinned))

    def needs(self, task: int) -> int:
        """Return the minimum bytes that a run of a task adds: outputs that do not overwrite inputs, and workspace."""
        written = self.written[task]
        if self.in_place[task]:
            freed = sum(self.size[value] for value in self.reads[task] if not self.pinned[value])
            written = max(0, written - freed)
        return written + self.workspace[task]

    @staticmethod
    def of(problem: Problem, order: IntArray | None = None, *, fine: bool = False) -> Facts:
        """Collect the facts of a problem; O(accesses).

        Parameters
        ----------
        problem : Problem
        order : (forced tasks,) int64, optional
            Another topological order of the tasks in `problem.needed.forced`.
        fine : bool
            Whether units must also be small relative to the times of transfers.
        """
        graph, machine, forced = problem.graph, problem.machine, problem.needed.forced
        own = machine.processors[0].memory
        if order is None:
            listed = reference_order(graph, problem.needed.once)
            order = listed[forced[listed]]
        reads = [list(dict.fromkeys(row)) for row in graph.reads.to_lists()]
        writes = [list(dict.fromkeys(row)) for row in graph.writes.to_lists()]
        size: list[int] = graph.size.tolist()
        repeat = (graph.recomputable & ~graph.once).tolist()
        unread = (unread_tasks(graph) & np.array(repeat, dtype=bool)).tolist()
        unit, time, length = _units(graph.time.tolist(), fine=fine)
        made = ([value for value in row if value not in reads[task]] for task, row in enumerate(writes))
        here, begins = _places(problem, own, [(entry.value, entry.memory) for entry in graph.inputs], len(size))
        stays, ends = _places(problem, own, [(entry.value, entry.memory) for entry in graph.outputs], len(size))
        base: Number = graph.time[forced].sum().item() if graph.exact_times else math.fsum(graph.time[forced].tolist())
        return Facts(
            unit=unit,
            base=base,
            time=time,
            length=length,
            cost=[0 if idle else each for each, idle in zip(time, unread, strict=True)],
            order=order.tolist(),
            place=places_of(order.tolist(), len(reads)),
            repeat=repeat,
            unread=unread,
            in_place=graph.in_place.tolist(),
            reads=reads,
            writes=writes,
            makers=rows_with(made, len(size)),
            users=rows_with(reads, len(size)),
            workspace=graph.workspace.tolist(),
            written=[sum(size[value] for value in row) for row in writes],
            size=size,
            here=here,
            pinned=[here[value] and value in graph.pinned for value in range(len(size))],
            stays=stays,
            begins=begins,
            ends=ends,
            static=graph.static_bytes(machine, own),
            own=own,
        )


def _places(
    problem: Problem, own: int, entries: list[tuple[int, str | None]], values: int
) -> tuple[list[bool], dict[int, list[int]]]:
    """Return the values that entries place in the processor's memory, and the other memories of the rest."""
    machine = problem.machine
    here, elsewhere = [False] * values, dict[int, list[int]]()
    for value, name in entries:
        memory = 0 if name is None else machine.memory_index[name]
        if memory == own:
            here[value] = True
        else:
            elsewhere.setdefault(value, []).append(memory)
    return here, elsewhere


def _units(times: list[Number], *, fine: bool) -> tuple[Fraction, list[int], list[int]]:
    """Return a unit of time, and times in it, rounded down and up.

    Integer times stay exact if floats hold their sum in units: the unit is their greatest common divisor, or a fraction
    of it.
    """
    if all(isinstance(time, int) for time in times):
        step, total = math.gcd(*(int(time) for time in times)) or 1, sum(int(time) for time in times)
        bits = (total // step).bit_length()
        if bits > EXACT_BITS:
            step <<= bits - COARSE_BITS
            return Fraction(step), [int(time) // step for time in times], [-(-int(time) // step) for time in times]
        finer = max(0, FINE_BITS - bits) if fine else 0
        whole = [int(time) // step << finer for time in times]
        return Fraction(step, 1 << finer), whole, whole
    # A power of two makes the division exact.
    exponent = COARSE_BITS - math.frexp(max(math.fsum(times), 1e-290))[1]
    scaled = [math.ldexp(time, exponent) for time in times]
    return Fraction(1, 2) ** exponent, [math.floor(time) for time in scaled], [math.ceil(time) for time in scaled]


def places_of(order: Sequence[int], tasks: int) -> list[int]:
    """Return the position of each task in an order; -1 for tasks that are not in it."""
    places = [-1] * tasks
    for place, task in enumerate(order):
        places[task] = place
    return places


def rows_with(rows: Iterable[Sequence[int]], values: int) -> list[list[int]]:
    """Return for each value the rows that contain it."""
    found: list[list[int]] = [[] for _ in range(values)]
    for number, row in enumerate(rows):
        for value in row:
            found[value].append(number)
    return found


def sums(lengths: list[int]) -> list[int]:
    """Return the sums of the first 0, 1, 2, ... numbers."""
    return list(itertools.accumulate(lengths, initial=0))
