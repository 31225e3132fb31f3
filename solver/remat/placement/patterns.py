"""Placement of a pattern: the steps of the first micro-batches of the stream, with their copies and drops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import Ragged, TaskGraph, instant_array
from remat.placement.durations import copy_time, instants, run_time
from remat.schedule.orders import Pass, Phase, PipelineTasks
from remat.schedule.patterns import Beat, Pattern
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.units import LARGEST_SIZE, Number

ROUNDING = 1e-9
"""Rounding tolerance for two equal instants, as a share of the time of all steps."""


def place_pattern(
    graph: TaskGraph,
    machine: Machine,
    tasks: PipelineTasks,
    pattern: Pattern,
    initial: Sequence[tuple[int, int]] = (),
    batches: int | None = None,
) -> Steps:
    """Turn a pattern into the placed steps of the first micro-batches of a graph.

    Parameters
    ----------
    graph, machine
        A lowered pipeline and its cluster.
    tasks : PipelineTasks
        The indices of its tasks.
    pattern : Pattern
    initial : sequence of (value, memory)
        Where parameters are from the start, and stay.
    batches : int, optional
        Number of micro-batches; by default all micro-batches of the graph.

    Returns
    -------
    Steps
        The layers of an operation run one after the other from its start on. The last use of a value in each memory,
        within its micro-batch, drops it there.

    Raises
    ------
    OptionError
        For a transfer without a link, or a device that cannot run a layer.

    Notes
    -----
    O(steps log steps). The verifier checks whether each value is present when it is read.
    """
    memory_of = [processor.memory for processor in machine.processors]
    template = _Template(graph, machine, tasks, pattern, frozenset(value for value, _ in initial))

    def turn(beat: Beat) -> tuple[bool, int, int, bool]:
        """Return a sort key in which beats follow those whose results they read."""
        is_back, layer = beat.phase is not Phase.F, pattern.stages[beat.stage].layers[0]
        return is_back, -layer if is_back else layer, beat.phase, beat.is_copy

    for beat in sorted(pattern.beats, key=turn):
        (template.copy if beat.is_copy else template.run)(beat, memory_of)
    return template.repeated(tasks.batches if batches is None else batches, tuple(initial))


@dataclass
class _Template:
    """The steps of micro-batch 0, each after the steps whose results it reads."""

    graph: TaskGraph
    machine: Machine
    tasks: PipelineTasks
    pattern: Pattern
    fixed: frozenset[int]
    kind: list[StepKind] = field(default_factory=list)
    item: list[int] = field(default_factory=list)
    on: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    start: list[Number] = field(default_factory=list)
    shift: list[int] = field(default_factory=list)
    length: list[Number] = field(default_factory=list)
    # Memory, value and step of each use.
    uses: list[tuple[int, int, int]] = field(default_factory=list)
    # The memory in which each task of micro-batch 0 runs.
    homes: dict[int, int] = field(default_factory=dict)

    def run(self, beat: Beat, memory_of: Sequence[int]) -> None:
        """Add the tasks of an operation, one after the other."""
        device, memory = self._device(beat), memory_of[self._device(beat)]
        at = beat.start
        for task in self._tasks(beat):
            length = run_time(self.graph, self.machine, task, device)
            step = self._add(StepKind.RUN, task, device, (memory, memory), at, beat.shift, length)
            for value in (*self.graph.reads[task].tolist(), *self.graph.writes[task].tolist()):
                self._use(memory, value, step)
            at += length

    def copy(self, beat: Beat, memory_of: Sequence[int]) -> None:
        """Add a copy of each value that an operation writes and another device reads."""
        source = memory_of[self._device(beat)]
        for value, target in self._sent(beat, memory_of, source):
            length = copy_time(self.graph, self.machine, value, source, target)
            step = self._add(StepKind.COPY, value, -1, (source, target), beat.start, beat.shift, length)
            self._use(source, value, step)
            self._use(target, value, step)

    def repeated(self, batches: int, initial: tuple[tuple[int, int], ...]) -> Steps:
        """Return the steps of this many micro-batches, by start."""
        count, period = len(self.kind), self.pattern.period
        batch = np.repeat(np.arange(batches), count)
        each = np.tile(np.arange(count), batches)
        begins = list(zip(self.start, self.shift, strict=True))
        start = instant_array([begin + (shift + m) * period for m in range(batches) for begin, shift in begins])
        # Steps that take no time go first: they are over before any other step begins at that instant.
        slack = self._slack(batches)
        takes = np.array([length > slack for length in self.length])[each]
        order = np.lexsort((batch, each, takes, instants(start, slack)))
        dropped: list[list[int]] = [[] for _ in range(count)]
        for (_, value), step in self._last_uses().items():
            dropped[step].append(value)
        drop = Ragged.from_lists([sorted(values) for values in dropped]).gather(each[order])
        each, batch = each[order], batch[order]
        ends = np.array(self.ends, dtype=np.int64).reshape(-1, 2)[each]
        kind = np.array(self.kind, dtype=np.int8)[each]
        is_run = kind == StepKind.RUN
        on = np.array(self.on, dtype=np.int64)[each]
        return Steps(
            kind=kind,
            item=np.array(self.item, dtype=np.int64)[each] + batch,
            source=np.where(is_run, -1, ends[:, 0]),
            target=np.where(is_run, -1, ends[:, 1]),
            amount=np.full(len(each), WHOLE, dtype=np.int64),
            drop=Ragged(drop.start, drop.items + batch[drop.rows]),
            on=Ragged(np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(is_run, dtype=np.int64))), on[is_run]),
            start=start[order],
            initial=initial,
        )

    def _device(self, beat: Beat) -> int:
        return self.pattern.stages[beat.stage].device

    def _tasks(self, beat: Beat) -> list[int]:
        return self.tasks.of(Pass(beat.phase, beat.stage, 0), self.pattern.stages[beat.stage])

    def _sent(self, beat: Beat, memory_of: Sequence[int], source: int) -> Iterator[tuple[int, int]]:
        """Yield (value, memory) for each value that an operation writes and a task in another memory reads."""
        made = [value for task in self._tasks(beat) for value in self.graph.writes[task].tolist()]
        if not self.homes:
            self.homes.update(self._homes(memory_of))
        for value in made:
            readers = {self.homes[task] for task in self.graph.readers[value].tolist() if task in self.homes}
            yield from ((value, memory) for memory in sorted(readers - {source}))

    def _homes(self, memory_of: Sequence[int]) -> dict[int, int]:
        return {
            task: memory_of[self._device(beat)]
            for beat in self.pattern.beats
            if not beat.is_copy
            for task in self._tasks(beat)
        }

    def _add(
        self,
        kind: StepKind,
        item: int,
        on: int,
        ends: tuple[int, int],
        start: Number,
        shift: int,
        length: Number,
    ) -> int:
        self.kind.append(kind)
        self.item.append(item)
        self.on.append(on)
        self.ends.append(ends)
        self.start.append(start)
        self.shift.append(shift)
        self.length.append(length)
        return len(self.kind) - 1

    def _use(self, memory: int, value: int, step: int) -> None:
        if value not in self.fixed:
            self.uses.append((memory, value, step))

    def _last_uses(self) -> dict[tuple[int, int], int]:
        """Return the last step that uses a value in a memory; among steps that end together, the last one added."""
        period, slack = self.pattern.period, self._slack(1)
        columns = zip(self.start, self.shift, self.length, strict=True)
        end = [start + shift * period + length for start, shift, length in columns]
        last: dict[tuple[int, int], int] = {}
        for memory, value, step in self.uses:
            known = last.get((memory, value))
            if known is None or end[step] >= end[known] - slack:
                last[memory, value] = step
        return last

    def _slack(self, batches: int) -> float:
        """Return the tolerance below which two instants are equal: for rounding, if times are not exact integers."""
        ends = zip(self.start, self.shift, self.length, strict=True)
        last = max(start + shift * self.pattern.period + length for start, shift, length in ends)
        last += (batches - 1) * self.pattern.period
        exact = isinstance(self.pattern.period, int) and all(isinstance(time, int) for time in self.length)
        return 0 if exact and last <= LARGEST_SIZE else ROUNDING * float(last)
