"""Bounds that hold for every schedule of a task graph, and the no-recompute time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.graph.typed_work import typed_share
from remat.units import LARGEST_TOTAL, Number


class MemoryBound(NamedTuple):
    """Minimum bytes that a memory must hold, and the task that sets them (None: resident values alone)."""

    size: int
    task: int | None


class NeededTasks(NamedTuple):
    """The tasks that any schedule must run, and a cheap selection that runs everything once.

    Attributes
    ----------
    forced : (tasks,) bool
        Tasks that every schedule runs: required tasks, and sole producers of needed values.
    once : (tasks,) bool
        The `forced` tasks, and for each other needed value its cheapest producer.
    packed_time : int or float
        Minimum time on top of the forced tasks, from the cheapest producers of needed values that share no producer.
    """

    forced: BoolArray
    once: BoolArray
    packed_time: Number


def needed_tasks(graph: TaskGraph) -> NeededTasks:
    """Find the tasks that must run, by closure over reads (O(size of the graph))."""
    if _all_evidently_forced(graph):
        everything = np.ones(len(graph.tasks), dtype=bool)
        return NeededTasks(everything, everything, 0)
    reads = graph.reads.to_lists()
    writes = graph.writes.to_lists()
    producers = _first_producers(graph, reads)
    time = graph.time.tolist()
    available = graph.available
    made: set[int] = set()
    wanted: list[int] = [resident.value for resident in graph.outputs]
    seen = set(wanted)
    chosen = [False] * len(reads)

    def choose(task: int) -> None:
        if not chosen[task]:
            chosen[task] = True
            made.update(value for value in writes[task] if value not in reads[task])
            for value in reads[task]:
                if value not in seen:
                    seen.add(value)
                    wanted.append(value)

    def settle(open_values: list[int]) -> list[int]:
        """Run the forced closure; return the needed values that still have a choice of producers."""
        undecided = []
        while wanted:
            value = wanted.pop()
            if value in available:
                continue
            if len(producers[value]) == 1:
                choose(producers[value][0])
            else:
                undecided.append(value)
        return open_values + undecided

    for task in np.flatnonzero(graph.required).tolist():
        choose(task)
    undecided = settle([])
    forced = np.array(chosen, dtype=bool)
    if graph.cheapest is not None:
        return NeededTasks(forced, graph.cheapest, _total(graph, graph.cheapest & ~forced))
    packed_time: Number = 0
    taken: set[int] = set()
    for value in undecided:
        if value not in made and taken.isdisjoint(producers[value]):
            taken.update(producers[value])
            packed_time += min(time[task] for task in producers[value])
    while undecided:
        value = undecided.pop()
        if value not in made:
            choose(min(producers[value], key=lambda task: time[task]))
            undecided = settle(undecided)
    # Producers chosen one by one may wait for each other in a cycle: add producers that can run first.
    missing = _never_made(graph, chosen, reads, writes)
    if missing:
        earliest = list(zip(_ranks(graph, reads, writes), time, strict=True))
        while missing:
            outside = [task for value in missing for task in producers[value] if not chosen[task]]
            choose(min(outside, key=earliest.__getitem__))
            undecided = settle([])
            while undecided:
                value = undecided.pop()
                if value not in made:
                    choose(min(producers[value], key=earliest.__getitem__))
                    undecided = settle(undecided)
            missing = _never_made(graph, chosen, reads, writes)
        _leave_out_idle(graph, chosen, forced, reads, writes)
    else:
        _leave_out_redundant(graph, chosen, forced, reads, writes)
    return NeededTasks(forced, np.array(chosen, dtype=bool), packed_time)


def _leave_out_redundant(
    graph: TaskGraph, chosen: list[bool], forced: BoolArray, reads: list[list[int]], writes: list[list[int]]
) -> None:
    """Drop chosen tasks whose outputs other chosen tasks write as well, the most expensive first.

    A producer chosen for one value may be made redundant by a later choice. Nothing is dropped if the rest cannot run.
    """
    producers = dict.fromkeys(graph.available, 1)
    for task, wanted in enumerate(chosen):
        for value in writes[task] if wanted else ():
            producers[value] = producers.get(value, 0) + 1
    readers: dict[int, int] = {place.value: 1 for place in graph.outputs}
    for task, wanted in enumerate(chosen):
        for value in reads[task] if wanted else ():
            readers[value] = readers.get(value, 0) + 1
    kept = list(chosen)
    optional = [task for task, wanted in enumerate(chosen) if wanted and not forced[task]]
    for task in sorted(optional, key=lambda task: -graph.time[task]):
        if all(producers[value] > 1 or not readers.get(value) for value in writes[task]):
            kept[task] = False
            for value in writes[task]:
                producers[value] -= 1
            for value in reads[task]:
                readers[value] -= 1
    if kept != chosen and not _never_made(graph, kept, reads, writes):
        chosen[:] = kept


def _first_producers(graph: TaskGraph, reads: list[list[int]]) -> list[list[int]]:
    """Return the producers that can make each value first: a task that reads a value cannot be its first producer."""
    producers = graph.producers.to_lists()
    return [
        tasks if len(tasks) < 2 else [task for task in tasks if value not in reads[task]]
        for value, tasks in enumerate(producers)
    ]


def _ranks(graph: TaskGraph, reads: list[list[int]], writes: list[list[int]]) -> list[int]:
    """Return the position at which each task becomes runnable if all tasks may run."""
    order, _ = _run_all(graph, [True] * len(reads), reads, writes)
    rank = [len(reads)] * len(reads)
    for place, task in enumerate(order):
        rank[task] = place
    return rank


def _leave_out_idle(
    graph: TaskGraph, chosen: list[bool], forced: BoolArray, reads: list[list[int]], writes: list[list[int]]
) -> None:
    """Drop chosen tasks whose outputs are no longer needed, the most expensive first."""
    outputs = {place.value for place in graph.outputs}
    optional = [task for task, wanted in enumerate(chosen) if wanted and not forced[task]]
    for task in sorted(optional, key=lambda task: -graph.time[task]):
        chosen[task] = False
        order, available = _run_all(graph, chosen, reads, writes)
        if len(order) < sum(chosen) or not outputs <= available:
            chosen[task] = True


def _never_made(graph: TaskGraph, chosen: list[bool], reads: list[list[int]], writes: list[list[int]]) -> set[int]:
    """Return the values that block chosen tasks; empty if all chosen tasks can run.

    Everything can run if all tasks may run. Therefore one of these values has a producer that is not chosen yet.
    """
    order, available = _run_all(graph, chosen, reads, writes)
    if len(order) == sum(chosen):
        return set()
    done = set(order)
    stuck = [task for task, wanted in enumerate(chosen) if wanted and task not in done]
    return {value for task in stuck for value in reads[task] if value not in available}


def _run_all(
    graph: TaskGraph, chosen: list[bool], reads: list[list[int]], writes: list[list[int]]
) -> tuple[list[int], set[int]]:
    """Run each chosen task when its reads are available; return this order and the values that the tasks write."""
    available = set(graph.available)
    waiting: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    ready = []
    for task, wanted in enumerate(chosen):
        if wanted:
            absent = [value for value in reads[task] if value not in available]
            missing[task] = len(absent)
            for value in absent:
                waiting.setdefault(value, []).append(task)
            if not absent:
                ready.append(task)
    for task in ready:
        for value in writes[task]:
            if value not in available:
                available.add(value)
                for reader in waiting.get(value, ()):
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        ready.append(reader)
    return ready, available


def _all_evidently_forced(graph: TaskGraph) -> bool:
    """Whether each task is required or the only producer of a value that a required task reads.

    Trees and classical adjoints have this property, and may have millions of tasks.
    """
    wanted = np.zeros(len(graph.values), dtype=bool)
    wanted[graph.reads.items[graph.required[graph.reads.rows]]] = True
    wanted[[place.value for place in graph.outputs]] = True
    wanted[list(graph.available)] = False
    wanted &= graph.producers.counts == 1
    forced = graph.required.copy()
    forced[graph.writes.rows[wanted[graph.writes.items]]] = True
    return bool(forced.all())


def no_recompute_time(graph: TaskGraph, needed: NeededTasks | None = None) -> Number:
    """Return the total time of all required tasks and of the cheapest producer of each needed value, each run once."""
    needed = needed or needed_tasks(graph)
    return _total(graph, needed.once)


def exchange_time(graph: TaskGraph, needed: NeededTasks | None = None) -> Number:
    """Return the total time of the needed exchanges between ranks, each run once; 0 without any.

    These are the collectives between one memory and its peers: they share one link, and occupy no processor. The time
    of collectives between several memories of the machine is not included, since they may overlap each other.
    """
    if len({part.memory for task in graph.parts.keys() - graph.busy for part in graph.parts[task]}) != 1:
        return 0
    return _total(graph, (needed or needed_tasks(graph)).once & ~graph.on_processors)


def reference_of(no_recompute_time: Number, exchange_time: Number, transfer_bound: Number) -> Number:
    """Return the reference of overheads: each needed task once, or the mandatory transfers if these take longer.

    Exchanges between ranks, a part of the former, overlap with computation: the longer of the two counts.
    """
    return max(no_recompute_time - exchange_time, exchange_time, transfer_bound)


def _total(graph: TaskGraph, mask: BoolArray) -> Number:
    total = total_time(graph.time[mask])
    return total if graph.exact_times else float(total)


def total_time(times: NumberArray) -> Number:
    """Return the sum of times: of integers exactly, even beyond 64 bits, of floats one after the other."""
    if times.dtype == np.int64:
        return int(times.sum()) if float(times.astype(np.float64).sum()) < 2.0**62 else sum(times.tolist())
    return float(np.cumsum(times)[-1]) if len(times) else 0.0


def makespan_bound(graph: TaskGraph, machine: Machine, needed: NeededTasks | None = None) -> Number:
    """Return a lower bound on the makespan of every schedule.

    With one processor, the bound is the time of everything that must run. With several, it is the larger of the
    critical path and that time divided by the sum of the processors' speeds. A task on p processors takes time/p^alpha
    at the speed of the slowest one. Since alpha <= 1, this never reduces its work. (No processor is faster than 1.)
    Times by type divide among the types (`typed_share`).

    If all runs take multiples of an integer step, the quotient is rounded up to such a multiple: some processor is busy
    for at least the quotient, and for a multiple of the step.
    """
    needed = needed or needed_tasks(graph)
    if len(machine.processors) == 1 and not graph.parts:
        return as_time(_work(graph, needed), step=int(graph.exact_times))
    return max(share_bound(graph, machine, needed), path_bound(graph, needed))


def share_bound(graph: TaskGraph, machine: Machine, needed: NeededTasks, *, whole: bool = True) -> Number:
    """Return the time of all that must run, divided among all processors; rounded up as in `makespan_bound`.

    Streams pass `whole` False: a processor's share per sample need not be an integer.
    """
    share = _work(graph, needed) / sum(_exact_speed(processor.speed) for processor in machine.processors)
    share = max(share, typed_share(graph, machine, needed.forced & graph.on_processors))
    return as_time(share, step=_run_step(graph, machine) if whole else 0)


def _work(graph: TaskGraph, needed: NeededTasks) -> Fraction:
    """Return the minimum time that processors are occupied; a collective counts for one processor at most."""
    if not graph.parts:
        return Fraction(_total(graph, needed.forced) + needed.packed_time) - _spared(graph, needed.forced)
    own = needed.forced & graph.on_processors
    return Fraction(_total(graph, own)) - _spared(graph, own)


def _spared(graph: TaskGraph, mask: BoolArray) -> Fraction:
    """Return the maximum time that pairs can save: a pair saves at most the mean of what its two tasks can save."""
    if graph.pairs is None:
        return Fraction(0)
    return Fraction(graph.pairs.work_spared[mask].sum().item()) / 2


def _exact_speed(speed: Number) -> Fraction:
    """Return the exact value of a speed's decimal notation: 0.1 is one tenth."""
    return Fraction(str(speed))


