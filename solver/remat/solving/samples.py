"""Place and verify modulo (periodic) schedules of samples: one period, and a finite part of the stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from remat.errors import OptionError
from remat.graph.machine import Machine
from remat.graph.samples import Samples
from remat.graph.taskgraph import IntArray, TaskGraph
from remat.instance import Instance
from remat.instance.lowering import samples_of
from remat.placement import place_samples
from remat.schedule.modulo import ModuloSchedule
from remat.schedule.steps import StepKind, Steps
from remat.solving.patterns import Stream
from remat.units import Number
from remat.verifier import Steady, Violation, check, check_samples


def repeat_samples(
    instance: Instance,
    graph: TaskGraph,
    machine: Machine,
    pattern: ModuloSchedule,
    *,
    reference_time: Number | None = None,
) -> Stream | tuple[Violation, ...]:
    """Verify a pattern, and repeat it for the samples of the instance; or report why it cannot run."""
    seen = samples_of(instance, machine)
    assert seen is not None
    try:
        steady, wrong = judge_samples(machine, pattern)
        steps = place_samples(seen, machine, pattern)
    except OptionError as error:
        return (Violation(None, "bad-step", str(error)),)
    report = check(graph, machine, steps, reference_time=reference_time)
    # Violations of a period recur in its repetitions: report them once.
    report = replace(report, steady=steady, violations=wrong or report.violations)
    return Stream(pattern, graph, None, steps, report)


def judge_samples(machine: Machine, pattern: ModuloSchedule) -> tuple[Steady, tuple[Violation, ...]]:
    """Verify one period of a pattern.

    Raises
    ------
    OptionError
        For a copy without a link, or a processor that cannot run a task.
    """
    samples = Samples(pattern.graph, pattern.samples)
    steps = place_samples(samples, machine, pattern)
    return check_samples(samples.repeated(), machine, pattern.period, steps, _sample_of(samples, steps))


def _sample_of(samples: Samples, steps: Steps) -> IntArray:
    """Return the sample that each step is for; of copies of what all share, the first."""
    of_values = np.zeros(int(samples.first[-1]) + samples.count if len(samples.first) else 0, dtype=np.int64)
    alone = samples.first[~samples.shared]
    for number in range(samples.count):
        of_values[alone + number] = number
    is_run = steps.kind == StepKind.RUN
    found: IntArray = np.where(is_run, steps.item % samples.count, 0)
    found[~is_run] = of_values[steps.item[~is_run]]
    return found
