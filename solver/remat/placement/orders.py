"""Placement of one order per processor: an event simulation that adds the copies and the drops.

Each processor runs its operations in the given order, each as soon as its data are available. A value that another
memory needs is sent when the operation that writes it has ended. A transfer begins as soon as everything that its link
occupies is free: channels, and processors whose names channels have. Among the transfers that wait for one of these,
the first to become ready goes first. Each memory drops a value after its last use there. If transfers block devices,
`remat.placement.rendezvous` simulates the orders.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, Ragged, TaskGraph
from remat.placement.collectives import LAST, Collectives, Rings
from remat.placement.recompute import repeated
from remat.placement.rendezvous import Meetings, Stuck, Transfer
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import Number


def place_orders(
    graph: TaskGraph,
    machine: Machine,
    processors: IntArray,
    operations: Ragged,
    initial: Sequence[tuple[int, int]] = (),
    *,
    beside: BoolArray | None = None,
    transfers: str = "overlap",
) -> Steps | Stuck:
    """Turn one order per processor into placed steps.

    Parameters
    ----------
    graph, machine
        The task graph, and the machine that runs it.
    processors : (operations,) int64
        Processor of each operation, ascending. Operations of one processor run in the order in which they are listed.
    operations : Ragged
        The tasks of each operation, in execution order. All runs of one task are on one processor.
    initial : sequence of (value, memory)
        Where placeable inputs are from the start, and stay.
    beside : bool for each task of the operations, optional
        Tasks that run in a pair with the task before them.
    transfers : str
        ``overlap``: transfers overlap with computation. Otherwise a mode of `remat.placement.rendezvous`, in which
        each memory has one processor.

    Returns
    -------
    Steps or Stuck
        Runs, copies and drops with start times, in their order.

    Raises
    ------
    OptionError
        For a value that no operation writes, a copy without a link, or a processor that cannot run a task.

    Notes
    -----
    O(accesses log accesses). Capacities are ignored: the verifier checks whether the steps fit.
    """
    again = repeated(graph, processors, operations)
    if again is not None:
        graph, operations = again.graph, again.operations
    flags = np.zeros(len(operations.items), dtype=bool) if beside is None else beside
    waits = _Waits(graph, machine, processors, operations, tuple(initial), flags)
    if again is not None and transfers == "overlap":
        waits.wait_for_users(again.remade)
    steps = _simulate(waits) if transfers == "overlap" else _simulate_meetings(waits, transfers)
    return steps if again is None or isinstance(steps, Stuck) else again.folded(steps)


@dataclass
class _Waits:
    """Precedence: operations wait for operations in their memory, and for transfers from other memories."""

    graph: TaskGraph
    machine: Machine
    processors: IntArray
    operations: Ragged
    initial: tuple[tuple[int, int], ...]
    beside: BoolArray

    def __post_init__(self) -> None:
        graph, values = self.graph, len(self.graph.values)
        memory_of = np.array([processor.memory for processor in self.machine.processors], dtype=np.int64)
        self.task_memory = memory_of[self.processors[self.operations.rows]]
        owner = np.full(len(graph.tasks), -1, dtype=np.int64)
        owner[self.operations.items] = self.operations.rows
        maker = np.full(values, -1, dtype=np.int64)
        maker[graph.writes.items] = owner[graph.writes.rows]
        first = self.machine.memories[0].name
        there = [(place.value, self.machine.memory_index[place.memory or first]) for place in graph.inputs]
        there += self.initial
        self.fixed = np.zeros(len(self.machine.memories) * values, dtype=bool)
        self.fixed[[memory * values + value for value, memory in there]] = True

        reads = graph.reads.gather(self.operations.items)
        reader = self.operations.rows[reads.rows]
        memory = self.task_memory[reads.rows]
        wanted = ~self.fixed[memory * values + reads.items] & (maker[reads.items] != reader)
        self.meets = Collectives(graph, self.machine, self.processors, self.fixed, maker)
        together = wanted & (self.meets.of_value[reads.items] >= 0)
        self.meets.followed_by(self.meets.of_value[reads.items][together], reader[together])
        wanted &= ~together
        pairs = np.unique(np.column_stack((reader, reads.items))[wanted], axis=0)
        reader, value = pairs[:, 0], pairs[:, 1]
        missing = np.flatnonzero(maker[value] < 0)
        if len(missing):
            task = int(self.operations[int(reader[missing[0]])][0])
            name = graph.values[int(value[missing[0]])]
            raise OptionError(f"{graph.described(task)} reads {name}, which no operation writes", argument="orders")
        target, source = memory_of[self.processors[reader]], memory_of[self.processors[maker[value]]]
        remote = target != source
        codes, sent = np.unique(value[remote] * len(self.machine.memories) + target[remote], return_inverse=True)
        self.sent_value, self.sent_to = codes // len(self.machine.memories), codes % len(self.machine.memories)
        self.sent_by = maker[self.sent_value]
        self.sent_from = memory_of[self.processors[self.sent_by]]
        count = len(self.operations)
        here = np.unique(np.column_stack((maker[value[~remote]], reader[~remote])), axis=0)
        self.read_here = value[~remote], reader[~remote]
        self.followers = _grouped(here[:, 0], here[:, 1], count)
        self.transfers = _grouped(self.sent_by, np.arange(len(codes)), count)
        self.receivers = _grouped(sent.ravel(), reader[remote], len(codes))
        self.missing = np.bincount(np.concatenate((here[:, 1], reader[remote])), minlength=count)
        for waiting in self.meets.followers:
            self.missing[waiting] += 1

    def wait_for_users(self, remade: Sequence[tuple[int, int]]) -> None:
        """Let operations that rewrite values wait until the earlier values have no other use.

        All transfers of these have arrived then, and readers on other processors of the same memory have ended.
        """
        sent: dict[int, list[int]] = {}
        for number, value in enumerate(self.sent_value.tolist()):
            sent.setdefault(value, []).append(number)
        readers: dict[int, list[int]] = {}
        for value, reader in zip(*(column.tolist() for column in self.read_here), strict=True):
            readers.setdefault(value, []).append(reader)
        for value, operation in remade:
            for number in sent.get(value, ()):
                self._wait(operation, self.receivers[number])
            for reader in readers.get(value, ()):
                if self.processors[reader] != self.processors[operation]:
                    self._wait(operation, self.followers[reader])

    def _wait(self, operation: int, waiting: list[int]) -> None:
        if operation not in waiting:
            waiting.append(operation)
            self.missing[operation] += 1

    @cached_property
    def task_time(self) -> NumberArray:
        """Time of each task of the operations on its processor, integers if `is_whole`.

        One type for all times: sums of integers and floats would round otherwise than the sums of start and duration.
        """
        return self.time_on_processor if self.is_whole else self.time_on_processor.astype(np.float64)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all times are integers, and so few that their sum stays within int64."""
        _, occupied, delay = self.given_links
        if self.time_on_processor.dtype != np.int64 or any(type(time) is not int for time in (*occupied, *delay)):
            return False
        return float(self.time_on_processor.sum(dtype=np.float64)) + sum(occupied) + sum(delay) < 2.0**62

    @cached_property
    def time_on_processor(self) -> NumberArray:
        machine, graph, tasks = self.machine, self.graph, self.operations.items
        on = self.processors[self.operations.rows]
        times: NumberArray = graph.time[tasks]
        if graph.times is not None:
            known = {name: index for index, name in enumerate(graph.types)}
            types = np.array([known.get(processor.type, -1) for processor in machine.processors])
            times = np.where(types[on] < 0, -1, graph.times[types[on], tasks])
            for k in np.flatnonzero(times < 0)[:1].tolist():
                name = machine.processors[int(on[k])].name
                raise OptionError(f"{name} cannot run {graph.described(int(tasks[k]))}", argument="orders")
        times = self._together(times)
        speeds = [processor.speed for processor in machine.processors]
        if set(speeds) == {1}:
            return times
        slower: NumberArray = times / np.array(speeds, dtype=np.float64)[on]
        whole = times.dtype == np.int64 and (slower == np.rint(slower)).all() and slower.max(initial=0) < 2.0**53
        return slower.astype(np.int64) if whole else slower

    def _together(self, times: NumberArray) -> NumberArray:
        """Give both tasks of a pair the time of the pair."""
        second = np.flatnonzero(self.beside)
        if not len(second):
            return times
        pairs, tasks, machine = self.graph.pairs, self.operations.items, self.machine
        assert pairs is not None
        on = self.processors[self.operations.rows[second]]
        known = {name: index for index, name in enumerate(self.graph.types)}
        row = np.array([known.get(processor.type, 0) for processor in machine.processors])[on]
        spared = np.minimum(pairs.spared[row, tasks[second - 1]], pairs.spared[row, tasks[second]])
        both = times[second - 1] + times[second] - spared
        found = times.astype(np.result_type(times, both))
        found[second - 1] = found[second] = both
        return found

    @cached_property
    def advance(self) -> NumberArray:
        """Time from the start of each task to the start of the next one; 0 for the first task of a pair."""
        times: NumberArray = self.task_time
        first = np.append(self.beside[1:], False) if len(times) else self.beside
        return np.where(first, 0, times).astype(times.dtype)

    @cached_property
    def links(self) -> tuple[list[tuple[int, ...]], list[Number], list[Number]]:
        """Resources, occupied time and delay of each transfer: integers if `is_whole`, floats otherwise."""
        held, occupied, delay = self.given_links
        return (held, occupied, delay) if self.is_whole else (held, [*map(float, occupied)], [*map(float, delay)])

    @cached_property
    def given_links(self) -> tuple[list[tuple[int, ...]], list[Number], list[Number]]:
        """Resources, occupied time and delay of each transfer, as the machine gives them."""
        held: list[tuple[int, ...]] = []
        occupied: list[Number] = []
        delay: list[Number] = []
        ends = zip(self.sent_from.tolist(), self.sent_to.tolist(), strict=True)
        values = self.sent_value.tolist()
        sizes = self.graph.size[self.sent_value].tolist()
        for between, value, size in zip(ends, values, sizes, strict=True):
            link = self.graph.link_for(self.machine.link_between(*between), value)
            time: Number = link.latency
            if link.bandwidth is not None:
                exact = isinstance(link.bandwidth, int) and size % link.bandwidth == 0
                time += size // link.bandwidth if exact else size / link.bandwidth
            held.append(self.machine.held_by_link[self.machine.link_index[between]])
            occupied.append(time)
            delay.append(link.delay)
        return held, occupied, delay

    def cycle(self, done: list[bool]) -> tuple[int, ...]:
        """Follow the precedence from an operation that did not run until an operation repeats; return that cycle."""
        before: dict[int, list[int]] = {}
        for number, following in enumerate(self.followers):
            for other in following:
                before.setdefault(other, []).append(number)
        for maker, receivers in zip(self.sent_by.tolist(), self.receivers, strict=True):
            for other in receivers:
                before.setdefault(other, []).append(maker)
        processors = self.processors.tolist()
        for number in range(1, len(processors)):
            if processors[number] == processors[number - 1]:
                before.setdefault(number, []).append(number - 1)
        at, path = done.index(False), dict[int, None]()
        while at not in path:
            path[at] = None
            at = next(other for other in before[at] if not done[other])
        listed = list(path)
        return tuple(listed[listed.index(at) :])


