"""Two schedules of one instance compared: figures, and differences in the numbers of runs and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from remat.graph.taskgraph import TaskGraph
from remat.messages import counted
from remat.report.text.columns import aligned, room
from remat.report.text.readable_names import shown_name, shown_task, shown_value
from remat.report.text.run_times import repeated
from remat.schedule.steps import StepKind
from remat.solving.verifying import Examined
from remat.units import Number, format_size, format_time

MOST_LISTED = 12
"""Tasks and values that a line names."""


def differences(one: Examined, other: Examined) -> dict[str, Any]:
    """Return the comparison as JSON: figures of both, and differences in runs and copies (first minus second)."""
    return {
        "figures": [_figures(one), _figures(other)],
        "runs": dict(_difference(_runs(one), _runs(other))),
        "copies": dict(_difference(_copies(one), _copies(other))),
    }


def diff_table(one: Examined, other: Examined, names: tuple[str, str]) -> str:
    """Return the comparison as text, in columns: label, first, second, second minus first."""
    rows = [("", *(shown_name(name) for name in names), "change"), *_rows(one, other)]
    lines = [aligned(rows, left=(0,), width=room())]
    for what, first, second in (("run", _runs(one), _runs(other)), ("copied", _copies(one), _copies(other))):
        found = _difference(first, second)
        more = [(_shown(one.graph, what, name), count) for name, count in found]
        lines += _named(f"{what} oftener by the first", [(name, count) for name, count in more if count > 0])
        lines += _named(f"{what} oftener by the second", [(name, -count) for name, count in more if count < 0])
        if not found and (first or second):
            lines.append(f"{what} equally often by both")
    return "\n".join(lines)


def _figures(examined: Examined) -> dict[str, Any]:
    report = examined.report
    return {
        "algorithm": examined.document.get("algorithm"),
        "ok": report.ok,
        "makespan": report.makespan,
        "recompute_time": report.recompute_time,
        "peak_memory": report.peak_memory,
        "transferred": dict(report.transferred),
        "steps": len(examined.steps),
    }


def _rows(one: Examined, other: Examined) -> Iterator[tuple[str, str, str, str]]:
    units = one.instance.units.build()
    first, second = one.report, other.report

    def times(label: str, a: Number, b: Number) -> tuple[str, str, str, str]:
        return label, format_time(a, units), format_time(b, units), _percent(a, b)

    def sizes(label: str, a: int, b: int) -> tuple[str, str, str, str]:
        return label, format_size(a, units), format_size(b, units), _percent(a, b)

    yield "algorithm", _algorithm(one), _algorithm(other), ""
    yield "verdict", _verdict(one), _verdict(other), ""
    yield times("makespan", first.makespan, second.makespan)
    again, other_again = repeated(first), repeated(second)
    if min(again.recompute_time, other_again.recompute_time) < 0:  # tasks are missing
        known = [own.recompute_time for own in (again, other_again)]
        shown = [format_time(time, units) if time >= 0 else "-" for time in known]
        yield "recompute time", shown[0], shown[1], ""
    else:
        yield times("recompute time", again.recompute_time, other_again.recompute_time)
    if again.exchanges or other_again.exchanges:
        yield times("repeated gathers", again.exchange_time, other_again.exchange_time)
    if first.energy is not None and second.energy is not None:
        yield "energy", f"{first.energy:,.6g}", f"{second.energy:,.6g}", _percent(first.energy, second.energy)
    for name in dict.fromkeys((*first.peak_memory, *second.peak_memory)):
        yield sizes(f"peak in {shown_name(name)}", first.peak_memory.get(name, 0), second.peak_memory.get(name, 0))
    for link in dict.fromkeys((*first.transferred, *second.transferred)):
        yield sizes(shown_name(link), first.transferred.get(link, 0), second.transferred.get(link, 0))
    counts = len(one.steps), len(other.steps)
    yield "steps", f"{counts[0]:,}", f"{counts[1]:,}", _percent(*counts)


def _algorithm(examined: Examined) -> str:
    name, given = examined.document.get("algorithm"), examined.document.get("options")
    options = ", ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, dict) else ""
    return shown_name(f"{name} ({options})" if name and options else str(name or "-"))


def _verdict(examined: Examined) -> str:
    count = len(examined.report.violations)
    return "ok" if examined.report.ok else counted(count, "violation")


def _percent(before: Number, after: Number) -> str:
    if before == after:
        return "="
    return f"{100 * (after - before) / before:+.3g} %" if before else "new"


def _runs(examined: Examined) -> Counter[str]:
    steps = examined.steps
    return Counter(
        examined.graph.tasks[int(task)] for task in steps.item[steps.kind == StepKind.RUN].tolist() if task >= 0
    )


def _copies(examined: Examined) -> Counter[str]:
    steps = examined.steps
    return Counter(
        examined.graph.values[int(value)] for value in steps.item[steps.kind == StepKind.COPY].tolist() if value >= 0
    )


def _difference(first: Counter[str], second: Counter[str]) -> list[tuple[str, int]]:
    return [(n, first[n] - second[n]) for n in dict.fromkeys((*first, *second)) if first[n] != second[n]]


def _shown(graph: TaskGraph, what: str, name: str) -> str:
    return shown_task(graph, graph.task(name)) if what == "run" else shown_value(graph, graph.value(name))


def _named(label: str, found: list[tuple[str, int]]) -> list[str]:
    if not found:
        return []
    shown = ", ".join(f"{name}{f' (+{count})' if count > 1 else ''}" for name, count in found[:MOST_LISTED])
    more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
    return [f"{label}: {shown}{more}"]
