"""Place and verify modulo (periodic) schedules: one period, and a finite part of the stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from remat.errors import MissingLinkError, OptionError
from remat.graph.machine import Machine
from remat.graph.samples import Samples
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.instance import Instance
from remat.instance.kinds import is_pipeline
from remat.instance.lowering import repeated_of
from remat.placement import modulo_of, place_modulo
from remat.schedule.modulo import ModuloSchedule
from remat.schedule.orders import Orders, Pass, tasks_of
from remat.schedule.patterns import Pattern, PeriodicSchedule
from remat.schedule.steps import StepKind, Steps
from remat.units import Number
from remat.verifier import Report, Steady, Training, Violation, check, check_beats, check_modulo, versioned


@dataclass(frozen=True)
class Stream:
    """A repeated and verified modulo schedule.

    Attributes
    ----------
    pattern : Pattern or ModuloSchedule
        A pattern of stages with their kept versions, or of samples.
    graph : TaskGraph
        The graph of the instance's micro-batches, parameters with the bytes of all their versions; or of its samples.
    orders : Orders or None
        The operations of each device for these micro-batches, in order; None for samples.
    steps : Steps
        The same with the times of the pattern.
    report : Report
        The report of these steps, with `steady` for a period and the violations of both.
    """

    pattern: PeriodicSchedule
    graph: TaskGraph
    orders: Orders | None
    steps: Steps
    report: Report


def stream_of(
    instance: Instance,
    graph: TaskGraph,
    machine: Machine,
    pattern: PeriodicSchedule,
    *,
    reference_time: Number | None = None,
) -> Stream | tuple[Violation, ...]:
    """Verify a modulo schedule, and repeat it for the samples of the instance; or report why it cannot run."""
    samples = repeated_of(instance, machine)
    training = _training(instance, pattern) if isinstance(pattern, Pattern) else None
    if training is not None:
        devices = [processor.name for processor in machine.processors]
        refused = check_beats(training.tasks, training.pattern, devices)
        if refused:
            return refused
    orders = None
    try:
        schedule = _lowered(samples.graph, machine, pattern, training)
        steady, wrong = judge(machine, schedule, training)
        steps = place_modulo(samples, machine, schedule)
    except MissingLinkError as error:
        return (Violation(None, "unknown-link", error.message),)
    except OptionError as error:
        return (Violation(None, "bad-step", str(error)),)
    if training is not None:
        pattern = replace(training.pattern, versions=steady.versions)
        graph = versioned(graph, pattern, steady.versions, training.once)
        orders = _orders(pattern, len(machine.processors), samples.count)
    report = check(graph, machine, steps, reference_time=reference_time)
    # Violations of a period recur in its repetitions: report them once.
    report = replace(report, steady=steady, violations=wrong or report.violations)
    return Stream(pattern, graph, orders, steps, report)


def judge(
    machine: Machine, schedule: ModuloSchedule, training: Training | None = None
) -> tuple[Steady, tuple[Violation, ...]]:
    """Verify one period of a modulo schedule.

    Raises
    ------
    OptionError
        For a copy without a link, or a processor that cannot run a task.
    """
    samples = Samples(schedule.graph, schedule.samples)
    steps = place_modulo(samples, machine, schedule)
    graph = samples.repeated() if training is None else schedule.graph
    return check_modulo(graph, machine, schedule, steps, _sample_of(samples, steps), training)


def _sample_of(samples: Samples, steps: Steps) -> IntArray:
    """Return the sample of each step; a copy of a shared value counts for the first sample."""
    of_values = np.zeros(int(samples.first[-1]) + samples.count if len(samples.first) else 0, dtype=np.int64)
    alone = samples.first[~samples.shared]
    for number in range(samples.count):
        of_values[alone + number] = number
    is_run = steps.kind == StepKind.RUN
    found: IntArray = np.where(is_run, steps.item % samples.count, 0)
    found[~is_run] = of_values[steps.item[~is_run]]
    return found


def _lowered(
    graph: TaskGraph, machine: Machine, pattern: PeriodicSchedule, training: Training | None
) -> ModuloSchedule:
    if isinstance(pattern, ModuloSchedule):
        return pattern
    assert training is not None
    return modulo_of(graph, machine, training.tasks, pattern)


def _training(instance: Instance, pattern: Pattern) -> Training:
    """Return how the stages of a pattern change their parameters."""
    assert is_pipeline(instance)
    tasks = replace(tasks_of(instance), batches=1)
    once = tuple(layer.discrepancy_size for layer in instance.each_layer())
    return Training(tasks, pattern, instance.weights, instance.update_every or 1, once)


def _orders(pattern: Pattern, devices: int, batches: int) -> Orders:
    """Return the operations of each device for the first micro-batches, in order."""
    lists: list[list[tuple[Number, Pass]]] = [[] for _ in range(devices)]
    for beat in pattern.beats:
        if not beat.is_copy:
            begin = pattern.start_of(beat)
            lists[pattern.stages[beat.stage].device] += [
                (begin + m * pattern.period, Pass(beat.phase, beat.stage, m)) for m in range(batches)
            ]
    return Orders(pattern.stages, tuple(tuple(operation for _, operation in sorted(listed)) for listed in lists))
