"""The best schedules of a comparison as inline SVG: memory and resources over time, and kept or offloaded values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType

from remat.comparing.cells import Cell, Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.report.page.charts import LEFT, RIGHT, WIDTH
from remat.comparing.report.tables import budget_text, units_of
from remat.messages import counted
from remat.report.text.readable_names import shown_name
from remat.report.views.kinds import TRAINING, Kind, kind_label
from remat.report.views.minimap import (
    LEVELS,
    NOTHING,
    PHASES,
    SHADES,
    SLICES,
    SPILLED,
    STAYS,
    Bars,
    Line,
    Lines,
    Miniature,
    Pixels,
    Row,
    runs_of,
    unpack,
)
from remat.report.views.reversal import Stroke
from remat.report.views.stages import Fate
from remat.units import Units, format_budget, format_size, format_time

MOST_BYTES = 1_000_000
"""Maximum size of all these pictures together (about 180 schedules); omitted ones are counted."""

MEMORY, ROW, GAP = 84, 15, 10
"""Heights."""

_ACROSS = WIDTH - LEFT - RIGHT
_COLOURS = {letter: f"k-{letter}" for letter in PHASES.values()}
_STAY_COLOURS = {"c": "k-t", "o": "k-f", "s": "k-s", "r": "k-r", "b": "k-b", "f": "k-c", "i": "k-p", "e": "k-e"}
_FATE_COLOURS = {Fate.KEPT: "k-v", Fate.CHECKPOINT: "k-k", Fate.RECOMPUTED: "k-r", Fate.OFFLOADED: "k-c"}
_STROKE_COLOURS = {
    Stroke.STORED: "k-c",
    Stroke.CHECKPOINT: "k-k",
    Stroke.FORWARD: "k-f",
    Stroke.SAVING: "k-s",
    Stroke.RECOMPUTATION: "k-r",
    Stroke.BACKWARD: "k-b",
}

LEGEND = (
    ("memory", "memory"),
    ("budget", "budget"),
    ("peak", "peak"),
    ("k-f", "forward"),
    ("k-t", "task"),
    ("k-s", "saving forward"),
    ("k-r", "recomputation"),
    ("k-l", "loss"),
    ("k-b", "backward"),
    ("k-w", "weight gradient"),
    ("k-u", "update"),
    ("k-c", "copy, offloaded"),
    ("k-v", "kept"),
    ("k-k", "checkpoint"),
    ("k-p", "from the start"),
    ("k-e", "in another memory"),
    ("t-S", "spilled"),
)
"""Classes of shapes and their meanings; the legend of each picture lists those that it contains."""

_CLASSES = re.compile(r'<(?:path|circle) class="([^"]*)"')


def schedules(comparison: Comparison, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a figure for the best cell of each instance and budget, or nothing if no cell has a picture.

    `links` maps the keys of cells to pages of their schedules.

    If the pictures exceed `MOST_BYTES`, each instance gets one before any instance gets two.
    """
    cells = list(best_cells(comparison))
    seen: dict[str, int] = {}
    turns = []
    for place, cell in enumerate(cells):
        seen[cell.job.instance] = seen.get(cell.job.instance, 0) + 1
        turns.append((seen[cell.job.instance], place))
    drawn: dict[int, str] = {}
    size = 0
    for _, place in sorted(turns):
        figure = _figure(cells[place], links.get(cells[place].job.key, ""))
        size += len(figure.encode("utf-8", "surrogatepass"))
        if size > MOST_BYTES:
            break
        drawn[place] = figure
    shown = "".join(figure for _, figure in sorted(drawn.items()))
    if not shown:
        return ""
    left = len(cells) - len(drawn)
    more = f'<p class="soft">and {left:,} more, too many for this page</p>' if left else ""
    return f'<div class="charts">{shown}</div>{more}'


def _key(drawn: str) -> str:
    """Explain the colours of a picture."""
    used = {style for listed in _CLASSES.findall(drawn) for style in listed.split()}
    marks = "".join(f'<span><i class="{style}"></i>{text}</span>' for style, text in LEGEND if style in used)
    order = ""
    if "t-a" in used or "t-b" in used:
        shades = "".join(f'<i class="t-{chr(ord("a") + k)}"></i>' for k in range(SHADES))
        order = f'<span class="ramp">{shades}runs first to last</span>'
    return f'<div class="legend keys">{marks}{order}</div>'


def best_cells(comparison: Comparison) -> Iterator[Cell]:
    """Yield the first cell with a picture among the winners of each instance and budget."""
    for cells in comparison.by_case.values():
        best = next((cell for cell in comparison.winners(cells) if cell.answer.picture), None)
        if best is not None:
            yield best


