"""The states of a schedule seen from its end, and the runs that lead from one state to an earlier one.

A *state* belongs to a point between two runs. It holds what the later runs require of the earlier ones:

- the values that must be resident, because a later run reads them before any run writes them, or as outputs;
- the required tasks that must have run, because they do not run later;
- the tasks that must not have run, because they may run only once, and do so later.

Seen from the end, dropping values is no choice: a value is resident exactly until the last run that reads this copy. If
one state requires a subset of another one, every beginning of a schedule that leads to the latter also leads to the
former, in no more memory and time. States are therefore minimal. A state omits a required task if the rest of the
state implies it. It omits a task that must not have run if running that task would be useless.
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
        The state before the run.
    time : int
        Time of the run, in the unit of the states.
    memory : int
        Bytes during the run.
    """

    task: int
    state: int
    time: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Task:
    """A task as bit masks: `own` is its bit, `other_readers` are the tasks that read its outputs."""

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
    """The states of a problem, each encoded as one integer.

    The lowest bits are the values that must be resident. Then follow the tasks that must have run, and then those that
    must not have run. Pinned inputs are always resident and not part of a state.

    Parameters
    ----------
    problem : Problem
        Only the memory of its first processor is used.

    Attributes
    ----------
    end : int
        The state after the last run.
    end_memory : int
        Resident bytes after the last run.
    start_memory : int
        Resident bytes before the first run.
    times : list of int
        Time of one run of each task.
    unit : Fraction
        The unit of the states' integer times, in the instance's unit.
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
        """Find the producers of each value, and the tasks that computing it requires."""
        producers = [0] * self._values
        for task in self._tasks:
            for value in members(task.writes):
                producers[value] |= task.own
        self._producers = Unions(producers)
        # Values that exactly one task computes, and that are not present at the start.
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
        # Without alternatives, every useful task is forced.
        self._one_way = forced == useful

    def is_start(self, state: int) -> bool:
        """Whether a state requires only inputs."""
        return not state & ~self.inputs & (self._all_values | self._all_tasks << self._values)

    def replay(self, tasks: Sequence[int]) -> tuple[int, int]:
        """Return the values, as bits, that runs in this order require at their start, and the peak of the runs."""
        resident, peak = self.end & self._all_values, max(self.start_memory, self.end_memory)
        for index in reversed(tasks):
            before, memory = self._before(self._tasks[index], resident)
            resident, peak = before, max(peak, memory)
        return resident, peak

    def _before(self, task: _Task, resident: int) -> tuple[int, int]:
        """Return the values required before a run if `resident` are required after it, and the bytes during the run."""
        before = resident & ~task.writes | task.reads
        added = task.written
        if task.in_place:
            added = max(0, added - self._bytes.of(task.reads & ~resident))
        return before, self._always + self._bytes.of(before) + added + task.workspace

    def time_before(self, state: int) -> int | None:
        """Return a lower bound on the time of all runs before a state; None if the state is unreachable.

        The bound is the time of the tasks that must run. From a state to an earlier one it changes by at most the time
        of the run between them, so it is consistent.
        """
        forced = self._all_forced(state)
        if forced & state >> (self._values + self._count):
            return None
        return self._time.of(forced)

    def moves(self, state: int, room: int | None) -> Iterator[Move]:
        """Yield the possible last runs before a state, in ascending order of the tasks.

        If one of them fits and costs nothing, it is the only one. Otherwise all are yielded, including those
        that do not fit.

        Notes
        -----
        A run costs nothing under three conditions. Its task must run before the state in any case. No other task that
        may be useful before the state reads its outputs. Its inputs that the state does not require are no larger than
        its outputs. Proof: take any beginning that leads to the state. Its last run of the task can move to the end: no
        run in between reads the outputs, and the inputs take no more memory than the outputs did.
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
        """Return a state without implied requirements."""
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
