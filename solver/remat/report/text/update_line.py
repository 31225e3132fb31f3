"""What the step time and the memory of a plan include of the optimizer's updates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from remat.schedule.steps import StepKind
from remat.units import Number, format_time

if TYPE_CHECKING:
    from remat.solving.questions.plan import Planned

_UPDATE = re.compile(r"U[0-9]+(\.[0-9]+)?")
"""Name of a task that updates the parameters of a layer, with the number of the copy."""


UNCOUNTED = "temporary memory of an optimizer that updates all layers at once (PyTorch: foreach) is not counted"


def update_lines(planned: Planned) -> Iterator[tuple[str, str]]:
    """Say whether the step time includes updates; nothing is said of pipelines without parameters.

    Each device updates one layer after the other at the end of the step, without temporary memory. O(steps).
    """
    if not planned.instance.has_parameters:
        return
    busiest = max(_times(planned).values(), default=0)
    if not busiest:
        yield "updates", "not in the time of a step: no layer has an update_time"
        return
    time = format_time(busiest, planned.result.units)
    text = f"up to {time} of a device, in the time of a step: one layer after the other; {UNCOUNTED}"
    yield "updates", text


def _times(planned: Planned) -> dict[int, Number]:
    """Return the time of all updates of each device."""
    result, found = planned.result, defaultdict[int, Number](int)
    steps, report = result.columns, result.report
    if steps is None or report is None or not any(layer.update_time for layer in planned.instance.layers):
        return {}
    tasks, runs = result.graph.tasks, np.flatnonzero(steps.kind == StepKind.RUN).tolist()
    items, on = steps.item.tolist(), None if steps.on is None else steps.on.to_lists()
    for run in runs:
        if _UPDATE.fullmatch(str(tasks[items[run]])):
            device = on[run][0] if on is not None and on[run] else 0
            found[device] += (report.end[run] - report.start[run]).item()
    return found
