"""The states of a schedule seen from its end, and the runs that lead from one to an earlier one.

A *state* is a moment of a schedule, and says what the runs before that moment owe to the runs behind it:

- the values that must be resident, since a later run reads them before any writes them, or they are outputs;
- the required tasks that must have run, since they do not run later;
- the tasks that must not have run, since they may run only once, and do so later.

Seen from the end there is no choice of what to drop: a value is resident exactly as long as somebody will read that
copy. Where one of two states asks for a part of what the other one asks for, every beginning of a schedule that
serves the latter serves the former, in no more memory and time. States are therefore kept least: a required task is
left out where the rest of the state cannot do without it, one that must not have run where nobody could have use
for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from remat.plugin import Number, Problem
from remat_algorithms.dag.exact.bit_masks import Sums, Unions, mask_of, members


class Move(NamedTuple):
    """A run, as the last one before a state.

    Attributes
    ----------
    task : int
    state : int
        What has to be there before the run.
    time : int
        Of the run, in the unit of the states.
    memory : int
        Bytes during the run.
    """

    task: int
    state: int
    time: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A task in masks: `other_readers` are the tasks that read what it writes; `own` is its own bit."""

    time: int
    reads: int
    writes: int
    written: int
    workspace: int
    in_place: bool
    once: bool
    own: int
    other_readers: int


class States:
    """The states of a problem, each as one integer.

    The values that must be resident are the lowest bits, then come the tasks that must have run, then those that must
    not. Pinned inputs are always there, and are no part of a state.

    Parameters
    ----------
    problem : Problem
        Only the memory of its first processor is used.

    Attributes
    ----------
    end : int
        The state behind the last run.
    end_memory : int
        Bytes that are resident there.
    start_memory : int
        Bytes that are resident before the first run.
    times : list of int
        Time of one run of each task.
    unit : Fraction
        One unit of the states' times, which are whole, in the instance's unit.
    """

    def __init__(self, problem: Problem) -> None:
        graph, machine = problem.graph, problem.machine
        own = machine.processors[0].memory
        first, name = machine.memories[0].name, machine.memories[own].name
        inputs = mask_of(sorted({place.value for place in graph.inputs if (place.memory or first) == name}))
        outputs = mask_of(sorted({place.value for place in graph.outputs if (place.memory or first) == name}))
        pinned = mask_of(sorted(graph.pinned)) & inputs
        self._values, self._count = len(graph.values), len(graph.tasks)
        self._all_values = (1 << self._values) - 1
        self._all_tasks = (1 << self._count) - 1
        size: list[int] = graph.size.tolist()
        self._bytes = Sums(size)
        self.inputs = inputs & ~pinned
        self._always = self._bytes.of(pinned) + (graph.static_memory if own == 0 else 0)
        self.start_memory = self._always + self._bytes.of(self.inputs)
        times, self.unit = _whole(graph.time.tolist())
        self.times, self._time = times, Sums(times)
        self._tasks = _tasks(problem, times, pinned)
        self._required = mask_of([task for task, asked in enumerate((graph.required | graph.once).tolist()) if asked])
        self._take_in_producers(pinned)
        self.end = self._least(outputs & ~pinned, self._required, 0)
        self.end_memory = self._always + self._bytes.of(outputs & ~pinned)

    def _take_in_producers(self, pinned: int) -> None:
        """Find who makes each value, and whom making it calls for."""
        producers = [0] * self._values
        for task in self._tasks:
            for value in members(task.writes):
                producers[value] |= task.own
        self._producers = Unions(producers)
        # Values that one task makes, and that are not there at the start.
        self._single = mask_of([value for value, tasks in enumerate(producers) if tasks and not tasks & (tasks - 1)])
        self._single &= ~self.inputs
        forced, useful = [0] * self._values, [0] * self._values
        free = self.inputs | pinned
        changed = True
        while changed:
            changed = False
            for value, tasks in enumerate(producers):
                makers = [self._tasks[task] for task in members(tasks)]
                called = [_union(forced, maker.reads) | maker.own for maker in makers]
                every = 0
                for maker in makers:
                    every |= _union(useful, maker.reads) | maker.own
                common = 0 if free >> value & 1 or not called else _common(called)
                if common != forced[value] or every != useful[value]:
                    forced[value], useful[value], changed = common, every, True
        self._forced, self._useful = Unions(forced), Unions(useful)
        before = [_union(forced, task.reads) for task in self._tasks]
        self._forced_before = Unions(before)
        self._forced_by_task = Unions([tasks | 1 << task for task, tasks in enumerate(before)])
        self._useful_by_task = Unions([_union(useful, task.reads) | task.own for task in self._tasks])
        # Without alternatives whatever is useful is forced.
        self._one_way = forced == useful

    def is_start(self, state: int) -> bool:
        """Whether the inputs are all that a state asks for."""
        return not state & ~self.inputs & (self._all_values | self._all_tasks << self._values)

    def replay(self, tasks: Sequence[int]) -> tuple[int, int]:
        """Return the values, as bits, that runs in this order ask for at their start, and their peak."""
        resident, peak = self.end & self._all_values, max(self.start_memory, self.end_memory)
        for index in reversed(tasks):
            before, memory = self._before(self._tasks[index], resident)
            resident, peak = before, max(peak, memory)
        return resident, peak

    def _before(self, task: _Task, resident: int) -> tuple[int, int]:
        """Return what must be resident before a run so that this is after it, and the bytes during the run."""
        before = resident & ~task.writes | task.reads
        added = task.written
        if task.in_place:
            added = max(0, added - self._bytes.of(task.reads & ~resident))
        return before, self._always + self._bytes.of(before) + added + task.workspace

    def time_before(self, state: int) -> int | None:
        """Return a bound on the time of all runs before a state; None if it cannot be reached.

        It is the time of the tasks that must run, and grows by no more than a run's time from one state to an earlier
        one: it is consistent.
        """
        forced = self._all_forced(state)
        if forced & state >> (self._values + self._count):
            return None
        return self._time.of(forced)

    def moves(self, state: int, room: int | None) -> Iterator[Move]:
        """Yield the runs that may be the last ones before a state, in ascending order of the tasks.

        Where one of them can be had for nothing within `room`, it is the only one; else all are yielded, including
        those that do not fit.

        Notes
        -----
        A run is for nothing if its task must run before the state in any case, no other task that may be of use
        before the state reads what it writes, and what it reads, as far as the state does not ask for that anyway,
        is no larger than what it makes. For take any beginning that serves the state: its last run of the task can
        be put off to the end. Nobody misses what it has written, and in the place of that stays what it reads.
        """
        values, count = self._values, self._count
        resident = state & self._all_values
        missing = state >> values & self._all_tasks
        spent = state >> (values + count)
        useful = self._all_useful(state)
        held = self._bytes.of(resident)
        found = []
        for index in members((self._producers.of(resident) | missing) & ~spent):
            task = self._tasks[index]
            made = task.writes & resident
            before, memory = self._before(task, resident)
            then = self._least(before, missing & ~task.own, spent | task.own if task.once else spent)
            move = Move(index, then, task.time, memory)
            if (
                room is not None
                and memory <= room
                and not made & ~self._single
                and not useful & task.other_readers
                and self._bytes.of(task.reads & ~resident) <= held - self._bytes.of(resident & ~made)
            ):
                yield move
                return
            found.append(move)
        yield from found

    def _least(self, resident: int, missing: int, spent: int) -> int:
        """Return a state without what it need not say."""
        if missing:
            missing &= ~(self._forced.of(resident) | self._forced_before.of(missing))
        state = resident | missing << self._values
        if spent:
            spent &= self._all_useful(state)
            state |= spent << (self._values + self._count)
        return state

    def _all_forced(self, state: int) -> int:
        forced = self._forced.of(state & self._all_values)
        missing = state >> self._values & self._all_tasks
        return forced | self._forced_by_task.of(missing) if missing else forced

    def _all_useful(self, state: int) -> int:
        if self._one_way:
            return self._all_forced(state)
        useful = self._useful.of(state & self._all_values)
        return useful | self._useful_by_task.of(state >> self._values & self._all_tasks)


