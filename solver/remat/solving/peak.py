"""Contents of a memory at its peak: each value with its size, producer, start time and pending readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.errors import OptionError
from remat.messages import unknown_memory
from remat.schedule.steps import StepKind
from remat.units import Number
from remat.verifier.collectives import memories_of
from remat.verifier.residencies import WORKSPACE, Residencies, residencies_of
from remat.verifier.residency import memory_of_steps

if TYPE_CHECKING:
    from remat.graph.taskgraph import IntArray
    from remat.solving.result import Result

START = "there from the start"
STATIC = "static memory"
SHARED = "bytes used twice: in place, or in parts"
"""Correction for overlapping values and for values that are partly in another memory; mostly negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Something that takes bytes at a peak.

    Attributes
    ----------
    name : str
        A value, ``workspace of`` a task, or static memory.
    size : int
    module : str
        The stage, layer or module of the task that makes the value; empty if unknown.
    made_by : str
        The task that made it, ``copy from`` a memory, or `START`; empty if it is not a value.
    since : int or float
        Start of this task or copy.
    waits_for : tuple of str
        The later tasks that read it while it stays, and ``copy to`` memories, in order; empty if none follow.
    in_use : bool
        Whether a task that runs at the peak reads or writes it.
    """

    name: str
    size: int
    module: str = ""
    made_by: str = ""
    since: Number = 0
    waits_for: tuple[str, ...] = ()
    in_use: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        names = ("name", "size", "module", "made_by", "since", "in_use")
        return {name: getattr(self, name) for name in names} | {"waits_for": list(self.waits_for)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The peak of a memory.

    Attributes
    ----------
    memory : str
    size : int
        Verified.
    capacity : int or None
    step : int or None
        The step at which it occurs; None before the first step.
    task : str
        The action of this step, as `Result.peak_step` describes it.
    stage : int or None
        Number of the stage of the running task, from 0: the stage of a chain or of a pipeline's plan, or the step of a
        time loop; of a join, the stage of one of its chains. None if no task runs, and if the task or the instance has
        none.
    time : int or float
    held : tuple of Held
        The largest first; their sizes add up to `size`.
    """

    memory: str
    size: int
    capacity: int | None
    step: int | None
    task: str
    stage: int | None
    time: Number
    held: tuple[Held, ...]


def fullest_memory(result: Result) -> str | None:
    """Return the memory whose peak is shown first: the working memory; for a pipeline, that of the fullest device."""
    report, machine = result.report, result.machine
    if report is None:
        return None
    own = {machine.processors[0].memory}
    if result.instance is not None and result.instance.budgets_are_for_all:
        own = {processor.memory for processor in machine.processors}
    names = [machine.memories[index].name for index in sorted(own)]
    return max(names, key=lambda name: report.peaks[name].size)


def peak_of(result: Result, memory: str) -> Peak | None:
    """Return the peak of a memory; None without a schedule. O(steps + accesses)."""
    steps, report = result.columns, result.report
    if steps is None or report is None:
        return None
    index = result.machine.memory_index.get(memory)
    if index is None:
        known = (one.name for one in result.machine.memories)
        raise OptionError(unknown_memory(memory, known), argument="memory")
    found = report.peaks[memory]
    at = found.step
    time = 0 if at is None else report.start[at].item()
    return Peak(
        memory=memory,
        size=found.size,
        capacity=result.machine.memories[index].capacity,
        step=at,
        task=result.peak_step(memory),
        stage=_stage_at(result, at),
        time=time,
        held=tuple(_held(result, index, at, found.size)),
    )


UNITS = {"chain": "stage", "join": "stage", "adjoint": "step", "pipeline": "layer"}
"""Meaning of the number in the name of a task, by the kind of the instance."""


def module_at(result: Result, memory: str, *, numbered: bool = True) -> str:
    """Return the module of the task at a memory's peak; without one, its stage by number if `numbered` holds."""
    report = result.report
    task = None if report is None else _task_at(result, report.peaks[memory].step)
    if task is None:
        return ""
    name, number = result.graph.module(task), _number_of(result, task) if numbered else None
    return name or ("" if number is None else f"{UNITS[_kind(result)]} {number}")


def _stage_at(result: Result, step: int | None) -> int | None:
    task = _task_at(result, step)
    number = None if task is None else _number_of(result, task)
    if number is None or _kind(result) != "pipeline":
        return None if number is None else number - 1
    return next((row.stage for row in result.stage_decisions if number - 1 in row.layers), None)


def _task_at(result: Result, step: int | None) -> int | None:
    steps = result.columns
    if steps is None or step is None or steps.kind[step] != StepKind.RUN:
        return None
    return int(steps.item[step])


def _kind(result: Result) -> str:
    return "" if result.instance is None else result.instance.kind


