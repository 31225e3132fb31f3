"""Convergence of a solve: the best makespan and the best bound over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat.errors import OptionError
from remat.plugin.context import Progress
from remat.report.plot.style import LEFT, RIGHT, WIDTH, TimeScale, add_legend, add_titles, count_ticks, title_inches
from remat.solving.result import Result
from remat.units import Number, format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 4.2
_BEST, _BOUND = "#0072B2", "#606060"
"""Colours as in pictures of curves: times and bounds are not phases."""


def convergence(result: Result) -> Figure:
    """Draw the makespan of the best schedule and the bound over all schedules against the seconds of the solve.

    Raises
    ------
    OptionError
        If the result was not found by a solve that reported on its way (a saved schedule has no history).
    """
    from matplotlib.figure import Figure

    events = result.history
    if not events:
        raise OptionError("the solve reported no intermediate schedules or bounds, so there is no convergence to draw")
    figure = Figure(figsize=(WIDTH, HEIGHT), facecolor="white")
    axes = figure.add_axes((LEFT, 0.85 / HEIGHT, RIGHT - LEFT, 1 - (0.85 + title_inches(result)) / HEIGHT))
    last = max(result.solve_seconds, events[-1].seconds)
    scale = TimeScale.of(float(max(event.makespan or event.bound or 0 for event in events)), result.units)
    best: list[tuple[float, Number | None]] = [
        (event.seconds, event.makespan) for event in events if event.makespan is not None
    ]
    bound: list[tuple[float, Number | None]] = [
        (event.seconds, event.bound) for event in events if event.bound is not None
    ]
    best.append((last, result.makespan))
    bound.append((last, result.lower_bound))
    for line, colour in ((best, _BEST), (bound, _BOUND)):
        seconds, values = [point[0] for point in line], [float(point[1] or 0) / scale.factor for point in line]
        axes.step(seconds, values, where="post", color=colour, linewidth=1.6)
        axes.plot(seconds[:-1], values[:-1], "o", color=colour, markersize=3)
    axes.set_xlim(0, last * 1.02 or 1)
    axes.set_xlabel("solve time (s)")
    axes.set_ylabel(f"makespan ({scale.unit})")
    count_ticks(axes.yaxis)
    axes.grid(visible=True, alpha=0.25)
    add_titles(figure, result, HEIGHT)
    add_legend(figure, {"best schedule": _BEST, "lower bound": _BOUND}, _notes(result, events), HEIGHT)
    return figure


def _notes(result: Result, events: Sequence[Progress]) -> list[str]:
    gap = "" if result.gap is None else f"gap {format_percent(result.gap, 3)}"
    sources = dict.fromkeys(event.source for event in events if event.source)
    return [part for part in (gap, ", ".join(sources)) if part]
