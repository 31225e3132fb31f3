"""A schedule as a picture: memory over time with its budget and peak, and the activity of every resource.

`plot` draws this and the other views (see `remat.report.plot.views`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remat.errors import OptionError
from remat.graph.names import NumberedNames
from remat.graph.taskgraph import IntArray
from remat.messages import printable
from remat.report.page import write_page
from remat.report.page.data import MOST_GROUPED
from remat.report.palette import GROUPS, LIGHT, OF_KIND, OF_PHASE, Role, ink_on
from remat.report.plot.style import (
    LEFT,
    PAGE,
    RIGHT,
    SUFFIXES,
    WIDTH,
    TimeScale,
    add_legend,
    add_titles,
    check_page_view,
    check_suffix,
    count_ticks,
    save_figure,
    text_points,
    title_inches,
)
from remat.report.plot.views import drawing
from remat.report.text.readable_names import names_of_task, names_of_value, short_name, shown_name, shown_step
from remat.report.views.composition import Extra, composition_of, labels_of
from remat.report.views.groups import Groups
from remat.report.views.kinds import STACKED
from remat.report.views.phases import phase_labels, shown_phases
from remat.report.views.residents import fullest_memory
from remat.report.views.resources import occupied
from remat.report.views.slices import busy_shares, fullest_of_slices, widest_places
from remat.schedule.steps import StepKind
from remat.solving.result import Result
from remat.units import format_budget, format_size, size_scale
from remat.verifier import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 2000
"""Maximum number of steps that are drawn individually; with more, each time slice shows the share of each phase."""

SLICES = 1500
"""Time slices of long schedules: about as many as the picture has columns."""

MOST_MEMORIES = 4
MOST_ROWS = 24

LEGEND_ROW, LEGEND_ROWS, LEGEND_LETTERS = 0.22, 2, 150
"""Inches of a row of the legend of bytes, its largest number of rows, and the letters of a row."""

COLOURS = {phase: LIGHT[role] for phase, role in OF_PHASE.items()}
_BUDGET, _LINE = LIGHT[Role.BUDGET], "#3B4A5A"


def plot(result: Result, path: str | os.PathLike[str], *, view: str = "time") -> None:
    """Draw a schedule: SVG, PNG or PDF, or an interactive page (`remat.report.page`), by the suffix of the path.

    Time and size of pictures stay bounded, however long the schedule is. Equal results give equal files.

    Parameters
    ----------
    result : Result
        With a schedule.
    path : path
    view : str
        What to show:

        - ``time``: above, for each memory that is used, the bytes over time, the budget and what sets the peak;
          below, one row for each processor and channel. Schedules of more than `MOST_BARS` steps are cut into
          `SLICES` time slices: the memory line is the maximum of each slice, so the peak is never lost, and the
          rows show each phase's share of the slice.
        - ``values``: each value where it is resident, a band as high as its size.
        - ``addresses``, of schedules with addresses: each residency over time and address.
        - ``stages``, of chains and adjoints: what is kept, checkpointed, recomputed and offloaded.
        - ``reversal``, of chains and adjoints: sweeps forward and back over time, and the states that are kept.
        - ``devices``, of pipelines: what each device does, by micro-batch, and the memory of each.
        - ``tree``, of trees: order of execution, and what is spilled.
        - ``convergence``, of a result of a solve: best makespan and bound over its time.

    Raises
    ------
    remat.OptionError
        If the result has no schedule, the suffix is unknown, or the view does not suit the instance.
    remat.MissingExtraError
        If matplotlib is not installed.
    remat.RematError
        If the file cannot be written.
    """
    if check_suffix(path, (*SUFFIXES, PAGE)) != PAGE:
        save_figure(path, picture(result, view))
        return
    check_page_view(view)
    write_page(result, path)


def picture(result: Result, view: str = "time") -> Callable[[], Figure]:
    """Return a function that draws a view of a schedule (see `plot`); OptionError without a schedule."""
    report = result.report
    if report is None:
        raise OptionError("there is no schedule to plot")
    return drawing(result, view) or (lambda: _Picture(result, report).draw())


SMALLEST_BAR = 6.0
"""Width in points from which a bar may have a name."""

FONT_SIZES, PADDING = (7.5, 6.0), 1.5
"""Sizes in which a name may stand in a bar, and the points beside it."""


def _fitting(names: Sequence[str], width: float) -> tuple[str, float]:
    """Return the longest of some names, from long to short, that fits a bar, and its font size; else an empty text."""
    for size in FONT_SIZES:
        for name in names:
            if name and text_points(name, size) + PADDING <= width:
                return name, size
    return "", FONT_SIZES[0]


def _bands(result: Result, groups: Groups | None) -> dict[int, tuple[str, str]]:
    """Return label and colour of each row of contents, from the bottom up: kinds, or groups of values."""
    if groups is None:
        labels = labels_of(result)
        return {int(kind): (labels[kind], LIGHT[OF_KIND[kind]]) for kind in STACKED}
    extra = {Extra.STATIC: Role.STATIC, Extra.WORKSPACE: Role.WORKSPACE, Extra.OTHER: Role.OTHER}
    named = [(printable(label), GROUPS[k]) for label, k in zip(groups.labels, groups.colours, strict=True)]
    return dict(enumerate([*named, *((row.label, LIGHT[extra[row]]) for row in Extra)]))


class _Picture:
    """One figure: the result, its step phases and its scales."""

    def __init__(self, result: Result, report: Report) -> None:
        assert result.columns is not None
        self.result, self.report, self.steps = result, report, result.columns
        self.phases = shown_phases(result)
        self.span = float(report.makespan) or 1.0
        self.scale = TimeScale.of(self.span, result.units)
        self.sliced = int((self.steps.kind != StepKind.DROP).sum()) > MOST_BARS
        grouped = not isinstance(result.graph.values, NumberedNames) and len(self.steps) <= MOST_GROUPED
        composition = composition_of(result, grouped=grouped)
        self.contents = composition.grouped or composition.contents
        self.bands = _bands(result, composition.groups)
        self.memories = self._memories()
        self.rows = self._rows()

    def _memories(self) -> list[str]:
        """The memories to show: those that are used, and always the first one."""
        names = [memory.name for memory in self.result.machine.memories]
        used = [name for name in names if self.report.peaks[name].size > 0] or names[:1]
        self.fullest = fullest_memory(self.result)
        if len(used) > MOST_MEMORIES:
            size = {memory.name: memory.capacity or 0 for memory in self.result.machine.memories}
            share = {name: self.report.peaks[name].size / (size[name] or np.inf) for name in used}
            chosen = {self.fullest, *sorted(used, key=lambda name: -share[name])[: MOST_MEMORIES - 1]}
            used = [name for name in used if name in chosen]
        return used

    def _rows(self) -> list[int]:
        """The resources to show: those that are ever busy, limited to the busiest."""
        busy = [self.report.busy[name] for name in self.result.machine.resources]
        used = [index for index, time in enumerate(busy) if time > 0] or [0]
        if len(used) > MOST_ROWS:
            used = sorted(sorted(used, key=lambda index: -busy[index])[:MOST_ROWS])
        return used

    def draw(self) -> Figure:
        from matplotlib.figure import Figure

        heights = [2.5] * len(self.memories) + [0.5 + 0.32 * len(self.rows)]
        kinds, dropped = self._kinds()
        gap, top, bottom = 0.28, title_inches(self.result) + LEGEND_ROW * (len(kinds) - 1), 0.85
        total = sum(heights) + gap * (len(heights) - 1) + top + bottom
        figure = Figure(figsize=(WIDTH, total), facecolor="white")
        y = 1 - top / total
        panels: list[Axes] = []
        for height in heights:
            y -= height / total
            panels.append(
                figure.add_axes((LEFT, y, RIGHT - LEFT, height / total), sharex=panels[0] if panels else None)
            )
            y -= gap / total
        for axes, name in zip(panels, self.memories, strict=False):
            self._draw_memory(axes, name)
        self._draw_rows(panels[-1])
        for axes in panels[:-1]:
            axes.tick_params(labelbottom=False)
        panels[0].set_xlim(0, self.span / self.scale.factor)
        panels[-1].set_xlabel(f"time ({self.scale.unit})")
        count_ticks(panels[-1].xaxis)
        add_titles(figure, self.result, total, about=f"at the peak of {shown_name(self.fullest)}:")
        for above, row in enumerate(reversed(kinds)):
            add_legend(figure, row, [], total, above=total - top + 0.06 + LEGEND_ROW * above)
        add_legend(figure, self._legend(), dropped + self._notes(), total)
        return figure

    def _legend(self) -> dict[str, str]:
        lasting = self.report.end > self.report.start
        labels = phase_labels(self.result)
        return {labels[phase]: COLOURS[phase] for phase in COLOURS if (lasting & (self.phases == phase)).any()}

    def _kinds(self) -> tuple[list[dict[str, str]], list[str]]:
        """The colours of bytes in rows, each with its amount at the peak of the fullest memory, and a note on the rest.

        Of more than `LEGEND_ROWS` rows, the smallest kinds at the peak are left out.
        """
        index = [self.result.machine.memory_index[name] for name in self.memories]
        fullest = self.contents[self.result.machine.memory_index[self.fullest]]
        at_peak = fullest.sizes[:, int(np.argmax(fullest.total))].tolist()
        used = [row for row in self.bands if any(self.contents[k].sizes[row].any() for k in index)]
        units = self.result.units
        kept, left = list(used), list[int]()
        while len(rows := self._in_rows(kept, at_peak)) > LEGEND_ROWS:
            left.append(min(reversed(kept), key=lambda row: at_peak[row]))
            kept.remove(left[-1])
        size = sum(at_peak[row] for row in left)
        kinds = [
            {
                self.bands[k][0] + (f" {format_size(at_peak[k], units)}" if at_peak[k] else ""): self.bands[k][1]
                for k in row
            }
            for row in rows
        ]
        return kinds, [f"{len(left)} more at the peak, {format_size(size, units)}"] if size else []

    def _in_rows(self, kinds: Sequence[int], at_peak: Sequence[int]) -> list[list[int]]:
        """Break a legend into rows; widths are estimated by letters."""
        rows, letters = [list[int]()], 0
        for kind in kinds:
            width = len(self.bands[kind][0]) + 8 + 9 * (at_peak[kind] > 0)
            if letters + width > LEGEND_LETTERS and rows[-1]:
                rows.append([])
                letters = 0
            rows[-1].append(kind)
            letters += width
        return rows

    def _notes(self) -> list[str]:
        notes = []
        left = sum(self.report.peaks[memory.name].size > 0 for memory in self.result.machine.memories)
        if left > len(self.memories):
            notes.append(f"the {len(self.memories)} fullest of {left} memories")
        if self.sliced:
            notes.append(f"{SLICES:,} time slices: maximum of memory, shares of phases")
        hidden = sum(time > 0 for time in self.report.busy.values()) - len(self.rows)
        if hidden > 0:
            notes.append(f"{hidden} less busy resources not shown")
        return notes

    # ----------------------------------------------------------------------------------------- memory

    def _draw_memory(self, axes: Axes, name: str) -> None:
        from matplotlib.ticker import MaxNLocator

        memory = self.result.machine.memories[self.result.machine.memory_index[name]]
        peak = self.report.peaks[name]
        factor, unit = size_scale(max(peak.size, 1), self.result.units)
        time, sizes = self._staircase(self.result.machine.memory_index[name])
        x, base = time / self.scale.factor, np.zeros(len(time))
        edges = []
        for row, (label, colour) in self.bands.items():
            if sizes[row].any():
                upper = base + sizes[row] / factor
                axes.fill_between(x, base, upper, color=colour, linewidth=0)
                edges.append((label, colour, base, upper))
                base = upper
        axes.plot(x, base, color=_LINE, linewidth=0.7, solid_joinstyle="miter")
        highest = peak.size
        right_half = self._peak_time(name) > 0.5 * self.span
        if memory.capacity is not None:
            label = f"budget {format_budget(memory.capacity, self.result.units)}"
            if memory.capacity <= 3 * max(peak.size, 1):
                highest = max(highest, memory.capacity)
                axes.axhline(memory.capacity / factor, color=_BUDGET, linewidth=1.3, linestyle=(0, (6, 3)))
            else:  # a line at this height would compress the rest of the plot
                label += ", far above"
            axes.annotate(
                label,
                (0.006 if right_half else 0.994, min(memory.capacity, 1.28 * highest) / factor),
                xycoords=("axes fraction", "data"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="left" if right_half else "right",
                va="bottom" if memory.capacity <= highest else "top",
                color=_BUDGET,
            )
        axes.set_ylim(0, 1.3 * max(highest, 1) / factor)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=self.result.units.memory == "unit"))
        axes.set_ylabel(f"{short_name(name)} ({unit})", parse_math=False)
        count_ticks(axes.yaxis)
        self._name_bands(axes, x, edges)
        self._mark_peak(axes, name, factor, right_half)

    def _name_bands(self, axes: Axes, x: NDArray[np.float64], edges: list[Any]) -> None:
        """Write names on bands that are wide enough: a letter is about 1/150 of the width."""
        least = 0.075 * axes.get_ylim()[1]
        for label, colour, low, high in edges:
            begin, end, bottom, top = widest_places(x, low, high, least)
            if (end - begin) * 150 > (len(label) + 1) * (x[-1] or 1.0):
                place = (begin + end) / 2, (bottom + top) / 2
                axes.text(*place, label, ha="center", va="center", fontsize=8, color=ink_on(colour), parse_math=False)

    def _peak_time(self, name: str) -> float:
        step = self.report.peaks[name].step
        return 0.0 if step is None else float(self.report.start[step])

    def _mark_peak(self, axes: Axes, name: str, factor: float, right_half: bool) -> None:
        peak = self.report.peaks[name]
        x, y = self._peak_time(name) / self.scale.factor, peak.size / factor
        axes.plot([x], [y], marker="o", markersize=4.5, color=_BUDGET, clip_on=False, zorder=5)
        axes.annotate(
            f"peak {format_budget(peak.size, self.result.units)}{self._below(name)}: {self._step_name(peak.step)}",
            (x, y),
            xycoords="data",
            xytext=(x, 0.985),
            textcoords=("data", "axes fraction"),
            ha="right" if right_half else "left",
            va="top",
            fontweight="bold",
            arrowprops={
                "arrowstyle": "-",
                "color": _BUDGET,
                "linewidth": 0.8,
                "shrinkA": 0,
                "shrinkB": 2,
                "relpos": (1.0 if right_half else 0.0, 0.0),
            },
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
            parse_math=False,
            zorder=6,
        )

    def _below(self, name: str) -> str:
        """The distance of the peak from the budget."""
        capacity = self.result.machine.memories[self.result.machine.memory_index[name]].capacity
        if capacity is None:
            return ""
        free = capacity - self.report.peaks[name].size
        return f", {format_size(free, self.result.units)} below the budget" if free else ", all of the budget"

    def _staircase(self, memory: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Corners of the memory line, and the bytes by kind; long profiles use the maximum of each time slice."""
        contents = self.contents[memory]
        time, sizes = contents.time.astype(np.float64), contents.sizes
        if len(time) > 2 * MOST_BARS:
            time, fullest = fullest_of_slices(time, contents.total, self.span, SLICES)
            sizes = sizes[:, fullest]
        corners_x = np.repeat(np.append(time, self.span), 2)[1:-1]
        return corners_x, np.repeat(sizes, 2, axis=1)

    # ------------------------------------------------------------------------------------------- rows

    def _draw_rows(self, axes: Axes) -> None:
        names = self.result.machine.resources
        count = len(self.rows)
        axes.set_ylim(count - 0.5, -0.5)
        axes.set_yticks(range(count), [short_name(names[index]) for index in self.rows])
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        axes.tick_params(axis="y", length=0)
        step, resource = occupied(self.result.graph, self.result.machine, self.steps)
        if self.sliced:
            picture = np.concatenate([self._shares(step[resource == index]) for index in self.rows])
            axes.imshow(
                picture,
                extent=(0, self.span / self.scale.factor, count - 0.5, -0.5),
                aspect="auto",
                interpolation="nearest",
            )
            return
        for row, index in enumerate(self.rows):
            self._draw_bars(axes, row, step[resource == index])

    def _draw_bars(self, axes: Axes, row: int, step: IntArray) -> None:
        start = self.report.start[step] / self.scale.factor
        length = self.report.end[step] / self.scale.factor - start
        for phase, colour in COLOURS.items():
            mine = (self.phases[step] == phase) & (length > 0)
            for wide in (False, True):
                chosen = mine & ((length > 0.003 * self.span / self.scale.factor) == wide)
                if chosen.any():
                    bars = list(zip(start[chosen].tolist(), length[chosen].tolist(), strict=True))
                    # A white edge parts wide bars; it would hide the narrow ones.
                    edge = "white" if wide else colour
                    axes.broken_barh(bars, (row - 0.4, 0.8), facecolor=colour, edgecolor=edge, linewidth=0.4)
        points = length / (self.span / self.scale.factor) * (RIGHT - LEFT) * WIDTH * 72
        for k in np.flatnonzero(points > SMALLEST_BAR).tolist():
            name, size = _fitting(self._names(int(step[k])), float(points[k]))
            if name:
                axes.text(
                    start[k] + length[k] / 2, row, name, ha="center", va="center", fontsize=size, parse_math=False
                )

    def _step_name(self, step: int | None) -> str:
        return shown_step(self.result.graph, self.result.machine, self.steps, step)

    def _names(self, step: int) -> tuple[str, ...]:
        item = int(self.steps.item[step])
        names = names_of_task if self.steps.kind[step] == StepKind.RUN else names_of_value
        return names(self.result.graph, item)

    def _shares(self, step: IntArray, height: int = 20) -> NDArray[np.uint8]:
        """A strip of pixels: in each column, from below, each phase's share of that time slice."""
        strip = np.full((height, SLICES, 3), 255, dtype=np.uint8)
        margin = height // 10
        inner = height - 2 * margin
        done = np.zeros(SLICES)
        for phase, colour in COLOURS.items():
            mine = step[self.phases[step] == phase]
            if len(mine) == 0:
                continue
            share = busy_shares(self.report.start[mine], self.report.end[mine], self.span, SLICES)
            low, done = done, done + share
            # Pixel rows count from above; shares grow from below.
            bottom = height - margin - np.rint(low * inner)
            top = height - margin - np.rint(np.minimum(done, 1.0) * inner)
            rows = np.arange(height)[:, None]
            strip[(rows >= top) & (rows < bottom)] = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
        return strip