def _run_step(graph: TaskGraph, machine: Machine) -> int:
    """Return the largest integer that divides the time of every run on every processor; 0 if some are no integers."""
    if not graph.exact_times or (graph.parallel_max is not None and (graph.parallel_max > 1).any()):
        return 0
    times = np.unique(graph.time if graph.times is None else np.maximum(graph.times, 0))
    step = int(np.gcd.reduce(times, initial=0))
    if graph.pairs is not None:
        step = math.gcd(step, int(np.gcd.reduce(graph.pairs.spared.ravel(), initial=0)))
    for speed in {processor.speed for processor in machine.processors if processor.speed != 1}:
        if (times / speed >= 2.0**53).any():  # float64 rounds quotients of this size
            return 0
        exact = _exact_speed(speed)
        for time in times.tolist():
            run, rest = divmod(time * exact.denominator, exact.numerator)
            if rest:
                return 0
            step = math.gcd(step, run)
    return step or 1


def _copy_step(machine: Machine) -> int | None:
    """Return an integer that divides the time of every copy, parts of values included; None if some are no integers.

    It is 0, which every integer divides, if no copy takes any time.
    """
    times = [time for link in machine.links for time in (link.latency, link.delay)]
    whole = all(isinstance(time, int) for time in times)
    if not whole or any(link.bandwidth not in (None, 1) for link in machine.links):
        return None
    return 1 if any(link.bandwidth == 1 for link in machine.links) else math.gcd(*(int(time) for time in times))


