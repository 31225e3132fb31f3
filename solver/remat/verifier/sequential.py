"""Sequential fast path: verify valid schedules in which each step begins at the end of its predecessor.

Most schedules are of this kind: one processor with synchronous transfers. Steps never overlap, so no resource serves
two steps and no reads and writes conflict. Two checks remain: each value is resident when it is read or freed, and
memory use. One sorted array of codes (key, step, operation on the key) answers both.

The fast path only accepts. It returns None for unusual or invalid schedules; then `remat.verifier.residency` and
`remat.verifier.memory` examine every event and report the violations. Tests check that both paths report the same.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.schedule.steps import Steps
from remat.verifier.integer_sums import LARGEST
from remat.verifier.report import Peak, Profile
from remat.verifier.timeline import durations, ends

RUN, COPY, DROP = 0, 1, 2
READ, MAKE, FREE = 0, 1, 2
"""Effects of a step on a key, in this order."""

CHUNK = 1 << 16
"""Codes that are looked at together: they stay in the processor's cache."""


class InTurn(NamedTuple):
    """Times and memory use of sequential steps.

    Attributes
    ----------
    start, end : (steps,) NumberArray
    link : (steps,) int64
        The link of each copy; -1 for others.
    run_count : (tasks,) int64
    peaks, profiles : by memory name
    """

    start: NumberArray
    end: NumberArray
    link: IntArray
    run_count: IntArray
    peaks: dict[str, Peak]
    profiles: dict[str, Profile]


def follow_in_turn(graph: TaskGraph, machine: Machine, steps: Steps) -> InTurn | None:
    """Measure sequential steps; return None if they overlap or if a violation is possible.

    Parameters
    ----------
    graph, machine
    steps : Steps
        With start times.

    Returns
    -------
    InTurn or None
        O(accesses log accesses), some thirty array operations.
    """
    start = steps.start
    if start is None or not _plain(graph, machine, steps):
        return None
    if start[0] < 0 or not (start[1:] >= start[:-1]).all():
        return None
    kinds = _Kinds(steps)
    if not _known(graph, machine, steps, kinds):
        return None
    link, run_count = _links(machine, steps, kinds), _run_count(graph, kinds)
    if link is None or run_count is None:
        return None
    everything = np.ones(len(steps), dtype=bool)
    start, end = ends(start, durations(graph, machine, steps, valid=everything, link=link))
    if not (start[1:] >= end[:-1]).all():
        return None
    codes = _Codes(graph, machine, steps, kinds)
    memories = None if codes.shift is None else _Memories(graph, machine, steps, kinds)
    if memories is None or not codes.follow(memories):
        return None
    peaks, profiles = {}, {}
    for index, place in enumerate(machine.memories):
        resident = codes.resident(index) + graph.static_bytes(machine, index)
        if resident >= LARGEST:
            return None
        position, use = memories.use(index, resident)
        highest = int(np.argmax(use)) if len(use) else -1
        found = highest >= 0 and use[highest] > resident
        peaks[place.name] = Peak(int(use[highest]), int(position[highest]) // 3) if found else Peak(resident, None)
        if place.capacity is not None and peaks[place.name].size > place.capacity:
            return None
        step, phase = np.divmod(position, 3)
        time = np.where(phase == 0, start[step], end[step])
        profiles[place.name] = Profile(
            time=np.concatenate((np.zeros(1, dtype=start.dtype), time)),
            size=np.concatenate((np.array([resident], dtype=np.int64), use)),
        )
    return InTurn(start, end, link, run_count, peaks, profiles)


def _plain(graph: TaskGraph, machine: Machine, steps: Steps) -> bool:
    """Whether the fast path supports the graph, machine and steps."""
    if not len(steps) or steps.unknown or steps.initial or steps.paired is not None:
        return False
    if graph.placeable or graph.parts or graph.tied or graph.times is not None:
        return False
    if any(link.delay for link in machine.links):
        return False
    if steps.on is not None and (steps.on.items.any() or int(steps.on.counts.max()) > 1):
        return False
    return bool((steps.amount < 0).all())


class _Kinds:
    """The steps of each kind, with their tasks and values."""

    def __init__(self, steps: Steps) -> None:
        kind = steps.kind
        self.runs, self.copies, self.drops = (np.flatnonzero(kind == one) for one in (RUN, COPY, DROP))
        self.tasks, self.moved = steps.item[self.runs], steps.item[self.copies]
        self.source, self.target = steps.source[self.copies], steps.target[self.copies]


def _known(graph: TaskGraph, machine: Machine, steps: Steps, kinds: _Kinds) -> bool:
    """Whether all tasks, values and memories exist, and copies free only their value."""
    values, memories = len(graph.values), len(machine.memories)
    if not values or len(kinds.runs) + len(kinds.copies) + len(kinds.drops) < len(steps):
        return False
    if not _within(kinds.tasks, len(graph.tasks)) or not _within(kinds.moved, values):
        return False
    if not _within(steps.drop.items, values) or not _within(steps.source[kinds.drops], memories):
        return False
    if not _within(kinds.source, memories) or not _within(kinds.target, memories):
        return False
    if (kinds.source == kinds.target).any():
        return False
    freed = steps.drop.gather(kinds.copies)
    return bool((freed.counts <= 1).all() and (freed.items == kinds.moved[freed.rows]).all())


def _within(indices: IntArray, count: int) -> bool:
    return not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < count)


