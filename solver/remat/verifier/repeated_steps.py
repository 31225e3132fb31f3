"""Check an endless sequence of training steps without unrolling it.

Every training step executes the same schedule, one period after its predecessor. An initial value either comes from an
earlier training step (`TaskGraph.renewals`) or appears at the step's own time 0, as input data do. Final values that no
later step receives are removed at the end of the step.
"""

from __future__ import annotations

import math

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.event_simulation import Followed, follow
from remat.verifier.findings import Findings
from remat.verifier.modulo import check_overlaps, peaks_of
from remat.verifier.report import Steady, Violation
from remat.verifier.residency import FREE, PART_READ, PART_WRITE_END, READ, WRITE_END
from remat.verifier.timeline import TOLERANCE

RUN = 0


def check_cycle(
    graph: TaskGraph, machine: Machine, steps: Steps, period: Number
) -> tuple[Steady, tuple[Violation, ...]]:
    """Check and measure a training step that repeats once per period.

    Parameters
    ----------
    graph : TaskGraph
        The graph of one step of training, with its `renewals`.
    machine : Machine
    steps : Steps
        The steps of one step of training, with start times; a complete schedule that `check` has accepted.
    period : int or float

    Returns
    -------
    Steady, tuple of Violation
        The violations name no step: rules `period-overlap`, `period-precedence` (a value is used before an earlier
        step of training hands it on) and `capacity`.

    Notes
    -----
    O(n log n) for n steps. A value that is handed on to the training step `lag` steps later, and used up there, lives
    from its production to its removal lag periods later. Memory holds as many copies as if `lag` of
    it were always resident.
    """
    findings = Findings()
    followed = follow(graph, machine, steps, Findings())
    busy = check_overlaps(machine, period, followed, findings)
    judge = _Cycle(graph, machine, steps, period, followed, findings)
    versions = judge.check_renewals()
    end = followed.timeline.end
    length = (end.max() - followed.timeline.start.min()).item() if len(end) else 0
    stale = max((renewal.lag for renewal in graph.renewals), default=1) - 1
    steady = Steady(
        period=period,
        peaks=peaks_of(machine, period, followed, steps, findings, sized=followed.graph, at_ends=judge.at_ends),
        busy=busy,
        processors=tuple(processor.name for processor in machine.processors if busy[processor.name]),
        in_flight=(judge.copies(length),),
        versions=(versions,),
        staleness=(stale,),
        what="step",
    )
    return steady, findings.sorted()


class _Cycle:
    def __init__(
        self,
        graph: TaskGraph,
        machine: Machine,
        steps: Steps,
        period: Number,
        followed: Followed,
        findings: Findings,
    ) -> None:
        self.graph, self.machine, self.steps, self.period = followed.graph, machine, steps, period
        self.followed, self.findings = followed, findings
        self.lag = {renewal.old: renewal.lag for renewal in graph.renewals}
        self.successor = {renewal.old: renewal.new for renewal in graph.renewals}
        exact = isinstance(period, int) and followed.timeline.start.dtype == np.int64
        self.slack: Number = 0 if exact else TOLERANCE * float(period)

    def copies(self, length: Number) -> int:
        """Return the number of simultaneous copies of a value with a given lifetime."""
        if isinstance(length, int) and isinstance(self.period, int):
            return max(1, -(-length // self.period))
        return max(1, math.ceil(length / self.period - TOLERANCE))

    def check_renewals(self) -> int:
        """Check that handed-on values arrive in time; return the maximum number of copies of each in its memory."""
        residency, timeline = self.followed.residency, self.followed.timeline
        values, most = len(self.graph.values), 1
        step = np.asarray(residency.step, dtype=np.int64)
        uses = np.isin(residency.operation, (READ, PART_READ, FREE)) & (step >= 0)
        made = np.isin(residency.operation, (WRITE_END, PART_WRITE_END)) & (step >= 0)
        for place in self.graph.inputs:
            if place.value not in self.successor:
                continue
            memory = 0 if place.memory is None else self.machine.memory_index[place.memory]
            used = step[uses & (residency.key == memory * values + place.value)]
            new = step[made & (residency.key == memory * values + self.successor[place.value])]
            if not len(used) or not len(new):
                continue
            late = self.lag[place.value] * self.period
            arrives, begins = timeline.end[new].max().item(), timeline.start[used].min().item()
            if arrives - late > begins + self.slack:
                name, where = self.graph.values[place.value], self.machine.memories[memory].name
                message = f"{name} is used in {where} at {begins}, and an earlier step hands it on at {arrives - late}"
                self.findings.add(None, "period-precedence", message)
            there = timeline.end[used].max().item() + late - timeline.start[new].min().item()
            most = max(most, self.copies(there))
        return most

    def at_ends(self, memory: int) -> tuple[int, int, int]:
        """Return bytes of a memory: further copies of handed-on values, initial values and final values of a step."""
        graph, name = self.graph, self.machine.memories[memory].name
        first = self.machine.memories[0].name
        kept = begun = ended = 0
        for place in graph.inputs:
            if (place.memory or first) == name:
                size = int(graph.size[place.value])
                if place.value in self.lag:
                    kept += (self.lag[place.value] - 1) * size
                else:
                    begun += size
        handed_on = set(self.successor.values())
        for place in graph.outputs:
            key = memory * len(graph.values) + place.value
            if (place.memory or first) == name and place.value not in handed_on:
                ended += int(graph.size[place.value]) * self.followed.residency.complete_at_end(key)
        return kept, begun, ended
