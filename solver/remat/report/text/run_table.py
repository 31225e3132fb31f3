"""The runs of a schedule as a table: one row each, with the task's module, operator and place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from remat.instance.kinds import is_dag
from remat.messages import printable
from remat.report.text.readable_names import shown_name
from remat.schedule.document import Run, StepView
from remat.solving.verifying import Examined
from remat.units import format_time

HEADER = ("run", "start", "task", "phase", "module", "op", "source", "drops")


def run_table(examined: Examined) -> Iterator[str]:
    """Yield the lines of the table without empty columns.

    Parameters
    ----------
    examined : Examined
        A verified schedule.
    """
    rows = [HEADER, *_rows(examined)]
    filled = [k for k in range(len(HEADER)) if any(row[k] for row in rows[1:])]
    widths = [max(len(row[k]) for row in rows) for k in filled]
    for row in rows:
        yield "  ".join(f"{row[k]:<{width}}" for k, width in zip(filled, widths, strict=True)).rstrip()


def _rows(examined: Examined) -> Iterator[tuple[str, ...]]:
    instance = examined.instance
    units = instance.units.build()
    known = {task.id: task for task in instance.tasks} if is_dag(instance) else {}
    runs: Counter[str] = Counter()
    for step in StepView(examined.steps, examined.graph, examined.machine):
        if not isinstance(step, Run):
            continue
        runs[step.task] += 1
        origin = known[step.task].origin if step.task in known else None
        place = ("", "", "") if origin is None else (origin.module, origin.op, origin.source)
        yield (
            str(runs[step.task]),
            format_time(step.start or 0, units),
            shown_name(step.task),
            known[step.task].phase if step.task in known else "",
            *(printable(text) for text in place),
            " ".join(shown_name(value) for value in step.drop),
        )
