"""The memory of a model's training step as bars up to the budget."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from remat.report.palette import LIGHT, Role, ink_on
from remat.report.plot.style import LEFT, RIGHT, WIDTH, add_legend, count_ticks, save_figure
from remat.report.text.model_memory import Asked, blocks_of, split_of, verdicts
from remat.units import format_budget, format_size, size_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP, RESERVE = "optimizer's step", "reserve"
COLOURS = {
    "parameters": LIGHT[Role.PARAMETERS],
    "optimizer states": LIGHT[Role.STATES],
    "gradients": LIGHT[Role.PARAMETER_GRADIENTS],
    "gathered": LIGHT[Role.GATHERED],
    "activations": LIGHT[Role.SAVED],
    "logits and loss": LIGHT[Role.GRADIENTS],
    "workspace": LIGHT[Role.WORKSPACE],
    STEP: LIGHT[Role.BUCKETS],
    RESERVE: LIGHT[Role.ELSEWHERE],
}
"""From left to right."""

LETTERS = 130
"""Letters that fit into the width of a bar's axis."""

FAR = 12
"""Ratio of the longest bar to the budget above which the axis is cut."""


def plot_memory(asked: Asked, path: str | os.PathLike[str]) -> None:
    """Draw the memory of a step: SVG, PNG or PDF, by the suffix of the path.

    Parameters
    ----------
    asked : Asked
    path : path

    Raises
    ------
    remat.OptionError
        If the suffix is unknown.
    remat.MissingExtraError
        If matplotlib is not installed.
    remat.RematError
        If the file cannot be written.
    """
    save_figure(path, lambda: _draw(asked))


def bars(asked: Asked) -> dict[str, dict[str, int]]:
    """Return the bars, from above, each with its bytes by kind; a bar that the step does not need is left out."""
    found = asked.found
    peaks = {"without\nrecomputation": found.plain}
    if found.chosen is not None and found.chosen.recomputed not in (0, found.blocks):
        peaks[f"{blocks_of(found.chosen, found.blocks)}\nrecomputed".replace("the first", "first")] = found.chosen
    peaks["every block\nrecomputed"] = found.full
    made = {label: split_of(found, peak) | {RESERVE: asked.reserve} for label, peak in peaks.items()}
    if found.step_peak:
        step = {"parameters": found.static.parameters, "gradients": found.static.gradients}
        step |= {"optimizer states": found.static.states, STEP: found.static.step, RESERVE: asked.reserve}
        made["step of the\noptimizer"] = step
    return made


def _draw(asked: Asked) -> Figure:
    from matplotlib.figure import Figure

    shown = bars(asked)
    height = 1.75 + 0.62 * len(shown)
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    left = LEFT + 0.03
    axes = figure.add_axes((left, 0.95 / height, RIGHT - left, (height - 1.75) / height))
    longest = max(sum(sizes.values()) for sizes in shown.values())
    end = min(longest, FAR * asked.budget) if asked.budget else longest
    factor, unit = size_scale(max(end, asked.budget, 1))
    limit = 1.16 * max(end, asked.budget) / factor
    axes.set_xlim(0, limit)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    for row, sizes in enumerate(shown.values()):
        _draw_bar(axes, row, sizes, (factor, asked.budget / factor, limit))
    axes.set_yticks(range(len(shown)), list(shown))
    axes.tick_params(axis="y", length=0)
    axes.axvline(asked.budget / factor, color=LIGHT[Role.BUDGET], linewidth=1.3, linestyle=(0, (6, 3)), zorder=4)
    axes.annotate(
        f"budget {format_budget(asked.budget)}",
        (asked.budget / factor, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=LIGHT[Role.BUDGET],
    )
    axes.set_xlabel(f"memory ({unit})")
    count_ticks(axes.xaxis)
    name = f"{asked.found.work.model.name}: {asked.about}"
    figure.text(LEFT, 1 - 0.25 / height, name, fontsize=13, fontweight="bold", va="center", parse_math=False)
    figure.text(LEFT, 1 - 0.5 / height, next(verdicts(asked)), color="#404040", va="center", parse_math=False)
    there = [label for label in COLOURS if any(sizes.get(label) for sizes in shown.values())]
    add_legend(figure, {label: COLOURS[label] for label in there}, [], height)
    return figure


def _draw_bar(axes: Axes, row: int, sizes: Mapping[str, int], scale: tuple[float, float, float]) -> None:
    """Draw one bar with the sizes of wide parts in it, and its total behind it; a bar that is cut ends in an arrow.

    `scale` is the bytes of a unit, and the budget and the end of the axis in units.
    """
    factor, budget, limit = scale
    begin = 0.0
    for label, colour in COLOURS.items():
        width = sizes.get(label, 0) / factor
        if not width:
            continue
        axes.barh(row, width, 0.62, left=begin, color=colour, linewidth=0)
        text, visible = format_size(sizes[label]), min(begin + width, limit) - begin
        if visible / limit * LETTERS > len(text) + 2:
            place = begin + visible / 2
            axes.text(place, row, text, ha="center", va="center", fontsize=7.5, color=ink_on(colour))
        begin += width
    total = format_size(sum(sizes.values()))
    if begin > limit:
        style = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.9}
        axes.text(0.992 * limit, row, f"{total} →", ha="right", va="center", fontweight="bold", bbox=style, zorder=5)
    else:
        width = len(total) / LETTERS * limit
        begin = budget if begin <= budget < begin + 1.3 * width else begin  # not across the line of the budget
        axes.text(begin + 0.006 * limit, row, total, ha="left", va="center", fontweight="bold", zorder=5)
