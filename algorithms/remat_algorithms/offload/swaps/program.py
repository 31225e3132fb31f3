"""Programs: runs in a given order, and the transfers between memories that follow and precede them.

Offloading algorithms decide a program; `remat_algorithms.offload.swaps.dispatch` starts each run and transfer in time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from remat.plugin import IntArray, Machine, Number, Processor, TaskGraph

AT_ONCE = -1
"""Properties of a transfer: ready from the start; or its source is freed at its end, during any run."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a task in its processor's memory; a collective occupies that memory's link to itself instead.

    Attributes
    ----------
    task, processor : int
    drops : tuple of int
        Values freed at its end.
    replaces : tuple of int
        Values freed when it starts, by a separate step.
    after : tuple of int
        Runs (by position) that have to end before it starts.
    """

    task: int
    processor: int = 0
    drops: tuple[int, ...] = ()
    replaces: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy of a whole value over one link, described by positions in the list of runs.

    Attributes
    ----------
    value, link : int
    ready : int
        The run after whose end it may start; `AT_ONCE`.
    needed : int
        The run that waits for its end; the number of runs if none does.
    holds : int
        Another run that waits for it to free memory; -1 if there is none.
    last_use : int or None
        The source is freed when the transfer and this run have ended; `AT_ONCE`: with the transfer; None: never.
    previous : int
        An earlier transfer that must have ended (the hop before); -1 if there is none.
    begin : int
        The run with whose start it may start, at the earliest; -1 if that does not matter.
    leaves : bool
        Whether it frees memory: its target's bytes are reserved as soon as it may start. A transfer back without
        `begin` waits until its bytes obstruct no run.
    """

    value: int
    link: int
    ready: int
    needed: int
    last_use: int | None
    previous: int = -1
    begin: int = -1
    leaves: bool = True
    holds: int = -1


@dataclass(frozen=True)
class Program:
    """Runs in order, and transfers."""

    runs: Sequence[Run]
    transfers: Sequence[Transfer]


def run_time(processor: Processor, time: Number) -> Number:
    """Return the time of a run on a processor: an integer where the division is exact."""
    if processor.speed == 1:
        return time
    longer = time / processor.speed
    return int(longer) if isinstance(time, int) and longer < 2**53 and longer == int(longer) else longer


def planned_profile(graph: TaskGraph, machine: Machine, program: Program) -> list[IntArray]:
    """Return for each memory the bytes that each run's position must hold if no value stays longer than necessary.

    O(runs + transfers), in addition to sorting. If they exceed no capacity, `dispatch` succeeds.
    """
    # Without runs, there is one position at which values come from and go to other memories.
    runs, count = program.runs, max(1, len(program.runs))
    size, workspace, writes = graph.size.tolist(), graph.workspace.tolist(), graph.writes.to_lists()
    in_place = graph.in_place.tolist()
    memory_of = [processor.memory for processor in machine.processors]
    # Plain lists: most programs are short, and searches over many programs depend on the speed of this.
    change = [[0] * (count + 1) for _ in machine.memories]
    extra = [[0] * count for _ in machine.memories]
    for memory, row in enumerate(change):
        row[0] += graph.static_bytes(machine, memory)
    opens: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    closes: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for place in graph.inputs:
        opens[machine.memory_index[place.memory] if place.memory else 0, place.value].append(0)
    leaving = _leaving(machine, program)
    for position, run in enumerate(runs):
        memory = memory_of[run.processor]
        for value in writes[run.task]:
            opens[memory, value].append(position)
        for value in run.drops:
            closes[memory, value].append(position)
        for value in run.replaces:
            closes[memory, value].append(position - 1)
        extra[memory][position] += workspace[run.task]
        if in_place[run.task]:
            # Values that have left by then count as well: the run waits for them if it needs the memory.
            gone = leaving.get((memory, position), ())
            extra[memory][position] -= reused_bytes(graph, run.task, (*run.drops, *gone))
    arrives = []
    for transfer in program.transfers:
        link = machine.links[transfer.link]
        settled = transfer.leaves or transfer.begin >= 0
        at = max(transfer.ready + 1, transfer.begin) if settled else min(transfer.needed, count - 1)
        arrives.append(at)
        opens[link.target, transfer.value].append(at)
        if transfer.last_use is not None:
            last = transfer.last_use if transfer.leaves else max(transfer.last_use, transfer.needed - 1)
            if transfer.previous >= 0:
                # A value that only passes through a memory is forwarded on arrival.
                last = max(last, min(arrives[transfer.previous], count - 1))
            closes[link.source, transfer.value].append(max(last, transfer.ready, 0))
    for (memory, value), starts in opens.items():
        row = change[memory]
        for start, end in _intervals(sorted(starts), sorted(closes[memory, value]), count):
            row[start] += size[value]
            row[end + 1] -= size[value]
    return [
        np.cumsum(row[:-1], dtype=np.int64) + np.array(more, dtype=np.int64)
        for row, more in zip(change, extra, strict=True)
    ]


def _leaving(machine: Machine, program: Program) -> dict[tuple[int, int], list[int]]:
    """Return the values that leave a memory for good by the run that uses them last there, by memory and run."""
    found: dict[tuple[int, int], list[int]] = {}
    for transfer in program.transfers:
        last = transfer.last_use
        if transfer.leaves and last is not None and max(transfer.ready, transfer.begin) < last:
            found.setdefault((machine.links[transfer.link].source, last), []).append(transfer.value)
    return found


def _intervals(starts: list[int], ends: list[int], count: int) -> Iterator[tuple[int, int]]:
    """Pair the arrivals of a value in a memory with its departures, by positions of runs."""
    used = 0
    for start, following in itertools.zip_longest(starts, starts[1:], fillvalue=count):
        while used < len(ends) and ends[used] < start:
            used += 1
        end = ends[used] if used < len(ends) else count - 1
        if end < following or following == start:
            used += 1
        else:
            end = following  # the old and the new version of a value are both resident while it is overwritten
        if start <= end:
            yield start, end


def reused_bytes(graph: TaskGraph, task: int, drops: Sequence[int]) -> int:
    """Return the bytes of dropped inputs that a task in place takes over."""
    if not drops or not graph.in_place[task]:
        return 0
    reads = set(graph.reads[task].tolist())
    freed = sum(int(graph.size[value]) for value in drops if value in reads)
    return min(freed, int(graph.size[graph.writes[task]].sum()))
