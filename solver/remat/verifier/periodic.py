"""Check modulo (periodic) schedules of pipelines without unrolling them.

A pattern gives the start times of all operations of micro-batch 0. Each further micro-batch repeats them one period
later. One micro-batch is checked like any other schedule. Its repetitions interact through times modulo the period:
occupied resources (rule `period-overlap`), copies of each value (rule `capacity`), and versions of the parameters
(rule `version-mismatch`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, NumberArray, TaskGraph, instant_array
from remat.schedule.orders import Pass, Phase, PipelineTasks
from remat.schedule.patterns import Pattern
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.event_simulation import Followed, follow
from remat.verifier.findings import Findings
from remat.verifier.memory import changes
from remat.verifier.report import Steady, Violation
from remat.verifier.timeline import TOLERANCE

RUN, COPY = 0, 1
PRECEDENCE = frozenset({"read-missing", "value-busy", "free-missing"})
"""Rules of a schedule that say of a pattern that something comes before what it needs."""


@dataclass(frozen=True, slots=True)
class Updates:
    """Schedule of parameter updates.

    Attributes
    ----------
    mode : str
        ``stash``, ``double``, ``single`` or ``predicted`` (see `PipelineInstance`).
    every : int
        Micro-batches from one update to the next.
    once : tuple of int
        For each layer, bytes that exist once, for any number of parameter versions.
    """

    mode: str
    every: int
    once: tuple[int, ...]

    def versions(self, in_flight: int) -> int:
        """Return the number of parameter versions that exist at once, for a number of micro-batches in flight."""
        two = min(2, in_flight)
        return {"stash": in_flight, "double": two, "single": 1, "predicted": two}[self.mode]

    def staleness(self, in_flight: int) -> int:
        """Return the number of updates between a forward and the update that uses its gradient."""
        return min(1, in_flight - 1) if self.mode == "double" else in_flight - 1


def check_beats(tasks: PipelineTasks, pattern: Pattern, devices: Sequence[str]) -> tuple[Violation, ...]:
    """Check that a pattern has each operation of each stage once, and each layer in one stage.

    Returns
    -------
    tuple of Violation
        Rules `initial-placement` and `bad-step`; empty if all operations are distinct and can be placed.
    """
    findings = Findings()
    homes = Counter(layer for stage in pattern.stages for layer in stage.layers)
    for layer in range(tasks.layers):
        if homes[layer] != 1:
            where = "is in no stage" if homes[layer] == 0 else f"is in {homes[layer]} stages"
            findings.add(None, "initial-placement", f"layer {layer + 1} {where}")
    for index, stage in enumerate(pattern.stages):
        if stage.layers[-1] - stage.layers[0] + 1 != len(stage.layers):
            message = f"stage {index} on {devices[stage.device]} leaves out layers between its own"
            findings.add(None, "bad-step", message)
    for message in _miscounted(tasks, pattern):
        findings.add(None, "bad-step", message)
    return findings.sorted()


def _miscounted(tasks: PipelineTasks, pattern: Pattern) -> Iterator[str]:
    """Describe operations that are missing, duplicate or empty."""
    count = Counter((beat.phase, beat.stage) for beat in pattern.beats if not beat.is_copy)
    for beat, times in Counter((b.phase, b.stage) for b in pattern.beats if b.is_copy).items():
        if times > 1:
            yield f"copy of {beat[0].name}{beat[1]} stands there {times} times"
        if beat[0] is Phase.W:
            yield f"copy of {beat[0].name}{beat[1]}: nobody reads what that makes"
        elif not count[beat]:
            yield f"copy of {beat[0].name}{beat[1]}, which is not there"
    for index, stage in enumerate(pattern.stages):
        has_halves = bool(tasks.of(Pass(Phase.W, index, 0), stage))
        whole, apart = count[Phase.BW, index], (count[Phase.B, index], count[Phase.W, index])
        wanted = ((1, (0, 0)), (0, (1, 1))) if has_halves else ((0, (1, 0)),)
        if count[Phase.F, index] != 1:
            yield f"F{index} stands there {count[Phase.F, index]} times, not once"
        if (whole, apart) not in wanted:
            halves = f"B{index} and W{index}, or BW{index}," if has_halves else f"B{index}"
            yield f"{halves} must stand there once; found B {apart[0]}, W {apart[1]} and BW {whole} times"


def check_pattern(
    graph: TaskGraph, machine: Machine, tasks: PipelineTasks, pattern: Pattern, steps: Steps, updates: Updates
) -> tuple[Steady, tuple[Violation, ...]]:
    """Check and measure a pattern without unrolling it.

    Parameters
    ----------
    graph : TaskGraph
        Of one micro-batch.
    machine : Machine
    tasks : PipelineTasks
        Maps operations to tasks of that graph.
    pattern : Pattern
        `check_beats` must have accepted its operations.
    steps : Steps
        Steps of micro-batch 0, with start times.
    updates : Updates

    Returns
    -------
    Steady, tuple of Violation
        The violations name no step: rules `period-precedence`, `period-overlap`, `version-mismatch`, `capacity`, and
        those that any step may break.

    Notes
    -----
    O(n log n) for the n steps of one micro-batch: a value that exists from s to e has
    ``floor((x - s) / T) - floor((x - e) / T)`` copies at instant x. The count changes only at s and e modulo T.
    """
    findings = Findings()
    followed = _followed(graph, machine, steps, findings)
    busy = check_overlaps(machine, pattern.period, followed, findings)
    in_flight = _in_flight(tasks, pattern, followed, steps)
    versions = _check_versions(pattern, updates, in_flight, findings)
    with_versions = versioned(followed.graph, pattern, versions, updates.once)
    steady = Steady(
        period=pattern.period,
        peaks=_peaks(with_versions, machine, pattern.period, followed, steps, findings, earlier_first=True),
        busy=busy,
        processors=tuple(machine.processors[k].name for k in sorted({stage.device for stage in pattern.stages})),
        in_flight=in_flight,
        versions=versions,
        staleness=tuple(updates.staleness(count) for count in in_flight),
    )
    return steady, findings.sorted()


def check_samples(
    graph: TaskGraph, machine: Machine, period: Number, steps: Steps, sample: IntArray
) -> tuple[Steady, tuple[Violation, ...]]:
    """Check and measure a periodic schedule of samples without unrolling it.

    Parameters
    ----------
    graph : TaskGraph
        Of the samples of one period.
    machine : Machine
    period : int or float
    steps : Steps
        Steps for these samples, with start times.
    sample : (steps,) int64
        The sample of each step.

    Returns
    -------
    Steady, tuple of Violation
        The violations name no step: rules `period-precedence`, `period-overlap`, `capacity`, and those that any step
        may break.
    """
    findings = Findings()
    stays = np.isin(steps.item, list(graph.available)) & (steps.kind == COPY)
    for step in np.flatnonzero(stays).tolist():
        name = graph.values[int(steps.item[step])]
        findings.add(None, "bad-step", f"{name} is copied: the inputs of a stream stay where they are")
    followed = _followed(graph, machine, steps, findings)
    busy = check_overlaps(machine, period, followed, findings)
    latency, at_once = _of_samples(period, followed, sample)
    _, used = followed.uses
    working = {int(k) for k in used[steps.kind[followed.uses[0]] == RUN]}
    steady = Steady(
        period=period,
        peaks=_peaks(followed.graph, machine, period, followed, steps, findings),
        busy=busy,
        processors=tuple(machine.processors[k].name for k in sorted(working)),
        in_flight=(at_once,),
        versions=(),
        staleness=(),
        samples=int(sample.max(initial=0)) + 1,
        latency=latency,
        what="sample",
    )
    return steady, findings.sorted()


def _of_samples(period: Number, followed: Followed, sample: IntArray) -> tuple[Number, int]:
    """Return the longest time of a sample, and the maximum number of samples in flight."""
    start, end = followed.timeline.start, followed.timeline.end
    begins = instant_array(start[sample == one].min().item() for one in np.unique(sample))
    ends = instant_array(end[sample == one].max().item() for one in np.unique(sample))
    slack = 0 if isinstance(period, int) and begins.dtype == ends.dtype == np.int64 else TOLERANCE * float(period)
    events: list[tuple[Number, int]] = []
    at_once = 0
    for times, change in ((begins, 1), (ends, -1)):
        whole, offset = within(times, period, slack)
        at_once -= change * int((whole + 1).sum())
        events += [(when, change) for when in offset.tolist()]
    most = at_once
    for _, change in sorted(events):  # at one instant, what ends comes first
        at_once += change
        most = max(most, at_once)
    return (ends - begins).max().item(), max(1, most)


def _followed(graph: TaskGraph, machine: Machine, steps: Steps, findings: Findings) -> Followed:
    """Simulate the steps of one period, and word their violations in terms of patterns."""
    found = Findings()
    followed = follow(graph, machine, steps, found)
    for violation in found.sorted():
        rule = "period-precedence" if violation.rule in PRECEDENCE else violation.rule
        findings.add(None, rule, _named(followed, steps, violation))
    return followed


def _named(followed: Followed, steps: Steps, violation: Violation) -> str:
    """Return a message that names the task, since steps of a pattern have no numbers."""
    if violation.step is None or steps.kind[violation.step] != RUN:
        return violation.message
    name = followed.graph.tasks[int(steps.item[violation.step])]
    return f"{name}: {violation.message}"


def check_overlaps(machine: Machine, period: Number, followed: Followed, findings: Findings) -> dict[str, Number]:
    """Check that each processor and channel serves one step at a time, across all micro-batches."""
    step, used = followed.uses
    begin, end = followed.occupying.start, followed.occupying.end
    slack = 0 if isinstance(period, int) and begin.dtype == np.int64 else TOLERANCE * float(period)
    busy: dict[str, Number] = {}
    for index, name in enumerate(machine.resources):
        mine = step[used == index]
        length = (end[mine] - begin[mine]).tolist()
        busy[name] = sum(length)
        if not len(mine):
            continue
        if busy[name] > period + slack:
            findings.add(None, "period-overlap", f"{name} is busy for {busy[name]} of each period of {period}")
            continue
        _, offset = within(begin[mine], period, slack)
        order = np.lexsort((np.array(length) > slack, offset))
        spans = [(offset[k].item(), length[k]) for k in order.tolist()]
        for (first, took), (following, _) in zip(spans, [*spans[1:], (None, 0)], strict=True):
            until = spans[0][0] + period if following is None else following
            if first + took > until + slack:
                at = until if following is not None else until - period
                findings.add(None, "period-overlap", f"{name} is busy from {first} for {took}, and again at {at}")
    return busy


def within(time: NumberArray, period: Number, slack: float) -> tuple[IntArray, NumberArray]:
    """Return the number of whole periods before each time, and the time within its period."""
    if not slack:
        whole, offset = np.divmod(time, period)
        return whole, offset
    times = time.astype(np.float64)
    whole = np.floor(times / period)
    offset = times - whole * period
    next_one = period - offset <= slack
    whole, offset = whole + next_one, np.where(next_one | (offset <= slack), 0.0, offset)
    # Times within the tolerance count as one instant.
    order = np.argsort(offset, kind="stable")
    anchor = -math.inf
    for k in order.tolist():
        if offset[k] - anchor <= slack:
            offset[k] = anchor
        else:
            anchor = float(offset[k])
    return whole.astype(np.int64), offset


def highest(resident: int, when: NumberArray, rank: IntArray, change: NumberArray, period: Number, slack: float) -> int:
    """Return the peak bytes within a period, where each change repeats once per period.

    Parameters
    ----------
    resident : int
        Bytes that are always resident.
    when, change : (changes,) arrays
        Times of one step, and Python integers.
    rank : (changes, keys) int64
        Order of the changes at the same instant, the most significant key first.
    """
    whole, offset = within(when, period, slack)
    order = np.lexsort((*rank.T[::-1], offset))
    use = resident - sum((change * (whole.astype(object) + 1)).tolist())
    most = use
    for amount in change[order].tolist():
        use += amount
        most = max(most, use)
    return int(most)


def _in_flight(tasks: PipelineTasks, pattern: Pattern, followed: Followed, steps: Steps) -> tuple[int, ...]:
    """Return the micro-batches in flight per stage: between the start of the forward and the last backward."""
    start, end = followed.timeline.start, followed.timeline.end
    owner = {
        task: index
        for index, stage in enumerate(pattern.stages)
        for phase in (Phase.F, Phase.BW)
        for task in (*tasks.of(Pass(phase, index, 0), stage), *tasks.of(Pass(Phase.B, index, 0), stage))
    }
    first: list[Number] = [math.inf] * len(pattern.stages)
    last: list[Number] = [-math.inf] * len(pattern.stages)
    for step in np.flatnonzero(steps.kind == RUN).tolist():
        index = owner.get(int(steps.item[step]))
        if index is not None:
            first[index] = min(first[index], start[step].item())
            last[index] = max(last[index], end[step].item())
    found = []
    for begin, until in zip(first, last, strict=True):
        length = until - begin
        if isinstance(length, int) and isinstance(pattern.period, int):
            found.append(max(1, -(-length // pattern.period)))
        else:
            found.append(max(1, math.ceil(length / pattern.period - TOLERANCE)) if math.isfinite(length) else 1)
    return tuple(found)


def _check_versions(
    pattern: Pattern, updates: Updates, in_flight: tuple[int, ...], findings: Findings
) -> tuple[int, ...]:
    needed = tuple(updates.versions(count) for count in in_flight)
    for index, count in enumerate(in_flight):
        if updates.mode == "double" and count > updates.every:
            message = (
                f"stage {index} has {count} micro-batches in flight, and its parameters change every {updates.every}: "
                "two versions are not enough"
            )
            findings.add(None, "version-mismatch", message)
    if pattern.versions is None:
        return needed
    for index, (kept, wanted) in enumerate(zip(pattern.versions, needed, strict=True)):
        if kept < wanted:
            message = f"stage {index} keeps {kept} versions, and its micro-batches in flight read {wanted}"
            findings.add(None, "version-mismatch", message)
    return pattern.versions


def versioned(graph: TaskGraph, pattern: Pattern, versions: Sequence[int], once: Sequence[int]) -> TaskGraph:
    """Return the graph of a pipeline in which parameters take the bytes of all their versions.

    Of each layer's bytes, `once` exist in one copy only.
    """
    size = graph.size.copy()
    for stage, kept in zip(pattern.stages, versions, strict=True):
        for layer in stage.layers:
            value = graph.values.find(f"w{layer + 1}")
            if value is not None:
                size[value] = (size[value] - once[layer]) * kept + once[layer]
    return replace(graph, size=size)


def _peaks(
    graph: TaskGraph,
    machine: Machine,
    period: Number,
    followed: Followed,
    steps: Steps,
    findings: Findings,
    *,
    earlier_first: bool = False,
) -> dict[str, int]:
    """Return the peak bytes of each memory within a period.

    Of steps of no length at one instant, those of earlier repetitions come first if `earlier_first` holds. Otherwise
    the order within one repetition decides.
    """
    timeline = followed.timeline
    memory, position, change = changes(graph, machine, steps, timeline, followed.residency, followed.valid)
    peaks: dict[str, int] = {}
    for index, place in enumerate(machine.memories):
        mine = memory == index
        always = mine & (position < 0)
        resident = int(change[always].sum()) + graph.static_bytes(machine, index)
        passing = mine & (position >= 0)
        at, delta = position[passing], change[passing].astype(object)
        left = sum(delta.tolist())
        if left:
            message = f"{place.name} holds {left} more after each period: what was read is not dropped"
            findings.add(None, "capacity", message)
        step = timeline.step_at[at]
        begins = timeline.start_position[step] == at
        when = np.where(begins, timeline.start[step], timeline.end[step]) if len(step) else timeline.start[:0]
        slack = 0 if isinstance(period, int) and when.dtype == np.int64 else TOLERANCE * float(period)
        instantly = timeline.end[step] - timeline.start[step] <= slack
        # At one instant: steps that end free, then steps of zero duration run, then starting steps allocate.
        rank = np.where(instantly, 1, np.where(begins, 2, 0))
        turn = -within(when, period, slack)[0] if earlier_first else np.zeros(len(at), dtype=np.int64)
        most = highest(resident, when, np.column_stack((rank, turn, at)), delta, period, slack)
        peaks[place.name] = most
        if place.capacity is not None and most > place.capacity:
            unit = "bytes" if graph.units.memory == "B" else "units"
            findings.add(None, "capacity", f"{place.name} would hold {most} of {place.capacity} {unit}")
    return peaks