def time_step(graph: TaskGraph, machine: Machine) -> int:
    """Return an integer that divides the time of every run and every copy; 0 if some are no integers."""
    runs, copies = _run_step(graph, machine), None if graph.ratios else _copy_step(machine)
    return 0 if copies is None or not runs else math.gcd(runs, copies)


def as_time(bound: Fraction, *, step: int) -> Number:
    """Convert a bound to a time: up to a multiple of `step`; if that is 0, down if the bound becomes a float64."""
    if step:
        return math.ceil(bound / step) * step
    if bound.denominator == 1:
        return bound.numerator
    rounded = float(bound)
    return rounded if Fraction(rounded) <= bound else math.nextafter(rounded, 0.0)


def fastest_times(graph: TaskGraph, most: int | None = None) -> list[Number]:
    """Return each task's time on as many processors as it can use, limited to `most`."""
    times: list[Number] = graph.time.tolist()
    if graph.parallel_max is not None and graph.parallel_alpha is not None:
        used = graph.parallel_max if most is None else np.minimum(graph.parallel_max, most)
        speedup = used.astype(float) ** graph.parallel_alpha
        for task in np.flatnonzero(speedup > 1).tolist():
            times[task] = float(graph.time[task] / speedup[task])
    return times


def path_bound(graph: TaskGraph, needed: NeededTasks) -> Number:
    """Return the critical path: the longest chain of forced tasks, through values that have one producer."""
    duration = fastest_times(graph)
    producers = graph.producers.to_lists()
    reads = graph.reads.to_lists()
    writes = graph.writes.to_lists()
    readers = graph.readers.to_lists()
    inputs = graph.available
    count = len(reads)
    before: list[list[int]] = [
        [producers[value][0] for value in reads[task] if len(producers[value]) == 1 and value not in inputs]
        for task in range(count)
    ]
    waiting = [len(tasks) for tasks in before]
    ready = [task for task in range(count) if waiting[task] == 0]
    end: list[Number] = [0] * count
    longest: Number = 0
    while ready:
        task = ready.pop()
        end[task] = max((end[other] for other in before[task]), default=0) + duration[task]
        if needed.forced[task]:
            longest = max(longest, end[task])
        for value in writes[task]:
            if len(producers[value]) == 1 and value not in inputs:
                for reader in readers[value]:
                    waiting[reader] -= 1
                    if waiting[reader] == 0:
                        ready.append(reader)
    return longest


