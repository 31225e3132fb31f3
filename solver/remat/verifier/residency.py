"""What is resident where, and when: the life of every value in every memory, as one sorted event list.

A *key* is a (memory, value) pair. Its events, in the total order of the timeline, are reads and writes that
begin and end, frees, and bytes that arrive or leave with partial moves. Running counts over the sorted list
give, at each event, how many steps read or write the key and how many of its bytes are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, TaskGraph
from remat.schedule.steps import Steps
from remat.verifier.exact import exact_dtype
from remat.verifier.timeline import Timeline

if TYPE_CHECKING:
    from remat.verifier.findings import Findings

RUN, COPY, DROP = 0, 1, 2

# Operations, in the order in which those of one step count at one position.
INITIAL, READ, PART_READ, READ_END, WRITE, PART_WRITE, WRITE_END, PART_WRITE_END, FREE, PART_FREE = range(10)


@dataclass(frozen=True)
class Residency:
    """Events sorted by key and position, and the bytes of the key before and after each.

    Attributes
    ----------
    key, position, operation, step : (events,) int64
        `position` is -1 for initial residency.
    before, after : (events,) int64 or object
        Bytes of the key that lie there, before and after the event (see `remat.verifier.exact`).
    complete_keys : (keys,) int64
        Sorted keys whose values are resident with all their bytes when everything has ended.
    """

    key: IntArray
    position: IntArray
    operation: IntArray
    step: IntArray
    before: IntArray
    after: IntArray
    complete_keys: IntArray

    def complete_at_end(self, key: int) -> bool:
        """Whether all bytes of a key's value are resident when everything has ended."""
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


def follow_values(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, valid: BoolArray, findings: Findings
) -> Residency:
    """Follow every value through every memory and report what a step may not do with it."""
    key, position, operation, step = _events(graph, machine, steps, timeline, valid)
    events = len(timeline.step_at) + 1
    # One code per event orders by key, then position, then operation.
    code = (key * (events + 1) + position + 1) * 10 + operation
    if len(code) and float(key.max() + 1) * (events + 1) * 10 > 2.0**62:
        order = np.lexsort((operation, position, key))
    else:
        order = np.argsort(code, kind="stable")
    key, position, operation, step = key[order], position[order], operation[order], step[order]
    exact = exact_dtype(graph, steps, valid)
    size = (graph.size[key % len(graph.values)] if len(key) else key).astype(exact, copy=False)
    amount = steps.amount[np.maximum(step, 0)] if len(steps) else np.zeros(len(step), dtype=np.int64)
    amount = amount.astype(exact, copy=False)
    before, after, present, stays = _bytes(key, operation, amount, size)
    complete = np.where(size > 0, before == size, present)

    begins = _one_of(operation, READ, PART_READ)
    read_change = begins.astype(np.int64) - (operation == READ_END)
    ends = _one_of(operation, WRITE_END, PART_WRITE_END)
    write_change = _one_of(operation, WRITE, PART_WRITE).astype(np.int64) - ends
    # Every begin has its end within the same key, so the running sums are 0 where a key starts.
    readers = np.cumsum(read_change) - read_change
    writers = np.cumsum(write_change) - write_change
    _report(
        graph,
        machine,
        findings,
        operation=operation,
        step=step,
        key=key,
        amount=amount,
        size=size,
        before=before,
        complete=complete,
        present=present,
        readers=readers,
        writers=writers,
    )
    pinned = _pinned_keys(graph, machine)
    if pinned:
        freed = _one_of(operation, FREE, PART_FREE) & np.isin(key, pinned)
        for k in np.flatnonzero(freed).tolist():
            findings.add(int(step[k]), "pinned-input", f"frees pinned input {_where(graph, machine, key[k])}")
    last = np.append(np.diff(key) > 0, True) if len(key) else np.zeros(0, dtype=bool)
    return Residency(
        key, position, operation, step, before, after, key[last & np.where(size > 0, after == size, stays)]
    )


def _one_of(operation: IntArray, *wanted: int) -> BoolArray:
    table = np.zeros(10, dtype=bool)
    table[list(wanted)] = True
    return table[operation]


def _events(
    graph: TaskGraph, machine: Machine, steps: Steps, timeline: Timeline, valid: BoolArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    values = len(graph.values)
    memory = memory_of_steps(machine, steps)
    start, release, free = timeline.start_position, timeline.release_position, timeline.free_position
    parts: list[tuple[IntArray, IntArray, int, IntArray]] = []

    def add(key: IntArray, position: IntArray, operation: int, step: IntArray) -> None:
        parts.append((key, position, operation, step))

    for place in graph.inputs:
        where = 0 if place.memory is None else machine.memory_index.get(place.memory, -1)
        if where >= 0:
            one = np.array([where * values + place.value], dtype=np.int64)
            add(one, np.array([-1], dtype=np.int64), INITIAL, np.array([-1], dtype=np.int64))
    runs = np.flatnonzero((steps.kind == RUN) & valid)
    for ragged, begin, finish in ((graph.reads, READ, READ_END), (graph.writes, WRITE, WRITE_END)):
        lists = ragged.gather(steps.item[runs])
        owner = np.repeat(runs, lists.counts)
        key = memory[owner] * values + lists.items
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
        np.concatenate([np.full(len(part[0]), part[2], dtype=np.int64) for part in parts]),
        np.concatenate([part[3] for part in parts]),
    )


def _bytes(
    key: IntArray, operation: IntArray, amount: IntArray, size: IntArray
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


def _report(
    graph: TaskGraph,
    machine: Machine,
    findings: Findings,
    *,
    operation: IntArray,
    step: IntArray,
    key: IntArray,
    amount: IntArray,
    size: IntArray,
    before: IntArray,
    complete: BoolArray,
    present: BoolArray,
    readers: IntArray,
    writers: IntArray,
) -> None:
    unit = "bytes" if graph.units.memory == "B" else "units"

    def tell(mask: BoolArray, rule: str, text: str) -> None:
        for k in np.flatnonzero(mask).tolist():
            shown = text.format(before=before[k], size=size[k], amount=amount[k], unit=unit)
            findings.add(int(step[k]), rule, f"{_where(graph, machine, key[k])} {shown}")

    reading, part_reading = operation == READ, operation == PART_READ
    enough = np.where(part_reading, before >= amount, complete)
    tell(reading & ~enough, "read-missing", "is read, but only {before} of its {size} {unit} are there")
    tell(part_reading & ~enough, "read-missing", "holds {before} {unit}, fewer than the {amount} to move")
    tell((reading | part_reading) & enough & (writers > 0), "value-busy", "is read while another step writes it")
    writing = operation == WRITE
    part_writing = operation == PART_WRITE
    # A task that both reads and writes a value is its own reader: its read begins right before its write.
    own = np.zeros(len(key), dtype=np.int64)
    if len(key):
        own[1:] = (_one_of(operation[:-1], READ, PART_READ) & (key[1:] == key[:-1]) & (step[1:] == step[:-1])).astype(
            np.int64
        )
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


def _where(graph: TaskGraph, machine: Machine, key: np.int64 | int) -> str:
    memory, value = divmod(int(key), len(graph.values))
    return f"{graph.values[value]} in {machine.memories[memory].name}"


def _pinned_keys(graph: TaskGraph, machine: Machine) -> list[int]:
    return [
        (0 if place.memory is None else machine.memory_index.get(place.memory, 0)) * len(graph.values) + place.value
        for place in graph.inputs
        if place.value in graph.pinned
    ]
