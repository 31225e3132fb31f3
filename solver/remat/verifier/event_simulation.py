"""Simulate steps event by event: check the form of each, then time, resources and residency.

`remat.verifier.memory` measures the memory that they use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat.graph.machine import Machine
from remat.graph.taskgraph import BoolArray, IntArray, Ragged, TaskGraph
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier.collectives import check_collectives, collective_runs, resources_of
from remat.verifier.findings import Findings
from remat.verifier.initial_placement import settled
from remat.verifier.integer_sums import total
from remat.verifier.residency import Residency, follow_values
from remat.verifier.timeline import Timeline, build_timeline, delays, durations, first_processor

RUN, COPY, DROP = 0, 1, 2


@dataclass(frozen=True)
class Followed:
    """Result of the simulation, without memory use: occupied resources and the residencies of values.

    Attributes
    ----------
    graph : TaskGraph
        With its placeable inputs in the memories that the steps name.
    valid : (steps,) bool
        Which steps are well-formed, and take part in the simulation.
    link : (steps,) int64
        The link of each copy; -1 for others.
    occupying, timeline : Timeline
        A transfer occupies its channel for its duration only; during its delay the channel is free for others.
    uses : (steps,), (resources,) arrays
        Each processor and channel that a step occupies.
    run_count : (tasks,) int64
    residency : Residency
    """

    graph: TaskGraph
    valid: BoolArray
    link: IntArray
    occupying: Timeline
    timeline: Timeline
    uses: tuple[IntArray, IntArray]
    run_count: IntArray
    residency: Residency


def follow(graph: TaskGraph, machine: Machine, steps: Steps, findings: Findings) -> Followed:
    """Simulate placed steps and report the rules that they break, except memory capacities."""
    if steps.start is None:
        raise ValueError("steps without start times are placed before they are verified")
    starts = steps.start
    graph = settled(graph, machine, steps, findings)
    valid, link = _check_shapes(graph, machine, steps, findings)
    duration = durations(graph, machine, steps, valid=valid, link=link)
    delay = delays(machine, link)
    for step in np.flatnonzero(steps.start < 0).tolist():
        findings.add(step, "bad-step", f"starts at {steps.start[step]}, before time 0")
    uses = _occupied(graph, machine, steps, valid, link)

    def simulated(found: Findings, *, apart: bool) -> Followed:
        occupying = build_timeline(starts, duration, apart=apart)
        timeline = build_timeline(starts, duration + delay, apart=apart) if delay.any() else occupying
        run_count = _check_counts(graph, steps, timeline, valid, found)
        residency = follow_values(graph, machine, steps, timeline, valid, found)
        _check_ends(graph, machine, residency, found)
        return Followed(graph, valid, link, occupying, timeline, uses, run_count, residency)

    found = Findings()
    followed = simulated(found, apart=False)
    if found and followed.timeline.merged:
        # Next to a very long step, one instant contains whole steps in listed order; by their times they may be valid.
        others = Findings()
        again = simulated(others, apart=True)
        followed, found = (followed, found) if others else (again, others)
    findings.include(found)
    return followed


def _check_shapes(graph: TaskGraph, machine: Machine, steps: Steps, findings: Findings) -> tuple[BoolArray, IntArray]:
    """Check names and forms; return which steps are well-formed, and the link of each copy (-1: none)."""
    count = len(steps)
    valid = np.ones(count, dtype=bool)
    link = np.full(count, -1, dtype=np.int64)
    kind, item = steps.kind, steps.item

    def refuse(mask: BoolArray, rule: str, message: str) -> None:
        for step in np.flatnonzero(mask & valid).tolist():
            findings.add(step, rule, message)
        valid[mask] = False

    for step, (rule, name) in steps.unknown.items():
        findings.add(step, rule, f"{name!r} is not known")
        valid[step] = False
    values, memories = len(graph.values), len(machine.memories)
    is_run, is_copy, is_drop = kind == RUN, kind == COPY, kind == DROP
    refuse(~(is_run | is_copy | is_drop), "bad-step", "not a run, a copy or a drop")
    refuse(is_run & ((item < 0) | (item >= len(graph.tasks))), "unknown-task", "no such task")
    refuse(is_copy & ((item < 0) | (item >= values)), "unknown-value", "no such value")
    drop_rows = steps.drop.rows
    unknown_drop = np.zeros(count, dtype=bool)
    unknown_drop[drop_rows[(steps.drop.items < 0) | (steps.drop.items >= values)]] = True
    refuse(unknown_drop, "unknown-value", "drops a value that does not exist")
    bad_source = (steps.source < 0) | (steps.source >= memories)
    bad_target = (steps.target < 0) | (steps.target >= memories)
    refuse((is_copy & (bad_source | bad_target)) | (is_drop & bad_source), "unknown-memory", "no such memory")

    copies = np.flatnonzero(is_copy & valid)
    table = np.full((memories, memories), -1, dtype=np.int64)
    for (source, target), index in machine.link_index.items():
        table[source, target] = index
    link[copies] = table[steps.source[copies], steps.target[copies]]
    for step in copies[link[copies] < 0].tolist():
        ends = [machine.memories[m].name for m in (steps.source[step], steps.target[step])]
        findings.add(step, "unknown-link", f"no link from {ends[0]} to {ends[1]}")
        valid[step] = False

    refuse(is_copy & (steps.source == steps.target), "bad-step", "a value cannot be copied to the memory that holds it")
    _check_partial_moves(graph, steps, valid, is_copy, findings)
    _check_drop_lists(graph, steps, valid, findings)
    _check_processors(graph, machine, steps, valid, findings)
    _check_pairs(graph, steps, valid, findings)
    link[~valid] = -1
    return valid, link


def _check_partial_moves(
    graph: TaskGraph, steps: Steps, valid: BoolArray, is_copy: BoolArray, findings: Findings
) -> None:
    partial = np.flatnonzero((steps.amount >= 0) & valid)
    for step in partial.tolist():
        amount, size = int(steps.amount[step]), int(graph.size[steps.item[step]]) if is_copy[step] else 0
        if not is_copy[step] or not 0 < amount < size or steps.drop.counts[step] == 0:
            findings.add(
                step, "bad-bytes", f"bytes: {amount} needs a copy with drop, and more than 0 and less than {size} bytes"
            )
            valid[step] = False


def _check_drop_lists(graph: TaskGraph, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    """Check that a run frees only its inputs and outputs, a copy only its value, and each value once."""
    items, rows = steps.drop.items, steps.drop.rows
    keep = valid[rows]
    items, rows = items[keep], rows[keep]
    if len(items) == 0:
        return
    values = len(graph.values)
    order = np.argsort(rows * values + items, kind="stable")
    same = (np.diff(rows[order]) == 0) & (np.diff(items[order]) == 0)
    bad = dict.fromkeys(rows[order][1:][same].tolist(), "drops a value twice")
    kinds = steps.kind[rows]
    of_copy = kinds == COPY
    for step in rows[of_copy & (items != steps.item[rows])].tolist():
        bad.setdefault(step, "a copy may only drop the value that it copies")
    of_run = kinds == RUN
    tasks = steps.item[rows[of_run]]
    # Membership in the task's reads and writes, by searching (task, value) codes.
    touched = np.sort(
        np.concatenate((graph.reads.rows * values + graph.reads.items, graph.writes.rows * values + graph.writes.items))
    )
    codes = tasks * values + items[of_run]
    place = np.minimum(np.searchsorted(touched, codes), max(len(touched) - 1, 0))
    foreign = touched[place] != codes if len(touched) else np.ones(len(codes), dtype=bool)
    for step in rows[of_run][foreign].tolist():
        bad.setdefault(step, "drops a value that the task does not read or write")
    for step, message in bad.items():
        findings.add(step, "bad-step", message)
        valid[step] = False


def _check_processors(graph: TaskGraph, machine: Machine, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    check_collectives(graph, machine, steps, valid, findings)
    _check_types(graph, machine, steps, valid, findings)
    _check_ties(graph, machine, steps, valid, findings)
    if steps.on is None:
        return
    plain = valid.copy()
    plain[collective_runs(graph, steps, valid)] = False
    several = np.flatnonzero((steps.on.counts > 0) & plain)
    known = len(machine.processors)
    for step in several.tolist():
        on = steps.on[step].tolist()
        if any(not 0 <= processor < known for processor in on):
            findings.add(step, "unknown-processor", "no such processor")
        elif steps.kind[step] != RUN or len(set(on)) < len(on):
            findings.add(step, "bad-step", "on: names processors of a run, each once")
        elif len({machine.processors[processor].memory for processor in on}) > 1:
            findings.add(step, "bad-step", "runs on processors of different memories")
        elif len(on) > (1 if graph.parallel_max is None else graph.parallel_max[steps.item[step]]):
            findings.add(step, "bad-step", f"{len(on)} processors are more than the task can use")
        else:
            continue
        valid[step] = False


def _check_types(graph: TaskGraph, machine: Machine, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    """Check that each processor runs only tasks with a time for its type."""
    if graph.times is None:
        return
    known = np.array([graph.types.index(p.type) if p.type in graph.types else -1 for p in machine.processors])
    runs = np.flatnonzero((steps.kind == RUN) & valid)
    first = first_processor(steps, len(machine.processors))[runs]
    unable = (known[first] < 0) | (graph.times[known[first], steps.item[runs]] < 0)
    for step, processor in zip(runs[unable].tolist(), first[unable].tolist(), strict=True):
        findings.add(step, "bad-step", f"{machine.processors[processor].name} cannot run this task")
        valid[step] = False


def _check_ties(graph: TaskGraph, machine: Machine, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    """Check that tied tasks run on their processors; a step that names none runs on the machine's first."""
    if not graph.tied:
        return
    names = [processor.name for processor in machine.processors]
    for step in np.flatnonzero((steps.kind == RUN) & valid).tolist():
        allowed = graph.tied.get(int(steps.item[step]))
        if allowed is None:
            continue
        named = [] if steps.on is None else steps.on[step].tolist()
        strange = [names[on] for on in named or [0] if 0 <= on < len(names) and names[on] not in allowed]
        if strange:
            findings.add(step, "bad-step", f"{strange[0]} is not a processor that this task is tied to")
            valid[step] = False