def _whole(times: list[Number]) -> tuple[list[int], Fraction]:
    """Return times as exact multiples of a common unit, and that unit."""
    exact = [Fraction(time) for time in times]
    parts = lcm(*(time.denominator for time in exact))
    return [int(time * parts) for time in exact], Fraction(1, parts)


def _tasks(problem: Problem, times: list[int], pinned: int) -> list[_Task]:
    graph = problem.graph
    size: list[int] = graph.size.tolist()
    reads = [mask_of(row) for row in graph.reads.to_lists()]
    writes = [mask_of(row) for row in graph.writes.to_lists()]
    workspace, in_place = graph.workspace.tolist(), graph.in_place.tolist()
    once = (graph.once | ~graph.recomputable).tolist()
    readers = [mask_of(row) for row in graph.readers.to_lists()]
    return [
        _Task(
            time=times[task],
            reads=reads[task] & ~pinned,
            writes=writes[task],
            written=sum(size[value] for value in members(writes[task])),
            workspace=workspace[task],
            in_place=in_place[task],
            once=once[task],
            own=1 << task,
            other_readers=_union(readers, writes[task]),
        )
        for task in range(len(times))
    ]


def _union(sets: list[int], chosen: int) -> int:
    union = 0
    for member in members(chosen):
        union |= sets[member]
    return union


def _common(sets: list[int]) -> int:
    common = sets[0]
    for one in sets[1:]:
        common &= one
    return common
