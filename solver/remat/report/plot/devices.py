"""A pipeline as drawn in the literature: one row per device, coloured operations with micro-batches; memory below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from remat.graph.taskgraph import IntArray
from remat.messages import counted
from remat.report.palette import LIGHT, Role
from remat.report.plot.style import (
    LEFT,
    RIGHT,
    WIDTH,
    TimeScale,
    add_legend,
    add_titles,
    count_ticks,
    peak_text,
    title_inches,
)
from remat.report.text.readable_names import short_name, shown_name
from remat.report.views.forward_backward import Passes, passes_of
from remat.report.views.phases import Phase as Step
from remat.report.views.phases import phase_labels
from remat.report.views.slices import slice_maxima, without_dips
from remat.schedule.orders import Phase
from remat.schedule.steps import StepKind
from remat.solving.result import Result
from remat.units import size_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    Phase.F: (Step.FORWARD, LIGHT[Role.FORWARD]),
    Phase.B: (Step.BACKWARD, LIGHT[Role.BACKWARD]),
    Phase.BW: (None, "#1B7F63"),
    Phase.W: (Step.WEIGHTS, LIGHT[Role.WEIGHTS]),
    Phase.R: (Step.RECOMPUTATION, LIGHT[Role.AGAIN]),
}
"""Name and colour of each operation (None: both gradients at once)."""
_IDLE, _STEADY = "#EEF1F4", "#8A8F98"
_OFFSET, _HEIGHT = np.array([-0.04, -0.21, 0.13]), np.array([0.68, 0.34, 0.34])
"""Position and height of an operation in its row: alone, first of a pair, or second of a pair."""
_SENT = 0.37
"""Position of a device's sends in its row."""
MOST_LABELS = 3000
"""Maximum number of operations that show their micro-batch, if it fits."""
_DIGITS = {6.5: 160, 5.0: 212, 4.2: 256}
MOST_BARS = 20_000
MOST_DEVICES = 32
SLICES = 1500


def devices(result: Result) -> Figure:
    """Draw the operations of each device, and below them each memory with its limit.

    The steady state, in which every device has backwards and forwards, has a bracket above.
    """
    from matplotlib.figure import Figure

    assert result.report is not None
    found = passes_of(result)
    count = min(len(result.machine.processors), MOST_DEVICES)
    memories = _memories(result, count)
    strip = min(0.75, max(0.34, 5.0 / len(memories)))
    rows, below, gap, top, bottom = 0.4 + 0.34 * count, strip * len(memories), 0.62, title_inches(result) + 0.1, 0.85
    total = rows + below + gap + top + bottom
    figure = Figure(figsize=(WIDTH, total), facecolor="white")
    upper = figure.add_axes((LEFT, 1 - (top + rows) / total, RIGHT - LEFT, rows / total))
    span = float(result.report.makespan) or 1.0
    scale = TimeScale.of(span, result.units)
    _draw_rows(upper, result, found, scale.factor, count)
    strips = []
    for place, name in enumerate(memories):
        y = bottom + strip * (len(memories) - 1 - place)
        strips.append(figure.add_axes((LEFT, y / total, RIGHT - LEFT, 0.86 * strip / total), sharex=upper))
        _draw_memory(strips[-1], result, name, (span, scale.factor), last=name == memories[-1])
    if found.steady is not None:
        _bracket(upper, found.steady, scale.factor)
    upper.set_xlim(0, span / scale.factor)
    strips[-1].set_xlabel(f"time ({scale.unit})")
    count_ticks(strips[-1].xaxis)
    _, unit = size_scale(_largest(result, memories), result.units)
    limited = any(memory.capacity is not None for memory in result.machine.memories if memory.name in memories)
    label = f"memory ({unit})" + (", dashed: its limit" if limited else "")
    figure.text(LEFT, (bottom + below + 0.04) / total, label, fontsize=9, va="bottom")
    add_titles(figure, result, total)
    add_legend(figure, _legend(result, found), list(_notes(result, found, count)), total)
    return figure


