"""Residency: the lifetime of every value in every memory, as one sorted event list.

A *key* is a (memory, value) pair. Its events, in the total order of the timeline, are reads and writes that
begin and end, frees, and bytes that arrive or leave with partial moves. Running counts over the sorted list
give, at each event, the number of steps that read or write the key and its resident bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.schedule.steps import Steps
from remat.verifier.collectives import accesses, collective_runs
from remat.verifier.integer_sums import exact_dtype
from remat.verifier.timeline import Timeline

if TYPE_CHECKING:
    from remat.verifier.findings import Findings

Column = NDArray[Any]
"""Integers of some width."""

RUN, COPY, DROP = 0, 1, 2

# Operations, in the order in which those of one step count at one position.
INITIAL, READ, PART_READ, READ_END, WRITE, PART_WRITE, WRITE_END, PART_WRITE_END, FREE, PART_FREE = range(10)
OPERATION_BITS = 4


@dataclass(frozen=True)
class Residency:
    """Events sorted by key and position, and the bytes of the key before and after each.

    Attributes
    ----------
    key, position, operation, step : (events,) int64, or narrower where that holds them
        `position` is -1 for initial residency.
    before : (events,) int64 or object
        Resident bytes of the key before the event (see `remat.verifier.integer_sums`).
    complete_keys : (keys,) int64
        Sorted keys whose values are fully resident at the end of the schedule.
    """

    key: Column
    position: Column
    operation: Column
    step: Column
    before: IntArray
    complete_keys: IntArray

    def complete_at_end(self, key: int) -> bool:
        """Whether all bytes of a key's value are resident at the end of the schedule."""
        place = int(np.searchsorted(self.complete_keys, key))
        return place < len(self.complete_keys) and int(self.complete_keys[place]) == key


def memory_of_steps(machine: Machine, steps: Steps) -> IntArray:
    """Return the memory that each run works in (that of its first processor), or a copy or drop frees from."""
    own = np.array([processor.memory for processor in machine.processors], dtype=np.int64)
    memory = np.where(steps.kind == RUN, own[0], steps.source)
    if steps.on is not None:
        rows = np.flatnonzero((steps.kind == RUN) & (steps.on.counts > 0))
        first = steps.on.items[steps.on.start[rows]]
        known = (first >= 0) & (first < len(own))
        memory[rows[known]] = own[first[known]]
    return memory


CHUNK = 1 << 16
"""Events that are looked at together, as the processor's cache holds them: those of one key always are."""


def follow_values(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, valid: BoolArray, findings: Findings
) -> Residency:
    """Track every value in every memory and report illegal accesses."""
    key, position, operation, step = _sorted(_events(graph, machine, steps, timeline, valid), timeline.step_at)
    exact = exact_dtype(graph, steps, valid)
    before = np.empty(len(key), dtype=exact)
    complete = [np.zeros(0, dtype=np.int64)]
    pinned = _pinned_keys(graph, machine)
    # Keys are independent: process them in parts, so that temporary arrays stay small.
    for rows in _chunks(key):
        part = _Part(graph, machine, key[rows], operation[rows], step[rows], exact)
        complete.append(part.follow(steps, findings))
        before[rows] = part.before
        if pinned:
            part.report_pinned(pinned, findings)
    return Residency(key, position, operation, step, before, np.concatenate(complete))


def _sorted(columns: tuple[Column, ...], step_at: IntArray) -> tuple[Column, ...]:
    """Order events by key, then position, then operation.

    If the three fit into one number, sort the numbers and decode them; no other column must be permuted. The position
    determines the step.
    """
    key, position, operation, _ = columns
    bits = len(step_at).bit_length()  # of a position + 1
    if not len(key) or int(key.max()).bit_length() + bits + OPERATION_BITS > 62:
        order = np.lexsort((operation, position, key))
        return tuple(column[order] for column in columns)
    code = key.astype(np.int64)
    code <<= bits
    code += position
    code += 1
    code <<= OPERATION_BITS
    code += operation
    code.sort()
    operation = (code & (1 << OPERATION_BITS) - 1).astype(np.int8)
    code >>= OPERATION_BITS
    position = ((code & (1 << bits) - 1) - 1).astype(position.dtype)
    code >>= bits
    step = step_at.astype(position.dtype)[position] if len(step_at) else np.zeros_like(position)
    step[position < 0] = -1
    return code.astype(key.dtype), position, operation, step


def _chunks(key: Column) -> Iterator[slice]:
    """Yield slices of at least `CHUNK` events (the last may be shorter), each with complete keys."""
    starts = np.flatnonzero(key[1:] != key[:-1]) + 1
    places = np.searchsorted(starts, np.arange(CHUNK, len(key), CHUNK))
    ends = [*dict.fromkeys(starts[places[places < len(starts)]].tolist()), len(key)]
    for first, end in pairwise([0, *ends]):
        if end > first:
            yield slice(first, end)


