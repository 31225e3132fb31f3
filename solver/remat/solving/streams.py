"""Place and verify modulo (periodic) schedules of stages or of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.instance.kinds import is_pipeline
from remat.schedule.patterns import Pattern

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.graph.taskgraph import TaskGraph
    from remat.instance import Instance
    from remat.schedule.modulo import ModuloSchedule
    from remat.solving.patterns import Stream
    from remat.units import Number
    from remat.verifier import Violation


def stream_of(
    instance: Instance,
    graph: TaskGraph,
    machine: Machine,
    pattern: Pattern | ModuloSchedule,
    *,
    reference_time: Number | None = None,
) -> Stream | tuple[Violation, ...]:
    """Judge a pattern, and run it for as many samples as the instance looks at; or say why it cannot be run at all."""
    if isinstance(pattern, Pattern):
        from remat.solving.patterns import repeat

        assert is_pipeline(instance)
        return repeat(instance, graph, machine, pattern, reference_time=reference_time)
    from remat.solving.samples import repeat_samples

    return repeat_samples(instance, graph, machine, pattern, reference_time=reference_time)