def _memories(result: Result, count: int) -> list[str]:
    """Return the memories of the devices that are shown."""
    index = dict.fromkeys(processor.memory for processor in result.machine.processors[:count])
    return [result.machine.memories[k].name for k in index]


def _largest(result: Result, memories: Sequence[str]) -> int:
    assert result.report is not None
    return max(1, *(result.report.peaks[name].size for name in memories))


def _legend(result: Result, found: Passes) -> dict[str, str]:
    labels = phase_labels(result)
    halves = labels[Step.BACKWARD] != Step.BACKWARD.label
    used = {}
    for phase, (step, colour) in COLOURS.items():
        if (found.phase == phase).any():
            used["both gradients" if step is None else labels[step]] = colour
    if len(found.recomputed[0]):
        used[labels[Step.RECOMPUTATION]] = LIGHT[Role.AGAIN]
    if not halves and "both gradients" in used:
        used = {("backward" if label == "both gradients" else label): colour for label, colour in used.items()}
    if len(_sent(result)[0]):
        used[labels[Step.COPY]] = LIGHT[Role.COPY]
    return used | {"idle": _IDLE}


def _sent(result: Result) -> tuple[IntArray, IntArray]:
    """Return the transfers that last, and the device that sends each."""
    steps, report = result.columns, result.report
    assert steps is not None
    assert report is not None
    copies = np.flatnonzero((steps.kind == StepKind.COPY) & (report.end > report.start))
    first = np.full(len(result.machine.memories), -1, dtype=np.int64)
    for index, processor in reversed(list(enumerate(result.machine.processors))):
        first[processor.memory] = index
    device = first[steps.source[copies]]
    return copies[device >= 0], device[device >= 0]


def _bracket(axes: Axes, steady: tuple[float, float], factor: float) -> None:
    low, high = steady[0] / factor, steady[1] / factor
    top = axes.get_ylim()[1]
    axes.plot([low, low, high, high], [top + 0.12, top, top, top + 0.12], color=_STEADY, linewidth=1.0, clip_on=False)
    axes.text((low + high) / 2, top - 0.06, "steady state", ha="center", va="bottom", fontsize=8, color="#606060")


def _notes(result: Result, found: Passes, count: int) -> Iterator[str]:
    if found.chunk.any():
        yield "later chunks of a device are paler"
    if len(found.phase) > MOST_BARS:
        yield f"the first {MOST_BARS:,} operations"
    if len(result.machine.processors) > count:
        yield f"the first {count} of {counted(len(result.machine.processors), 'device')}"


def _draw_rows(axes: Axes, result: Result, found: Passes, factor: float, count: int) -> None:
    assert result.report is not None
    span = (float(result.report.makespan) or 1.0) / factor
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count), [shown_name(p.name) for p in result.machine.processors[:count]])
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=False)
    axes.barh(np.arange(count) + _OFFSET[0], span, height=_HEIGHT[0], color=_IDLE, linewidth=0, zorder=1)
    shown = np.flatnonzero(found.device < count)[:MOST_BARS]
    edge = 0.5 if len(shown) <= 2 * MOST_LABELS else 0.0
    for phase, (_, colour) in COLOURS.items():
        for chunk in np.unique(found.chunk[shown]).tolist():
            mine = shown[(found.phase[shown] == phase) & (found.chunk[shown] == chunk)]
            axes.barh(
                found.device[mine] + _OFFSET[found.half[mine]],
                (found.end[mine] - found.start[mine]) / factor,
                left=found.start[mine] / factor,
                height=_HEIGHT[found.half[mine]],
                color=colour,
                alpha=max(0.45, 1 - 0.3 * chunk),
                edgecolor="white",
                linewidth=edge,
                zorder=2,
            )
    of, begin, stop = found.recomputed
    mine = np.isin(of, shown)
    of, begin, stop = of[mine], begin[mine], stop[mine]
    axes.barh(
        found.device[of] + _OFFSET[found.half[of]],
        (stop - begin) / factor,
        left=begin / factor,
        height=_HEIGHT[found.half[of]],
        color=LIGHT[Role.AGAIN],
        linewidth=0,
        zorder=2.5,
    )
    copies, device = _sent(result)
    copies, device = copies[device < count][:MOST_BARS], device[device < count][:MOST_BARS]
    start = result.report.start[copies] / factor
    length = result.report.end[copies] / factor - start
    # With a line around them, transfers are seen that are narrower than a pixel.
    sent = LIGHT[Role.COPY]
    axes.barh(device + _SENT, length, left=start, height=0.12, color=sent, edgecolor=sent, linewidth=0.5, zorder=2)
    _number(axes, found, shown, (factor, span))


