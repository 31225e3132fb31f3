"""Other views of a schedule through matplotlib: stages, reversal, tree, values and addresses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remat.errors import OptionError
from remat.instance import AdjointInstance
from remat.messages import counted
from remat.report.palette import LEVELS, LIGHT, OF_FATE, OF_KIND, OF_STAY, Role, ink_on
from remat.report.plot.convergence import convergence
from remat.report.plot.devices import devices
from remat.report.plot.style import LEFT, RIGHT, WIDTH, TimeScale, add_legend, add_titles, count_ticks, title_inches
from remat.report.text.readable_names import names_of_task, names_of_value, short_name, shown_name
from remat.report.views.addresses import Boxes, address_boxes
from remat.report.views.composition import composition_of, labels_of
from remat.report.views.icicle import Icicle, icicle_of
from remat.report.views.kinds import STACKED, Kind
from remat.report.views.occupancy import Occupancy, Stay, occupancy_of
from remat.report.views.reversal import Stroke, Use, reversal_of, uses_of
from remat.report.views.slices import coverage, slice_maxima
from remat.report.views.stages import Fate, Stages, stages_of
from remat.report.views.task_index_ranges import ChainLayout, TreeLayout
from remat.solving.result import Result
from remat.units import format_budget, format_size, size_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STAGES = 300
MOST_LINES = 10_000
MOST_DOTS = 300
MOST_BOXES = 2000
"""Maximum numbers of stages, lines, dots and boxes that are drawn individually."""

MOST_ARENAS = 4
"""Memories whose addresses are drawn."""

COLUMNS, ROWS = 1500, 400
"""Pixels of an image that replaces a drawing with more boxes."""

FATES = {fate: LIGHT[role] for fate, role in OF_FATE.items()}
STAYS = {stay: LIGHT[role] for stay, role in OF_STAY.items()}
KINDS = {kind: LIGHT[role] for kind, role in OF_KIND.items()}
STROKES = {
    Stroke.STORED: ("state that is kept", LEVELS[0], 0.9),
    Stroke.CHECKPOINT: ("state that is kept", LEVELS[0], 0.9),
    Stroke.FORWARD: ("forward", LIGHT[Role.FORWARD], 1.5),
    Stroke.SAVING: ("saving forward", LIGHT[Role.SAVING], 1.5),
    Stroke.RECOMPUTATION: ("recomputation", LIGHT[Role.AGAIN], 1.5),
    Stroke.BACKWARD: ("backward", LIGHT[Role.BACKWARD], 1.5),
}
_SPILLED, _IN_CORE = "#D55E00", "#21918C"


def drawing(result: Result, view: str) -> Callable[[], Figure] | None:
    """Return what draws a view; None for ``time``.

    Raises
    ------
    OptionError
        If there is no such view, or it does not suit the instance.
    """
    chain, tree = ChainLayout.of(result.graph), TreeLayout.of(result.graph)
    suited: dict[str, Callable[[], Figure] | None] = {"time": None, "values": lambda: _values(result)}
    if chain is not None:
        suited["stages"] = lambda: _stages(result, chain)
        suited["reversal"] = lambda: _reversal(result, chain)
    if tree is not None:
        suited["tree"] = lambda: _tree(result, tree)
    if result.orders is not None:
        suited["devices"] = lambda: devices(result)
    if result.history:
        suited["convergence"] = lambda: convergence(result)
    if result.addresses is not None:
        suited["addresses"] = lambda: _addresses(result)
    elif view == "addresses":
        raise OptionError("the schedule has no addresses; `remat layout` writes them", argument="view")
    if view not in suited:
        raise OptionError(f"{view!r} is not a view of this schedule; it has {', '.join(suited)}", argument="view")
    return suited[view]


def _frame(
    result: Result, heights: Sequence[float], *, gap: float = 0.3, bottom: float = 0.85
) -> tuple[Figure, list[Axes], float]:
    """Return a figure with axes of these heights (inches) below each other, and its own height."""
    from matplotlib.figure import Figure

    top = title_inches(result)
    total = sum(heights) + gap * (len(heights) - 1) + top + bottom
    figure = Figure(figsize=(WIDTH, total), facecolor="white")
    panels: list[Axes] = []
    y = 1 - top / total
    for height in heights:
        y -= height / total
        share = panels[0] if panels else None
        panels.append(figure.add_axes((LEFT, y, RIGHT - LEFT, height / total), sharex=share))
        y -= gap / total
    add_titles(figure, result, total)
    return figure, panels, total


# ------------------------------------------------------------------------------------------------ chains


def _stages(result: Result, layout: ChainLayout) -> Figure:

    found = stages_of(result, layout, MOST_STAGES)
    if not layout.saves or isinstance(result.instance, AdjointInstance):
        return _levels(result, found)
    figure, (above, below), total = _frame(result, (2.6, 1.3))
    left = found.first[:-1] - 0.5
    width = np.diff(found.first).astype(np.float64)
    factor, unit = size_scale(max(int(found.sizes.sum(axis=1).max()), 1), result.units)
    base = np.zeros(len(width))
    edge: Any = {"edgecolor": "white", "linewidth": 0.4} if len(width) <= 100 else {"linewidth": 0}
    for fate, colour in FATES.items():
        high = found.sizes[:, fate] / factor
        above.bar(left, high, width, bottom=base, align="edge", color=colour, **edge)
        base += high
    above.set_ylabel(f"state and saved ({unit})")
    above.set_ylim(0, None if base.any() else 1)
    count_ticks(above.yaxis)
    above.tick_params(labelbottom=False)
    _runs(below, found, "stage (0: the input)")
    legend = {
        f"{fate.label} {format_size(int(size), result.units)}": FATES[fate]
        for fate, size in zip(Fate, found.totals.tolist(), strict=True)
        if size
    }
    add_legend(figure, legend, _stage_notes(found, "stages", "sizes"), total)
    return figure


def _stage_notes(found: Stages, what: str, added: str) -> list[str]:
    notes = (
        [f"{counted(found.recomputations, 'forward')} recomputed"]
        if found.recomputations
        else ["nothing is recomputed"]
    )
    most = int(np.diff(found.first).max())
    return [*notes, f"{most} {what} in a column: {added} added up, most runs"] if most > 1 else notes


def _runs(axes: Axes, found: Stages, label: str) -> None:
    """Draw the runs of each forward: the first run and recomputations."""
    from matplotlib.ticker import MaxNLocator

    left, width = found.first[:-1] - 0.5, np.diff(found.first).astype(np.float64)
    edge: Any = {"edgecolor": "white", "linewidth": 0.4} if len(width) <= 100 else {"linewidth": 0}
    axes.bar(left, np.minimum(found.runs, 1), width, align="edge", color=LIGHT[Role.FORWARD], **edge)
    more = np.maximum(found.runs - 1, 0)
    axes.bar(left, more, width, bottom=1, align="edge", color=FATES[Fate.RECOMPUTED], **edge)
    axes.set_ylabel("forward runs")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    axes.set_xlim(-0.5, found.first[-1] - 0.5)
    axes.set_ylim(0, max(int(found.runs.max(initial=1)), 1) * 1.08)
    count_ticks(axes.xaxis)
    axes.set_xlabel(label)


def _levels(result: Result, found: Stages) -> Figure:
    """Draw which states are checkpoints, a row for each level of storage, and how often forwards run."""
    from matplotlib.ticker import MaxNLocator

    used = np.flatnonzero(found.checkpoints).tolist() or [result.machine.processors[0].memory]
    figure, panels, total = _frame(result, (*[max(0.55, 2.2 / len(used))] * len(used), 1.3), gap=0.18, bottom=0.95)
    left, width = found.first[:-1] - 0.5, np.diff(found.first).astype(np.float64)
    legend, colours = {}, _level_colours(result)
    for level, axes in zip(used, panels, strict=False):
        colour = colours[level]
        axes.bar(left, found.levels[:, level], width, align="edge", color=colour, linewidth=0)
        axes.set_ylim(0, max(1, int(found.levels[:, level].max())) * 1.08)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
        axes.tick_params(labelbottom=False)
        name = result.machine.memories[level].name
        axes.set_ylabel(short_name(name, 12, end=3), parse_math=False)
        states, times = int(found.checkpoints[level]), int(found.levels[:, level].sum())
        often = "once each" if times == states else f"{times:,} times"
        legend[f"{shown_name(name)}: {states:,} state{'' if states == 1 else 's'}, {often}"] = colour
    _runs(panels[-1], found, "state")
    add_legend(figure, legend, ["checkpoints of each level", *_stage_notes(found, "states", "times")], total)
    return figure


def _reversal(result: Result, layout: ChainLayout) -> Figure:
    from matplotlib.ticker import MaxNLocator

    found = reversal_of(result, layout, columns=COLUMNS, rows=2 * ROWS, most=MOST_LINES)
    assert result.report is not None
    span = float(result.report.makespan) or 1.0
    scale = TimeScale.of(span, result.units)
    colours = _level_colours(result)
    uses = [use for use in uses_of(result, layout) if use.memory in colours]
    heights = (4.6, *[max(0.4, 1.6 / max(len(uses), 3))] * len(uses))
    figure, (axes, *below), total = _frame(result, heights, gap=0.2, bottom=1.0)
    legend = {}
    for stroke, (label, colour, width) in STROKES.items():
        for memory in np.unique(found.memory[found.stroke == stroke]).tolist():
            mine = (found.stroke == stroke) & (found.memory == memory)
            if memory >= 0:
                colour, name = colours[memory], shown_name(result.machine.memories[memory].name)
                label = f"state kept in {name}" if len(colours) > 1 else "state that is kept"
                width = 0.9 if int(mine.sum()) <= MOST_DOTS else 0.6
            legend[label] = colour
            begin, end = found.begin[mine] / [scale.factor, 1], found.end[mine] / [scale.factor, 1]
            # One path for all of them, with gaps: a tenth of the file.
            path = np.stack((begin, end, np.full_like(begin, np.nan)), axis=1).reshape(-1, 2)
            axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=width, solid_capstyle="butt", clip_on=False)
            if memory >= 0 and len(begin) <= MOST_DOTS:
                axes.plot(begin[:, 0], begin[:, 1], "o", color=colour, markersize=3.0, clip_on=False)
    axes.set_xlim(0, span / scale.factor)
    axes.set_ylim(-0.02 * max(layout.length, 1), 1.02 * max(layout.length, 1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.set_ylabel("state")
    for panel, use in zip(below, uses, strict=True):
        _draw_use(panel, result, use, (span, scale.factor), colours[use.memory])
    for panel in (axes, *below):
        count_ticks(panel.yaxis)
        panel.tick_params(labelbottom=panel is (below or [axes])[-1])
    last = below[-1] if below else axes
    last.set_xlabel(f"time ({scale.unit})")
    count_ticks(last.xaxis)
    notes = [f"{found.hidden:,} lines that coincide with others, or are shorter, left out"] if found.hidden else []
    add_legend(figure, legend, notes, total)
    return figure


def _level_colours(result: Result) -> dict[int, str]:
    """Return a colour for each memory that keeps states: the working memory first, then in their order."""
    working = result.machine.processors[0].memory
    order = sorted(range(len(result.machine.memories)), key=lambda index: index != working)
    return {index: LEVELS[place % len(LEVELS)] for place, index in enumerate(order)}


def _draw_use(axes: Axes, result: Result, use: Use, scale: tuple[float, float], colour: str) -> None:
    """Draw the number of states in a memory, and its capacity in states."""
    from matplotlib.ticker import MaxNLocator

    span, factor = scale
    time, count = use.time, use.count.astype(np.float64)
    if len(time) > 2 * COLUMNS:
        time, count = slice_maxima(time, count, span, COLUMNS)
    x, y = np.append(time, span) / factor, np.append(count, count[-1])
    axes.fill_between(x, 0, y, step="post", color=colour, alpha=0.65, linewidth=0)
    highest = int(use.count.max(initial=1))
    limited = use.most is not None and use.most <= 3 * highest
    axes.set_ylim(0, 1.18 * max(highest, use.most or 0 if limited else 0))
    name = short_name(result.machine.memories[use.memory].name, 12, end=3)
    axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=14, parse_math=False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    limit = "" if use.most is None else f" of {use.most:,}"
    said = f"at most {highest:,}{limit} state{'' if highest == 1 and not limit else 's'}"
    if use.most is not None and limited:
        axes.axhline(use.most, color=LIGHT[Role.BUDGET], linewidth=1.0, linestyle=(0, (6, 3)))
    axes.annotate(
        said,
        (1.0, 1.0),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=7.5,
    )


# ------------------------------------------------------------------------------------------------- trees


def _tree(result: Result, layout: TreeLayout) -> Figure:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    found = icicle_of(result, layout)
    nodes, rows = len(found.order), min(found.depths, ROWS)
    height = min(5.5, max(1.2, 0.34 * rows))
    figure, (axes,), total = _frame(result, (height,), bottom=0.5)
    ramp = matplotlib.colormaps["viridis"]
    shade = found.order / max(nodes - 1, 1)
    if nodes <= MOST_BOXES and found.depths <= ROWS:
        _boxes(axes, np.column_stack((found.left, found.right)), found.depth, ramp(shade), 0.4 if nodes < 500 else 0.15)
        spilled = found.spilled > 0
        sides = np.column_stack((found.left, found.right))[spilled]
        _boxes(axes, sides, found.depth[spilled], _SPILLED, 0.0, found.spilled[spilled])
        _name_nodes(axes, result, found, shade)
        axes.set_ylim(found.depths, 0)
    else:
        axes.imshow(
            icicle_pixels(found, shade, ramp, rows=rows, columns=COLUMNS),
            extent=(0, 1, found.depths, 0),
            aspect="auto",
            interpolation="nearest",
        )
    axes.set_xlim(0, 1)
    axes.set_xticks([])
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.set_ylabel("depth")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    inset = figure.add_axes((0.50, 0.13 / total, 0.10, 0.14 / total))
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), ramp), cax=inset, orientation="horizontal", ticks=[])
    bar.outline.set_visible(False)
    figure.text(0.495, 0.2 / total, "runs first", ha="right", va="center")
    figure.text(0.605, 0.2 / total, "last", ha="left", va="center")
    volume = format_size(found.volume, result.units)
    whole = format_size(int(result.graph.size.sum()), result.units)
    count = int((found.spilled > 0).sum())
    label = (
        f"spilled: {volume} of {whole}, from {count:,} of {counted(nodes, 'node')}"
        if count
        else f"{counted(nodes, 'node')} in core"
    )
    add_legend(
        figure, {label: _SPILLED if count else _IN_CORE}, ["as wide as the outputs of the subtree together"], total
    )
    return figure


def _boxes(axes: Axes, sides: NDArray[np.float64], row: Any, colours: Any, edge: float, height: Any = 1.0) -> None:
    from matplotlib.collections import PolyCollection

    low, high = row + 1.0, row + 1.0 - height
    corners = [(sides[:, 0], low), (sides[:, 1], low), (sides[:, 1], high), (sides[:, 0], high)]
    boxes = np.stack([np.column_stack(corner) for corner in corners], axis=1)
    axes.add_collection(
        PolyCollection(list(boxes), facecolors=colours, edgecolors="white" if edge else "none", linewidths=edge)
    )


def _name_nodes(axes: Axes, result: Result, found: Icicle, shade: NDArray[np.float64]) -> None:
    """Write names where they fit: a letter is about 1/150 of the width."""
    for node in np.flatnonzero((found.right - found.left) * 150 > 2).tolist():
        room = (found.right[node] - found.left[node]) * 150 - 0.5
        name = next((n for n in names_of_task(result.graph, node) if len(n) <= room), "")
        if name and found.depths <= 30:
            dark = shade[node] < 0.6 and found.spilled[node] < 0.5
            axes.text(
                (found.left[node] + found.right[node]) / 2,
                found.depth[node] + 0.5,
                name,
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if dark else "black",
                parse_math=False,
            )


def icicle_pixels(
    found: Icicle, shade: NDArray[np.float64], ramp: Any, *, rows: int, columns: int
) -> NDArray[np.float64]:
    """Return the tree as an image: each pixel has the mean order and the spilled share of its nodes."""
    scale = rows / found.depths
    box = (found.left * columns, found.right * columns), (found.depth * scale, (found.depth + 1) * scale)
    there = coverage(*box, (rows, columns))
    some = np.maximum(there, 1e-12)
    mean = coverage(*box, (rows, columns), shade) / some
    share = np.clip(coverage(*box, (rows, columns), found.spilled) / some, 0, 1)[:, :, None]
    spilled = np.array([int(_SPILLED[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    colour = ramp(mean)[:, :, :3] * (1 - share) + spilled * share
    shown = np.clip(there, 0, 1)[:, :, None]
    image: NDArray[np.float64] = colour * shown + (1 - shown)
    return image


# ------------------------------------------------------------------------------------------------ values


def _values(result: Result) -> Figure:
    found = occupancy_of(result)
    assert result.report is not None
    span = float(result.report.makespan) or 1.0
    scale = TimeScale.of(span, result.units)
    figure, (axes,), total = _frame(result, (4.8,))
    packed = not len(found.top)
    factor, unit = size_scale(max(int(found.height), 1), result.units)
    height = found.height / factor or 1.0
    if len(found.kind) <= MOST_BOXES:
        for stay in sorted(Stay, key=lambda stay: stay is not Stay.ELSEWHERE):
            mine = found.kind == stay
            sides = np.column_stack((found.begin[mine], found.end[mine])) / scale.factor
            low, size = found.low[mine] / factor, (found.high[mine] - found.low[mine]) / factor
            _boxes(axes, sides, low + size - 1.0, STAYS[stay], 0.4 if len(found.kind) < 500 else 0.15, size)
    else:
        layers = [(found.kind == stay, STAYS[stay]) for stay in sorted(Stay, key=lambda stay: stay is Stay.ELSEWHERE)]
        axes.imshow(
            box_pixels(layers, (found.begin, found.end, found.low, found.high), span, found.height),
            extent=(0, span / scale.factor, height, 0),
            aspect="auto",
            interpolation="nearest",
        )
    # Bands are listed from above in the order of appearance; packed boxes start at the bottom, like addresses.
    axes.set_ylim(*((0, height * 1.02) if packed else (height, 0)))
    axes.set_yticks([])
    if packed:
        _measure(axes, f"bytes ({unit})")
        _name_boxes(axes, result, found, (span, scale.factor), factor)
    elif len(found.kind) <= MOST_BOXES:
        _name_bands(axes, result, found, factor)
    axes.set_xlim(0, span / scale.factor)
    axes.set_xlabel(f"time ({scale.unit})")
    count_ticks(axes.xaxis)
    legend = {stay.label: STAYS[stay] for stay in Stay if (found.kind == stay).any()}
    how = "packed in the working memory, the longest below" if packed else "in order of first appearance"
    add_legend(figure, legend, [f"{counted(len(found.values), 'value')}, as high as they are large, {how}"], total)
    return figure


def _measure(axes: Axes, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    count_ticks(axes.yaxis)
    axes.set_ylabel(label)


def _name_boxes(axes: Axes, result: Result, found: Occupancy, time: tuple[float, float], factor: float) -> None:
    """Name the residencies whose boxes fit a line of text: a letter is about 1/150 of the width."""
    span, seconds = time
    wide = (found.end - found.begin) / span * 150
    high = (found.high - found.low) / (found.height or 1.0)
    for k in np.flatnonzero((wide > 2) & (high > 0.13 / 4.8)).tolist():
        value = int(found.values[found.band[k]])
        name = next((n for n in names_of_value(result.graph, value) if len(n) + 0.5 <= wide[k]), "")
        if name:
            middle = (found.begin[k] + found.end[k]) / 2 / seconds, (found.low[k] + found.high[k]) / 2 / factor
            axes.text(*middle, name, ha="center", va="center", fontsize=7.5, parse_math=False)


def _name_bands(axes: Axes, result: Result, found: Occupancy, factor: float) -> None:
    """Name the bands that are high enough for a line of text."""
    middle = (found.top[1:] + found.top[:-1]) / 2 / factor
    high = np.flatnonzero(np.diff(found.top) / (found.height or 1.0) > 0.13 / 4.8).tolist()
    names = [next(n for n in (*names_of_value(result.graph, int(found.values[k])), "") if len(n) <= 16) for k in high]
    axes.set_yticks(middle[high], names)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="y", length=0)


def box_pixels(
    layers: Sequence[tuple[NDArray[np.bool_], str]], sides: Sequence[NDArray[Any]], span: float, height: float
) -> NDArray[np.float64]:
    """Return boxes as an image: in each pixel the share of each layer of boxes, the first layers first.

    A layer is a mask of boxes and their colour; the sides are begin, end, low and high of all boxes.
    """
    shape = (ROWS, COLUMNS)
    down, along = ROWS / (height or 1.0), COLUMNS / span
    picture = np.ones((*shape, 3))
    free = np.ones(shape)
    for mine, name in layers:
        begin, end, low, high = (side[mine] for side in sides)
        share = np.clip(coverage((begin * along, end * along), (low * down, high * down), shape), 0.0, free)
        free -= share
        colour = np.array([int(name[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        picture -= share[:, :, None] * (1 - colour)
    return np.clip(picture, 0, 1)


# --------------------------------------------------------------------------------------------- addresses


def _addresses(result: Result) -> Figure:
    """Draw each residency over time and address, a panel for each memory that is laid out."""
    assert result.report is not None
    span = float(result.report.makespan) or 1.0
    scale = TimeScale.of(span, result.units)
    stays = composition_of(result).stays
    listed = [address_boxes(result, stays, memory) for memory in range(len(result.machine.memories))]
    shown = [found for found in listed if found is not None][:MOST_ARENAS]
    figure, panels, total = _frame(result, [4.8 if len(shown) == 1 else 3.4] * len(shown))
    for axes, found in zip(panels, shown, strict=True):
        _draw_arena(axes, result, found, (span, scale.factor))
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[-1].set_xlabel(f"time ({scale.unit})")
    used = {kind for found in shown for kind in found.kind.tolist()}
    labels = labels_of(result)
    legend = {labels[kind]: KINDS[kind] for kind in STACKED if kind in used}
    if any(found.static or found.arena.reserved for found in shown):
        legend["static or reserved"] = LIGHT[Role.ELSEWHERE]
    notes = [counted(sum(len(found.kind) for found in shown), "residency")]
    for found in shown:
        name = result.machine.memories[found.arena.memory].name
        size, peak = (format_budget(size, result.units) for size in (found.arena.size, result.report.peaks[name].size))
        notes.append(f"arena of {shown_name(name)} {size}, peak {peak}")
    add_legend(figure, legend, notes, total)
    return figure


def _draw_arena(axes: Axes, result: Result, found: Boxes, time: tuple[float, float]) -> None:
    span, seconds = time
    capacity = result.machine.memories[found.arena.memory].capacity
    factor, unit = size_scale(max(found.arena.size, 1), result.units)
    top = float(found.arena.size or 1)
    blocked = [*(((0, found.static),) if found.static else ()), *found.arena.reserved]
    for low, high in blocked:
        axes.axhspan(low / factor, min(high, top) / factor, facecolor=LIGHT[Role.ELSEWHERE], linewidth=0)
    sides = (found.begin, found.end, found.low, found.high)
    masks = [(found.kind == kind, KINDS[kind]) for kind in STACKED]
    if len(found.kind) <= MOST_BOXES:
        for mine, colour in masks:
            across = np.column_stack((found.begin[mine], found.end[mine])) / seconds
            size = (found.high[mine] - found.low[mine]) / factor
            edge = 0.4 if len(found.kind) < 500 else 0.15
            _boxes(axes, across, found.low[mine] / factor + size - 1.0, colour, edge, size)
        _name_residencies(axes, result, found, time, factor)
    else:
        image = box_pixels([(mine, colour) for mine, colour in masks if mine.any()], sides, span, top)
        extent = (0, span / seconds, top / factor, 0)
        axes.imshow(image, extent=extent, aspect="auto", interpolation="nearest")
    highest = top
    if capacity is not None and capacity <= 1.25 * top:
        axes.axhline(capacity / factor, color=LIGHT[Role.BUDGET], linewidth=1.0, linestyle=(0, (5, 3)))
        highest = max(highest, float(capacity))
    axes.set_xlim(0, span / seconds)
    axes.set_ylim(0, highest / factor * 1.02)
    name = short_name(result.machine.memories[found.arena.memory].name, 12, end=3)
    _measure(axes, f"address in {name} ({unit})")


def _name_residencies(axes: Axes, result: Result, found: Boxes, time: tuple[float, float], factor: float) -> None:
    """Name the boxes that fit a line of text: a letter is about 1/150 of the width."""
    span, seconds = time
    wide = (found.end - found.begin) / span * 150
    tall = (found.high - found.low) / (found.arena.size or 1)
    for k in np.flatnonzero((wide > 2) & (tall > 0.13 / 3.4)).tolist():
        value, task = int(found.value[k]), int(found.task[k])
        names = names_of_task(result.graph, task) if value < 0 else names_of_value(result.graph, value)
        name = next((one for one in names if len(one) + 0.5 <= wide[k]), "")
        if name:
            middle = (found.begin[k] + found.end[k]) / 2 / seconds, (found.low[k] + found.high[k]) / 2 / factor
            ink = ink_on(KINDS[Kind(int(found.kind[k]))])
            axes.text(*middle, name, ha="center", va="center", fontsize=7.5, color=ink, parse_math=False)