def _links(machine: Machine, steps: Steps, kinds: _Kinds) -> IntArray | None:
    """Return the link of each copy, -1 for other steps; None if a copy has no link."""
    link = np.full(len(steps), -1, dtype=np.int64)
    table = np.full((len(machine.memories),) * 2, -1, dtype=np.int64)
    for ends_of_link, index in machine.link_index.items():
        table[ends_of_link] = index
    found = link[kinds.copies] = table[kinds.source, kinds.target]
    return None if (found < 0).any() else link


def _run_count(graph: TaskGraph, kinds: _Kinds) -> IntArray | None:
    """Return the number of runs of each task; None if a task runs too often or too rarely."""
    count = np.bincount(kinds.tasks, minlength=len(graph.tasks))
    missing = (graph.required | graph.once) & (count == 0)
    repeated = (graph.once | ~graph.recomputable) & (count > 1)
    return None if missing.any() or repeated.any() else count


class _Memories:
    """Bytes that each step allocates and frees in each memory: at its start, its release and its free."""

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps, kinds: _Kinds) -> None:
        self.graph, self.steps, self.kinds = graph, steps, kinds
        self.own = machine.processors[0].memory
        self.reuses = graph.in_place[kinds.tasks] if graph.in_place.any() else None
        total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(graph.size[steps.drop.items])))
        self.freed = total[steps.drop.start[1:]] - total[steps.drop.start[:-1]]
        # For in-place runs: the inputs that they free.
        self.given: IntArray | None = None if self.reuses is None else np.zeros(len(steps), dtype=np.int64)
        self.replaced: list[tuple[int, IntArray, IntArray]] = []
        """(memory, steps, bytes) of values that are recomputed while they are resident."""

    def use(self, memory: int, resident: int) -> tuple[IntArray, IntArray]:
        """Return the positions (3 x step + 0, 1, 2) at which memory use changes, and the use from each position on."""
        graph, kinds = self.graph, self.kinds
        begin, free = np.zeros((2, len(self.steps)), dtype=np.int64)
        release: IntArray | None = None
        mine = kinds.target == memory
        begin[kinds.copies[mine]] = graph.size[kinds.moved[mine]]
        if memory == self.own:
            release = self._run(begin, free)
            free[kinds.runs] -= self.freed[kinds.runs]
        for steps, source in ((kinds.copies, kinds.source), (kinds.drops, self.steps.source[kinds.drops])):
            from_here = steps[source == memory]
            free[from_here] = -self.freed[from_here]
        for where, step, size in self.replaced:
            if where == memory:
                release = np.zeros_like(begin) if release is None else release
                np.subtract.at(release, step, size)
        phases = [(0, begin), (2, free)] if release is None else [(0, begin), (1, release), (2, free)]
        flat = np.zeros((len(begin), 3), dtype=np.int64)
        for phase, change in phases:
            flat[:, phase] = change
        position = np.flatnonzero(flat.ravel())
        return position, resident + np.cumsum(flat.ravel()[position])

    def _run(self, begin: IntArray, free: IntArray) -> IntArray | None:
        """Add the bytes that runs allocate, and return those freed at their release (None: no bytes)."""
        graph, runs, tasks = self.graph, self.kinds.runs, self.kinds.tasks
        written = _written(graph)[tasks]
        during = written
        if self.reuses is not None:
            assert self.given is not None
            during = np.where(self.reuses, np.maximum(written - self.given[runs], 0), written)
            free[runs] = written - during
        if not graph.workspace.any():
            begin[runs] = during
            return None
        workspace = graph.workspace[tasks]
        begin[runs] = during + workspace
        release = np.zeros_like(begin)
        release[runs] = -workspace
        return release


def _written(graph: TaskGraph) -> IntArray:
    """Return the bytes that each task writes."""
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(graph.size[graph.writes.items])))
    written: IntArray = total[graph.writes.start[1:]] - total[graph.writes.start[:-1]]
    return written


