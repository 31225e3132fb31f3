"""Separators of the listed order, and the parts between them, many of which are equal except for names.

A separator is a position in the order at which few bytes are alive, apart from three groups: initial values, final
values, and buffers that tasks update in place, such as the gradients to which each micro-batch adds. The versions of a
buffer always occupy its bytes: a schedule that drops all of them at some moment can never recompute one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import BoolArray, IntArray, Names, NeededTasks, Problem, Ragged, Resident, TaskGraph, reference_order

NARROW = 500
"""At a separator, at most one part in `NARROW` of the budget for temporary values is alive."""

FEWEST = 500
"""Minimum number of tasks of a part."""


@dataclass(frozen=True)
class Part:
    """Consecutive tasks of the order.

    Attributes
    ----------
    tasks : (tasks,) int64
        Indices in the whole graph, in order.
    begin, end : int
        Their range of positions in the order.
    kind : int
        The number of its kind; parts of a kind differ only in names and in `beside`.
    beside : int
        Bytes of values that are resident throughout and that the part does not touch.
    """

    tasks: IntArray
    begin: int
    end: int
    kind: int
    beside: int


@dataclass(frozen=True)
class Parts:
    """All parts of an order.

    Attributes
    ----------
    problem : Problem
        Simple: one memory, each value has one producer or is an input, all tasks run.
    order : (tasks,) int64
    parts : list of Part
    first : list of int
        For each kind, the number of its first part.
    beside : list of int
        For each kind, the maximum `beside` of its parts.
    """

    problem: Problem
    order: IntArray
    parts: list[Part]
    first: list[int]
    beside: list[int]
    _lives: _Lives

    @property
    def counts(self) -> list[int]:
        """The number of parts of each kind."""
        counts = [0] * len(self.first)
        for part in self.parts:
            counts[part.kind] += 1
        return counts

    def problem_of(self, kind: int, *, bounding: bool) -> Problem:
        """Return the problem of a kind, from its first part, with its tasks numbered in order.

        Parameters
        ----------
        kind : int
        bounding : bool
            If true, values from other parts take no bytes and none need to remain for them: the problem's minimum time
            is a lower bound on the time that the whole spends on the part's tasks. If false, the concatenation of its
            schedules is a schedule of the whole.
        """
        part = self.parts[self.first[kind]]
        graph = _sliced(self.problem.graph, part, self._lives, self.beside[kind], bounding=bounding)
        problem = Problem(self.problem.instance, self.problem.machine)
        every = np.ones(len(part.tasks), dtype=bool)
        problem.__dict__.update(graph=graph, needed=NeededTasks(every, every, 0))
        return problem

    def joined(self, runs: Sequence[Sequence[int]]) -> IntArray:
        """Return the runs of the whole graph, given those of each kind's problem."""
        own = [np.asarray(each, dtype=np.int64) for each in runs]
        return np.concatenate([part.tasks[own[part.kind]] for part in self.parts])


@dataclass(frozen=True)
class _Lives:
    """Lifetimes of values, by position in the order.

    Attributes
    ----------
    made, last : (values,) int64
        Position that computes a value (-1: an initial value), and that of its last need (the number of tasks: a final
        value).
    handed : (values,) bool
        Versions of a buffer that is present at the start and at the end.
    alive : (tasks + 1,) int64
        Bytes alive before each position.
    buffers : int
        Bytes of all buffers, and of pinned inputs.
    """

    made: IntArray
    last: IntArray
    handed: BoolArray
    alive: IntArray
    buffers: int


