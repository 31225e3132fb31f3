"""The decisions of a schedule as a table, and as comma-separated values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remat.messages import elided, printable
from remat.report.text.comma_separated import to_csv
from remat.units import format_size, format_time

if TYPE_CHECKING:
    from remat.solving.decisions.values import Decision, Decisions
    from remat.solving.result import Result

HEADINGS = ("value", "of", "size", "decision", "runs", "recompute time", "waits in", "read by")
LONGEST = 36


def decisions_table(result: Result) -> str:
    """Return one line for each value, and a line of totals."""
    decisions = result.decisions
    if not len(decisions):
        return "no schedule, and so no decisions"
    rows = [HEADINGS, *(_row(one, result) for one in decisions)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", repr(decisions).removeprefix("Decisions(").removesuffix(")")])


def _row(one: Decision, result: Result) -> tuple[str, ...]:
    units = result.units
    return (
        elided(printable(one.value), LONGEST),
        elided(printable(one.module), LONGEST),
        format_size(one.size, units),
        one.decision,
        str(one.runs),
        format_time(one.recompute_time, units) if one.recompute_time else "",
        printable(", ".join(dict.fromkeys(stay.memory for stay in one.offloaded))),
        elided(printable(", ".join(one.readers)), LONGEST),
    )


def decisions_csv(decisions: Decisions) -> str:
    """Return flat records: times and lists in one cell each."""
    return to_csv([_record(one) for one in decisions])


def _record(one: Decision) -> dict[str, Any]:
    stays = "; ".join(f"{stay.memory} {stay.start} to {stay.end}" for stay in one.offloaded)
    return one.to_dict() | {"offloaded": stays, "readers": " ".join(one.readers)}