def _check_pairs(graph: TaskGraph, steps: Steps, valid: BoolArray, findings: Findings) -> None:
    """Check simultaneous runs: a forward and a backward, on one processor, with the same start."""
    if steps.paired is None:
        return
    assert steps.start is not None
    for step in np.flatnonzero(steps.paired).tolist():
        first = step - 1
        if not valid[step]:
            continue
        runs = first >= 0 and bool(valid[first]) and steps.kind[step] == RUN and steps.kind[first] == RUN
        if not runs or steps.paired[first]:
            problem = "is simultaneous with the previous run, but there is none"
        elif graph.pairs is None or {*graph.pairs.side[steps.item[[first, step]]].tolist()} != {1, 2}:
            problem = "is simultaneous with the previous run, but they are not a forward and a backward"
        elif steps.on is None or steps.on[first].tolist() != steps.on[step].tolist() or len(steps.on[step]) != 1:
            problem = "is simultaneous with the previous run, but they are not on the same single processor"
        elif steps.start[first] != steps.start[step]:
            problem = f"is simultaneous with the previous run, which starts at {steps.start[first]}"
        else:
            continue
        findings.add(step, "bad-step", problem)
        valid[step] = False


def _occupied(
    graph: TaskGraph, machine: Machine, steps: Steps, valid: BoolArray, link: IntArray
) -> tuple[IntArray, IntArray]:
    """Return (step, resource) for each processor and channel that a step occupies."""
    runs = (steps.kind == RUN) & valid
    collective = collective_runs(graph, steps, valid)
    runs[collective] = False
    if steps.paired is not None:
        runs &= ~steps.paired  # the run before it occupies their processor for both
    step = np.flatnonzero(runs)
    used = np.zeros(len(step), dtype=np.int64)
    if steps.on is not None:
        named = (steps.on.counts[step] > 0) & runs[step]
        rows = np.flatnonzero(runs & (steps.on.counts > 0))
        lists = steps.on.gather(rows)
        step = np.concatenate((step[~named], np.repeat(rows, lists.counts)))
        used = np.concatenate((used[~named], lists.items))
    copies = np.flatnonzero(link >= 0)
    if len(copies):
        held = Ragged.from_lists(machine.held_by_link).gather(link[copies])
        step = np.concatenate((step, copies[held.rows]))
        used = np.concatenate((used, held.items))
    if len(collective):
        held = Ragged.from_lists([resources_of(graph, machine, steps, one) for one in collective.tolist()])
        step = np.concatenate((step, collective[held.rows]))
        used = np.concatenate((used, held.items))
    return step, used


