"""A schedule as a trace for chrome://tracing or ui.perfetto.dev."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Any

import numpy as np

from remat.documents import write_text
from remat.errors import OptionError
from remat.graph.names import with_module
from remat.report.views.phases import Phase, step_phases
from remat.schedule.steps import StepKind
from remat.solving.result import Result
from remat.verifier import Report
from remat.verifier.collectives import resources_of

MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3, "unit": 1}
"""Microseconds, the unit of the trace format, for each unit of time; one abstract unit is shown as 1 us."""

_PROCESS = 1
_BATCH = 5000


def write_trace(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the trace-event JSON of a schedule atomically, in pieces; compress it if the path ends in ``.gz``.

    Each processor and channel has a track with its runs or copies. Each memory has a counter of its bytes.
    Drops take no time and occupy no resource, so only the counters show them.

    Parameters
    ----------
    result : Result
        With a schedule.
    path : path

    Raises
    ------
    remat.OptionError
        If the result has no schedule.
    remat.RematError
        If the file cannot be written.
    """
    if result.report is None or result.columns is None:
        raise OptionError("there is no schedule to trace")
    write_text(path, _chunks(result, result.report))


def _chunks(result: Result, report: Report) -> Iterator[str]:
    head = {
        "instance": result.instance_name,
        "digest": result.instance_digest,
        "algorithm": result.algorithm,
        "time_unit": f"1 {result.units.time} is shown as {MICROSECONDS[result.units.time]:g} us",
        "makespan": result.makespan,
        "peak_memory": result.peak_memory,
    }
    yield f'{{"displayTimeUnit": "ms",\n"otherData": {json.dumps(head)},\n"traceEvents": [\n'
    events = _events(result, report)
    separator = ""
    while batch := list(islice(events, _BATCH)):
        yield separator + ",\n".join(batch)
        separator = ",\n"
    yield "\n]}\n"


def _events(result: Result, report: Report) -> Iterator[str]:
    scale = MICROSECONDS[result.units.time]
    yield from _metadata(result)
    yield from _served(result, report, scale)
    for name, profile in report.profiles.items():
        label = json.dumps(f"memory {name}")
        unit = "bytes" if result.units.memory == "B" else "units"
        for time, size in zip((profile.time * scale).tolist(), profile.size.tolist(), strict=True):
            yield f'{{"ph": "C", "pid": {_PROCESS}, "name": {label}, "ts": {time!r}, "args": {{"{unit}": {size}}}}}'


def _metadata(result: Result) -> Iterator[str]:
    def named(event: str, thread: int | None, **args: Any) -> str:
        tid = {} if thread is None else {"tid": thread}
        return json.dumps({"ph": "M", "pid": _PROCESS, **tid, "name": event, "args": args})

    yield named("process_name", None, name=f"{result.instance_name or 'instance'} ({result.algorithm})")
    for index, name in enumerate(result.machine.resources):
        processor = name in result.machine.processor_index
        yield named("thread_name", index + 1, name=name if processor else f"channel {name}")
        yield named("thread_sort_index", index + 1, sort_index=index + 1)


def _served(result: Result, report: Report, scale: float) -> Iterator[str]:
    """Yield one complete event for each run or copy, on each resource that it occupies."""
    steps, graph, machine = result.columns, result.graph, result.machine
    assert steps is not None
    modules = repeat("", len(graph.tasks)) if graph.modules is None else graph.modules
    names = [f'"{phase.label}"' for phase in Phase]
    tasks = [json.dumps(with_module(task, module)) for task, module in zip(graph.tasks, modules, strict=True)]
    values = [json.dumps(value) for value in graph.values]
    phases = step_phases(graph, steps, report.start).tolist()
    # The length is the difference of the rounded times, so that neighbours meet without overlaps or gaps.
    starts = (report.start * scale).tolist()
    lengths = (report.end * scale - report.start * scale).tolist()
    drops = steps.drop.to_lists()
    ons = None if steps.on is None else steps.on.to_lists()
    sources, targets, amounts = steps.source.tolist(), steps.target.tolist(), steps.amount.tolist()
    kinds, items = steps.kind.tolist(), steps.item.tolist()
    for index in np.flatnonzero(steps.kind != StepKind.DROP).tolist():
        item = items[index]
        if kinds[index] == StepKind.RUN:
            resources: Iterable[int] = (ons[index] if ons is not None else None) or (0,)
            if item in graph.parts:
                resources = resources_of(graph, machine, steps, index)
            freed = f', "drop": [{", ".join([values[value] for value in drops[index]])}]' if drops[index] else ""
            name, args = tasks[item], f'"step": {index}{freed}'
        else:
            link = machine.link_index[sources[index], targets[index]]
            resources = (machine.resource_of_link[link],)
            size = int(graph.size[item]) if amounts[index] < 0 else amounts[index]
            moved = "true" if drops[index] else "false"
            name = json.dumps(f"{graph.described_value(item)}: {machine.link_name(link)}")
            args = f'"step": {index}, "size": {size}, "drop": {moved}'
        for resource in resources:
            yield (
                f'{{"ph": "X", "pid": {_PROCESS}, "tid": {resource + 1}, "name": {name}, '
                f'"cat": {names[phases[index]]}, "ts": {starts[index]!r}, "dur": {lengths[index]!r}, '
                f'"args": {{{args}}}}}'
            )
