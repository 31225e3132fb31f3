"""Lines on the time of a schedule: recomputation, repeated exchanges, overhead, and what limits the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from remat.graph.taskgraph import GATHERED, BoolArray, IntArray
from remat.instance.kinds import is_pipeline
from remat.messages import counted
from remat.report.text.overheads import percent
from remat.report.text.readable_names import shown_name
from remat.report.views.phases import Phase, phases_of_tasks, step_phases
from remat.schedule.steps import StepKind, Steps
from remat.solving.decisions.phrases import enumerated
from remat.solving.reference_words import WITHOUT_RECOMPUTATION, reference_words
from remat.solving.result import Result
from remat.units import Number, Units, format_time
from remat.verifier import Report

if TYPE_CHECKING:
    from remat.instance import Instance

NEARLY_ALL = 0.8
"""A resource that is busy for a larger share of the makespan limits the step."""

ROUNDING = 1e-12
"""Differences up to this share of the run time come of rounding."""

MOST_NAMED = 3
"""Number of processors that a line names."""


class Repeated(NamedTuple):
    """Time of runs beyond those that every schedule needs.

    Attributes
    ----------
    recompute_time : int or float
        Of tasks on processors.
    exchange_time : int or float
        Of exchanges between ranks.
    exchanges : int
        Number of repeated exchanges.
    """

    recompute_time: Number
    exchange_time: Number
    exchanges: int


def rank_lines(instance: Instance | None) -> Iterator[tuple[str, str]]:
    """Say that figures are those of one rank if several equal ranks train; pipelines list their devices instead."""
    if (ranks := rank_count(instance)) > 1:
        yield "ranks", f"{ranks:,}, each with its own part of the batch; times and bytes are those of one rank"


def rank_count(instance: Instance | None) -> int:
    """Return the number of equal ranks of which an instance describes one."""
    return 1 if instance is None or is_pipeline(instance) else instance.ranks


def repeated(report: Report) -> Repeated:
    """Divide the recompute time of a report into that of processors and that of exchanges between ranks.

    The steps of a schedule that breaks rules may name no task: its time is not divided.
    """
    subject = report.subject
    if subject is None or not subject.graph.parts or not report.ok:
        return Repeated(report.recompute_time, 0, 0)
    graph, steps = subject.graph, subject.steps
    runs = steps.item[steps.kind == StepKind.RUN]
    often = np.bincount(runs[~graph.on_processors[runs]], minlength=len(graph.tasks))
    beyond = np.maximum(often - 1, 0)
    time = (graph.time * beyond).sum().item()
    rest = report.recompute_time - time
    if isinstance(rest, float) and abs(rest) <= ROUNDING * report.run_time:
        rest = 0.0
    return Repeated(rest, time, int(beyond.sum()))


def recompute_lines(report: Report, units: Units) -> Iterator[tuple[str, str]]:
    """Yield the recompute time with its share of the run time of the processors that recompute, and repeated gathers.

    The share refers to runs on these processors alone: other processors, which update parameters, do not count.
    """
    found = repeated(report)
    if found.recompute_time < 0:
        yield "recompute time", "unknown, because tasks are missing"
        return
    yield "recompute time", format_time(found.recompute_time, units) + _share_of_runs(report, found.recompute_time)
    if found.exchanges:
        assert report.subject is not None
        text = f"{format_time(found.exchange_time, units)}, {found.exchanges:,} of them"
        if GATHERED in report.subject.graph.terms.values():
            yield "repeated gathers", text
        else:
            yield "repeated exchanges", text


def _share_of_runs(report: Report, time: Number) -> str:
    """Return the share of the run time of the processors that recompute, and name them if there are others."""
    subject = report.subject
    if subject is None or not report.run_time or not report.ok:
        return ""
    if len(subject.machine.processors) == 1 and not subject.graph.parts:
        return f", {percent(time / report.run_time, signed=False)} of the time of all runs"
    if not time:
        return ""
    graph, machine, steps = subject.graph, subject.machine, subject.steps
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    runs = runs[graph.on_processors[steps.item[runs]]]
    again = step_phases(graph, steps, report.start)[runs] == Phase.RECOMPUTATION
    used = _processors_of(steps, runs, len(machine.processors))
    recomputing = used[again].any(axis=0)
    own = runs[used[:, recomputing].any(axis=1)]
    whole = (report.end - report.start)[own].sum().item()
    if not whole:
        return ""
    names = [shown_name(machine.processors[index].name) for index in np.flatnonzero(recomputing).tolist()]
    listed = enumerated(names) if len(names) <= MOST_NAMED else f"the {counted(len(names), 'processor')} that recompute"
    return f", {percent(time / whole, signed=False)} of the run time of {listed}"


def _processors_of(steps: Steps, runs: IntArray, count: int) -> BoolArray:
    """Return the processors, as (runs, processors) bool, on which each of the runs is; by default the first one."""
    used = np.zeros((len(runs), count), dtype=bool)
    if steps.on is not None:
        on = steps.on.gather(runs)
        used[on.rows, on.items] = True
    used[~used.any(axis=1), 0] = True
    return used


def overhead_line(result: Result, report: Report) -> tuple[str, str]:
    """Compare the makespan with a schedule without recomputation; with several processors, report any speed-up.

    Processors that only update parameters help another one, and give no speed-up.
    """
    assert result.overhead is not None
    main = main_processors(result, report)
    used = sum(1 for processor in result.machine.processors if report.busy.get(processor.name))
    if len(main) > 1 and result.overhead < 0 and report.makespan:
        speed_up = float(result.reference_time) / float(report.makespan)
        reference = format_time(result.reference_time, result.units)
        return "speed-up", f"{speed_up:.2f} on {used} processors, over {reference} on one {WITHOUT_RECOMPUTATION}"
    alone = f"on {shown_name(main[0])} alone " if used > len(main) == 1 else ""
    return "overhead", f"{percent(result.overhead)} over {reference_words(result, alone)}"


def main_processors(result: Result, report: Report) -> list[str]:
    """Return the names of the processors that run tasks other than updates of parameters."""
    steps, machine = result.columns, result.machine
    busy = [processor.name for processor in machine.processors if report.busy.get(processor.name)]
    if steps is None or len(busy) < 2:
        return busy
    runs = np.flatnonzero(steps.kind == StepKind.RUN)
    other = (phases_of_tasks(result.graph) != Phase.UPDATE) & result.graph.on_processors
    used = _processors_of(steps, runs[other[steps.item[runs]]], len(machine.processors))
    return [name for name in busy if used[:, machine.processor_index[name]].any()]


def limiting_lines(result: Result, report: Report) -> Iterator[tuple[str, str]]:
    """Yield the links, and the processors that only update parameters, that are busy for most of the step."""
    if result.orders is not None or report.steady is not None or not report.makespan:
        return
    main = main_processors(result, report)
    links = {link.channel for link in result.machine.links} - result.machine.processor_index.keys()
    others = links | ({processor.name for processor in result.machine.processors} - {*main} if main else set())
    full = [name for name, time in report.busy.items() if name in others and time > NEARLY_ALL * report.makespan]
    for name in full[:MOST_NAMED]:
        busy, whole = (format_time(time, result.units) for time in (report.busy[name], report.makespan))
        share = percent(report.busy[name] / report.makespan, signed=False)
        yield "limited by", f"{shown_name(name)}, which is busy for {busy} of {whole} ({share})"


def speed_up_words(result: Result, report: Report) -> str:
    """Return the speed-up of a pipeline over one device, without recomputation; empty where it is not defined."""
    together = result.orders is not None and result.orders.largest_group > 1
    if not report.makespan or together:  # the run time of a group is that of its first device
        return ""
    share = (report.run_time - (report.recompute_time or 0)) / report.makespan
    return f"{share:.3g} on {counted(len(report.spans), 'device')}"