def _grouped(group: IntArray, item: IntArray, groups: int) -> list[list[int]]:
    order = np.argsort(group, kind="stable")
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(group, minlength=groups))))
    return Ragged(start, item[order]).to_lists()


class _Work:
    """The durations of operations, and the starts of their tasks.

    Float times are added one by one from the start of an operation: rounding never makes a successor earlier.
    """

    def __init__(self, waits: _Waits) -> None:
        self.times, self.operations = waits.advance, waits.operations
        self.exact = self.times.dtype == np.int64
        self.listed, self.bounds = self.times.tolist(), self.operations.start.tolist()
        self.begun = [0.0] * (0 if self.exact else len(self.times))
        ended = np.concatenate((np.zeros(1, dtype=self.times.dtype), np.cumsum(self.times)))
        self.durations = (ended[self.operations.start[1:]] - ended[self.operations.start[:-1]]).tolist()

    def until(self, operation: int, begin: Number) -> Number:
        """Return when an operation ends."""
        if self.exact:
            end: Number = begin + self.durations[operation]
            return end
        for task in range(self.bounds[operation], self.bounds[operation + 1]):
            self.begun[task] = begin
            begin += self.listed[task]
        return begin

    def starts(self, started: list[Number]) -> NumberArray:
        """Return the start of each task, given those of the operations."""
        if not self.exact:
            return np.array(self.begun)
        return np.array(started)[self.operations.rows] + _inside(self.times, self.operations)