def _figure(cell: Cell, link: str = "") -> str:
    record = unpack(cell.answer.picture)
    if record is None:
        return ""
    job, answer, units = cell.job, cell.answer, units_of(cell)
    parts = [job.algorithm]
    if answer.makespan is not None:
        parts.append(format_time(answer.makespan, units))
    if answer.overhead is not None:
        parts.append(f"overhead {max(0.0, 100 * answer.overhead):.3g} %")
    if answer.outcome is Outcome.OPTIMAL:
        parts.append("proved optimal")
    budget = budget_text(cell)
    title = f"{job.instance}{f', {budget}' if budget else ''}"
    about = " · ".join(parts)
    time = format_time(answer.makespan or 0, units)
    more = f' <a href="{escape(link)}">look into it</a>' if link else ""
    drawn = f"{_over_time(record, units, time)}{_view(record, units, time)}"
    return (
        f'<figure class="schedule"><figcaption>{escape(title)}<br><span class="soft">{escape(about)}</span>'
        f"{more}</figcaption>{drawn}{_key(drawn)}</figure>"
    )


def _svg(height: float, parts: Sequence[str], name: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(name)}">'
    return f"{head}{''.join(parts)}</svg>"


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    styled = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{styled}>{escape(text)}</text>'


def _margin(y: float, text: str, style: str = "") -> str:
    """Write into the left margin, condensed if the text is long."""
    drawn = _text(LEFT - 6, y, text, "end", style)
    return (
        drawn
        if len(text) <= 8
        else drawn.replace("<text", f'<text textLength="{LEFT - 8}" lengthAdjust="spacingAndGlyphs"', 1)
    )


def _short(name: str) -> str:
    """Fit a name into the margin."""
    name = shown_name(name)
    return name if len(name) <= 9 else f"{name[:4]}…{name[-3:]}"


def _boxes(rows: Sequence[str], columns: int, y: float, height: float, styles: dict[str, str]) -> str:
    """Draw the runs of each row, with one path for each letter."""
    scale = _ACROSS / columns
    paths: dict[str, list[str]] = {}
    for row, text in enumerate(rows):
        top = y + row * height
        for letter, first, end in runs_of(text):
            if letter != NOTHING:
                wide = (end - first) * scale
                paths.setdefault(letter, []).append(
                    f"M{LEFT + first * scale:.4g} {top:.4g}h{wide:.4g}v{height:.3g}h-{wide:.4g}z"
                )
    known = {letter: style for letter, style in styles.items() if letter in paths}
    return "".join(f'<path class="{style}" d="{"".join(paths[letter])}"/>' for letter, style in known.items())


# ---------------------------------------------------------------------------------------------- over time


def _over_time(record: Miniature, units: Units, time: str) -> str:
    parts: list[str] = []
    y = 0.0
    for line in record.memories:
        parts += _memory(line, units, y)
        y += MEMORY + GAP
        if len(line.parts) > 1:
            parts += _composition(line, units, y)
            y += GAP
    parts += _resources(record.rows, y)
    y += ROW * len(record.rows)
    if record.hidden_rows:
        y += 12
        parts.append(_text(LEFT, y, f"{record.hidden_rows} less busy ones not shown"))
    parts += [_text(LEFT, y + 14, "0"), _text(WIDTH - RIGHT, y + 14, time, "end")]
    return _svg(y + 20, parts, "memory and resources over time")


def _memory(line: Line, units: Units, y: float) -> Iterator[str]:
    near = line.capacity is not None and line.capacity <= 3 * max(line.peak, 1)
    top = max(line.peak, line.capacity or 0) if near else line.peak
    head, base = 16.0, y + MEMORY  # space above the line for the peak's cause
    high = (MEMORY - head) / max(top, 1) * max(line.peak, 1)  # of the peak
    scale = _ACROSS / max(len(line.levels), 1)
    corners = []
    for k, level in enumerate(line.levels):
        if k == 0 or level != line.levels[k - 1]:
            corners.append(f"H{LEFT + k * scale:.4g}V{base - high * level / LEVELS:.4g}")
    path = f"M{LEFT} {base:g}{''.join(corners)}H{WIDTH - RIGHT}V{base:g}z"
    yield f'<path class="memory" d="{path}"/>'
    if near and line.capacity is not None:
        at = base - (MEMORY - head) / max(top, 1) * line.capacity
        yield f'<path class="budget" d="M{LEFT} {at:.4g}H{WIDTH - RIGHT}"/>'
    x = LEFT + _ACROSS * min(line.at, SLICES) / SLICES
    yield f'<circle class="peak" cx="{x:.4g}" cy="{base - high:.4g}" r="2.6"/>'
    label = f"peak {format_budget(line.peak, units)}: {shown_name(line.cause)}"
    # To the right of the peak, or further to the left if space is short: a letter is about 5.7 wide.
    yield _text(max(LEFT, min(x + 2, WIDTH - RIGHT - 5.7 * len(label))), y + 9, label, style="strong")
    yield _margin(y + head + 8, _short(line.name))
    if line.capacity is not None:
        yield _margin(y + head + 22, format_budget(line.capacity, units), "limit")


