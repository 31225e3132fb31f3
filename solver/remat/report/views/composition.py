"""The contents of a memory over time: bytes by kind, which add up to the verifier's measurements."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remat.graph.machine import Machine
from remat.graph.names import NumberedNames
from remat.graph.taskgraph import BoolArray, IntArray, NumberArray, TaskGraph
from remat.report.views.groups import Groups, groups_of
from remat.report.views.kinds import OF_TERM, REPLACED, STATE, STATIC, WORKSPACE, Kind, kind_labels, kinds_of_values
from remat.report.views.lifetimes import Clock, Lives, Moments, Origin, in_several_memories, memory_of_runs, traced
from remat.report.views.phases import Phase, step_phases
from remat.schedule.steps import StepKind, Steps
from remat.solving.result import Result
from remat.solving.static_split import RESERVE, static_split
from remat.verifier import Profile


@dataclass(frozen=True, slots=True)
class Stays:
    """Stays of values with their purposes.

    Attributes
    ----------
    lives : Lives
    kind : (stays,) int64
        `Kind`.
    last : (stays,) int64
        The last step that reads the value in this stay; -1 if none does.
    uses : (stays,) int64
        Number of steps that read it.
    """

    lives: Lives
    kind: IntArray
    last: IntArray
    uses: IntArray


@dataclass(frozen=True, slots=True)
class Contents:
    """Bytes in a memory by kind: `sizes[:, i]` from `time[i]` on.

    Several entries may share one time: a peak of zero length, if any, precedes the size that holds afterwards.

    Attributes
    ----------
    time : (points,) array
    sizes : (kinds, points) int64
        They add up to the verified profile.
    """

    time: NumberArray
    sizes: IntArray

    @property
    def total(self) -> IntArray:
        """Bytes of all kinds."""
        total: IntArray = self.sizes.sum(axis=0)
        return total

    @property
    def at_peak(self) -> dict[Kind, int]:
        """Bytes of each kind present at the peak of the memory, the largest first."""
        sizes = self.sizes[:, int(np.argmax(self.total))].tolist()
        return {kind: sizes[kind] for kind in sorted(Kind, key=lambda kind: -sizes[kind]) if sizes[kind]}


def static_parts(result: Result) -> dict[str, int]:
    """Return the parts of the instance's static memory, which is in the first memory."""
    source = None if result.instance is None else result.instance.source
    return static_split(source, result.graph.static_memory)


def labels_of(result: Result) -> dict[Kind, str]:
    """Return the names of all kinds for a result; what static memory is besides parameters may have a name."""
    parts = static_parts(result)
    labels = kind_labels(result.graph, training=any(part in OF_TERM for part in parts))
    alone = RESERVE in parts and not result.machine.memories[0].static
    return labels | ({Kind.STATIC: RESERVE} if alone else {})


class Extra(enum.IntEnum):
    """Rows of contents by group that follow those of the groups."""

    STATIC = 0
    WORKSPACE = 1
    OTHER = 2

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        return (STATIC, WORKSPACE, REPLACED)[self]


