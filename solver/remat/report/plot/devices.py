"""A pipeline as its papers draw it: one row a device, operations by colour with their micro-batch; memory below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from remat.report.palette import LIGHT, Role
from remat.report.plot.style import LEFT, RIGHT, TOP, WIDTH, TimeScale, add_legend, add_titles
from remat.report.text.readable_names import shown_name
from remat.report.views.forward_backward import Passes, passes_of
from remat.report.views.slices import size_scale, slice_maxima, without_dips
from remat.schedule.orders import Phase
from remat.solving.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    Phase.F: ("forward", LIGHT[Role.FORWARD]),
    Phase.B: ("backward", LIGHT[Role.BACKWARD]),
    Phase.BW: ("whole backward", "#1B7F63"),
    Phase.W: ("gradient of the parameters", LIGHT[Role.WEIGHTS]),
    Phase.R: ("forward again", LIGHT[Role.AGAIN]),
}
_STEADY = "#F3EFE2"
_OFFSET, _HEIGHT = np.array([0.0, -0.205, 0.205]), np.array([0.82, 0.41, 0.41])
"""Where in its row an operation is drawn, and how high: alone, or the first or the second of a pair."""
MOST_LABELS = 600
"""Most operations that show their micro-batch; more are too narrow."""
MOST_BARS = 20_000
MOST_DEVICES = 32
SLICES = 1500


def devices(result: Result) -> Figure:
    """Draw what each device does; the steady state, in which every device has backwards and forwards, is shaded."""
    from matplotlib.figure import Figure

    assert result.report is not None
    found = passes_of(result)
    count = min(len(result.machine.processors), MOST_DEVICES)
    rows, below, gap, top, bottom = 0.4 + 0.34 * count, 2.6, 0.55, TOP, 0.85
    total = rows + below + gap + top + bottom
    figure = Figure(figsize=(WIDTH, total), facecolor="white")
    upper = figure.add_axes((LEFT, 1 - (top + rows) / total, RIGHT - LEFT, rows / total))
    lower = figure.add_axes((LEFT, bottom / total, RIGHT - LEFT, below / total), sharex=upper)
    span = float(result.report.makespan) or 1.0
    scale = TimeScale.of(span, result.units)
    _draw_rows(upper, result, found, scale.factor, count)
    _draw_memory(lower, result, span, scale.factor, count)
    steady = found.steady
    if steady is not None:
        for axes in (upper, lower):
            axes.axvspan(steady[0] / scale.factor, steady[1] / scale.factor, color=_STEADY, zorder=0, linewidth=0)
    upper.set_xlim(0, span / scale.factor)
    lower.set_xlabel(f"time ({scale.unit})")
    add_titles(figure, result, total)
    used = {label: colour for phase, (label, colour) in COLOURS.items() if (found.phase == phase).any()}
    legend = used | ({"steady state": _STEADY} if steady is not None else {})
    add_legend(figure, legend, list(_notes(result, found, count)), total)
    return figure


def _notes(result: Result, found: Passes, count: int) -> Iterator[str]:
    if found.chunk.any():
        yield "later chunks of a device are paler"
    if len(found.phase) > MOST_BARS:
        yield f"the first {MOST_BARS:,} operations"
    if len(result.machine.processors) > count:
        yield f"the first {count} of {len(result.machine.processors)} devices"


def _draw_rows(axes: Axes, result: Result, found: Passes, factor: float, count: int) -> None:
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_yticks(range(count), [shown_name(p.name) for p in result.machine.processors[:count]])
    axes.tick_params(axis="y", length=0, labelbottom=False)
    axes.tick_params(axis="x", labelbottom=False)
    shown = np.flatnonzero(found.device < count)[:MOST_BARS]
    edge = 0.5 if len(shown) <= 10 * MOST_LABELS else 0.0
    for phase, (_, colour) in COLOURS.items():
        for chunk in np.unique(found.chunk[shown]).tolist():
            mine = shown[(found.phase[shown] == phase) & (found.chunk[shown] == chunk)]
            axes.barh(
                found.device[mine] + _OFFSET[found.half[mine]],
                (found.end[mine] - found.start[mine]) / factor,
                left=found.start[mine] / factor,
                height=_HEIGHT[found.half[mine]],
                color=colour,
                alpha=max(0.35, 1 - 0.35 * chunk),
                edgecolor="white",
                linewidth=edge,
                zorder=2,
            )
    if len(shown) <= MOST_LABELS:
        for k in shown.tolist():
            middle = float(found.start[k] + found.end[k]) / 2 / factor
            row = float(found.device[k] + _OFFSET[found.half[k]])
            axes.text(middle, row, str(found.batch[k]), ha="center", va="center", fontsize=7, zorder=3)


def _draw_memory(axes: Axes, result: Result, span: float, factor: float, count: int) -> None:
    assert result.report is not None
    names = [memory.name for memory in result.machine.memories[:count]]
    largest = max(result.report.peaks[name].size for name in names)
    divisor, unit = size_scale(max(largest, 1), result.units)
    for index, name in enumerate(names):
        profile = result.report.profiles[name]
        time, size = without_dips(profile.time.astype(np.float64), profile.size.astype(np.float64))
        if len(time) > 2 * SLICES:
            time, size = slice_maxima(time, size, span, SLICES)
        shade = 0.15 + 0.65 * index / max(1, count - 1)
        axes.step(
            np.append(time, span) / factor,
            np.append(size, size[-1]) / divisor,
            where="post",
            color=(0.1 + 0.6 * shade, 0.25 + 0.5 * shade, 0.45 + 0.35 * shade),
            linewidth=1.2,
            label=shown_name(name) if index in (0, count - 1) else None,
            zorder=2,
        )
    axes.set_ylim(0, 1.15 * max(largest, 1) / divisor)
    axes.set_ylabel(f"memory ({unit})")
    if count > 1:
        axes.legend(loc="upper right", frameon=False, fontsize=8)