def memory_bounds(graph: TaskGraph, machine: Machine, needed: NeededTasks | None = None) -> list[MemoryBound | None]:
    """Return the minimum bytes for each memory (None: no bound is known).

    For each task that must run: reads + max(0, writes - droppable reads if in place) + workspace + pinned + static.
    If several memories have processors, only resident values and tasks that no processor of another memory can run
    count. Inputs whose place is open are in the memory of a machine that has only one.
    """
    needed = needed or needed_tasks(graph)
    if len(machine.memories) == 1:
        graph = graph.starting_with((place.value, machine.memories[0].name) for place in graph.placeable)
    count = len(machine.memories)
    bounds: list[MemoryBound | None] = [None] * count
    for index in range(count):
        resident = _resident_bytes(graph, machine, index)
        if resident:
            bounds[index] = MemoryBound(resident, None)
    for memory, tasks in _confined(graph, machine, needed.forced).items():
        need, known = largest_need(graph, machine, tasks, memory), bounds[memory]
        if need is not None and (known is None or need.size >= known.size):
            bounds[memory] = need
    return bounds


def _confined(graph: TaskGraph, machine: Machine, tasks: BoolArray) -> dict[int, BoolArray]:
    """Return, for each memory that has processors, which of some tasks only these can run."""
    memories = sorted({processor.memory for processor in machine.processors})
    if len(memories) == 1:
        return {memories[0]: tasks}
    if graph.times is None and not graph.tied:
        return {}
    able = np.zeros((len(memories), len(graph.tasks)), dtype=bool)
    for processor in machine.processors:
        here = np.ones(len(graph.tasks), dtype=bool)
        if graph.times is not None:
            known = processor.type in graph.types
            here = graph.times[graph.types.index(processor.type)] >= 0 if known else np.zeros_like(here)
        here[[task for task, names in graph.tied.items() if processor.name not in names]] = False
        able[memories.index(processor.memory)] |= here
    alone = tasks & (able.sum(axis=0) == 1)
    alone[list(graph.parts)] = False  # each part of a collective has values of its own
    return {memory: alone & able[place] for place, memory in enumerate(memories)}