@dataclass(frozen=True, slots=True)
class Composition:
    """The stays of a schedule, and the contents of each memory, by its index.

    Attributes
    ----------
    stays : Stays
    contents : tuple of Contents
        By `Kind`.
    groups : Groups or None
        Groups of values, if requested.
    grouped : tuple of Contents
        By group: those of `groups`, then `Extra`; empty without groups.
    """

    stays: Stays
    contents: tuple[Contents, ...]
    groups: Groups | None = None
    grouped: tuple[Contents, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The number of rows of contents, and the rows that belong to no value."""

    count: int
    static: int
    workspace: int
    other: int


_BY_KIND = _Rows(len(Kind), Kind.STATIC, Kind.WORKSPACE, Kind.OTHER)


def composition_of(result: Result, *, grouped: bool = False) -> Composition:
    """Return the contents of each memory over time (O(events log events), array operations).

    Parameters
    ----------
    result : Result
        With a schedule.
    grouped : bool
        Whether to sum bytes by groups of values, too.
    """
    graph, machine, steps, report = result.graph, result.machine, result.columns, result.report
    assert steps is not None
    assert report is not None
    clock = Clock(report)
    found = traced(graph, machine, steps, clock, report.makespan)
    phases = step_phases(graph, steps, report.start)
    stays = _used(graph, machine, steps, clock, found.lives, phases)

    def contents_by(row: IntArray, rows: _Rows) -> tuple[Contents, ...]:
        """Sum up by a row for each stay."""
        by_row = Stays(stays.lives, row, stays.last, stays.uses)
        memory, kind, change, moments = _workspaces(graph, machine, steps, clock, by_row, rows.workspace)
        memory = np.concatenate((found.lives.memory[found.stay], memory))
        kind = np.concatenate((row[found.stay], kind))
        change = np.concatenate((found.change, change))
        moments = Moments.join((found.moments, moments))
        contents = []
        for index, place in enumerate(machine.memories):
            mine = np.flatnonzero(memory == index)
            static = graph.static_bytes(machine, index)
            profile = report.profiles[place.name]
            contents.append(_contents(kind[mine], change[mine], moments.of(mine), profile, static, clock, rows))
        return tuple(contents)

    contents = contents_by(stays.kind, _BY_KIND)
    for part, size in static_parts(result).items():
        if part in OF_TERM:
            contents[0].sizes[OF_TERM[part]] += size
            contents[0].sizes[Kind.STATIC] -= size
    if not grouped:
        return Composition(stays, contents)
    groups = groups_of(graph, *_weights(result, stays.lives))
    count = len(groups.labels)
    rows = _Rows(count + len(Extra), *(count + extra for extra in Extra))
    return Composition(stays, contents, groups, contents_by(groups.of_value[stays.lives.value], rows))


def _weights(result: Result, lives: Lives) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each value's weight (bytes over time, those at peaks twice) and time of first appearance."""
    report, count = result.report, len(result.graph.values)
    assert report is not None
    begin, end = lives.begin.astype(np.float64), lives.end.astype(np.float64)
    size = result.graph.size[lives.value].astype(np.float64)
    area = size * (end - begin) / (float(report.makespan) or 1.0)
    for index, memory in enumerate(result.machine.memories):
        step = report.peaks[memory.name].step
        now = 0.0 if step is None else float(report.start[step])
        there = (lives.memory == index) & (begin <= now) & (end > now)
        area[there] += 2 * size[there]
    first = np.full(count, np.inf)
    np.minimum.at(first, lives.value, begin)
    weight: NDArray[np.float64] = np.zeros(count)
    np.add.at(weight, lives.value, area)
    return weight, first


# ------------------------------------------------------------------------------------------------- kinds


def _used(graph: TaskGraph, machine: Machine, steps: Steps, clock: Clock, lives: Lives, phases: IntArray) -> Stays:
    """Find the readers of each stay, and derive its purpose."""
    value, memory, step = _reads(graph, machine, steps)
    stay = _stay_at(lives, clock, memory * len(graph.values) + value, step, len(graph.values))
    value, step, stay = value[stay >= 0], step[stay >= 0], stay[stay >= 0]
    count = len(lives.value)
    last = np.full(count, -1, dtype=np.int64)
    # The last of those that are written is the latest, by its start.
    order = clock.moments(step, False).order()
    last[stay[order]] = step[order]

    def reads(*wanted: Phase) -> IntArray:
        return np.bincount(stay[np.isin(phases[step], wanted)], minlength=count)

    kind = kinds_of_values(graph)[lives.value]
    state = kind == STATE
    if isinstance(graph.tasks, NumberedNames):
        saves = bool((phases == Phase.SAVING).any())
        again = reads(Phase.FORWARD, Phase.SAVING, Phase.RECOMPUTATION) > 1
    else:
        saves = True
        again = (reads(Phase.RECOMPUTATION) > 0) & (lives.origin != Origin.RECOMPUTED)
        pairs, times = np.unique(np.column_stack((stay, steps.item[step])), axis=0, return_counts=True)
        again[pairs[times > 1, 0]] = True
    parked = ~_some_processor_at(machine, lives)
    later = (reads(Phase.BACKWARD, Phase.LOSS, Phase.COPY) > 0) | parked
    kind[state] = Kind.PASSING
    kind[state & later] = Kind.SAVED if saves else Kind.CHECKPOINTS
    kind[state & again] = Kind.CHECKPOINTS
    return Stays(lives, kind, last, np.bincount(stay, minlength=count))


def _some_processor_at(machine: Machine, lives: Lives) -> BoolArray:
    """Whether each stay is in the memory of a processor."""
    works = np.zeros(len(machine.memories), dtype=bool)
    works[[processor.memory for processor in machine.processors]] = True
    found: BoolArray = works[lives.memory]
    return found


def _reads(graph: TaskGraph, machine: Machine, steps: Steps) -> tuple[IntArray, IntArray, IntArray]:
    """Return (value, memory, step) of everything that steps read."""
    memory = memory_of_runs(machine, steps)
    several = in_several_memories(graph, machine, steps)
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    alone = np.setdiff1d(runs, [step for step, _, _ in several]) if several else runs
    read = graph.reads.gather(steps.item[alone])
    owner = np.repeat(alone, read.counts)
    copies = np.flatnonzero(steps.kind == StepKind.COPY)
    more = [(value, where, step) for step, where, part in several for value in part.reads]
    extra = np.array(more, dtype=np.int64).reshape(-1, 3).T
    return (
        np.concatenate((read.items, steps.item[copies], extra[0])),
        np.concatenate((memory[owner], steps.source[copies], extra[1])),
        np.concatenate((owner, copies, extra[2])),
    )


def _stay_at(lives: Lives, clock: Clock, key: IntArray, step: IntArray, values: int) -> IntArray:
    """Return the stay of each key that a step finds when it starts: the one that began last; -1 if there is none."""
    own = lives.memory * values + lives.value
    moments = Moments.join((clock.moments(lives.born, False), clock.moments(step, False)))
    keys = np.concatenate((own, key))
    # A run that rewrites a value that it reads finds the old copy, so reads sort first among equals.
    asks = np.concatenate((np.ones(len(own), dtype=np.int64), np.zeros(len(key), dtype=np.int64)))
    order = np.lexsort((asks, moments.place, moments.instant, keys))
    index = np.where(order < len(own), order, -1)
    seen = np.maximum.accumulate(np.where(index >= 0, np.arange(len(order)), -1))
    stay = np.where(seen >= 0, index[np.maximum(seen, 0)], -1)
    found = np.full(len(keys), -1, dtype=np.int64)
    found[order] = stay
    found = found[len(own) :]
    return np.where((found >= 0) & (own[np.maximum(found, 0)] == key), found, -1) if len(own) else found


# ------------------------------------------------------------------------------------------------- bytes


def _workspaces(
    graph: TaskGraph, machine: Machine, steps: Steps, clock: Clock, stays: Stays, row: int
) -> tuple[IntArray, IntArray, IntArray, Moments]:
    """Return memory, kind, change and moments of workspaces, and of the bytes that in-place runs save."""
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    several = in_several_memories(graph, machine, steps)
    alone = np.setdiff1d(runs, [step for step, _, _ in several]) if several else runs
    memory = memory_of_runs(machine, steps)
    step = np.concatenate((alone, np.array([step for step, _, _ in several], dtype=np.int64)))
    where = np.concatenate((memory[alone], np.array([place for _, place, _ in several], dtype=np.int64)))
    size = graph.workspace[steps.item[step]]
    step, where, size = step[size > 0], where[size > 0], size[size > 0]
    work = np.full(len(step), row, dtype=np.int64)
    reusing, kind, spared = _spared(graph, steps, stays)
    return (
        np.concatenate((where, where, memory[reusing], memory[reusing])),
        np.concatenate((work, work, kind, kind)),
        np.concatenate((size, -size, -spared, spared)),
        Moments.join(
            (*(clock.moments(step, end) for end in (False, True)), *(clock.moments(reusing, e) for e in (False, True)))
        ),
    )


def _spared(graph: TaskGraph, steps: Steps, stays: Stays) -> tuple[IntArray, IntArray, IntArray]:
    """Return in-place runs, the kind of an output of each, and the bytes that it reuses from the inputs."""
    lives = stays.lives
    is_run = steps.kind == StepKind.RUN
    in_place = is_run & graph.in_place[np.where(is_run, steps.item, 0)] if len(graph.tasks) else is_run
    if not in_place.any():
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    count, values = len(steps), len(graph.values)
    dropped = steps.drop.rows, steps.drop.items
    reads = graph.reads.rows * values + graph.reads.items
    is_read = in_place[dropped[0]] & np.isin(steps.item[dropped[0]] * values + dropped[1], reads)
    provided = _sums(dropped[0][is_read], graph.size[dropped[1][is_read]], count)
    runs = np.flatnonzero(in_place)
    written = graph.writes.gather(steps.item[runs])
    needed = _sums(runs[written.rows], graph.size[written.items], count)
    new = np.flatnonzero(in_place[np.maximum(lives.born, 0)] & (lives.born >= 0))
    new = new[np.argsort(lives.born[new], kind="stable")]
    step, size = lives.born[new], graph.size[lives.value[new]]
    spared = np.maximum(0, _sums(step, size, count) - np.maximum(0, needed - provided))
    # The first outputs reuse bytes first, each up to its size.
    total = size.cumsum() - size
    before = total - total[np.searchsorted(step, step)]
    each = np.clip(spared[step] - before, 0, size)
    return step[each > 0], stays.kind[new][each > 0], each[each > 0]


def _sums(row: IntArray, size: IntArray, count: int) -> IntArray:
    """Add up sizes by row."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, row, size)
    return sums


def _contents(
    kind: IntArray, change: IntArray, moments: Moments, profile: Profile, static: int, clock: Clock, rows: _Rows
) -> Contents:
    """Add up the changes in one memory, and compare with the verifier's profile."""
    order = moments.order()
    kind, change, moments = kind[order], change[order], moments.of(order)
    measured_at, measured = clock.instants_of(profile.time), profile.size
    # All changes at one place of an instant form a group: the end of a step frees and keeps simultaneously.
    where = np.column_stack((moments.instant, moments.late, moments.place))
    first = np.flatnonzero(np.concatenate(([True], (np.diff(where, axis=0) != 0).any(axis=1))))[: len(where)]
    sizes = np.zeros((rows.count, len(first) + 1), dtype=np.int64)
    sizes[rows.static, 0] = static
    np.add.at(sizes, (kind, np.searchsorted(first, np.arange(len(kind)), side="right")), change)
    sizes = sizes.cumsum(axis=1)
    instant = np.concatenate(([0], moments.instant[first]))
    # For each instant: the highest size, and the size that holds after it.
    instants = np.unique(np.concatenate((instant, measured_at)))
    highest, after = _extremes(sizes.sum(axis=0), instant, instants)
    true_highest, true_after = _extremes(measured, measured_at, instants)
    point = np.column_stack((highest, after)).ravel()
    exact = np.column_stack((measured[true_highest], measured[true_after])).ravel()
    before = np.concatenate(([0], exact[1:-1:2]))
    stands_out = exact[::2] > np.maximum(before, exact[1::2])
    kept = np.column_stack((stands_out, np.ones(len(instants), dtype=bool))).ravel()
    shown = sizes[:, point[kept]].copy()
    shown[rows.other] += np.maximum(0, exact[kept] - shown.sum(axis=0))
    return Contents(np.repeat(clock.time_of(instants), 2)[kept], shown)


def _extremes(size: IntArray, instant: IntArray, instants: IntArray) -> tuple[IntArray, IntArray]:
    """Return the index of the highest size in each instant, and of the one that holds after it."""
    after = np.searchsorted(instant, instants, side="right") - 1
    first = np.searchsorted(instant, instants, side="left")
    first = np.minimum(first, after)  # no change: the previous size persists
    order = np.argsort(size, kind="stable")
    rank = np.empty(len(size), dtype=np.int64)
    rank[order] = np.arange(len(size))
    bounds = np.column_stack((first, after + 1)).ravel()
    highest = np.maximum.reduceat(np.append(rank, -1), bounds)[::2]
    return order[highest], after
