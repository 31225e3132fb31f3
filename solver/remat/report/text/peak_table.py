"""The values at a peak as a table: size, producer, time since when each is resident, and its next readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.report.text.columns import aligned, room
from remat.report.text.readable_names import shown_in_module, shown_name
from remat.units import Units, format_budget, format_percent, format_size, format_time

if TYPE_CHECKING:
    from remat.solving.peak import Held, Peak

HEADINGS = ("value", "size", "share", "made by", "since", "waits for")

LARGEST = 10
"""Values that are listed."""

MOST_STEPS = 100_000
"""Steps of a schedule of which these are found; of more, that alone would take seconds."""


def peak_table(peak: Peak, units: Units, *, most: int = LARGEST) -> str:
    """Return the largest values at a peak, one per line, below a line that names the peak."""
    limit = "" if peak.capacity is None else f" of {format_budget(peak.capacity, units)}"
    when = format_time(peak.time, units)
    shown = peak.held[:most]
    counted = f"the largest {len(shown)} of {len(peak.held):,}" if len(shown) < len(peak.held) else "all"
    head = (
        f"peak of {shown_name(peak.memory)}: {format_budget(peak.size, units)}{limit} at {when}, "
        f"{shown_name(peak.task)}; {counted}:"
    )
    rows = [HEADINGS, *(_row(held, peak.size, units) for held in shown)]
    return f"{head}\n{aligned(rows, left=(0, 3, 5), width=room())}"


def _row(held: Held, whole: int, units: Units) -> tuple[str, ...]:
    return (
        shown_in_module(held.name, held.module),
        format_size(held.size, units),
        format_percent(held.size / whole if whole else 0.0),
        shown_name(held.made_by) or "-",
        format_time(held.since, units) if held.made_by else "-",
        waiting(held),
    )


def waiting(held: Held) -> str:
    """Return the tasks that a value waits for: running tasks, the next reader, and the number of later readers."""
    after = [shown_name(name) for name in held.waits_for]
    more = f" and {len(after) - 1} more" if len(after) > 1 else ""
    if held.in_use:
        return f"in use, then {after[0]}{more}" if after else "in use"
    return f"{after[0]}{more}" if after else "the end" if held.made_by else "-"