def largest_need(graph: TaskGraph, machine: Machine, tasks: BoolArray, memory: int) -> MemoryBound | None:
    """Return the most bytes that one of some tasks takes if it runs in this memory; None without such a task."""
    forced = np.flatnonzero(tasks)
    if len(forced) == 0:
        return None
    need = _working_sets(graph, machine, memory)[forced]
    best = int(np.argmax(need))
    return MemoryBound(int(need[best]), int(forced[best]))


def _resident_bytes(graph: TaskGraph, machine: Machine, memory: int) -> int:
    """Return the bytes that are resident in a memory at the start or at the end, whichever is more."""
    name = machine.memories[memory].name
    first = machine.memories[0].name
    static = graph.static_bytes(machine, memory)
    ends = [
        sum(int(graph.size[place.value]) for place in places if (place.memory or first) == name)
        for places in (graph.inputs, graph.outputs)
    ]
    return static + max(ends)


def _working_sets(graph: TaskGraph, machine: Machine, memory: int) -> IntArray:
    """Return the minimum bytes in the memory while each task runs."""
    count = len(graph.tasks)
    first = machine.memories[0].name
    pinned = {
        place.value
        for place in graph.inputs
        if place.value in graph.pinned and (place.memory or first) == machine.memories[memory].name
    }
    size, workspace = graph.size, graph.workspace
    static = graph.static_bytes(machine, memory)
    if 4.0 * (float(size.sum(dtype=np.float64)) + float(workspace.max(initial=0)) + static) >= 2.0**62:
        # A task may read and write all values: use Python integers if the sums could overflow int64.
        size, workspace = size.astype(object), workspace.astype(object)
    is_pinned = np.zeros(len(size), dtype=bool)
    is_pinned[list(pinned)] = True

    def per_task(ragged_items: np.ndarray, rows: np.ndarray) -> np.ndarray:
        # The weights of bincount would be float64.
        total = np.zeros(count, dtype=size.dtype)
        np.add.at(total, rows, ragged_items)
        return total

    reads, read_rows = graph.reads.items, graph.reads.rows
    writes, write_rows = graph.writes.items, graph.writes.rows
    read_bytes = per_task(size[reads], read_rows)
    free_reads = per_task(np.where(is_pinned[reads], 0, size[reads]), read_rows)
    # A pinned value that the task rewrites would occupy its bytes twice. Counting it once keeps the bound valid.
    write_bytes = per_task(np.where(is_pinned[writes], 0, size[writes]), write_rows)
    added = np.where(graph.in_place, np.maximum(0, write_bytes - free_reads), write_bytes)
    others = int(size[list(pinned)].sum()) - (read_bytes - free_reads)
    need: IntArray = read_bytes + added + workspace + others + static
    return need


