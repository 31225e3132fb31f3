"""The log of a solve: each better schedule and each better bound, with its time."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence

from remat.documents import write_text
from remat.plugin.context import Progress

HEADER = ("seconds", "makespan", "bound", "gap", "source")


def log_text(history: Sequence[Progress]) -> str:
    """Return the log as comma-separated values; times in the instance's unit, seconds since the beginning."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for event in history:
        gap = "" if event.gap is None else f"{event.gap:.9g}"
        writer.writerow((f"{event.seconds:.3f}", _number(event.makespan), _number(event.bound), gap, event.source))
    return text.getvalue()


def write_log(history: Sequence[Progress], path: str | os.PathLike[str]) -> None:
    """Write the log atomically."""
    write_text(path, [log_text(history)])


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