class _Part:
    """A subset of the keys, with all their events."""

    def __init__(
        self, graph: TaskGraph, machine: Machine, key: Column, operation: Column, step: Column, exact: Any
    ) -> None:
        self.graph, self.machine, self.key, self.operation, self.step = graph, machine, key, operation, step
        self.size = graph.size[key % len(graph.values)].astype(exact, copy=False)

    def follow(self, steps: Steps, findings: Findings) -> IntArray:
        """Count bytes, readers and writers; report violations; return the keys that are complete at the end."""
        operation, key, size = self.operation, self.key, self.size
        amount = steps.amount[np.maximum(self.step, 0)] if len(steps) else np.zeros(len(key), dtype=np.int64)
        self.amount = amount.astype(size.dtype, copy=False)
        self.before, after, present, stays = _bytes(key, operation, self.amount, size)
        complete = np.where(size > 0, self.before == size, present)
        begins = _one_of(operation, READ, PART_READ)
        read_change = begins.astype(np.int8) - (operation == READ_END)
        ends = _one_of(operation, WRITE_END, PART_WRITE_END)
        write_change = _one_of(operation, WRITE, PART_WRITE).astype(np.int8) - ends
        # Every begin has its end within the same key, so the running sums are 0 where a key starts.
        readers = np.cumsum(read_change, dtype=np.int32) - read_change
        writers = np.cumsum(write_change, dtype=np.int32) - write_change
        self._report(findings, complete=complete, present=present, readers=readers, writers=writers)
        last = np.append(key[1:] != key[:-1], True)
        return key[last & np.where(size > 0, after == size, stays)].astype(np.int64)

    def report_pinned(self, pinned: list[int], findings: Findings) -> None:
        """Report frees of inputs that must stay resident."""
        freed = _one_of(self.operation, FREE, PART_FREE) & np.isin(self.key, pinned)
        for k in np.flatnonzero(freed).tolist():
            findings.add(int(self.step[k]), "pinned-input", f"frees pinned input {self._where(k)}")

    def _report(
        self, findings: Findings, *, complete: BoolArray, present: BoolArray, readers: Column, writers: Column
    ) -> None:
        graph, operation, step, key = self.graph, self.operation, self.step, self.key
        amount, size, before = self.amount, self.size, self.before
        unit = "bytes" if graph.units.memory == "B" else "units"

        def tell(mask: BoolArray, rule: str, text: str) -> None:
            for k in np.flatnonzero(mask).tolist():
                shown = text.format(before=before[k], size=size[k], amount=amount[k], unit=unit)
                findings.add(int(step[k]), rule, f"{self._where(k)} {shown}")

        reading, part_reading = operation == READ, operation == PART_READ
        enough = np.where(part_reading, before >= amount, complete)
        tell(reading & ~enough, "read-missing", "is read, but only {before} of its {size} {unit} are there")
        tell(part_reading & ~enough, "read-missing", "holds {before} {unit}, fewer than the {amount} to move")
        tell((reading | part_reading) & enough & (writers > 0), "value-busy", "is read while another step writes it")
        writing = operation == WRITE
        part_writing = operation == PART_WRITE
        # A task that both reads and writes a value is its own reader: its read begins right before its write.
        own = np.zeros(len(key), dtype=bool)
        own[1:] = _one_of(operation[:-1], READ, PART_READ) & (key[1:] == key[:-1]) & (step[1:] == step[:-1])
        tell((writing | part_writing) & (writers > 0), "value-busy", "is written while another step writes it")
        tell(
            (writing | part_writing) & (writers == 0) & (readers - own > 0),
            "value-busy",
            "is written while another step reads it",
        )
        tell(part_writing & (before + amount > size), "bad-bytes", "would hold {before} + {amount} of {size} {unit}")
        freeing = (operation == FREE) | (operation == PART_FREE)
        there = np.where(size > 0, before > 0, present)
        tell((operation == FREE) & ~there, "free-missing", "is dropped, but is not there")
        # Moves that end at one instant free one after the other: the bytes must last for all of them.
        tell(
            (operation == PART_FREE) & (before < amount),
            "free-missing",
            "holds {before} {unit}, fewer than the {amount} moved",
        )
        tell(freeing & (readers > 0), "value-busy", "is dropped while another step reads it")
        tell(freeing & (writers > 0), "value-busy", "is dropped while another step writes it")

    def _where(self, row: int) -> str:
        memory, value = divmod(int(self.key[row]), len(self.graph.values))
        return f"{self.graph.values[value]} in {self.machine.memories[memory].name}"