class _Codes:
    """One code for each access: key, step + 1 (0: the beginning) and operation, sorted.

    A key is memory x values + value.
    """

    def __init__(self, graph: TaskGraph, machine: Machine, steps: Steps, kinds: _Kinds) -> None:
        self.graph, self.machine, self.steps = graph, machine, steps
        self.values = len(graph.values)
        self.bits = len(steps).bit_length()
        shift = self.bits + 2
        keys = len(machine.memories) * self.values
        size = graph.size.astype(np.float64)
        written = np.bincount(graph.writes.rows, weights=size[graph.writes.items], minlength=1)
        largest = float(written.max() + graph.workspace.max(initial=0) + size.max())
        small = keys.bit_length() + shift < 63 and largest * (len(steps) + len(graph.inputs) + 1) < LARGEST
        self.shift = shift if small else None
        """None: numbers are too large to be looked at here."""
        self.inputs = [
            (place.value, 0 if place.memory is None else machine.memory_index.get(place.memory, -1))
            for place in graph.inputs
        ]
        self.inputs = [(value, memory) for value, memory in self.inputs if memory >= 0]
        if self.shift is not None:
            self.codes = self._sorted(self.shift, kinds)

    def resident(self, memory: int) -> int:
        """Return the bytes of the values that are initially in a memory."""
        return sum(int(self.graph.size[value]) for value, where in self.inputs if where == memory)

    def _sorted(self, shift: int, kinds: _Kinds) -> IntArray:
        graph, steps, values = self.graph, self.steps, self.values
        own = self.machine.processors[0].memory * values
        memory = steps.source * values
        memory[kinds.runs] = own
        accesses = [ragged.gather(kinds.tasks) for ragged in (graph.reads, graph.writes)]
        rows = steps.drop.rows
        counts = (len(self.inputs), *(len(one.items) for one in accesses), *[len(kinds.copies)] * 2, len(rows))
        ends = np.cumsum(counts).tolist()
        codes = np.empty(ends[-1], dtype=np.int64)
        inputs, reads, writes, taken, made, freed = (codes[a:b] for a, b in pairwise([0, *ends]))
        inputs[:] = [(memory * values + value) << shift | MAKE for value, memory in self.inputs]
        for part, one, what in ((reads, accesses[0], READ), (writes, accesses[1], MAKE)):
            np.add(one.items, own, out=part)
            part <<= shift
            part += ((kinds.runs + 1) << 2 | what).repeat(one.counts)
        at = (kinds.copies + 1) << 2
        taken[:] = (kinds.source * values + kinds.moved << shift) + at + READ
        made[:] = (kinds.target * values + kinds.moved << shift) + at + MAKE
        np.add(memory[rows], steps.drop.items, out=freed)
        freed <<= shift
        freed += (rows + 1) << 2 | FREE
        codes.sort()
        return codes

    def follow(self, memories: _Memories) -> bool:
        """Return whether all accessed values and required outputs are resident; record the changes of memory use."""
        graph, steps, codes = self.graph, self.steps, self.codes
        assert self.shift is not None
        if len(set(self.inputs)) < len(self.inputs) or not self._ends_well(self.shift):
            return False
        pinned = np.zeros(self.values, dtype=bool)
        pinned[list(graph.pinned)] = True
        if graph.pinned and pinned[steps.drop.items].any():
            return False  # in another memory it may be
        is_drop = np.concatenate((np.zeros(1, dtype=bool), steps.kind == DROP))
        bounds = np.searchsorted(codes, np.arange(len(self.machine.memories) + 1) * self.values << self.shift)
        for memory, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
            for begin in range(first, last, CHUNK):
                if not self._part(memory, begin, min(begin + CHUNK, last), first, is_drop, memories):
                    return False
        return True

    def _part(self, memory: int, begin: int, end: int, first: int, is_drop: BoolArray, memories: _Memories) -> bool:
        """Check the codes `begin` to `end`; the codes of the memory begin at `first`."""
        assert self.shift is not None
        before = min(2, begin - first)  # whose codes may be of the same key
        part = self.codes[begin - before : end]
        what, key, step = part & 3, part >> self.shift, (part >> 2) & ((1 << self.bits) - 1)
        same = np.concatenate(([False], key[1:] == key[:-1]))
        there = same.copy()
        there[1:] &= what[:-1] != FREE
        wanting = (what != MAKE) & ~there
        # A step frees only values that it has just used, unless it is a drop.
        used = same.copy()
        used[1:] &= step[1:] == step[:-1]
        frees = what == FREE
        wanting |= frees & ~used & ~is_drop[step]
        if wanting[before:].any():
            return False
        again = np.flatnonzero((what == MAKE) & there)
        again = again[again >= before]
        if len(again):
            value = key[again] - memory * self.values
            memories.replaced.append((memory, step[again] - 1, self.graph.size[value]))
        if memories.given is not None and memory == memories.own:
            reads = what == READ
            read = np.zeros(len(part), dtype=bool)
            read[1:] = used[1:] & reads[:-1]
            read[2:] |= used[2:] & used[1:-1] & (what[1:-1] == MAKE) & reads[:-2]
            given = np.flatnonzero(frees & read)
            given = given[given >= before]
            np.add.at(memories.given, step[given] - 1, self.graph.size[key[given] - memory * self.values])
        return True

    def _ends_well(self, shift: int) -> bool:
        """Whether all outputs are resident at the end of the schedule."""
        index = self.machine.memory_index
        wanted = [
            (0 if place.memory is None else index.get(place.memory, -1), place.value) for place in self.graph.outputs
        ]
        if any(memory < 0 for memory, _ in wanted):
            return False
        keys = np.array([memory * self.values + value for memory, value in wanted], dtype=np.int64)
        last = np.searchsorted(self.codes, (keys + 1) << shift) - 1
        if (last < 0).any():
            return False
        codes = self.codes[last]
        return bool((codes >> shift == keys).all() and (codes & 3 != FREE).all())