def find_parts(problem: Problem) -> Parts | None:
    """Find the parts of a simple problem in its reference order; None if it has no separators.

    O(accesses), array by array.
    """
    graph, budget = problem.graph, problem.budget
    if budget is None or len(graph.tasks) < 2 * FEWEST or not _is_simple(problem):
        return None
    order = reference_order(graph, problem.needed.once)
    lives, cuts = _waists(graph, order, budget)
    if not len(cuts):
        return None
    spans = list(zip([0, *cuts.tolist()], [*cuts.tolist(), len(order)], strict=True))
    kinds: dict[bytes, int] = {}
    parts: list[Part] = []
    first: list[int] = []
    most: list[int] = []
    for number, (begin, end) in enumerate(spans):
        tasks = order[begin:end]
        touched, digest = _digest(graph, tasks, lives, begin, end)
        here = touched[(lives.made[touched] < begin) & (lives.last[touched] >= begin)]
        beside = int(lives.alive[begin]) - int(graph.size[here].sum())
        kind = kinds.setdefault(digest, len(kinds))
        if kind == len(first):
            first.append(number)
            most.append(beside)
        most[kind] = max(most[kind], beside)
        parts.append(Part(tasks, begin, end, kind, beside))
    return Parts(problem, order, parts, first, most, lives)


def _is_simple(problem: Problem) -> bool:
    """Whether the problem uses one memory and leaves no choice except reruns."""
    graph, machine = problem.graph, problem.machine
    name = machine.memories[0].name
    if machine.processors[0].memory != 0 or graph.parts or graph.types or graph.tied or graph.placeable or graph.pairs:
        return False
    if any((place.memory or name) != name for place in (*graph.inputs, *graph.outputs)):
        return False
    origins = graph.producers.counts.copy()
    origins[[place.value for place in graph.inputs]] += 1
    return bool((origins == 1).all() and problem.needed.forced.all())


def _waists(graph: TaskGraph, order: IntArray, budget: int) -> tuple[_Lives, IntArray]:
    """Return the lifetimes of values, and the positions before which parts begin."""
    count = len(order)
    place = np.empty(len(graph.tasks), dtype=np.int64)
    place[order] = np.arange(count)
    made = np.full(len(graph.values), -1, dtype=np.int64)
    made[graph.writes.items] = place[graph.writes.rows]
    last = made.copy()
    np.maximum.at(last, graph.reads.items, place[graph.reads.rows])
    ends = [entry.value for entry in graph.outputs] + sorted(graph.pinned)
    last[ends] = count
    handed = _handed(graph, order, made, last)
    alive = _alive(graph.size, made, last, count)
    passing = _alive(np.where(handed | (made < 0) | (last >= count), 0, graph.size), made, last, count)
    handed[sorted(graph.pinned)] = True
    buffers = int(graph.size[handed & (made < 0)].sum())
    narrow = passing * NARROW <= budget - graph.static_memory - buffers
    narrow[:FEWEST] = narrow[count - FEWEST + 1 :] = False
    return _Lives(made, last, handed, alive, buffers), np.array(list(_cuts(narrow, passing)), dtype=np.int64)


def _alive(size: IntArray, made: IntArray, last: IntArray, count: int) -> IntArray:
    """Return the bytes alive before each position, and at the end."""
    change = np.zeros(count + 2, dtype=np.int64)
    living = last > made
    np.add.at(change, made[living] + 1, size[living])
    np.subtract.at(change, last[living] + 1, size[living])
    alive: IntArray = np.cumsum(change[: count + 1])
    return alive


def _handed(graph: TaskGraph, order: IntArray, made: IntArray, last: IntArray) -> BoolArray:
    """Return the buffer versions: values that tasks in place derive from others of equal size, from start to end."""
    count, before = len(order), np.full(len(graph.values), -1, dtype=np.int64)
    for task in np.flatnonzero(graph.in_place).tolist():
        writes, reads = graph.writes[task], graph.reads[task]
        if len(writes) == 1:
            value = int(writes[0])
            old = [
                read for read in reads.tolist() if graph.size[read] == graph.size[value] and last[read] == made[value]
            ]
            if len(old) == 1:
                before[value] = old[0]
    handed = np.zeros(len(graph.values), dtype=bool)
    for value in np.flatnonzero(last >= count).tolist():
        chain = [value]
        while before[chain[-1]] >= 0:
            chain.append(int(before[chain[-1]]))
        if len(chain) > 1 and made[chain[-1]] < 0:
            handed[chain] = True
    return handed