def _composition(line: Line, units: Units, y: float) -> Iterator[str]:
    """Name the values at the peak, largest first, until the line is full: a letter is about 5.7 wide."""
    known = {int(kind) for kind in Kind}
    parts = [(Kind(kind), size) for kind, size in line.parts if kind in known]
    training = len(TRAINING & {kind for kind, _ in parts}) > 1
    said = [f"{kind_label(kind, training=training)} {format_size(size, units)}" for kind, size in parts]
    while len(said) > 1 and 5.7 * len(f"there: {', '.join(said)}") > _ACROSS:
        said.pop()
    yield _text(LEFT, y + 3, f"there: {', '.join(said)}")


def _resources(rows: Sequence[Row], y: float) -> Iterator[str]:
    for k, row in enumerate(rows):
        top = y + k * ROW
        yield _boxes([row.slices], SLICES, top + 1, ROW - 3, _COLOURS)
        yield _margin(top + ROW - 4, _short(row.name))


# -------------------------------------------------------------------------------------------------- views


def _view(record: Miniature, units: Units, time: str) -> str:
    if record.bars is not None:
        return _bars(record.bars, units)
    if record.lines is not None:
        return _lines(record.lines, time)
    if record.pixels is not None:
        return _pixels(record.pixels, time)
    return ""


def _bars(view: Bars, units: Units) -> str:
    high, low = 74.0, 26.0
    wide = _ACROSS / max(len(view.bars), 1)
    gap = min(1.0, wide / 6)
    paths: dict[str, list[str]] = {}

    def box(style: str, k: int, bottom: float, height: float) -> None:
        if height > 0.05:
            left, across = LEFT + k * wide, wide - gap
            paths.setdefault(style, []).append(f"M{left:.4g} {bottom:.4g}h{across:.3g}v-{height:.3g}h-{across:.3g}z")

    most = max(*view.runs, 1)
    foot = 12 + high + GAP + low
    for k, (bar, runs) in enumerate(zip(view.bars, view.runs, strict=True)):
        base = 12 + high
        for fate, level in zip(Fate, bar, strict=False):
            box(_FATE_COLOURS[fate], k, base, level * high / LEVELS)
            base -= level * high / LEVELS
        box("k-f", k, foot, low / most * min(runs, 1))
        box("k-r", k, foot - low / most, low / most * max(runs - 1, 0))
    parts = [f'<path class="{style}" d="{"".join(boxes)}"/>' for style, boxes in paths.items()]
    totals = [f"{fate.label} {format_size(size, units)}" for fate, size in zip(Fate, view.totals, strict=False) if size]
    parts.append(_text(LEFT, 9, ", ".join(totals), style="strong"))
    parts.append(_margin(20, format_size(view.top, units)))
    parts.append(_margin(foot - low + 8, counted(most, "run")))
    each = f", {view.group} in a bar" if view.group > 1 else ""
    parts += [_text(LEFT, foot + 13, "input"), _text(WIDTH - RIGHT, foot + 13, f"stage {view.stages:,}{each}", "end")]
    return _svg(foot + 18, parts, "stages: what is kept, checkpointed, recomputed, offloaded")


def _lines(view: Lines, time: str) -> str:
    high = 150.0
    paths: dict[int, list[str]] = {}
    for stroke, *ends in view.lines:
        (x0, y0), (x1, y1) = (
            (LEFT + _ACROSS * x / SLICES, 6 + high * (1 - y / LEVELS)) for x, y in (ends[:2], ends[2:])
        )
        to = f"H{x1:.4g}" if y0 == y1 else f"L{x1:.4g} {y1:.4g}"
        paths.setdefault(stroke, []).append(f"M{x0:.4g} {y0:.4g}{to}")
    parts = [
        f'<path class="stroke {_STROKE_COLOURS[Stroke(stroke)]}" d="{"".join(paths[stroke])}"/>'
        for stroke in sorted(paths)
        if stroke in _STROKE_COLOURS
    ]
    parts += [_margin(14, f"{view.length:,}"), _margin(high + 6, "state 0")]
    parts += [_text(LEFT, high + 22, "0"), _text(WIDTH - RIGHT, high + 22, time, "end")]
    return _svg(high + 28, parts, "sweeps forward and back over time, and states that are kept")


def _pixels(view: Pixels, time: str) -> str:
    tree = view.kind == "tree"
    letters = [*(chr(ord("a") + k) for k in range(SHADES)), SPILLED]
    styles = {letter: f"t-{letter}" for letter in letters} if tree else _STAY_COLOURS
    assert tree or set(styles) == set(STAYS.values())
    height = min(11.0, 130 / max(len(view.rows), 1))
    foot = 14 + height * len(view.rows)
    parts = [_boxes(view.rows, view.columns, 14, height, styles), _text(LEFT, 9, view.remark, style="strong")]
    if tree:
        parts.append(_margin(24, "root"))
        name = "tree: order of execution, and what is spilled"
    else:
        parts += [_text(LEFT, foot + 13, "0"), _text(WIDTH - RIGHT, foot + 13, time, "end")]
        name = "values over time, each as high as its size"
    return _svg(foot + (4 if tree else 18), parts, name)