def _one_of(operation: Column, *wanted: int) -> BoolArray:
    table = np.zeros(10, dtype=bool)
    table[list(wanted)] = True
    return table[operation]


def _events(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, valid: BoolArray
) -> tuple[Column, Column, Column, Column]:
    values = len(graph.values)
    memory = memory_of_steps(machine, steps)
    start, release, free = timeline.start_position, timeline.release_position, timeline.free_position
    parts: list[tuple[Column, Column, int, Column]] = []
    small = len(machine.memories) * values < 2**31 and len(timeline.step_at) < 2**31
    dtype = np.int32 if small else np.int64

    def add(key: IntArray, position: IntArray, operation: int, step: IntArray) -> None:
        parts.append((key.astype(dtype), position.astype(dtype), operation, step.astype(dtype)))

    for place in graph.inputs:
        where = 0 if place.memory is None else machine.memory_index.get(place.memory, -1)
        if where >= 0:
            one = np.array([where * values + place.value], dtype=np.int64)
            add(one, np.array([-1], dtype=np.int64), INITIAL, np.array([-1], dtype=np.int64))
    collective = collective_runs(graph, steps, valid)
    runs = np.setdiff1d(np.flatnonzero((steps.kind == RUN) & valid), collective, assume_unique=True)
    for ragged, begin, finish in ((graph.reads, READ, READ_END), (graph.writes, WRITE, WRITE_END)):
        lists = ragged.gather(steps.item[runs])
        owner = np.repeat(runs, lists.counts)
        key = memory[owner] * values + lists.items
        add(key, start[owner], begin, owner)
        add(key, release[owner], finish, owner)
        if len(collective):
            of_parts = accesses(graph, machine, steps, collective, writes=begin == WRITE)
            key, owner = of_parts.memory * values + of_parts.value, of_parts.step
            add(key, start[owner], begin, owner)
            add(key, release[owner], finish, owner)
    copies = np.flatnonzero((steps.kind == COPY) & valid)
    for partial in (False, True):
        mine = copies[(steps.amount[copies] >= 0) == partial]
        source = steps.source[mine] * values + steps.item[mine]
        target = steps.target[mine] * values + steps.item[mine]
        add(source, start[mine], PART_READ if partial else READ, mine)
        add(source, release[mine], READ_END, mine)
        add(target, start[mine], PART_WRITE if partial else WRITE, mine)
        add(target, release[mine], PART_WRITE_END if partial else WRITE_END, mine)
    rows = steps.drop.rows
    kept = valid[rows]
    rows, items = rows[kept], steps.drop.items[kept]
    is_partial = steps.amount[rows] >= 0
    key = memory[rows] * values + items
    for partial in (False, True):
        chosen = is_partial == partial
        add(key[chosen], free[rows[chosen]], PART_FREE if partial else FREE, rows[chosen])
    return (
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
        np.concatenate([np.full(len(part[0]), part[2], dtype=np.int8) for part in parts]),
        np.concatenate([part[3] for part in parts]),
    )


def _bytes(
    key: Column, operation: Column, amount: IntArray, size: IntArray
) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
    """Return each key's bytes before and after each event, and whether it was last made whole (both likewise)."""
    count = len(key)
    index = np.arange(count)
    settles = _one_of(operation, INITIAL, WRITE_END, FREE)
    # Bytes right after a settling event: all or none; partial moves add to that or take from it.
    base = np.where(operation == FREE, 0, size)
    moved = np.where(operation == PART_WRITE_END, amount, 0) - np.where(operation == PART_FREE, amount, 0)
    total = np.cumsum(moved)
    new_key = np.concatenate(([True], np.diff(key) != 0)) if count else np.zeros(0, dtype=bool)
    key_start = np.maximum.accumulate(np.where(new_key, index, 0)) if count else index
    settled = np.maximum.accumulate(np.where(settles, index, -1)) if count else index
    known = settled >= key_start
    at = np.maximum(settled, 0)
    since_start = total - (total[key_start] - moved[key_start])
    after = np.where(known, base[at] + total - total[at], since_start)
    after = np.maximum(after, 0)
    before = np.concatenate(([0], after[:-1])) if count else after
    before = np.where(new_key, 0, before)
    whole_after = known & (operation[at] != FREE)
    present = np.concatenate(([False], whole_after[:-1])) & ~new_key if count else whole_after
    return before, after, present, whole_after


def _pinned_keys(graph: TaskGraph, machine: Machine) -> list[int]:
    return [
        (0 if place.memory is None else machine.memory_index.get(place.memory, 0)) * len(graph.values) + place.value
        for place in graph.inputs
        if place.value in graph.pinned
    ]
