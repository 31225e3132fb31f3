"""A sweep as a picture: time over memory, one curve per algorithm, with its knee and its minimum budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError
from remat.messages import printable
from remat.report.page.curves import write_curves
from remat.report.plot.style import (
    NAME_LINE,
    PAGE,
    SUFFIXES,
    TimeScale,
    check_suffix,
    count_ticks,
    save_figure,
    wrapped,
)
from remat.report.text.readable_names import shown_name
from remat.report.views.curves import COLOURS, is_logarithmic, label_of, lower_bounds, ratio_ticks, usual_top
from remat.solving.questions.curves import Curve, Sweep
from remat.units import format_budget, format_percent, format_time, shown_base, size_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 62
"""Letters of a line of the title."""

_HALO = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.88}
"""Background of texts on lines."""


def plot_sweep(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Draw the curves of a sweep: SVG, PNG or PDF, or an interactive page, by the suffix of the path.

    A curve is a staircase of makespan over memory. A ring marks the knee, and a line down to the axis marks the
    minimum budget. Equal sweeps give equal files.

    Parameters
    ----------
    sweep : Sweep
    path : path

    Raises
    ------
    remat.OptionError
        If no curve has a point, or the suffix is unknown.
    remat.MissingExtraError
        If matplotlib is not installed.
    remat.RematError
        If the file cannot be written.
    """
    if check_suffix(path, (*SUFFIXES, PAGE)) == PAGE:
        write_curves(sweep, path)
        return
    save_figure(path, picture_of_sweep(sweep))


def picture_of_sweep(sweep: Sweep) -> Callable[[], Figure]:
    """Return a function that draws the curves of a sweep; OptionError if there is no curve."""
    if not any(curve.points for curve in sweep.curves):
        raise OptionError("there is no schedule, and so no curve to plot", argument="plot")
    return lambda: _draw(sweep)


def _draw(sweep: Sweep) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    names = wrapped(printable(sweep.instance_name) or "(unnamed)", LONGEST_NAME)
    height = 6.0 + NAME_LINE * (len(names) - 1)
    figure = Figure(figsize=(9.0, height), facecolor="white")
    axes = figure.add_axes((0.095, 0.6 / height, 0.80, 4.68 / height))
    shown = [(curve, COLOURS[k % len(COLOURS)]) for k, curve in enumerate(sweep.curves) if curve.points]
    points = [point for curve, _ in shown for point in curve.points]
    peaks = [point.peak or 0 for point in points]
    times = [float(point.makespan or 0) for point in points]
    factor, unit = size_scale(max(*peaks, 1), sweep.units)
    scale = TimeScale.of(max(times), sweep.units)
    logarithmic = is_logarithmic(peaks)
    if logarithmic:
        axes.set_xscale("log")
    low, high = min(peaks) / factor, max(max(peaks), 1) / factor
    left, right = (low / 1.15, high * 1.25) if logarithmic else (low - 0.08 * (high - low), high + 0.12 * (high - low))
    axes.set_xlim(left, right if right > left else left + 1)
    bottom = min(*times, float(sweep.no_recompute_time)) / scale.factor
    top = usual_top(times, float(sweep.no_recompute_time)) / scale.factor
    room = (top - bottom) or abs(top) or 1.0
    if is_logarithmic([top, bottom]):
        axes.set_yscale("log")
        axes.set_ylim(bottom / 1.15, top * 1.5)
        axes.yaxis.set_major_locator(FixedLocator(ratio_ticks(*axes.get_ylim(), binary=False)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom - 0.08 * room, top + 0.18 * room)
    axes.axhline(float(sweep.no_recompute_time) / scale.factor, color="#909090", linewidth=0.8, linestyle=(0, (1, 2)))
    marks = _Marks(axes)
    for place, (curve, colour) in enumerate(shown):
        least = curve.points[0].peak not in {other.points[0].peak for other, _ in shown[:place]}
        # What later curves cover stays visible on both sides of them.
        covered = sum(len(_places(curve) & _places(later)) > 1 for later, _ in shown[place + 1 :])
        style = replace(marks, least=least, width=1.4 + 1.8 * min(covered, 3))
        _draw_curve(axes, sweep, curve, colour, (factor, scale.factor), style)
    _mark_outliers(axes, sweep, shown, (factor, scale.factor))
    _draw_bound(axes, lower_bounds(sweep), factor, scale.factor)
    if logarithmic:
        axes.xaxis.set_major_locator(FixedLocator(ratio_ticks(*axes.get_xlim(), binary=_binary(sweep))))
        axes.xaxis.set_minor_locator(NullLocator())
    if sweep.units.memory == "unit" and not logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"peak of {shown_name(sweep.memory)} ({unit})", parse_math=False)
    axes.set_ylabel(f"makespan ({scale.unit})")
    _overhead_axis(axes, float(sweep.no_recompute_time) / scale.factor)
    count_ticks(axes.xaxis)
    count_ticks(axes.yaxis)
    _key(axes, shown)
    for place, line in enumerate(names):
        y = 1 - (0.3 + NAME_LINE * place) / height
        figure.text(0.095, y, line, fontsize=13, fontweight="bold", va="center", parse_math=False)
    figure.text(
        0.095,
        5.43 / height,
        f"without recomputation {format_time(sweep.no_recompute_time, sweep.units)}",
        color="#404040",
        va="center",
    )
    return figure