def memory_time_bound(graph: TaskGraph, machine: Machine, needed: NeededTasks | None = None) -> Number:
    """Return a lower bound on the makespan from bytes times time; 0 if a processor's memory is unbounded.

    Notes
    -----
    After Marchal, Sinnen and Vivien 2013. Every task i that must run occupies at least b_i bytes for at least t_i:

        makespan >= sum of b_i t_i / M,

    where t_i = time / p^alpha with as many processors as it can use, and b_i = its reads' bytes, each divided by
    the number of the value's readers, + max(0, writes - reads if in place) + workspace.

    Proof: pick one run of each of these tasks. At any instant, the memories that hold processors contain at least the
    sum of b_i over the picked tasks that run at that instant:

    - A run alone occupies its workspace and the copies that it writes: no other task may read or write them meanwhile.
    - Bytes that outputs take over from inputs are counted only once.
    - The bytes of a value exist at least once for all tasks that read it at this instant. These are picked runs of
      different tasks, hence at most as many as the value has readers.

    Integrate over time. M is the capacity of these memories without static memory. If there is only one of them, M also
    excludes its pinned inputs, and reads of those count nothing. If all runs and copies take integer times, the best
    makespan is an integer, and the quotient is rounded up.
    """
    needed = needed or needed_tasks(graph)
    memories = sorted({processor.memory for processor in machine.processors})
    capacities = [machine.memories[memory].capacity for memory in memories]
    room = sum(capacity for capacity in capacities if capacity is not None)
    room -= sum(graph.static_bytes(machine, memory) for memory in memories)
    name, first = machine.memories[memories[0]].name, machine.memories[0].name
    free = {
        place.value
        for place in graph.inputs
        if len(memories) == 1 and place.value in graph.pinned and (place.memory or first) == name
    }
    size: list[int] = graph.size.tolist()
    readers: list[int] = graph.readers.counts.tolist()
    room -= sum(size[value] for value in free)
    if None in capacities or room <= 0:
        return 0
    most = max(sum(processor.memory == memory for processor in machine.processors) for memory in memories)
    duration = fastest_times(graph, most)
    reads, writes = graph.reads.to_lists(), graph.writes.to_lists()
    workspace, in_place = graph.workspace.tolist(), graph.in_place.tolist()
    shared: dict[int, Number] = {}  # bytes times time, by the number of readers that share them
    for task in np.flatnonzero(needed.forced).tolist():
        read = [value for value in dict.fromkeys(reads[task]) if value not in free]
        written = sum(size[value] for value in dict.fromkeys(writes[task]))
        if in_place[task]:
            written = max(0, written - sum(size[value] for value in read))
        shared[1] = shared.get(1, 0) + (written + workspace[task]) * duration[task]
        for value in read:
            shared[readers[value]] = shared.get(readers[value], 0) + size[value] * duration[task]
    # Bytes times a float time may overflow float64: a smaller amount is still a valid bound.
    total = sum((Fraction(min(amount, LARGEST_TOTAL)) / count for count, amount in shared.items()), Fraction(0))
    return as_time(min(total / room, Fraction(LARGEST_TOTAL)), step=time_step(graph, machine))
