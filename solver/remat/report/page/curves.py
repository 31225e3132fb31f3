"""The self-contained page of a sweep: tables, and curves that show the figures of each point on hover."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from remat.documents import write_text
from remat.errors import OptionError
from remat.messages import printable
from remat.report.text.curve_tables import HEADER, remark, rows_of
from remat.report.text.readable_names import shown_name
from remat.report.views.curves import COLOURS, is_logarithmic, label_of, lower_bounds, usual_top
from remat.solving.questions.curves import Curve, Sweep
from remat.units import format_budget, format_percent, format_time, shown_base, size_scale


def write_curves(sweep: Sweep, path: str | os.PathLike[str]) -> None:
    """Write the page of a sweep, atomically.

    Raises
    ------
    remat.OptionError
        If no curve has a point.
    remat.RematError
        If the file cannot be written.
    """
    write_text(path, [curves_page(sweep)])


def curves_page(sweep: Sweep) -> str:
    """Return one HTML document; equal sweeps give equal pages.

    Raises
    ------
    remat.OptionError
        If no curve has a point.
    """
    shown = [curve for curve in sweep.curves if curve.points]
    if not shown:
        raise OptionError("there is no schedule, and so no curve to plot", argument="plot")
    name = escape(printable(sweep.instance_name) or "(unnamed)")
    described = json.dumps(_described(sweep, shown), separators=(",", ":")).replace("<", "\\u003c")
    alone = format_time(sweep.no_recompute_time, sweep.units)
    memory = escape(shown_name(sweep.memory))
    about = f"time over the memory that a schedule needs, {memory} · without recomputation {alone}"
    body = [
        f'<header><h1>{name}</h1><p class="soft">{about}</p></header>',
        _PICTURE,
        *(_table(curve, sweep, COLOURS[k % len(COLOURS)]) for k, curve in enumerate(shown)),
    ]
    files = resources.files("remat.report.page")
    style, script, figures = (files.joinpath(n).read_text("utf-8") for n in ("style.css", "curves.js", "figures.js"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}: remat</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{style}</style></head>\n<body>{''.join(body)}\n"
        f'<script type="application/json" id="head">{described}</script>\n'
        f"<script>{figures}{script}</script></body></html>\n"
    )


_PICTURE = (
    '<figure><canvas id="curves" role="img" aria-label="makespan over peak memory, one curve for each algorithm">'
    '</canvas><div id="tip" role="status" hidden></div></figure>'
    '<p class="soft">Ring: knee. Dashes: lower bound, no schedule within the budget is faster. Point at the picture '
    "for the figures at a budget.</p>"
)


def _described(sweep: Sweep, shown: Sequence[Curve]) -> dict[str, object]:
    peaks = [point.peak or 0 for curve in shown for point in curve.points]
    times = [float(point.makespan or 0) for curve in shown for point in curve.points]
    _, unit = size_scale(max(*peaks, 1), sweep.units)
    top = usual_top(times, float(sweep.no_recompute_time))
    return {
        "units": {"time": sweep.units.time, "memory": sweep.units.memory, "base": shown_base() or 1024},
        "unit": unit,
        "memory": shown_name(sweep.memory),
        "reference": float(sweep.no_recompute_time),
        "logarithmic": is_logarithmic(peaks),
        "logarithmic_time": is_logarithmic([*(time for time in times if time <= top), top]),
        "top": top,
        "bounds": [[None if budget == float("inf") else budget, time] for budget, time in lower_bounds(sweep)],
        "curves": [
            {
                "name": label_of(curve),
                "colour": COLOURS[k % len(COLOURS)],
                "knee": -1 if curve.knee is None else list(curve.points).index(curve.knee),
                "points": [[point.peak or 0, float(point.makespan or 0)] for point in curve.points],
                "texts": list(_texts(curve, sweep)),
            }
            for k, curve in enumerate(shown)
        ],
    }


def _texts(curve: Curve, sweep: Sweep) -> Iterator[str]:
    for point in curve.points:
        overhead = "" if point.overhead is None else f", overhead {format_percent(point.overhead)}"
        finder = "" if point.algorithm in (curve.algorithm, curve.registered) else f" by {shown_name(point.algorithm)}"
        peak, time = format_budget(point.peak or 0, sweep.units), format_time(point.makespan or 0, sweep.units)
        yield f"{time}{overhead}, peak {peak}, {point.status}{finder}"


def _table(curve: Curve, sweep: Sweep, colour: str) -> str:
    head = "".join(f"<th>{escape(title)}" for title in HEADER)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(printable(cell))}' for cell in row)}</tr>" for row in rows_of(curve, sweep.units)
    )
    return (
        f'<section><h2><i class="line" style="background:{colour}"></i>{escape(label_of(curve))}</h2>'
        f'<p class="soft">{escape(printable(remark(curve, sweep.units)))}</p>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )
