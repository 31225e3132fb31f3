"""The verifier's report as a table: verdict, figures and violations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

from remat.messages import counted
from remat.report.text.readable_names import shown_step, sizes_as_limits
from remat.report.text.run_times import recompute_lines
from remat.report.text.summary import peaks, table, times, transfer_waits, waited_text
from remat.units import Units, format_budget, format_size
from remat.verifier import Report

MOST_LINKS = 8
"""Beyond this number of links, the idle time of their channels is left out."""

MOST_SHOWN = 20
"""Number of violations in the table; `report.violations` and the JSON document have all that the verifier reports."""


def verdict(report: Report, *, others: str = "report.violations has them") -> str:
    """Return a report as aligned text; `others` says where the violations are that the text leaves out."""
    subject = report.subject
    with nullcontext() if subject is None else sizes_as_limits(subject.machine):
        return table(verdict_lines(report, others=others))


def verdict_lines(report: Report, *, others: str) -> Iterator[tuple[str, str]]:
    """Yield (label, text) pairs; an empty label continues the one above."""
    units = Units() if report.subject is None else report.subject.units
    count = len(report.violations)
    yield "verdict", "ok" if report.ok else counted(count, "violation")
    for k, violation in enumerate(report.violations[:MOST_SHOWN]):
        yield "violations" if k == 0 else "", str(violation)
    if count > MOST_SHOWN:
        yield "", f"and {count - MOST_SHOWN} more ({others})"
    yield from times(report, units)
    yield from recompute_lines(report, units)
    yield from peaks(report, units, {name: _cause(report, peak.step) for name, peak in report.peaks.items()})
    for k, (name, size) in enumerate(report.arenas.items()):
        yield "arena" if k == 0 else "", f"{name}: {format_budget(size, units, both=True)}"
    moved = [item for item in report.transferred.items() if item[1]]
    for k, (link, size) in enumerate(moved):
        yield "transferred" if k == 0 else "", f"{link}: {format_size(size, units, both=True)}"
    if len(report.busy) > 1 or report.transferred:
        many = len(report.transferred) > MOST_LINKS
        shown = [name for name in (report.spans if many else report.idle) if report.busy[name]]
        moving = transfer_waits(report)
        for k, (resource, idle) in enumerate((name, report.idle[name]) for name in shown):
            told = waited_text(idle, moving.get(resource, 0), report.makespan, units)
            yield "idle time" if k == 0 else "", f"{resource}: {told}"
    yield "steps", f"{len(report.start):,}"
    for k, note in enumerate(report.notes):
        yield "notes" if k == 0 else "", note


def _cause(report: Report, index: int | None) -> str:
    """Name a step; without its graph, by its number."""
    subject = report.subject
    if index is None:
        return "initial residency"
    if subject is None:
        return f"step {index}"
    return f"{shown_step(subject.graph, subject.machine, subject.steps, index, short=True)} (step {index})"