def _simulate(waits: _Waits) -> Steps | Stuck:
    """Simulate the operations as events in time; an event is the end of an operation or the arrival of a transfer."""
    count = len(waits.operations)
    first = np.searchsorted(waits.processors, np.arange(len(waits.machine.processors) + 1)).tolist()
    processors = waits.processors.tolist()
    work = _Work(waits)
    held, occupied, delay = waits.links
    missing = waits.missing.tolist()
    followers, transfers, receivers = waits.followers, waits.transfers, waits.receivers
    free_at: list[Number] = [0] * len(waits.machine.resources)
    up, last = first[:-1], first[1:]
    idle = [True] * len(up)
    started: list[Number] = [0] * count
    sent: list[Number] = [0] * len(held)
    number_of, sent_number = [0] * count, [0] * len(held)
    done = [False] * count
    # Events: time, number in order of creation, item (an operation, or after those a transfer; -1 - operation for one
    # whose processor a transfer occupies until then).
    events: list[tuple[Number, int, int]] = []
    made = 0
    ready = [up[k] for k in range(len(up)) if up[k] < last[k] and not missing[up[k]]]
    rings = Rings(waits.meets, count + len(held), free_at)
    events += rings.begin()
    users = [resource for held_by in waits.machine.held_by_link for resource in set(held_by)]
    taken_in_turn = len(set(users)) < len(users) or min(users, default=len(up)) < len(up)
    now: Number = 0
    while True:
        # Those that begin together may want a common channel when they end: then the first processor goes first.
        for operation in sorted(ready) if taken_in_turn else ready:
            processor = processors[operation]
            made += 1
            if free_at[processor] > now:
                heapq.heappush(events, (free_at[processor], made, -1 - operation))
                continue
            idle[processor] = False
            started[operation], number_of[operation] = now, made
            free_at[processor] = work.until(operation, now)
            heapq.heappush(events, (free_at[processor], made, operation))
        if not events:
            break
        now, ready, together = events[0][0], [], True
        waiting: Sequence[int]
        # All operations that end at an instant end before any begins; a collective begins when nothing else can.
        while together:
            _, _, item = heapq.heappop(events)
            if item >= rings.first:
                made += 1
                waiting = rings.happens(item, now, made, events)
            elif item >= count:
                waiting = receivers[item - count]
            elif item < 0:
                waiting = ()
                ready.append(-1 - item)
            else:
                done[item] = True
                rings.ended(item, now, events)
                processor = processors[item]
                idle[processor] = True
                up[processor] = item + 1
                for transfer in transfers[item]:
                    begin = max(now, max([free_at[resource] for resource in held[transfer]]))
                    over = begin + occupied[transfer]
                    for resource in held[transfer]:
                        free_at[resource] = over
                    made += 1
                    sent[transfer], sent_number[transfer] = begin, made
                    heapq.heappush(events, (over + delay[transfer], made, count + transfer))
                waiting = followers[item]
                if item + 1 < last[processor] and not missing[item + 1]:
                    ready.append(item + 1)
            for operation in waiting:
                missing[operation] -= 1
                if not missing[operation] and up[processors[operation]] == operation and idle[processors[operation]]:
                    ready.append(operation)
            together = bool(events) and events[0][0] == now and not (ready and events[0][1] >= LAST)
    if not all(done):
        return Stuck(waits.cycle(done))
    return _Listing(waits, work.starts(started), number_of, sent, sent_number, rings).steps()


def _simulate_meetings(waits: _Waits, mode: str) -> Steps | Stuck:
    """Simulate the operations with transfers that block devices."""
    processors = np.arange(len(waits.machine.processors) + 1)
    on = waits.processors.tolist()
    transfers = [
        Transfer(maker, min(readers), on[maker], on[min(readers)], held, took, late)
        for maker, readers, held, took, late in zip(waits.sent_by.tolist(), waits.receivers, *waits.links, strict=True)
    ]
    times, bounds = waits.advance.tolist(), waits.operations.start.tolist()
    begun: list[Number] = [0] * len(times)

    def work(operation: int, begin: Number, /) -> Number:
        # Added one by one from the start of an operation: rounding never makes a successor earlier.
        for task in range(bounds[operation], bounds[operation + 1]):
            begun[task] = begin
            begin += times[task]
        return begin

    played = Meetings(
        np.searchsorted(waits.processors, processors).tolist(),
        transfers,
        missing=waits.missing.tolist(),
        followers=waits.followers,
        receivers=waits.receivers,
        work=work,
        mode=mode,
    ).play()
    if isinstance(played, Stuck):
        return played
    begin = np.array(begun, dtype=np.array(begun).dtype if begun else np.int64)
    none = Rings(waits.meets, 0, [])
    return _Listing(waits, begin, played.number_of, played.sent, played.sent_number, none).steps()


