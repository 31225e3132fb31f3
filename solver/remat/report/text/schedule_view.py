"""Terminal overview of a schedule: memory over time as bars of text, and the residents at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from remat.graph.taskgraph import ACTIVATIONS
from remat.report.text.class_bounds import bounds_shown
from remat.report.text.peak_table import MOST_STEPS, peak_table
from remat.report.text.readable_names import shown_in_module, shown_name, shown_step
from remat.report.text.run_times import overhead_line, rank_lines, recompute_lines
from remat.report.text.summary import decision_lines, energy_lines, table
from remat.report.views.composition import composition_of, labels_of
from remat.report.views.kinds import Kind, by_term
from remat.report.views.residents import Resident, residents_at, sizes_by_term
from remat.report.views.slices import slice_maxima, without_dips
from remat.report.views.traffic import traffic_by_term
from remat.solving.verifying import AS_STATED, Examined
from remat.units import format_budget, format_size, format_time
from remat.verifier import Profile

COLUMNS = 72
"""Time slices of a profile."""

LARGEST = 10
"""Residents that are listed."""

BARS = " ▁▂▃▄▅▆▇█"


def schedule_view(examined: Examined) -> str:
    """Return figures, the profile of each memory in use, and its largest residents at the peak."""
    parts, kinds = [table(_figures(examined))], _kinds(examined)
    peaks = [examined.report.peaks[memory.name].size for memory in examined.machine.memories]
    shown = [index for index, size in enumerate(peaks) if size] or [0]
    parts += ["\n".join(_memory(examined, index, kinds[index])) for index in shown]
    return "\n\n".join(parts)


def to_dict(examined: Examined) -> dict[str, Any]:
    """Return the contents of the view as JSON: figures, and all residents of each memory at its peak."""
    report = examined.report
    memories: dict[str, dict[str, Any]] = {}
    kinds = _kinds(examined)
    for index, memory in enumerate(examined.machine.memories):
        peak = report.peaks[memory.name]
        listed = _residents(examined, index)
        memories[memory.name] = {
            "capacity": memory.capacity,
            "peak": peak.size,
            "peak_step": peak.step,
            "residents": [_entry(resident) for resident in listed],
        }
        if examined.graph.terms:
            terms = {term: sum(own.values()) for term, own in by_term(kinds[index]).items()}
            memories[memory.name]["terms"] = terms if report.ok else sizes_by_term(listed)
    return {
        "ok": report.ok,
        "makespan": report.makespan,
        "recompute_time": report.recompute_time,
        **({} if report.energy is None else {"energy": report.energy}),
        "steps": len(examined.steps),
        "memories": memories,
    } | ({"traffic": _traffic(examined)} if examined.graph.terms else {})


def _kinds(examined: Examined) -> list[dict[Kind, int]]:
    """Return the bytes of each kind at the peak of each memory; empty for schedules that break rules."""
    if not examined.report.ok:
        return [{} for _ in examined.machine.memories]
    return [contents.at_peak for contents in composition_of(examined.as_result()).contents]


def _kind_lines(examined: Examined, kinds: dict[Kind, int], peak: int) -> Iterator[str]:
    """Yield a line for each kind of bytes at a peak; with training, activations are split below their sum."""

    def line(label: str, size: int) -> str:
        return f"  {label:<40} {format_size(size, examined.instance.units.build()):>12} {100 * size / peak:5.1f} %"

    labels = labels_of(examined.as_result())
    if not examined.graph.terms:
        yield from (line(labels[kind], size) for kind, size in kinds.items())
        return
    for term, own in by_term(kinds).items():
        yield line(term, sum(own.values()))
        if term == ACTIVATIONS:
            yield from (line(f"  {labels[kind]}", size) for kind, size in own.items())


def _entry(resident: Resident) -> dict[str, Any]:
    module = {"module": resident.module} if resident.module else {}
    return {"name": resident.name, **module, "size": resident.size}


def _residents(examined: Examined, memory: int) -> list[Resident]:
    step = examined.report.peaks[examined.machine.memories[memory].name].step
    return residents_at(examined.graph, examined.machine, examined.steps, examined.report, memory=memory, step=step)


def _figures(examined: Examined) -> Iterator[tuple[str, str]]:
    report, units = examined.report, examined.instance.units.build()
    yield "instance", shown_name(examined.instance.name) or "(unnamed)"
    if examined.document.get("algorithm"):
        yield "algorithm", shown_name(str(examined.document["algorithm"]))
    yield "verdict", "ok" if report.ok else examined.refusal
    yield from rank_lines(examined.instance)
    if report.ok:
        yield from decision_lines(examined.as_result())
    yield "makespan", format_time(report.makespan, units)
    if report.ok and report.steady is None:
        yield from bounds_shown(examined.as_result(), AS_STATED)
    if report.ok and report.steady is None and examined.orders is None:
        result = examined.as_result()
        yield from [overhead_line(result, report)] if result.overhead is not None else []
    yield from recompute_lines(report, units)
    yield from energy_lines(report)
    yield "steps", f"{len(examined.steps):,}"
    for k, (name, row) in enumerate(_traffic(examined).items()):
        crossing = ", ".join(f"{term} {format_size(size, units)}" for term, size in row.items())
        yield "traffic" if k == 0 else "", f"{shown_name(name)}: {crossing}"
    for k, note in enumerate(report.notes):
        yield "notes" if k == 0 else "", note


def _traffic(examined: Examined) -> dict[str, dict[str, int]]:
    return traffic_by_term(examined.graph, examined.machine, examined.steps)


def _memory(examined: Examined, index: int, kinds: dict[Kind, int]) -> Iterator[str]:
    memory = examined.machine.memories[index]
    name, capacity = memory.name, memory.capacity
    report, units = examined.report, examined.instance.units.build()
    peak = report.peaks[name]
    limit = "" if capacity is None else f" of {format_budget(capacity, units, both=True)}"
    yield f"{shown_name(name)}: peak {format_budget(peak.size, units, both=True)}{limit}"
    top = max(peak.size, capacity if capacity is not None and capacity < 4 * max(1, peak.size) else 0)
    yield from profile_lines(report.profiles[name], float(report.makespan), top)
    yield f"0{format_time(report.makespan, units):>{COLUMNS - 1}}"
    step = "at the start" if peak.step is None else f"at step {peak.step} ({_step_name(examined, peak.step)})"
    listed = _residents(examined, index)
    if not listed:
        return
    if len(kinds) > 1:
        yield f"by kind {step}:"
        yield from _kind_lines(examined, kinds, peak.size)
    if report.ok and len(examined.steps) <= MOST_STEPS and (found := examined.as_result().peak_of(memory.name)):
        yield peak_table(found, units)
        return
    yield f"largest of {len(listed):,} {step}:"
    for resident in listed[:LARGEST]:
        share = 100 * resident.size / peak.size if peak.size else 0.0
        name = shown_in_module(resident.name, resident.module)
        yield f"  {name:<40} {format_size(resident.size, units):>12} {share:5.1f} %"


def _step_name(examined: Examined, index: int) -> str:
    return shown_step(examined.graph, examined.machine, examined.steps, index, short=True)


def profile_lines(profile: Profile, makespan: float, top: int, rows: int = 6) -> list[str]:
    """Draw a memory profile with block characters: `COLUMNS` slices of time, the highest use in each.

    Parameters
    ----------
    profile : Profile
    makespan : float
    top : int
        Bytes at the top of the picture.
    rows : int
        Lines of text; each has eight levels.
    """
    if makespan <= 0 or not len(profile.time):
        level = int(profile.size.max(initial=0))
        highest = np.full(COLUMNS, float(level))
    else:
        time, size = without_dips(profile.time.astype(np.float64), profile.size.astype(np.float64))
        _, highest = slice_maxima(time, size, makespan, COLUMNS)
    levels = np.ceil(highest / max(1, top) * rows * 8).astype(int)
    lines = []
    for row in range(rows - 1, -1, -1):
        inside = np.clip(levels - 8 * row, 0, 8)
        lines.append("".join(BARS[k] for k in inside).rstrip())
    return lines
