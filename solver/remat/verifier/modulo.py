"""Check modulo (periodic) schedules without unrolling them.

A modulo schedule gives the start times of all steps for the samples of one period. Each further period repeats them.
The samples of one period are checked like any other schedule. Their repetitions interact through times modulo the
period: occupied resources (rule `period-overlap`) and copies of each value (rule `capacity`). If the samples are
micro-batches that change the parameters of a pipeline's stages, each stage also needs enough versions of its parameters
(rule `version-mismatch`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, NumberArray, TaskGraph, instant_array
from remat.schedule.modulo import ModuloSchedule
from remat.schedule.orders import Pass, Phase, PipelineTasks
from remat.schedule.patterns import Pattern
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.event_simulation import Followed, follow
from remat.verifier.findings import Findings
from remat.verifier.memory import changes
from remat.verifier.report import Steady, Violation
from remat.verifier.timeline import TOLERANCE, Timeline

RUN, COPY = 0, 1
ROUNDING = 2.0**-38
"""Longest time that may be a rounding error, as a share of a period."""

PRECEDENCE = frozenset({"read-missing", "value-busy", "free-missing"})
"""Rules whose violation in a pattern means that an operation starts before its inputs are available."""


@dataclass(frozen=True, slots=True)
class Training:
    """Stages whose parameters change while micro-batches are in flight.

    Attributes
    ----------
    tasks : PipelineTasks
        Maps operations to tasks of the graph of one micro-batch.
    pattern : Pattern
        The stages and their operations, which `check_beats` must have accepted.
    mode : str
        ``stash``, ``double``, ``single`` or ``predicted`` (see `PipelineInstance`).
    every : int
        Micro-batches from one update to the next.
    once : tuple of int
        For each layer, bytes that exist once, for any number of parameter versions.
    """

    tasks: PipelineTasks
    pattern: Pattern
    mode: str
    every: int
    once: tuple[int, ...]

    def stage_of(self, steps: Steps) -> IntArray:
        """Return the stage of each run; -1 for copies."""
        owner = {
            task: index
            for index, stage in enumerate(self.pattern.stages)
            for phase in (Phase.F, Phase.BW)
            for task in self.tasks.of(Pass(phase, index, 0), stage)
        }
        runs = zip((steps.kind == RUN).tolist(), steps.item.tolist(), strict=True)
        return np.array([owner.get(item, -1) if is_run else -1 for is_run, item in runs], dtype=np.int64)

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
            yield f"copy of {beat[0].name}{beat[1]} is listed {times} times"
        if beat[0] is Phase.W:
            yield f"copy of {beat[0].name}{beat[1]}, whose result has no reader"
        elif not count[beat]:
            yield f"copy of {beat[0].name}{beat[1]}, which is not listed"
    for index, stage in enumerate(pattern.stages):
        has_halves = bool(tasks.of(Pass(Phase.W, index, 0), stage))
        whole, apart = count[Phase.BW, index], (count[Phase.B, index], count[Phase.W, index])
        wanted = ((1, (0, 0)), (0, (1, 1))) if has_halves else ((0, (1, 0)),)
        if count[Phase.F, index] != 1:
            yield f"F{index} is listed {count[Phase.F, index]} times, not once"
        if (whole, apart) not in wanted:
            halves = f"B{index} and W{index}, or BW{index}," if has_halves else f"B{index}"
            yield f"{halves} must be listed once; found B {apart[0]}, W {apart[1]} and BW {whole} times"


def check_modulo(
    graph: TaskGraph,
    machine: Machine,
    schedule: ModuloSchedule,
    steps: Steps,
    sample: IntArray,
    training: Training | None = None,
) -> tuple[Steady, tuple[Violation, ...]]:
    """Check and measure a modulo schedule without unrolling it.

    Parameters
    ----------
    graph : TaskGraph
        The graph of the samples of one period.
    machine : Machine
    schedule : ModuloSchedule
        Its period, and which steps come first at one instant.
    steps : Steps
        Steps for the samples of one period, with start times.
    sample : (steps,) int64
        The sample of each step.
    training : Training, optional
        Stages whose parameters change. Their samples are micro-batches, one per period.

    Returns
    -------
    Steady, tuple of Violation
        The violations name no step: rules `period-precedence`, `period-overlap`, `version-mismatch`, `capacity`, and
        those that any step may break.

    Notes
    -----
    O(n log n) for the n steps of one period: a value that exists from s to e has
    ``floor((x - s) / T) - floor((x - e) / T)`` copies at instant x. The count changes only at s and e modulo T.
    """
    findings, period = Findings(), schedule.period
    stays = np.isin(steps.item, list(graph.available)) & (steps.kind == COPY)
    for step in np.flatnonzero(stays).tolist():
        name = graph.values[int(steps.item[step])]
        findings.add(None, "bad-step", f"{name} is copied: the inputs of a stream stay where they are")
    followed = _followed(graph, machine, steps, findings)
    busy = check_overlaps(machine, period, followed, findings)
    row, used = followed.uses
    group = np.zeros(len(steps), dtype=np.int64) if training is None else training.stage_of(steps)
    flights = [
        _flights(period, followed, sample, np.flatnonzero(group == k))
        for k in range(1 if training is None else len(training.pattern.stages))
    ]
    in_flight = tuple(at_once for at_once, _ in flights)
    versions: tuple[int, ...] = ()
    sized = followed.graph
    if training is not None:
        versions = _check_versions(training, in_flight, findings)
        sized = versioned(sized, training.pattern, versions, training.once)
    steady = Steady(
        period=period,
        peaks=peaks_of(machine, period, followed, steps, findings, sized=sized, earlier_first=schedule.earlier_first),
        busy=busy,
        processors=tuple(machine.processors[k].name for k in sorted({*used[steps.kind[row] == RUN].tolist()})),
        in_flight=in_flight,
        versions=versions,
        staleness=() if training is None else tuple(training.staleness(count) for count in in_flight),
        samples=int(sample.max(initial=0)) + 1,
        latency=flights[0][1] if training is None else None,
        what="sample" if training is None else "micro-batch",
    )
    return steady, findings.sorted()


def _flights(period: Number, followed: Followed, sample: IntArray, steps: IntArray) -> tuple[int, Number]:
    """Return the maximum number of samples between their first and last step, and the longest time of a sample."""
    timeline, mine = followed.timeline, [steps[sample[steps] == one] for one in np.unique(sample[steps])]
    begins = instant_array(timeline.start[own].min().item() for own in mine)
    ends = instant_array(timeline.end[own].max().item() for own in mine)
    slack = 0 if isinstance(period, int) and begins.dtype == ends.dtype == np.int64 else TOLERANCE * float(period)
    whole, offset = within(np.concatenate((begins, ends)), period, slack)
    change = np.repeat((1, -1), len(begins))
    most = at_once = -int((change * (whole + 1)).sum())
    for _, one in sorted(zip(offset.tolist(), change.tolist(), strict=True)):  # at one instant, what ends comes first
        at_once += one
        most = max(most, at_once)
    return max(1, most), (ends - begins).max(initial=0).item()


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
        offset = np.mod(begin[mine], period)
        order = np.argsort(offset, kind="stable")
        spans = [(offset[k].item(), length[k]) for k in order.tolist()]
        for first, took, again in _overlaps(spans, period, slack):
            findings.add(None, "period-overlap", f"{name} is busy from {first} for {took}, and again at {again}")
    return busy


def _overlaps(
    spans: list[tuple[Number, Number]], period: Number, slack: float
) -> Iterator[tuple[Number, Number, Number]]:
    """Yield (start, duration, start of the other) of steps that overlap by more than the tolerance modulo the period.

    `spans` are sorted by start. A step that takes no longer than the tolerance may begin or end within it of a start or
    end of a longer one.
    """
    longer = [span for span in spans if span[1] > slack]
    if not longer:
        return
    for (first, took), (following, _) in pairwise([*longer, (longer[0][0] + period, 0)]):
        if first + took > following + slack:
            yield first, took, following % period
    starts = [first for first, _ in longer]
    for begin, lasts in spans:
        if lasts <= slack:
            at = bisect_right(starts, begin) - 1
            first, took = longer[at]
            into = begin - first + (period if at < 0 else 0)
            if took - into > slack and into + lasts > slack:
                yield first, took, begin


def within(time: NumberArray, period: Number, slack: float) -> tuple[IntArray, NumberArray]:
    """Return the number of whole periods before each time, and the time within its period."""
    if not slack or not len(time):
        whole, offset = np.divmod(time, period)
        return whole, offset
    times = time.astype(np.float64)
    whole = np.floor(times / period)
    offset = times - whole * period
    next_one = period - offset <= slack
    whole, offset = whole + next_one, np.where(next_one | (offset <= slack), 0.0, offset)
    # Times within the tolerance count as one instant. Where more of them are close, only rounding is ignored.
    order = np.argsort(offset, kind="stable")
    gap = np.diff(offset[order])
    apart = np.concatenate(([True], gap > slack))
    edges = np.append(np.flatnonzero(apart), len(offset))
    length = np.diff(edges)
    spanned = offset[order][edges[1:] - 1] - offset[order][edges[:-1]]
    apart[1:] |= np.repeat(spanned > slack, length)[1:] & (gap > ROUNDING * float(period))
    anchor = -math.inf
    for k, begins in zip(order.tolist(), apart.tolist(), strict=True):
        if not begins and offset[k] - anchor <= slack:
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


def _slack_between_steps(period: Number, timeline: Timeline) -> float:
    """Return the tolerance within which bytes change at one instant, so small that no instant contains a whole step.

    Otherwise bytes could be freed before a step that precedes on the same processor. Times before and after the seam of
    two periods meet, so that an instant spans twice the tolerance there.
    """
    if isinstance(period, int) and timeline.end.dtype == np.int64:
        return 0.0
    lengths = timeline.end - timeline.start
    shortest = lengths[lengths > ROUNDING * float(period)].min(initial=math.inf)
    return min(TOLERANCE * float(period), float(shortest) / 4)


def _check_versions(training: Training, in_flight: tuple[int, ...], findings: Findings) -> tuple[int, ...]:
    """Return the versions that each stage keeps: those of the pattern, or as many as its micro-batches need."""
    needed = tuple(training.versions(count) for count in in_flight)
    for index, count in enumerate(in_flight):
        if training.mode == "double" and count > training.every:
            message = (
                f"stage {index} has {count} micro-batches in flight, and its parameters change every {training.every}: "
                "two versions are not enough"
            )
            findings.add(None, "version-mismatch", message)
    given = training.pattern.versions
    if given is None:
        return needed
    for index, (kept, wanted) in enumerate(zip(given, needed, strict=True)):
        if kept < wanted:
            message = f"stage {index} keeps {kept} versions, and its micro-batches in flight read {wanted}"
            findings.add(None, "version-mismatch", message)
    return given


def versioned(graph: TaskGraph, pattern: Pattern, versions: Sequence[int], once: Sequence[int]) -> TaskGraph:
    """Return the graph of a pipeline in which parameters take the bytes of all their versions.

    `once` of each layer's bytes exist in one copy only.
    """
    size = graph.size.copy()
    for stage, kept in zip(pattern.stages, versions, strict=True):
        for layer in stage.layers:
            value = graph.values.find(f"w{layer + 1}")
            if value is not None:
                size[value] = (size[value] - once[layer]) * kept + once[layer]
    return replace(graph, size=size)


def peaks_of(
    machine: Machine,
    period: Number,
    followed: Followed,
    steps: Steps,
    findings: Findings,
    *,
    sized: TaskGraph,
    earlier_first: bool = False,
    at_ends: Callable[[int], tuple[int, int, int]] | None = None,
) -> dict[str, int]:
    """Return the peak bytes of each memory within a period; report bytes that grow, or exceed a capacity.

    Parameters
    ----------
    machine : Machine
    period : int or float
    followed : Followed
        The simulated steps of one period.
    steps : Steps
    findings : Findings
    sized : TaskGraph
        The graph with the bytes of each value.
    earlier_first : bool
        Of steps of zero duration at one instant, those of earlier repetitions come first. Otherwise the order within
        one repetition decides.
    at_ends : callable, optional
        For the index of a memory: bytes that are always resident in addition, bytes that appear at time 0 of each
        repetition, and bytes that are removed at its end.
    """
    timeline = followed.timeline
    memory, position, change = changes(sized, machine, steps, timeline, followed.residency, followed.valid)
    slack = _slack_between_steps(period, timeline)
    undropped = "what was read" if at_ends is None else "something"
    peaks: dict[str, int] = {}
    for index, place in enumerate(machine.memories):
        mine = memory == index
        resident = int(change[mine & (position < 0)].sum()) + sized.static_bytes(machine, index)
        passing = mine & (position >= 0)
        at, delta = position[passing], change[passing].astype(object)
        step = timeline.step_at[at]
        begins = timeline.start_position[step] == at
        when = np.where(begins, timeline.start[step], timeline.end[step]) if len(step) else timeline.start[:0]
        instantly = timeline.end[step] - timeline.start[step] <= slack
        # At one instant: steps that end free, then steps of zero duration run, then starting steps allocate.
        turn = -within(when, period, slack)[0] if earlier_first else np.zeros(len(at), dtype=np.int64)
        rank = np.column_stack((np.where(instantly, 1, np.where(begins, 2, 0)), turn, at))
        if at_ends is not None:
            kept, begun, ended = at_ends(index)
            resident += kept - begun
            end = timeline.end.max() if len(timeline.end) else 0
            when = np.concatenate((when, np.array([0, end], dtype=when.dtype)))
            delta = np.concatenate((delta, np.array([begun, -ended], dtype=object)))
            rank = np.concatenate((rank, np.array([[2, 0, -1], [0, 0, 0]])))
        left = sum(delta.tolist())
        if left:
            message = f"{place.name} holds {left} more after each period: {undropped} is not dropped"
            findings.add(None, "capacity", message)
        peaks[place.name] = most = highest(resident, when, rank, delta, period, slack)
        if place.capacity is not None and most > place.capacity:
            unit = "bytes" if sized.units.memory == "B" else "units"
            findings.add(None, "capacity", f"{place.name} would hold {most} of {place.capacity} {unit}")
    return peaks