def check_resources(
    machine: Machine, timeline: Timeline, uses: tuple[IntArray, IntArray], findings: Findings
) -> dict[str, Number]:
    """Check that each processor and channel serves one step at a time; return the busy time of each."""
    step, used = uses
    busy: dict[str, Number] = {}
    for index, name in enumerate(machine.resources):
        mine = step[used == index]
        mine = mine[np.argsort(timeline.start_position[mine], kind="stable")]
        busy[name] = total(timeline.end[mine] - timeline.start[mine]) if len(mine) else 0
        released = np.maximum.accumulate(timeline.release_position[mine])
        clash = np.flatnonzero(timeline.start_position[mine][1:] < released[:-1])
        for k in clash.tolist():
            other = int(mine[int(np.argmax(timeline.release_position[mine[: k + 1]]))])
            at = int(mine[k + 1])
            findings.add(
                at,
                "resource-busy",
                f"{name} serves step {other} until {timeline.end[other]}, this starts at {timeline.start[at]}",
            )
    return busy


def _check_counts(graph: TaskGraph, steps: Steps, timeline: Timeline, valid: BoolArray, findings: Findings) -> IntArray:
    """Check that required tasks run, `once` tasks exactly once, and non-recomputable tasks at most once."""
    runs = np.flatnonzero((steps.kind == RUN) & valid)
    tasks = steps.item[runs]
    run_count = np.bincount(tasks, minlength=len(graph.tasks))
    for task in np.flatnonzero((graph.required | graph.once) & (run_count == 0)).tolist():
        findings.add(None, "required-missing", f"task {graph.described(task)} never runs")
    single = graph.once | ~graph.recomputable
    for task in np.flatnonzero(single & (run_count > 1)).tolist():
        rule = "once-repeated" if graph.once[task] else "not-recomputable"
        mine = runs[tasks == task]
        again = mine[np.argsort(timeline.start_position[mine])][1:]
        for step in again.tolist():
            findings.add(step, rule, f"task {graph.described(task)} may run only once; {run_count[task]} runs")
    return run_count


def _check_ends(graph: TaskGraph, machine: Machine, residency: Residency, findings: Findings) -> None:
    for place in graph.outputs:
        memory = 0 if place.memory is None else machine.memory_index.get(place.memory, -1)
        if memory < 0 or not residency.complete_at_end(memory * len(graph.values) + place.value):
            name = machine.memories[memory].name if memory >= 0 else place.memory
            findings.add(None, "output-missing", f"{graph.values[place.value]} is not in {name} at the end")