class _Listing:
    """The result of the simulation as steps: sorted by time, with the drops."""

    def __init__(
        self,
        waits: _Waits,
        begin: NumberArray,
        number_of: list[int],
        sent: list[Number],
        sent_number: list[int],
        rings: Rings,
    ) -> None:
        self.waits = waits
        operations = waits.operations
        met = rings.started
        self.start: NumberArray = np.concatenate((begin, _times(sent), _times(met)))
        _, occupied, delay = waits.links
        arrival = np.array(sent) + np.array(occupied) + np.array(delay) if sent else np.zeros(0, dtype=np.int64)
        over = _times(met) + waits.graph.time[waits.meets.tasks] if met else np.zeros(0, dtype=np.int64)
        self.end: NumberArray = np.concatenate((begin + waits.task_time, arrival, over))
        numbers = (np.array(number_of)[operations.rows], sent_number, rings.number)
        number = np.concatenate([np.array(listed, dtype=np.int64) for listed in numbers])
        rest = np.zeros(len(sent) + len(met))
        within = np.concatenate((np.arange(len(begin)) - operations.start[operations.rows], rest))
        # Among steps that start together, the waiting step has the larger event number.
        self.order = np.lexsort((within, number, self.start))

    def steps(self) -> Steps:
        """Return the steps."""
        waits, order = self.waits, self.order
        runs, copies = len(waits.operations.items), len(waits.sent_value)
        meets = waits.meets

        def column(of_runs: Any, of_copies: Any, of_meets: Any, dtype: type = np.int64) -> IntArray:
            every: IntArray = np.empty(len(order), dtype=dtype)
            every[:runs], every[runs : runs + copies], every[runs + copies :] = of_runs, of_copies, of_meets
            listed: IntArray = every[order]
            return listed

        run, beside = int(StepKind.RUN), waits.beside
        on = waits.processors[waits.operations.rows]
        members = Ragged.from_lists(meets.members)
        counts = np.concatenate((np.ones(runs, dtype=np.int64), np.zeros(copies, dtype=np.int64), members.counts))
        rows = Ragged(np.concatenate(([0], np.cumsum(counts))), np.concatenate((on, members.items)))
        return Steps(
            kind=column(run, int(StepKind.COPY), run, np.int8),  # type: ignore[arg-type]
            item=column(waits.operations.items, waits.sent_value, meets.tasks),
            paired=column(beside, False, False, np.bool_) if beside.any() else None,  # type: ignore[arg-type]
            source=column(-1, waits.sent_from, -1),
            target=column(-1, waits.sent_to, -1),
            amount=np.full(len(order), WHOLE, dtype=np.int64),
            drop=self._drops(),
            on=rows.gather(order),
            start=self.start[order],
            initial=waits.initial,
        )

    def _drops(self) -> Ragged:
        """Return the drops: the last use of a value in a memory drops it there; among several, the last to end."""
        waits, graph = self.waits, self.waits.graph
        tasks, values = waits.operations.items, len(graph.values)
        runs = len(tasks)
        transfers = runs + np.arange(len(waits.sent_value))
        uses = [graph.reads.gather(tasks), graph.writes.gather(tasks)]
        steps = [of.rows for of in uses]
        memories = [waits.task_memory[of.rows] for of in uses]
        for number, (task, members) in enumerate(zip(waits.meets.tasks, waits.meets.members, strict=True)):
            if len(members) == 1:
                own = Ragged.from_lists([[*graph.reads[task].tolist(), *graph.writes[task].tolist()]])
                uses.append(own)
                steps.append(np.full(len(own.items), runs + len(transfers) + number))
                memories.append(np.full(len(own.items), waits.machine.processors[members[0]].memory))
        step = np.concatenate([*steps, transfers, transfers])
        memory = np.concatenate([*memories, waits.sent_from, waits.sent_to])
        value = np.concatenate([*(of.items for of in uses), waits.sent_value, waits.sent_value])
        key = memory * values + value
        place = np.empty(len(self.order), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        stays = waits.fixed.copy()
        first = waits.machine.memories[0].name
        for output in graph.outputs:
            stays[waits.machine.memory_index[output.memory or first] * values + output.value] = True
        # A collective of several parts may use the value later, and drops nothing: keep the value.
        keep = ~stays[key] & ~waits.meets.touched[value]
        step, key = step[keep], key[keep]
        ranked = np.lexsort((place[step], self.start[step], self.end[step], key))
        step, key = step[ranked], key[ranked]
        last = np.flatnonzero(np.diff(key, append=-1))
        step, value = place[step[last]], key[last] % values
        listed = np.argsort(step, kind="stable")
        counts = np.bincount(step, minlength=len(self.order))
        return Ragged(np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts))), value[listed])


def _times(listed: list[Number]) -> NumberArray:
    """Return times as an array, integers if all are."""
    return np.array(listed, dtype=np.array(listed).dtype if listed else np.int64)


def _inside(times: NumberArray, rows: Ragged) -> NumberArray:
    """Return the time from the start of each task's operation to the start of the task; integer times."""
    before: NumberArray = np.cumsum(times) - times
    return before - before[np.minimum(rows.start[:-1], max(len(times) - 1, 0))][rows.rows] if len(times) else before
