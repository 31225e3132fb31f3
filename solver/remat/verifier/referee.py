"""Entry point of the verifier: check steps and assemble the report."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from remat.graph.bounds import needed_tasks, no_recompute_time
from remat.graph.machine import Machine
from remat.graph.taskgraph import IntArray, NumberArray, Ragged, TaskGraph
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.collectives import collective_runs, memories_of, resources_of, ring
from remat.verifier.energy import energy_of
from remat.verifier.findings import Findings
from remat.verifier.integer_sums import total
from remat.verifier.report import Peak, Profile, Report
from remat.verifier.sequential import follow_in_turn

RUN = 0


def check(graph: TaskGraph, machine: Machine, steps: Steps, *, reference_time: Number | None = None) -> Report:
    """Verify placed steps and measure their costs.

    Parameters
    ----------
    graph, machine
        The computation and its platform.
    steps : Steps
        With start times.
    reference_time : int or float, optional
        The graph's no-recompute time, if the caller already knows it.

    Returns
    -------
    Report

    Notes
    -----
    All checks are array operations on one sorted list of events: O(E log E) for E events.
    """
    findings = Findings()
    judged = _in_turn(graph, machine, steps) or _in_any_way(graph, machine, steps, findings)
    asked, graph = graph, judged.graph
    ran = np.flatnonzero(judged.run_count)
    run_time = _exact_sum(graph.time[ran], judged.run_count[ran])
    reference = no_recompute_time(asked, needed_tasks(asked)) if reference_time is None else reference_time
    recompute_time = run_time - reference
    if isinstance(recompute_time, float) and abs(recompute_time) <= 1e-12 * run_time:
        recompute_time = 0.0  # what rounding leaves of a difference of equal sums
    start, end = judged.start, judged.end
    return Report(
        violations=findings.sorted(),
        makespan=end.max().item() if len(end) else 0,
        peaks=judged.peaks,
        transferred=_transferred(graph, machine, steps, judged.link, judged.collective),
        busy=judged.busy,
        overlap=_overlap(graph, machine, steps, judged),
        run_time=run_time,
        recompute_time=recompute_time,
        profiles=judged.profiles,
        start=start,
        end=end,
        energy=energy_of(graph, machine, steps, judged.link),
        spans=_spans(machine, start, end, judged.uses),
    )


class _Judged(NamedTuple):
    """Data from which the figures of a report are computed.

    Attributes
    ----------
    graph : TaskGraph
        With its placeable inputs in the memories that the steps name.
    start, end : (steps,) NumberArray
    occupied_from_to : two (steps,) NumberArrays
        As `start` and `end`, except for transfers with a delay: their channel is free before they end.
    link : (steps,) int64
        The link of each copy; -1 for others.
    uses : (steps,), (resources,) arrays
        Each processor and channel that a step occupies.
    collective : (collectives,) int64
        The steps that run one.
    run_count : (tasks,) int64
    """

    graph: TaskGraph
    start: NumberArray
    end: NumberArray
    occupied_from_to: tuple[NumberArray, NumberArray]
    link: IntArray
    uses: tuple[IntArray, IntArray]
    collective: IntArray
    run_count: IntArray
    busy: dict[str, Number]
    peaks: dict[str, Peak]
    profiles: dict[str, Profile]


def _in_turn(graph: TaskGraph, machine: Machine, steps: Steps) -> _Judged | None:
    """Measure sequential steps that break no rule; return None for all others."""
    found = follow_in_turn(graph, machine, steps)
    if found is None:
        return None
    step, used = uses = _occupied(machine, steps, found.link)
    took = found.end - found.start
    busy: dict[str, Number] = {}
    for index, name in enumerate(machine.resources):
        mine = np.sort(step[used == index])
        busy[name] = total(took[mine]) if len(mine) else 0
    return _Judged(
        graph=graph,
        start=found.start,
        end=found.end,
        occupied_from_to=(found.start, found.end),
        link=found.link,
        uses=uses,
        collective=np.zeros(0, dtype=np.int64),
        run_count=found.run_count,
        busy=busy,
        peaks=found.peaks,
        profiles=found.profiles,
    )


def _occupied(machine: Machine, steps: Steps, link: IntArray) -> tuple[IntArray, IntArray]:
    """Return (step, resource) for each processor and channel that a step occupies; all runs use the first processor."""
    runs, copies = np.flatnonzero(steps.kind == RUN), np.flatnonzero(link >= 0)
    held = Ragged.from_lists(machine.held_by_link).gather(link[copies])
    return (
        np.concatenate((runs, copies[held.rows])),
        np.concatenate((np.zeros(len(runs), dtype=np.int64), held.items)),
    )


def _in_any_way(graph: TaskGraph, machine: Machine, steps: Steps, findings: Findings) -> _Judged:
    """Simulate arbitrary steps, and report the rules that they break."""
    from remat.verifier.event_simulation import check_resources, follow
    from remat.verifier.memory import memory_use
    from remat.verifier.timeline import delays
    from remat.verifier.tolerance import check_hidden_time

    followed = follow(graph, machine, steps, findings)
    graph = followed.graph
    valid, link, uses = followed.valid, followed.link, followed.uses
    timeline, residency = followed.timeline, followed.residency
    busy = check_resources(machine, followed.occupying, uses, findings)
    peaks, profiles = memory_use(graph, machine, steps, timeline, residency, valid, findings)
    if not findings:
        delay = delays(machine, link)
        check_hidden_time(graph, machine, steps, timeline, residency, valid, uses, delay=delay, findings=findings)
    return _Judged(
        graph=graph,
        start=timeline.start,
        end=timeline.end,
        occupied_from_to=(followed.occupying.start, followed.occupying.end),
        link=link,
        uses=uses,
        collective=collective_runs(graph, steps, valid),
        run_count=followed.run_count,
        busy=busy,
        peaks=peaks,
        profiles=profiles,
    )


def _spans(
    machine: Machine, start: NumberArray, end: NumberArray, uses: tuple[IntArray, IntArray]
) -> dict[str, Number]:
    """Return the time of each processor from its first start to its last end."""
    step, used = uses
    found: dict[str, Number] = {}
    for index, processor in enumerate(machine.processors):
        mine = step[used == index]
        found[processor.name] = (end[mine].max() - start[mine].min()).item() if len(mine) else 0
    return found


def nothing_run(machine: Machine) -> Report:
    """Return the report of a schedule with unknown steps, without measurements."""
    none = np.zeros(0, dtype=np.int64)
    return Report(
        violations=(),
        makespan=0,
        peaks={memory.name: Peak(0, None) for memory in machine.memories},
        transferred={},
        busy={},
        overlap={},
        run_time=0,
        recompute_time=0,
        profiles={},
        start=none,
        end=none,
    )


def _overlap(graph: TaskGraph, machine: Machine, steps: Steps, judged: _Judged) -> dict[str, Number]:
    """Return, for each channel that is not a processor, its busy time while some processor runs a task.

    The time in which some processor has run is a piecewise linear function of the instant. The overlap of a transfer is
    the difference of its values at the transfer's end and start.
    """
    channels = {ends.channel for ends in machine.links} - machine.processor_index.keys()
    if not channels:
        return {}
    start, end_of = judged.occupied_from_to
    runs = np.flatnonzero(steps.kind == RUN)
    if graph.parts:
        runs = runs[~np.isin(steps.item[runs], list(graph.parts.keys() - graph.busy))]
    runs = runs[np.argsort(start[runs], kind="stable")]
    begin, end = start[runs], end_of[runs]
    # Runs on several processors may overlap each other: each counts only from the end of all earlier ones.
    begin = np.maximum(begin, np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1])))
    end = np.maximum(begin, end)
    done = np.concatenate((begin[:1] * 0, np.cumsum(end - begin)))

    def worked(time: NumberArray) -> NumberArray:
        which = np.searchsorted(begin, time, side="right") - 1
        inside = np.minimum(time, end[which]) - begin[which]
        return np.where(which < 0, 0, done[which] + np.maximum(inside, 0))

    found: dict[str, Number] = {}
    for index, ends in enumerate(machine.links):
        if ends.channel not in channels:
            continue
        copies = np.flatnonzero(judged.link == index)
        time = found.get(ends.channel, 0)
        if len(runs) and len(copies):
            time += total(worked(end_of[copies]) - worked(start[copies]))
        found[ends.channel] = time
    for step in judged.collective.tolist() if len(runs) else ():
        before, after = worked(np.array([start[step], end_of[step]])).tolist()
        for resource in resources_of(graph, machine, steps, step):
            if machine.resources[resource] in found:
                found[machine.resources[resource]] += after - before
    return found


def _exact_sum(times: Any, counts: IntArray) -> Number:
    if times.dtype == np.int64:
        if float((times.astype(np.float64) * counts).sum()) < 2.0**61:  # not by BLAS, whose threads cost more than this
            return int(times @ counts)
        return sum(int(time) * int(count) for time, count in zip(times.tolist(), counts.tolist(), strict=True))
    return float((times * counts).sum())


def _transferred(
    graph: TaskGraph, machine: Machine, steps: Steps, link: IntArray, collective: IntArray
) -> dict[str, int]:
    moved = {}
    for index in range(len(machine.links)):
        mine = link == index
        amount = steps.amount[mine]
        sizes = np.where(amount < 0, graph.size[steps.item[mine]], amount)
        # Python ints: a long schedule may move more than 2^63 bytes in all.
        moved[machine.link_name(index)] = sum(sizes.tolist())
    for step in collective.tolist() if graph.moved else ():
        for ends in ring(machine, memories_of(machine, steps, step)):
            moved[machine.link_name(machine.link_index[ends])] += graph.moved.get(int(steps.item[step]), 0)
    return moved
