"""The decisions of a schedule as a table, and as comma-separated values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from remat.messages import article, elided, printable
from remat.report.text.comma_separated import to_csv
from remat.solving.decisions.phrases import ranges
from remat.solving.decisions.values import DECISIONS
from remat.units import Number, Units, format_size, format_time

if TYPE_CHECKING:
    from remat.solving.decisions.stages import StageDecision, StageDecisions
    from remat.solving.decisions.values import Decision, Decisions
    from remat.solving.result import Result

HEADINGS = (
    *("value", "of", "size", "decision", "runs", "held", "recompute time", "recomputed at"),
    *("transfer time", "moved out", "waits in", "moved back", "read by"),
)
STAGE_HEADINGS = (
    *("chain", "stage", "micro-batch", "layers", "of", "device", "decision", "runs", "start", "end"),
    *("recompute time", "recomputed at", "transfer time", "offloaded"),
    *("parameters", "states", "updated on"),
)
LONGEST = 36


def decisions_table(result: Result) -> str:
    """Return one line for each value, and a line of totals. Columns without an entry are left out.

    Of values that wait elsewhere only as inputs or outputs, the decision names this memory: nothing offloads them.
    """
    from remat.solving.decisions.groups import homes_of

    decisions, homes = result.decisions, homes_of(result)
    if not len(decisions):
        return "no schedule, and so no decisions"
    shown = {one.value: f"home in {homes[one.value]}" if one.value in homes else one.decision for one in decisions}
    counts = Counter(shown.values())
    order = [*(name for name in DECISIONS if name in counts), *(name for name in counts if name not in DECISIONS)]
    totals = ", ".join(f"{printable(name)}: {counts[name]:,}" for name in order)
    return _table(HEADINGS, [_row(one, shown[one.value], result) for one in decisions], totals)


def stages_table(result: Result) -> str:
    """Return one line for each stage of a chain, or each stage and micro-batch of a pipeline, and a line of totals.

    Numbers are those in the names of tasks and operations: chains, stages of chains and layers count from 1, stages of
    a pipeline and micro-batches from 0. Columns without an entry are left out. Those for parameters and states name
    the memories that hold them before the update, one after the other.
    """
    decisions = result.stage_decisions
    if result.columns is not None and not len(decisions):
        kind = "this instance" if result.instance is None else article(result.instance.kind)
        return f"{kind} has no stages: list its values"
    if not len(decisions):
        return "no schedule, and so no decisions"
    rows = [_stage_row(one, result) for one in decisions]
    return _table(STAGE_HEADINGS, rows, repr(decisions).partition("(")[2].removesuffix(")"))


def _table(headings: Sequence[str], listed: Sequence[Sequence[str]], totals: str) -> str:
    used = [number for number in range(len(headings)) if any(row[number] for row in listed)]
    rows = [[row[number] for number in used] for row in (headings, *listed)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", totals])


def _stage_row(one: StageDecision, result: Result) -> tuple[str, ...]:
    if one.micro_batch is None:
        place = "" if one.chain is None else str(one.chain + 1), str(one.stage + 1), "", ""
    else:
        place = "", str(one.stage), str(one.micro_batch), ranges([layer + 1 for layer in one.layers])
    return (
        *place,
        elided(printable(one.name), LONGEST),
        printable(one.device),
        one.decision,
        str(one.runs),
        format_time(one.start, result.units),
        format_time(one.end, result.units),
        format_time(one.recompute_time, result.units) if one.recompute_time else "",
        _periods([("", run.start, run.end) for run in one.recomputations], result.units),
        format_time(one.transfer_time, result.units) if one.transfer_time else "",
        elided(printable(", ".join(one.offloaded)), LONGEST),
        *(elided(printable(", ".join(memories)), LONGEST) for memories in (one.parameters, one.states)),
        printable(one.updated_on),
    )


def _row(one: Decision, shown: str, result: Result) -> tuple[str, ...]:
    units = result.units
    away = {stay.memory for stay in one.offloaded}
    back = [move for move in one.transfers if move.source in away and move.target not in away]
    out = [move for move in one.transfers if move not in back]
    return (
        elided(printable(one.value), LONGEST),
        elided(printable(one.module), LONGEST),
        format_size(one.size, units),
        printable(shown),
        str(one.runs),
        _periods([("", stay.start, stay.end) for stay in one.held], units),
        format_time(one.recompute_time, units) if one.recompute_time else "",
        _periods([("", run.start, run.end) for run in one.recomputations], units),
        format_time(one.transfer_time, units) if one.transfer_time else "",
        _periods([("", move.start, move.end) for move in out], units),
        _periods([(stay.memory, stay.start, stay.end) for stay in one.offloaded], units),
        _periods([("", move.start, move.end) for move in back], units),
        elided(printable(", ".join(one.readers)), LONGEST),
    )


def _periods(listed: Sequence[tuple[str, Number, Number]], units: Units) -> str:
    """Return the first of some periods, with the memory, if any, and how many follow."""
    if not listed:
        return ""
    where, start, end = listed[0]
    more = f" and {len(listed) - 1:,} more" if len(listed) > 1 else ""
    return f"{printable(where)} {format_time(start, units)} to {format_time(end, units)}{more}".strip()


def decisions_csv(decisions: Decisions | StageDecisions) -> str:
    """Return flat records: times and lists in one cell each."""
    return to_csv([{key: _cell(value) for key, value in row.items()} for row in decisions.to_dicts()])


def _cell(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], dict):
        return "; ".join(_told(period) for period in value)
    return " ".join(map(str, value))


def _told(period: dict[str, Any]) -> str:
    """Return a run, a stay or a transfer as text: where, and from when to when."""
    where = (
        f"{period['source']}->{period['target']}" if "source" in period else period.get("memory", period.get("task"))
    )
    return f"{where} {period['start']} to {period['end']}"
