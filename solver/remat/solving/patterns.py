"""Place and verify modulo (periodic) schedules of a pipeline: one period, and a finite part of the stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance.lowering import lower
from remat.placement import place_pattern
from remat.schedule.modulo import ModuloSchedule
from remat.schedule.orders import Orders, Pass, Stage, initial_of, tasks_of
from remat.schedule.patterns import Pattern
from remat.schedule.steps import Steps
from remat.units import Number
from remat.verifier import Report, Steady, Updates, Violation, check, check_beats, check_pattern, versioned

if TYPE_CHECKING:
    from remat.instance import PipelineInstance


@dataclass(frozen=True)
class Stream:
    """A repeated and verified pattern.

    Attributes
    ----------
    pattern : Pattern or ModuloSchedule
        Of stages: with the versions that each keeps.
    graph : TaskGraph
        Of the instance's micro-batches, parameters with the bytes of all their versions; or of its samples.
    orders : Orders or None
        What each device runs for these micro-batches, in order; None for samples.
    steps : Steps
        Likewise, with the times that the pattern says.
    report : Report
        Of these steps; `steady` is that of a period, and what is wrong with either is among the violations.
    """

    pattern: Pattern | ModuloSchedule
    graph: TaskGraph
    orders: Orders | None
    steps: Steps
    report: Report


def repeat(
    instance: PipelineInstance,
    graph: TaskGraph,
    machine: Machine,
    pattern: Pattern,
    *,
    reference_time: Number | None = None,
) -> Stream | tuple[Violation, ...]:
    """Verify a pattern, and repeat it for the micro-batches of the instance; or report why it cannot run."""
    tasks = tasks_of(instance)
    devices = [processor.name for processor in machine.processors]
    refused = check_beats(tasks, pattern, devices)
    if refused:
        return refused
    try:
        steady, wrong = judge(instance, machine, pattern)
        pattern = replace(pattern, versions=steady.versions)
        graph = versioned(graph, pattern, steady.versions, _once(instance))
        steps = place_pattern(graph, machine, tasks, pattern, _initial(graph, machine, pattern.stages))
    except OptionError as error:
        return (Violation(None, "bad-step", str(error)),)
    report = check(graph, machine, steps, reference_time=reference_time)
    # Violations of a period recur in its repetitions: report them once.
    report = replace(report, steady=steady, violations=wrong or report.violations)
    return Stream(pattern, graph, _orders(instance, pattern), steps, report)


def judge(instance: PipelineInstance, machine: Machine, pattern: Pattern) -> tuple[Steady, tuple[Violation, ...]]:
    """Verify one period of a pattern that has every operation once.

    Raises
    ------
    OptionError
        For a transfer without a link, or a device that cannot run a layer.
    """
    single = instance.model_copy(update={"micro_batches": 1})
    graph, tasks = lower(single), tasks_of(single)
    steps = place_pattern(graph, machine, tasks, pattern, _initial(graph, machine, pattern.stages))
    updates = Updates(instance.weights, instance.update_every or 1, _once(instance))
    return check_pattern(graph, machine, tasks, pattern, steps, updates)


def _once(instance: PipelineInstance) -> tuple[int, ...]:
    """Return what lies beside the parameters of each layer once, however many versions of these there are."""
    return tuple(layer.discrepancy_size for layer in instance.each_layer())


def _initial(graph: TaskGraph, machine: Machine, stages: tuple[Stage, ...]) -> tuple[tuple[int, int], ...]:
    return initial_of(graph, machine, Orders(stages, ()))


def _orders(instance: PipelineInstance, pattern: Pattern) -> Orders:
    """Return what each device runs for the micro-batches of an instance, in order."""
    devices = max(stage.device for stage in pattern.stages) + 1
    lists: list[list[tuple[Number, Pass]]] = [[] for _ in range(devices)]
    for beat in pattern.beats:
        if not beat.is_copy:
            begin = pattern.start_of(beat)
            lists[pattern.stages[beat.stage].device] += [
                (begin + m * pattern.period, Pass(beat.phase, beat.stage, m)) for m in range(instance.micro_batches)
            ]
    found = tuple(tuple(operation for _, operation in sorted(listed)) for listed in lists)
    total = len(instance.cluster.types)
    return Orders(pattern.stages, found + ((),) * (total - devices))
