"""An infeasible or unknown answer as its file states it, as a table; checking it would need the instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remat.plugin.proposal import ALL_SCHEDULES
from remat.report.text.readable_names import shown_name
from remat.report.text.summary import table
from remat.units import Units, format_budget


def stated_answer(document: Mapping[str, Any], units: Units | None = None) -> str:
    """Return the answer as aligned text; sizes are bare numbers unless the instance's units are known."""
    return table(_lines(document, units))


def _lines(document: Mapping[str, Any], units: Units | None) -> Iterator[tuple[str, str]]:
    def size(figure: object, *, enough: bool = True) -> str:
        if not isinstance(figure, int):
            return "?"
        return f"{figure:,}" if units is None else format_budget(figure, units, both=True, enough=enough)

    about = document.get("instance")
    yield "instance", shown_name(str(about.get("name") or "(unnamed)")) if isinstance(about, dict) else "(unnamed)"
    yield "algorithm", shown_name(str(document.get("algorithm") or "(not stated)"))
    scope = document.get("scope")
    proof = ""
    if scope is not None:
        proved = scope == ALL_SCHEDULES
        proof = ", proved over all schedules" if proved else f", infeasible within {shown_name(str(scope))}"
    yield "status", f"{document.get('status')}{proof}, as the file states; it has no schedule"
    machine = document.get("machine")
    memories = machine.get("memories") if isinstance(machine, dict) else None
    given = [m for m in memories or () if isinstance(m, dict) and m.get("capacity") is not None]
    for k, memory in enumerate(given):
        yield "capacity" if k == 0 else "", f"{shown_name(str(memory.get('name')))}: {size(memory['capacity'])}"
    least = document.get("least_budget")
    if isinstance(least, dict):
        task = f", set by task {shown_name(str(least['task']))}" if least.get("task") is not None else ""
        enough = bool(least.get("sufficient"))
        shown = f"{'' if enough else 'at least '}{size(least.get('size'), enough=enough)}"
        yield "minimum budget", f"{shown_name(str(least.get('memory')))}: {shown}{task}"
    notes = document.get("notes")
    for k, note in enumerate(notes if isinstance(notes, list) else ()):
        yield "notes" if k == 0 else "", str(note)
