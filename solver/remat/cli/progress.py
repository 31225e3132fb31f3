"""Progress on standard error: one changing line on a terminal, log lines with -v, otherwise nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from remat.cli.io_session import Session
from remat.messages import printable
from remat.units import Units, format_time

if TYPE_CHECKING:
    from remat.plugin.context import Progress

Listener = Callable[["Progress"], None]


@contextmanager
def progress(session: Session, units: Units, what: str) -> Iterator[Listener | None]:
    """Show the reports of a running solver; yield its listener, or None if progress is not shown.

    Parameters
    ----------
    session : Session
    units : Units
        Units of the reported makespans and bounds.
    what : str
        Description of the work, for example ``solving resnet50``.
    """
    if session.quiet:
        yield None
    elif session.verbose:
        yield _remarks(session, units)
    elif sys.stderr is not None and sys.stderr.isatty():
        # rich honours NO_COLOR and dumb terminals.
        from rich.console import Console
        from rich.markup import escape

        console = Console(stderr=True, highlight=False)
        room = max(20, console.width - 4)  # one line: the spinner takes two columns
        with console.status(escape(printable(what)[:room])) as status:
            yield lambda report: status.update(escape(printable(f"{what}: {describe(report, units)}")[:room]))
    else:
        yield None


def _remarks(session: Session, units: Units) -> Listener:
    """Return a listener that prints a report unless only its time differs from the one before."""
    last = [""]

    def listen(report: Progress) -> None:
        time, _, text = describe(report, units).partition(", ")
        if text != last[0]:
            last[0] = text
            session.remark(", ".join(filter(None, (time, text))))

    return listen


def describe(report: Progress, units: Units) -> str:
    """Return a progress message as one line: the best schedule, with its algorithm, and the algorithm that runs."""
    parts = [format_time(round(report.seconds, 1))]
    if report.makespan is not None:
        whose = f" by {report.author}" if report.author else ""
        parts.append(f"best makespan {format_time(report.makespan, units)}{whose}")
    if report.bound is not None:
        parts.append(f"bound {format_time(report.bound, units)}")
    if report.gap is not None:
        parts.append(f"gap {100 * report.gap:.3g} %")
    if report.source:
        parts.append(f"running {report.source}")
    if report.message:
        parts.append(report.message)
    return ", ".join(parts)