def _number_of(result: Result, task: int) -> int | None:
    """Return the number of a task's stage, step or layer, as in its name: from 1; with chains, the second number."""
    numbers = re.findall("[0-9]+", result.graph.tasks[task]) if _kind(result) in UNITS else []
    own = numbers[1:] if _kind(result) == "join" else numbers
    return int(own[0]) if own else None


def _held(result: Result, memory: int, at: int | None, size: int) -> Iterator[Held]:
    steps, report, graph = result.columns, result.report, result.graph
    assert steps is not None
    assert report is not None
    residencies = residencies_of(graph, result.machine, steps)
    rows = residencies.of_memory(memory)
    begun = rows[residencies.first_step[rows] == (-1 if at is None else at)]
    position = int(residencies.first[begun].max(initial=0))
    rows = rows[(residencies.first[rows] <= position) & (residencies.last[rows] > position)]
    uses = _uses(result, np.unique(residencies.value[rows]), memory)
    found = [_one(result, residencies, row, uses.get(int(residencies.value[row]), []), at) for row in rows.tolist()]
    if static := graph.static_bytes(result.machine, memory):
        found.append(Held(name=STATIC, size=static, made_by=START))
    if rest := size - sum(one.size for one in found):
        found.append(Held(name=SHARED, size=rest))
    yield from sorted(found, key=lambda one: (-one.size, one.name))


def _one(result: Result, residencies: Residencies, row: int, uses: list[tuple[int, bool]], at: int | None) -> Held:
    """Describe one residency; `uses` are the steps that touch its value, and whether they read or copy it."""
    steps, report, graph = result.columns, result.report, result.graph
    assert steps is not None
    assert report is not None
    value, born, last = (
        int(column[row]) for column in (residencies.value, residencies.first_step, residencies.last_step)
    )
    since = 0 if born < 0 else report.start[born].item()
    size = int(residencies.size[row])
    if value == WORKSPACE:
        task = graph.tasks[int(steps.item[born])]
        return Held(name=f"workspace of {task}", size=size, since=since, in_use=True)
    now = 0 if at is None else report.start[at].item()
    end = report.makespan if last >= len(steps) else report.start[last].item()

    def follows(step: int) -> bool:
        """Whether a step begins after the peak, or at the same instant and later in the list."""
        return bool(report.start[step] > now or (report.start[step] == now and (at is None or step > at)))

    def stays(step: int) -> bool:
        """Whether a step begins before the value is freed, or at the same instant and not later in the list."""
        return bool(report.start[step] < end or (report.start[step] == end and step <= last))

    running = [k for k, _ in uses if not follows(k) and (report.end[k] > now or k == at)]
    later = [k for k, reads in uses if reads and k not in running and k != born and follows(k) and stays(k)]
    return Held(
        name=graph.values[value],
        size=size,
        module=graph.value_module(value),
        made_by=_maker(result, born),
        since=since,
        waits_for=tuple(dict.fromkeys(_name(result, k) for k in later)),
        in_use=bool(running),
    )


def _uses(result: Result, values: IntArray, memory: int) -> dict[int, list[tuple[int, bool]]]:
    """Return for each value the steps that touch it in a memory, in the order of their times."""
    steps, report, graph = result.columns, result.report, result.graph
    assert steps is not None
    assert report is not None
    own = memory_of_steps(result.machine, steps)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    found: dict[int, set[tuple[Number, int, bool]]] = {}

    def add(step: int, value: int, reads: bool) -> None:
        found.setdefault(value, set()).add((report.start[step].item(), step, reads))

    for accesses, reads in ((graph.reads, True), (graph.writes, False)):
        gathered = accesses.gather(steps.item[runs])
        chosen = np.flatnonzero(np.isin(gathered.items, values))
        for value, step in zip(gathered.items[chosen].tolist(), runs[gathered.rows[chosen]].tolist(), strict=True):
            shared = int(steps.item[step]) in graph.parts
            if memory in memories_of(result.machine, steps, step) if shared else own[step] == memory:
                add(step, value, reads)
    copies = (steps.kind == StepKind.COPY) & np.isin(steps.item, values) & (steps.source == memory)
    for step in np.flatnonzero(copies).tolist():
        add(step, int(steps.item[step]), True)
    return {value: [(step, reads) for _, step, reads in sorted(listed)] for value, listed in found.items()}


def _maker(result: Result, step: int) -> str:
    steps = result.columns
    assert steps is not None
    if step < 0:
        return START
    if steps.kind[step] == StepKind.COPY:
        return f"copy from {result.machine.memories[int(steps.source[step])].name}"
    return result.graph.tasks[int(steps.item[step])]


def _name(result: Result, step: int) -> str:
    steps = result.columns
    assert steps is not None
    if steps.kind[step] == StepKind.COPY:
        return f"copy to {result.machine.memories[int(steps.target[step])].name}"
    return result.graph.tasks[int(steps.item[step])]
