"""A sweep as tables: aligned text, markdown, comma-separated values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from remat.messages import printable
from remat.plugin.proposal import ALL_SCHEDULES, Status, Termination
from remat.report.text.columns import WIDEST, aligned, room, text_width
from remat.report.text.comma_separated import to_csv
from remat.report.text.readable_names import shown_name
from remat.report.text.shortfall_lines import OPTION
from remat.report.text.summary import ending
from remat.solving.questions.curves import Curve, Point, Sweep
from remat.units import Units, format_budget, format_time

HEADER = ("budget", "peak", "makespan", "overhead", "recompute", "gap", "status", "")
BEATEN = "beaten"
"""Mark of an answer that is not on its curve."""

PIPELINE_HEADER = tuple("speed-up" if name == "overhead" else name for name in HEADER)
"""For pipelines: their devices work simultaneously, and the model may not fit on one device."""


def sweep_table(sweep: Sweep, *, option: str = OPTION) -> str:
    """Return a sweep as aligned text: one block per curve, one line per point; `option` as for a summary."""
    memory = "memory of each device" if _of_devices(sweep) else f"memory {shown_name(sweep.memory)}"
    blocks = [f"{shown_name(sweep.instance_name) or '(unnamed)'}, {memory}"]
    for curve in sweep.curves:
        rows = _rows(sweep, curve)
        found = [aligned(rows, left=(6, 7), width=room())] if len(rows) > 1 else []
        said = textwrap.wrap(f"{shown_name(curve.algorithm)}: {remark(curve, sweep.units, option)}", text_width(WIDEST))
        blocks.append("\n".join([*said, *found]))
    blocks += _legend(sweep)
    return "\n\n".join(blocks)


def sweep_markdown(sweep: Sweep) -> str:
    """Return a sweep as markdown tables, one per curve."""
    blocks = []
    for curve in sweep.curves:
        blocks.append(f"**{_escaped(curve.algorithm)}** ({_escaped(remark(curve, sweep.units))})")
        rows = _rows(sweep, curve)
        lines = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
        blocks.append("\n".join([lines[0], "|" + "---:|" * 6 + "---|---|", *lines[1:]]))
    return "\n\n".join([*blocks, *_legend(sweep)])


def _legend(sweep: Sweep) -> list[str]:
    """Explain the mark of dominated answers, if there are any."""
    marks = (
        _mark(point, curve, {id(one) for one in curve.points}) for curve in sweep.curves for point in curve.answers
    )
    return [f"{BEATEN}: another row of its table is no slower and needs no more memory"] if BEATEN in marks else []


def sweep_csv(sweep: Sweep) -> str:
    """Return `Sweep.to_records` as comma-separated values, bare numbers."""
    records = sweep.to_records()
    return to_csv(records).rstrip("\n") if records else ""


def _of_devices(sweep: Sweep) -> bool:
    """Whether the budget is that of every device of a pipeline."""
    return sweep.kind == "pipeline"


def _rows(sweep: Sweep, curve: Curve) -> list[tuple[str, ...]]:
    header = PIPELINE_HEADER if _of_devices(sweep) else HEADER
    return [header, *rows_of(curve, sweep.units, devices=_of_devices(sweep))]


def _speed_up(point: Point) -> str:
    """Return the work of all devices without recomputation over the makespan, as `remat solve` prints it."""
    return "-" if point.overhead is None or not point.makespan else f"{1 / (1 + point.overhead):.3g}"


def rows_of(curve: Curve, units: Units, *, devices: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield a row of texts for each answer; dominated schedules are marked. `devices`: speed-ups, not overheads."""
    on_curve = {id(point) for point in curve.points}
    for point in curve.answers:
        yield (
            "none" if point.budget is None else format_budget(point.budget, units, enough=point.solved),
            "-" if point.peak is None else format_budget(point.peak, units),
            "-" if point.makespan is None else format_time(point.makespan, units),
            _speed_up(point) if devices else "-" if point.overhead is None else _percent(point.overhead, "+"),
            "-" if point.recompute_time is None else format_time(point.recompute_time, units),
            "-" if point.gap is None else _percent(point.gap, ""),
            _status(point),
            _mark(point, curve, on_curve),
        )


def proof_of_minimum(scope: str | None) -> str:
    """Return the note after a minimum budget that states what is proved."""
    if scope == ALL_SCHEDULES:
        return f", proved for {ALL_SCHEDULES}"
    if scope is None:
        return ", the least that was found; smaller ones may exist"
    return f", proved for {scope}; others may need less"


def remark(curve: Curve, units: Units, option: str = OPTION) -> str:
    """Describe the curve's end and its knee in one line."""
    options = ", ".join(f"{name}={value}" for name, value in curve.options.items())
    parts = [" with ".join(filter(None, (curve.registered, options)))] if curve.registered else []
    least = curve.least
    if least is None:
        parts.append("no schedule was found")
    else:
        size = format_budget(least.size, units, both=True, enough=least.sufficient)
        if least.sufficient:
            proof = proof_of_minimum(least.proved_within)
            parts.append(f"minimum budget {size}{proof}")
        else:
            whole = least.proved_within in (None, ALL_SCHEDULES)
            within = "" if whole else f"within {least.proved_within}, "
            parts.append(f"no schedule; {within}the budget is at least {size}")
    if curve.knee is not None:
        parts.append(f"knee at {format_budget(curve.knee.peak or 0, units)}")
    if curve.exhaustive:
        parts.append("all breakpoints")
    if curve.termination is not Termination.COMPLETED:
        parts.append(f"incomplete ({ending(curve.termination, curve.default_limit, option)})")
    return "; ".join(parts)


def _mark(point: Point, curve: Curve, on_curve: set[int]) -> str:
    if point is curve.knee:
        return "knee"
    return BEATEN if point.solved and id(point) not in on_curve else ""


def _status(point: Point) -> str:
    text = str(point.status)
    if point.optimal_within and point.optimal_within != ALL_SCHEDULES:
        text += " (optimal in its class)"
    elif point.status is Status.UNKNOWN and point.scope:
        text += " (infeasible in its class)"
    return text if point.termination is Termination.COMPLETED else f"{text} ({point.termination})"


def _percent(share: float, sign: str) -> str:
    value = 100 * share if abs(share) > 1e-9 else 0.0
    return f"{value:{sign if value else ''}.3g} %"


def _escaped(text: str) -> str:
    return printable(text).replace("|", "\\|")
