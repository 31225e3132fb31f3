"""Decisions per value: kept, recomputed, offloaded or dropped."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from remat.messages import brief, nearest
from remat.schedule.steps import StepKind
from remat.solving.decisions.rows import Rows
from remat.units import Number
from remat.verifier.collectives import memories_of
from remat.verifier.residencies import WORKSPACE, residencies_of
from remat.verifier.residency import memory_of_steps

if TYPE_CHECKING:
    from remat.graph.taskgraph import IntArray
    from remat.solving.result import Result

KEPT, RECOMPUTED, OFFLOADED, DROPPED, UNUSED = "kept", "recomputed", "offloaded", "dropped", "unused"
DECISIONS = (KEPT, RECOMPUTED, OFFLOADED, DROPPED, UNUSED)


@dataclass(frozen=True, slots=True)
class Stay:
    """Period in which a value is in a memory.

    Attributes
    ----------
    memory : str
    start : int or float
        Start of the step that brings it there, such as a copy; 0 for a value that is there initially.
    end : int or float
        End of the step that frees it there; the makespan for a value that stays. Both are in the instance's time unit.
    size : int
        The most bytes that it takes there during the stay: fewer than its size if only parts arrive.
    """

    memory: str
    start: Number
    end: Number
    size: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the task that writes a value."""

    task: str
    start: Number
    end: Number


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy of a value, or of a part of it, from one memory to another.

    Attributes
    ----------
    source, target : str
    start, end : int or float
    size : int
        Copied bytes: fewer than the value's size if only a part moves.
    """

    source: str
    target: str
    start: Number
    end: Number
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision for one value.

    Times and sizes are in the instance's units.

    Attributes
    ----------
    value : str
        Name of the value.
    module : str
        The stage, layer or module of its producer; empty if there is none.
    size : int
    decision : str
        ``recomputed``: computed more than once. ``offloaded``: stored for a time in a memory where no task uses it,
        such as the host. ``kept``: neither, and some task reads it, or it is present at the end. ``dropped``: no task
        reads it. ``unused``: never present.
    runs : int
        Number of runs that compute it.
    recompute_time : int or float
        Time of these runs beyond the first one.
    recomputations : tuple of Run
        These runs, with start and end.
    offloaded : tuple of Stay
        Its stays in other memories, with start and end.
    transfer_time : int or float
        Time of its copies.
    transfers : tuple of Transfer
        Its copies, with start and end.
    held : tuple of Stay
        Its stays in the memories whose tasks use it, with start and end; none without bytes.
    readers : tuple of str
        The tasks that read it in this schedule, in the order of their first runs.
    """

    value: str
    module: str
    size: int
    decision: str
    runs: int
    recompute_time: Number
    offloaded: tuple[Stay, ...]
    transfer_time: Number
    readers: tuple[str, ...]
    recomputations: tuple[Run, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    held: tuple[Stay, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        names = ("offloaded", "recomputations", "transfers", "held")
        lists = {name: [asdict(one) for one in getattr(self, name)] for name in names}
        return found | lists | {"readers": list(self.readers)}


class Decisions(Rows[Decision]):
    """The decisions of a schedule, one for each value, in the order of the task graph."""

    _possible = DECISIONS

    def __init__(self, rows: Sequence[Decision]) -> None:
        super().__init__(rows)
        self._index = {row.value: number for number, row in enumerate(self._rows)}

    @overload
    def __getitem__(self, index: Hashable) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Decision]: ...
    def __getitem__(self, index: Hashable | slice) -> Decision | Sequence[Decision]:
        """Return a decision by its value's name or node, by its number, or several by a slice.

        The name of a node is its text, so a tuple or an integer of a networkx graph finds its value. A whole number
        that names no value is a position.

        Raises
        ------
        KeyError
            If there is no value of this name; the text suggests a similar one.
        IndexError
            If a position is too large, or if there is no schedule.
        """
        if isinstance(index, slice):
            return self._rows[index]
        name = str(index)
        if name in self._index:
            return self._rows[self._index[name]]
        if isinstance(index, SupportsIndex):
            return super().__getitem__(int(index))
        if not self._rows:
            raise KeyError("there is no schedule, and so there are no decisions")
        near = nearest(name, self._index)
        raise KeyError(f"there is no value {brief(index)}" + (f"; did you mean {near!r}?" if near else ""))

    def of(self, decision: str) -> list[str]:
        """Return the values with a decision, such as ``recomputed``.

        Raises
        ------
        remat.OptionError
            If it is no decision.
        """
        return [row.value for row in self._with(decision)]


def times_but_last(result: Result) -> dict[str, Number]:
    """Return, for each value that is computed more than once, the time of these runs but the last one.

    The last forward of a stage saves what its backward reads, and counts as the needed one: the sum over stages is the
    recompute time of the schedule, even if this forward takes longer than an earlier one. O(steps + accesses).
    """
    steps, report = result.columns, result.report
    if steps is None or report is None:
        return {}
    graph = result.graph
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    made = graph.writes.gather(steps.item[runs])
    times = (report.end - report.start)[runs][made.rows]
    total = np.zeros(len(graph.values), dtype=times.dtype)
    np.add.at(total, made.items, times)
    again, last = np.unique(made.items[::-1], return_index=True)
    total[again] -= times[::-1][last]
    repeated = np.flatnonzero(np.bincount(made.items, minlength=len(graph.values)) > 1)
    return {graph.values[value]: total[value].item() for value in repeated.tolist()}


def decisions_of(result: Result) -> Decisions:
    """Return the decisions of a result; empty without a schedule. O(steps + accesses)."""
    steps, report = result.columns, result.report
    if steps is None or report is None:
        return Decisions(())
    graph = result.graph
    count = len(graph.values)
    is_run, is_copy = steps.kind == StepKind.RUN, steps.kind == StepKind.COPY
    runs = np.flatnonzero(is_run)
    made = graph.writes.gather(steps.item[runs])
    times = (report.end - report.start)[runs]
    number = np.bincount(made.items, minlength=count)
    _, first = np.unique(made.items, return_index=True)
    later = np.ones(len(made.items), dtype=bool)
    later[first] = False
    again = np.zeros(count, dtype=times.dtype)
    np.add.at(again, made.items[later], times[made.rows[later]])
    copies = np.flatnonzero(is_copy)
    moving = np.zeros(count, dtype=times.dtype)
    np.add.at(moving, steps.item[copies], (report.end - report.start)[copies])
    readers = _readers(result, steps.item[runs], count)
    again_at, moved = _recomputations(result, made.items[later], runs[made.rows[later]]), _transfers(result, copies)
    stays, held, present, left = _stays(result, moved)
    rows = []
    for value in range(count):
        makers = graph.producers[value].tolist()
        rows.append(
            Decision(
                value=graph.values[value],
                module=graph.module(makers[0]) if makers else "",
                size=int(graph.size[value]),
                decision=_decision(
                    int(number[value]), bool(stays[value]), bool(readers[value]) or value in left, value in present
                ),
                runs=int(number[value]),
                recompute_time=again[value].item(),
                offloaded=tuple(stays[value]),
                transfer_time=moving[value].item(),
                readers=tuple(readers[value]),
                recomputations=tuple(again_at.get(value, ())),
                transfers=tuple(moved.get(value, ())),
                held=tuple(held[value]),
            )
        )
    return Decisions(rows)


def _recomputations(result: Result, values: IntArray, steps: IntArray) -> dict[int, list[Run]]:
    """Return the runs of recomputed values, in the order of the steps; `steps` are runs of tasks that make `values`."""
    assert result.columns is not None
    assert result.report is not None
    report, names = result.report, result.graph.tasks
    found: dict[int, list[Run]] = {}
    tasks = result.columns.item[steps]
    columns = (values, tasks, report.start[steps], report.end[steps])
    for value, task, start, end in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(value, []).append(Run(names[int(task)], start, end))
    return found


def _transfers(result: Result, copies: IntArray) -> dict[int, list[Transfer]]:
    """Return the copies of each value, in the order of the steps."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    names = [memory.name for memory in result.machine.memories]
    found: dict[int, list[Transfer]] = {}
    columns = [column[copies] for column in (steps.item, steps.source, steps.target, report.start, report.end)]
    amount = steps.amount[copies]
    columns.append(np.where(amount < 0, result.graph.size[columns[0]], amount))
    for value, source, target, start, end, moved in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(value, []).append(Transfer(names[source], names[target], start, end, moved))
    return found


def _decision(runs: int, offloaded: bool, wanted: bool, present: bool) -> str:
    if runs > 1:
        return RECOMPUTED
    if offloaded:
        return OFFLOADED
    if not runs and not present:
        return UNUSED
    return KEPT if wanted else DROPPED


def _readers(result: Result, tasks: IntArray, count: int) -> list[list[str]]:
    read = result.graph.reads.gather(tasks)
    pairs = read.items * len(result.graph.tasks) + tasks[read.rows]
    _, first = np.unique(pairs, return_index=True)
    first.sort()
    found: list[list[str]] = [[] for _ in range(count)]
    names = result.graph.tasks
    for value, task in zip(read.items[first].tolist(), tasks[read.rows[first]].tolist(), strict=True):
        found[value].append(names[task])
    return found


def _stays(
    result: Result, moved: Mapping[int, Sequence[Transfer]]
) -> tuple[list[list[Stay]], list[list[Stay]], set[int], set[int]]:
    """Return the stays of each value where no task uses it, and elsewhere, the values ever present, and those left."""
    graph, steps, report = result.graph, result.columns, result.report
    assert steps is not None
    assert report is not None
    residencies = residencies_of(graph, result.machine, steps)
    memories = len(result.machine.memories)
    used = _uses(result)
    touched = np.isin(residencies.value, used // memories)
    here = np.isin(residencies.value * memories + residencies.memory, used)
    idle = (touched & ~here).tolist()
    stays: list[list[Stay]] = [[] for _ in range(len(graph.values))]
    held: list[list[Stay]] = [[] for _ in range(len(graph.values))]
    columns = (residencies.memory, residencies.value, residencies.first_step, residencies.last_step)
    for waits, memory, value, begin, end in zip(idle, *(column.tolist() for column in columns), strict=True):
        if value == WORKSPACE:
            continue
        start = report.start[begin].item() if begin >= 0 else 0
        last = report.end[end].item() if end < len(steps) else report.makespan
        name, size = result.machine.memories[memory].name, int(graph.size[value])
        arrives = begin >= 0 and steps.kind[begin] == StepKind.COPY
        size = _largest_part(moved.get(value, ()), name, start, last, size) if arrives else size
        (stays if waits else held)[value].append(Stay(name, start, last, size))
    there = {*np.unique(residencies.value).tolist(), *graph.available}
    left = set(residencies.value[residencies.last_step == len(steps)].tolist())
    return stays, held, there, left | {place.value for place in graph.outputs}


def _largest_part(moved: Sequence[Transfer], memory: str, start: Number, end: Number, size: int) -> int:
    """Return the largest number of bytes of a value in a memory where it arrives by copies, perhaps in parts."""
    if all(one.size == size for one in moved):
        return size
    events = [(one.start, one.size) for one in moved if one.target == memory and start <= one.start <= end]
    events += [(one.end, -one.size) for one in moved if one.source == memory and start <= one.end <= end]
    most = now = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return min(most, size)


def _uses(result: Result) -> IntArray:
    """Return where the schedule's runs read or write each value: value times memories, plus memory, each once."""
    graph, machine, steps = result.graph, result.machine, result.columns
    assert steps is not None
    memory = memory_of_steps(machine, steps)
    memories = len(machine.memories)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    tasks = steps.item[runs]
    found = [
        np.unique(accesses.items * memories + memory[runs[accesses.rows]])
        for accesses in (graph.reads.gather(tasks), graph.writes.gather(tasks))
    ]
    for step in runs[np.isin(tasks, list(graph.parts))].tolist() if graph.parts else ():
        task = int(steps.item[step])
        values = np.concatenate((graph.reads[task], graph.writes[task]))
        found += [values * memories + place for place in memories_of(machine, steps, step)]
    return np.unique(np.concatenate(found))