def _cuts(narrow: BoolArray, passing: IntArray) -> Iterator[int]:
    """Yield the narrowest position of each range of narrow ones, at least `FEWEST` tasks apart."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], narrow, [False])).astype(np.int8)))
    previous = 0
    for begin, end in edges.reshape(-1, 2).tolist():
        begin = max(begin, previous + FEWEST)
        if begin < end:
            previous = begin + int(np.argmin(passing[begin:end]))
            yield previous


def _digest(graph: TaskGraph, tasks: IntArray, lives: _Lives, begin: int, end: int) -> tuple[IntArray, bytes]:
    """Return the values that tasks touch, by first access, and a digest that identifies the kind of the part."""
    reads, writes = graph.reads.gather(tasks), graph.writes.gather(tasks)
    touched, local_reads, local_writes = _numbered(reads, writes, len(graph.values))
    arrays = [
        *(reads.start, local_reads, writes.start, local_writes),
        *(graph.size[touched], lives.made[touched] < begin, lives.last[touched] >= end, lives.handed[touched]),
        *(
            graph.time[tasks],
            graph.workspace[tasks],
            graph.in_place[tasks],
            graph.recomputable[tasks],
            graph.once[tasks],
        ),
        np.isin(touched, list(graph.pinned)) if graph.pinned else np.zeros(0, dtype=bool),
    ]
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(b"|")
    return touched, digest.digest()


def _numbered(reads: Ragged, writes: Ragged, values: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return values by their first access, and reads and writes as indices into them."""
    items = np.concatenate((reads.items, writes.items))
    order = np.argsort(2 * np.concatenate((reads.rows, writes.rows)), kind="stable")
    found, first = np.unique(items[order], return_index=True)
    touched = found[np.argsort(first, kind="stable")]
    local = np.empty(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)
    local[touched] = np.arange(len(touched))
    return touched, local[reads.items], local[writes.items]


def _sliced(graph: TaskGraph, part: Part, lives: _Lives, beside: int, *, bounding: bool) -> TaskGraph:
    """Return the graph of a part: its values by first access, its tasks in order."""
    tasks = part.tasks
    reads, writes = graph.reads.gather(tasks), graph.writes.gather(tasks)
    touched, local_reads, local_writes = _numbered(reads, writes, len(graph.values))
    before = ~np.isin(touched, writes.items)
    size = graph.size[touched]
    static = graph.static_memory
    if bounding:
        # Values from other parts take no bytes, and a buffer counts once for all its versions.
        size = np.where(before | lives.handed[touched], 0, size)
        static += lives.buffers
        stays = np.zeros(len(touched), dtype=bool)
    else:
        static += beside
        stays = lives.last[touched] >= part.end
    pinned = frozenset() if bounding else graph.pinned
    return replace(
        graph,
        tasks=Names(f"t{number}" for number in range(len(tasks))),
        values=Names(f"v{number}" for number in range(len(touched))),
        time=graph.time[tasks],
        size=size,
        reads=Ragged(reads.start, local_reads),
        writes=Ragged(writes.start, local_writes),
        workspace=graph.workspace[tasks],
        in_place=graph.in_place[tasks],
        required=graph.required[tasks],
        recomputable=graph.recomputable[tasks],
        once=graph.once[tasks],
        inputs=tuple(Resident(value) for value in np.flatnonzero(before).tolist()),
        outputs=tuple(Resident(value) for value in np.flatnonzero(stays).tolist()),
        pinned=frozenset(number for number, value in enumerate(touched.tolist()) if value in pinned),
        static_memory=static,
        parallel_max=None,
        parallel_alpha=None,
        phase=None,
        cheapest=None,
        modules=None,
    )