def _mark_outliers(axes: Axes, sweep: Sweep, shown: Sequence[tuple[Curve, str]], units: tuple[float, float]) -> None:
    """Write the figures of points above the axis at its upper edge, with an arrow."""
    factor, seconds = units
    top = axes.get_ylim()[1]
    labels: dict[tuple[float, str], str] = {}
    for curve, colour in shown:
        for point, following in pairwise([*curve.points, curve.points[-1]]):
            if float(point.makespan or 0) / seconds > top:
                share = "" if point.overhead is None else f", +{format_percent(point.overhead)}"
                text = f"{format_time(point.makespan or 0, sweep.units)}{share}"
                labels.setdefault(((following.peak or 0) / factor, text), colour)  # where the line falls
    for row, ((x, text), colour) in enumerate(labels.items()):
        axes.annotate(
            f"\u2191 {text}",
            (x, top),
            xytext=(4, -2 - 11 * row),
            textcoords="offset points",
            ha="left",
            va="top",
            color=colour,
            fontsize=8,
            bbox=_HALO,
            zorder=6,
        )


def _binary(sweep: Sweep) -> bool:
    """Whether sizes are shown in binary units."""
    return sweep.units.memory != "unit" and shown_base() != 1000


def _key(axes: Axes, shown: Sequence[tuple[Curve, str]]) -> None:
    """Write the legend of lines and marks into the upper right corner, which falling curves leave free."""
    from matplotlib.lines import Line2D

    def line(colour: str, label: str, **style: Any) -> Line2D:
        return Line2D([], [], color=colour, label=label, **style)

    handles = [line(colour, label_of(curve), linewidth=1.8) for curve, colour in shown]
    handles.append(line("#505050", "lower bound: no schedule is faster", linewidth=1.1, linestyle=(0, (4, 2))))
    if any(curve.knee is not None for curve, _ in shown):
        ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": "none"}
        handles.append(line("#505050", "knee", **ring))
    handles.append(line("#505050", "minimum budget", linewidth=1.2, linestyle=(0, (1, 1.5))))
    legend = axes.legend(handles=handles, loc="upper right", frameon=True, framealpha=0.9, edgecolor="#D0D4DA")
    for text in legend.get_texts():
        text.set_parse_math(False)


def _places(curve: Curve) -> set[tuple[object, object]]:
    return {(point.peak, point.makespan) for point in curve.points}


