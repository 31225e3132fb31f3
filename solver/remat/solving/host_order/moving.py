"""`move`: start the copies of a placed schedule between its runs, verify that, and write it as a program."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.graph.taskgraph import TaskGraph, instant_array
from remat.plugin.proposal import Status
from remat.schedule.steps import StepBuilder, Steps
from remat.solving.host_order.lifetimes import Action, Flow, Lifetime, flow_of
from remat.solving.host_order.program import Copy, Operation, Program, Run, Wait
from remat.units import Number, format_time
from remat.verifier import check

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.solving.result import Result


SCHEMA = "remat.program/1"


@dataclass(frozen=True)
class Moved:
    """A schedule whose copies start between runs, and its program.

    Attributes
    ----------
    result : Result
        The moved schedule, verified.
    program : Program
    before : int or float
        Makespan of the schedule that was moved.
    """

    result: Result
    program: Program
    before: Number

    @property
    def price(self) -> Number:
        """Time that moving costs."""
        assert self.result.makespan is not None
        return self.result.makespan - self.before

    @property
    def summary(self) -> str:
        """The price of moving, in one line."""
        assert self.result.makespan is not None
        units = self.result.units
        share = f" ({float(self.price / self.before):.2%})" if self.before else ""
        time = format_time(self.result.makespan, units)
        return f"copies start between runs: {time}, {format_time(self.price, units)} more than planned{share}"

    def document_lines(self) -> Iterator[str]:
        """Yield the program as JSON of schema `remat.program/1`, one operation a line."""
        head = {
            "schema": SCHEMA,
            "instance": {"name": self.result.instance_name, "digest": self.result.instance_digest},
            "makespan": self.result.makespan,
            "planned": self.before,
            "peak_memory": self.program.peak_memory(),
        }
        yield json.dumps(head)[:-1] + ', "operations": ['
        listed = self.program.to_document()
        for index, one in enumerate(listed):
            yield "\n  " + json.dumps(one) + ("," if index + 1 < len(listed) else "")
        yield "\n]}\n"

    @property
    def simulated(self) -> Number:
        """Makespan of the program on clocks that take the times of the schedule."""
        graph, machine = self.program.graph, self.program.machine

        def time_of(one: Operation) -> Number:
            if isinstance(one, Run):
                time: Number = graph.time[one.task].item()
                return time
            assert isinstance(one, Copy)
            return machine.links[machine.link_index[one.source, one.target]].time(int(graph.size[one.value]))

        return self.program.makespan(time_of)


def move(result: Result) -> Moved:
    """Move the copies of a schedule with a host to task boundaries.

    Parameters
    ----------
    result : Result
        With one processor.

    Returns
    -------
    Moved
        Runs and copies in each direction keep their order. A copy starts between two runs, at the earliest before the
        run during which the schedule starts it. Values are freed between runs, after their copies. Peaks stay within
        the capacities.

    Raises
    ------
    OptionError
        If there is no schedule, or no program expresses it.
    """
    if result.orders is not None or result.pattern is not None:
        kind = "several devices" if result.orders is not None else "a stream of samples"
        raise OptionError(f"a program has one processor and runs once; this schedule is of {kind}", argument="schedule")
    if result.columns is None or result.report is None:
        raise OptionError(f"there is no schedule of one processor to move: {result.status}", argument="schedule")
    graph, machine = result.graph, result.machine
    flow = flow_of(graph, machine, result.columns, result.report)
    mover = _Mover(graph, machine, flow)
    mover.move()
    steps = mover.placed()
    report = check(graph, machine, steps, reference_time=result.no_recompute_time)
    if report.violations:
        raise AssertionError(f"the moved schedule is invalid: {report.violations[0]}")
    before = result.report.makespan
    same = report.makespan <= before
    found = replace(
        result,
        columns=steps,
        report=report,
        status=result.status if same else Status.FEASIBLE,
        optimal_within=result.optimal_within if same else None,
    )
    return Moved(found, Program(tuple(mover.operations), graph, machine), before)


class _Mover:
    """Replays a schedule; time is that of the compute stream whenever it is idle."""

    def __init__(self, graph: TaskGraph, machine: Machine, flow: Flow) -> None:
        self.graph, self.machine, self.flow = graph, machine, flow
        self.size: list[int] = graph.size.tolist()
        self.steps: list[tuple[Number, Callable[[StepBuilder], int]]] = []
        self.operations: list[Operation] = []
        self.now: Number = 0
        self.flying: list[tuple[Number, int, Action]] = []
        self.busy: dict[int, Number] = {}
        self.place: dict[int, int] = {}
        self.touching: dict[Lifetime, list[int]] = {}
        self.waited: set[int] = set()
        self.waiting: dict[int, deque[Action]] = {}
        for copy in flow.copies:
            self.waiting.setdefault(copy.channel, deque()).append(copy)
        self.used = [graph.static_bytes(machine, index) for index in range(len(machine.memories))]
        for one in flow.lifetimes:
            self.used[one.memory] += self.size[one.value] if one.resident else 0
        self.watched: list[Lifetime] = [one for one in flow.lifetimes if one.resident and one.freed]

    def move(self) -> None:
        """Run everything."""
        for run in self.flow.runs:
            while not self._advance(run):
                self._wait_for(self.flying, run.item)
            self._run(run)
        while self.flying or any(self.waiting.values()):
            self._advance(None)
            if self.flying:
                self._wait_for(self.flying, None)
            elif any(self.waiting.values()):
                self._wait_for([], None)
        self._settle()

    def placed(self) -> Steps:
        """Return all steps with their start times; those of one instant stay in the order of the program."""
        listed = sorted(self.steps, key=lambda step: step[0])
        builder = StepBuilder()
        for _, add in listed:
            add(builder)
        return builder.build(start=instant_array([start for start, _ in listed]))

    def _advance(self, run: Action | None) -> bool:
        """Finish what has ended, start the copies that may start, and return whether the run can."""
        started = True
        while started:
            self._settle()
            started = False
            for queue in self.waiting.values():
                while queue and self._may_start(queue[0], run, self.now):
                    self._copy(queue.popleft())
                    started = True
        if run is None or not self._is_ready(run):
            return False
        for queue in self.waiting.values():
            while queue and self._may_start(queue[0], run, self.now + run.duration):
                self._copy(queue.popleft())
        return True

    def _wait_for(self, flying: list[tuple[Number, int, Action]], task: int | None) -> None:
        """Let time pass until the next copy ends."""
        if not flying:
            name = "the end" if task is None else self.graph.tasks[task]
            raise AssertionError(f"copies of the schedule cannot be moved: no operation can start before {name}")
        self.now = max(self.now, flying[0][0])

    # ------------------------------------------------------------------------------------- runs and copies

    def _needed(self, run: Action) -> int:
        """Bytes that a run takes in addition to resident values."""
        made = sum(self.size[one.value] for one in run.makes)
        if self.graph.in_place[run.item]:
            own = {one.value for one in run.makes}
            freed = (one for one in {*run.reads, *run.makes} if one.ends_with(run.step) and one.value not in own)
            made -= min(made, sum(self.size[one.value] for one in freed))
        return made + int(self.graph.workspace[run.item])

    def _fits(self, memory: int, size: int) -> bool:
        capacity = self.machine.memories[memory].capacity
        return capacity is None or self.used[memory] + size <= capacity

    def _is_ready(self, run: Action) -> bool:
        clear = all(one.before is None or self._is_over(one.before, run) for one in run.makes)
        return clear and all(one.complete for one in run.reads) and self._fits(0, self._needed(run))

    def _is_over(self, one: Lifetime, run: Action) -> bool:
        """Whether an earlier residency permits a run that recomputes the value."""
        return not one.resident or (one.replaced == run.step and one.complete and one.ends_with(run.step))

    def _may_start(self, copy: Action, run: Action | None, end: Number) -> bool:
        """Whether a copy can be issued now, and its channel is free now, or before an instant at which a run ends."""
        free = self.busy.get(copy.channel, self.now)
        if (free > self.now and free >= end) or not copy.reads[0].complete:
            return False
        before = copy.makes[0].before
        if before is not None and before.resident:
            return False
        if run is not None and copy.start >= run.end and (copy.start, copy.step) > (run.start, run.step):
            return False
        beside = self._needed(run) if run is not None and copy.target == 0 else 0
        return self._fits(copy.target, self.size[copy.item] + beside)

    def _copy(self, copy: Action) -> None:
        self._take(copy.makes)
        begin = max(self.now, self.busy.get(copy.channel, self.now))
        end = begin + copy.duration
        self.busy[copy.channel] = end
        heapq.heappush(self.flying, (end, copy.step, copy))
        self.place[copy.step] = len(self.operations)
        for one in (*copy.reads, *copy.makes):
            self.touching.setdefault(one, []).append(copy.step)
        self.operations.append(Copy(copy.item, copy.source, copy.target))
        self.steps.append((begin, partial(StepBuilder.copy, value=copy.item, source=copy.source, target=copy.target)))

    def _run(self, run: Action) -> None:
        touched = list(dict.fromkeys((*run.reads, *run.makes, *run.replaces)))
        ending = [one for one in touched if one.ends_with(run.step)]
        made = [one.maker for one in run.reads if one.maker in self.place]
        self._wait_in_program([*made, *self._gates(ending)])
        self._take(run.makes)
        drop = tuple(one.value for one in ending if one not in run.replaces)
        self.operations.append(Run(run.item, drop))
        self.steps.append((self.now, partial(StepBuilder.run, task=run.item, drop=drop)))
        self.now += run.duration
        for one in run.makes:
            one.complete = True
        for one in run.reads:
            one.readers.discard(run.step)
        for one in ending:
            self._give_back(one)
        self._watch(one for one in touched if one.resident)

    def _take(self, made: list[Lifetime]) -> None:
        for one in made:
            one.resident = True
            self.used[one.memory] += self.size[one.value]

    def _give_back(self, one: Lifetime) -> None:
        one.resident = False
        self.used[one.memory] -= self.size[one.value]

    def _watch(self, lifetimes: Iterable[Lifetime]) -> None:
        self.watched = list(dict.fromkeys((*self.watched, *(one for one in lifetimes if one.freed))))

    # ------------------------------------------------------------------------------------- ends

    def _settle(self) -> None:
        """Finish the copies that have ended, and free values without further readers."""
        ended: list[Action] = []
        while self.flying and self.flying[0][0] <= self.now:
            _, _, copy = heapq.heappop(self.flying)
            copy.makes[0].complete = True
            copy.reads[0].readers.discard(copy.step)
            ended.append(copy)
        self._watch(one for copy in ended for one in (*copy.reads, *copy.makes))
        over = [one for one in self.watched if one.resident and one.complete and not one.readers]
        over = [one for one in over if one.replaced is None]
        self.watched = [one for one in self.watched if one.resident and one not in over]
        if not over:
            return
        for memory in sorted({one.memory for one in over}):
            values = [one.value for one in over if one.memory == memory]
            self.steps.append((self.now, partial(StepBuilder.drop, values=values, memory=memory)))
        self._wait_in_program(self._gates(over), tuple((one.value, one.memory) for one in over))
        for one in over:
            self._give_back(one)

    def _gates(self, over: list[Lifetime]) -> list[int]:
        """Return the copies that have read or made lifetimes; they must end before the bytes are free."""
        return [step for one in over for step in self.touching.get(one, ())]

    def _wait_in_program(self, copies: Iterable[int | None], drop: tuple[tuple[int, int], ...] = ()) -> None:
        """Wait for copies that the program has not waited for, and free values."""
        left = sorted({copy for copy in copies if copy is not None} - self.waited)
        self.waited.update(left)
        if left or drop:
            self.operations.append(Wait(tuple(self.place[copy] for copy in left), drop))