def _number(axes: Axes, found: Passes, shown: IntArray, scale: tuple[float, float]) -> None:
    """Write micro-batches into the operations of a phase where the longest number fits into most of them."""
    factor, span = scale
    digits = len(str(found.batch[shown].max(initial=0)))
    for phase in COLOURS:
        mine = shown[(found.phase[shown] == phase) & (found.half[shown] == 0)]
        if not len(mine):
            continue
        wide = float(np.median((found.end[mine] - found.start[mine]) / factor)) / span
        # So many digits fit side by side into the width, by the size of letters.
        size = next((points for points, most in _DIGITS.items() if wide * most >= digits + 0.1), None)
        for k in mine[:MOST_LABELS].tolist() if size else ():
            middle = float(found.start[k] + found.end[k]) / 2 / factor
            row = float(found.device[k] + _OFFSET[0])
            axes.text(middle, row, str(found.batch[k]), ha="center", va="center", fontsize=size, zorder=3)


def _draw_memory(axes: Axes, result: Result, name: str, scale: tuple[float, float], *, last: bool) -> None:
    """Draw one memory over time, with its limit and its peak; all strips have one scale."""
    from matplotlib.ticker import MaxNLocator

    assert result.report is not None
    span, factor = scale
    report, memories = result.report, _memories(result, MOST_DEVICES)
    largest = _largest(result, memories)
    divisor, _ = size_scale(largest, result.units)
    capacities = [result.machine.memories[result.machine.memory_index[other]].capacity for other in memories]
    near = [capacity for capacity in capacities if capacity is not None and capacity <= 3 * largest]
    profile, peak = report.profiles[name], report.peaks[name]
    time, size = without_dips(profile.time.astype(np.float64), profile.size.astype(np.float64))
    if len(time) > 2 * SLICES:
        time, size = slice_maxima(time, size, span, SLICES)
    x, y = np.append(time, span) / factor, np.append(size, size[-1]) / divisor
    axes.fill_between(x, 0, y, step="post", color=LIGHT[Role.SAVED], alpha=0.55, linewidth=0)
    axes.step(x, y, where="post", color="#3B4A5A", linewidth=0.7)
    top = max(largest, *near) / divisor if near else largest / divisor
    axes.set_ylim(0, 1.12 * top)
    capacity = result.machine.memories[result.machine.memory_index[name]].capacity
    if capacity is not None and capacity / divisor <= top:
        axes.axhline(capacity / divisor, color=LIGHT[Role.BUDGET], linewidth=1.0, linestyle=(0, (6, 3)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=result.units.memory == "unit"))
    axes.tick_params(axis="y", labelsize=7, pad=2)
    count_ticks(axes.yaxis)
    axes.tick_params(axis="x", labelbottom=last, length=3 if last else 0)
    axes.set_ylabel(short_name(name, 10), rotation=0, ha="right", va="center", labelpad=16, parse_math=False)
    at = 0.0 if peak.step is None else float(report.start[peak.step]) / factor
    axes.plot([at], [peak.size / divisor], "o", markersize=3.5, color=LIGHT[Role.BUDGET], clip_on=False)
    right = at * factor > 0.75 * span
    axes.annotate(
        f"peak {peak_text(result, name)}",
        (at, 0.06),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if right else 4, 0),
        textcoords="offset points",
        ha="right" if right else "left",
        va="bottom",
        fontsize=7.5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.75},
        parse_math=False,
    )