def _draw_bound(axes: Axes, bounds: Sequence[tuple[float, float]], factor: float, seconds: float) -> None:
    if not bounds:
        return
    left, right = axes.get_xlim()
    sizes = [left, *(min(max(budget / factor, left), right) for budget, _ in bounds)]
    times = [bounds[0][1] / seconds, *(time / seconds for _, time in bounds)]
    axes.plot(
        sizes, times, drawstyle="steps-pre", color="#505050", linewidth=1.1, linestyle=(0, (4, 2)), label="lower bound"
    )


@dataclass(frozen=True)
class _Marks:
    """Drawing state of a curve: whether its minimum budget is labelled, and the positions of texts to avoid overlap."""

    axes: Axes
    least: bool = True
    width: float = 1.4
    placed: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def lift(self, x: float, y: float) -> float:
        """Return the number of points by which a text at a place must move up, and record it."""
        at = tuple(map(float, self.axes.transData.transform((x, y))))
        scale = self.axes.figure.dpi / 72
        higher = 0.0
        while any(
            abs(at[0] - a) < 150 * scale and abs(at[1] + higher * scale - b) < 10.5 * scale for a, b in self.placed
        ):
            higher += 11
        self.placed.append((at[0], at[1] + higher * scale))
        return higher


def _draw_curve(axes: Axes, sweep: Sweep, curve: Curve, colour: str, units: tuple[float, float], marks: _Marks) -> None:
    factor, seconds = units
    label = marks.least
    sizes = [(point.peak or 0) / factor for point in curve.points]
    times = [float(point.makespan or 0) / seconds for point in curve.points]
    right = axes.get_xlim()[1]
    axes.plot(
        [*sizes, right],
        [*times, times[-1]],
        drawstyle="steps-post",
        color=colour,
        linewidth=marks.width,
        label=curve.algorithm,
    )
    axes.plot(sizes, times, linestyle="none", marker="o", markersize=3.2, color=colour)
    if label:
        bottom = axes.get_ylim()[0]
        axes.plot([sizes[0], sizes[0]], [bottom, times[0]], color=colour, linewidth=1.2, linestyle=(0, (1, 1.5)))
    if curve.least is not None and label:
        style: dict[str, Any] = {"color": colour, "fontsize": 7.5, "rotation": 90, "ha": "right", "va": "bottom"}
        axes.annotate(
            f"minimum {format_budget(curve.least.size, sweep.units, enough=curve.least.sufficient)}",
            (sizes[0], axes.get_ylim()[0]),
            xytext=(-2, 4),
            textcoords="offset points",
            bbox=_HALO,
            zorder=5,
            **style,
        )
    if curve.knee is not None:
        x, y = (curve.knee.peak or 0) / factor, float(curve.knee.makespan or 0) / seconds
        axes.plot([x], [y], marker="o", markersize=10, markerfacecolor="none", markeredgecolor=colour)
        share = curve.knee.overhead
        overhead = "" if share is None else f", {'+' if share > 0 else ''}{format_percent(share)}"
        axes.annotate(
            f"knee {format_budget(curve.knee.peak or 0, sweep.units)}{overhead}",
            (x, y),
            xytext=(8, 7 + marks.lift(x, y)),
            textcoords="offset points",
            color=colour,
            fontsize=8,
            bbox=_HALO,
            zorder=5,
        )


def _overhead_axis(axes: Axes, reference: float) -> None:
    """Show the overhead on the right if a reference time exists."""
    if reference <= 0:
        return
    from matplotlib.ticker import FuncFormatter, NullLocator

    def overhead(makespan: Any) -> Any:
        return makespan / reference - 1

    def makespan(overhead: Any) -> Any:
        return (overhead + 1) * reference

    other = axes.secondary_yaxis("right", functions=(overhead, makespan))
    if axes.get_yscale() == "log":  # the same places as on the left
        other.set_yticks([place / reference - 1 for place in axes.get_yticks()])
        other.yaxis.set_minor_locator(NullLocator())
    other.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{float(f'{100 * share:.3g}'):,g} %"))
    other.set_ylabel("overhead")
