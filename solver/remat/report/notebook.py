"""Notebook display of results, sweeps and instances (see `remat.solving.display`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import singledispatch
from html import escape
from typing import TYPE_CHECKING, Any, cast

from remat.errors import MissingExtraError, OptionError
from remat.instance import BaseInstance
from remat.messages import counted
from remat.report.page import page
from remat.report.page.curves import curves_page
from remat.report.plot import pareto, schedule
from remat.report.plot.style import PAGE, figure_of, save_figure, svg_of
from remat.report.text import curve_tables, summary
from remat.report.text.actions import actions
from remat.report.text.facts import facts_table
from remat.report.text.readable_names import shown_name, sizes_as_limits
from remat.schedule.document import Copy, Run
from remat.solving.facts import show
from remat.solving.questions.curves import Sweep
from remat.solving.result import Result
from remat.units import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from remat.instance import Instance

LINES = ("makespan", "overhead", "period", "peak memory", "lower bound", "minimum budget")
"""Rows of a summary that a result shows of itself."""

MOST_TASKS = 5_000
"""Tasks of an instance whose facts are looked up only to show them."""


def told(what: Result) -> list[str]:
    """Return the actions of a schedule."""
    return list(actions(what))


@singledispatch
def lines(what: object) -> list[str]:
    """Return at most five lines."""
    raise TypeError(f"objects of type {type(what).__name__} have no view")


@lines.register
def _(what: Result) -> list[str]:
    with sizes_as_limits(what.machine):
        rows = dict(row for row in summary.lines_of(what) if row[0])
    found = [f"{rows['instance']} by {rows['algorithm']}: {rows['status']}"]
    return found + [f"  {label:<13}{rows[label]}" for label in LINES if label in rows][:4]


@lines.register
def _(what: Sweep) -> list[str]:
    over = f"over {shown_name(what.memory)}"
    found = [
        f"{shown_name(what.instance_name) or '(unnamed)'}: {counted(len(what.curves), 'time-memory curve')} {over}"
    ]
    for curve in what.curves:
        about = curve_tables.remark(curve, what.units)
        found.append(f"  {shown_name(curve.algorithm)}: {about}; {counted(len(curve.points), 'point')}")
    return found if len(found) <= 5 else [*found[:4], f"  ... and {len(found) - 4} more"]


@lines.register
def _(what: BaseInstance) -> list[str]:
    extent = "" if what.length is None else f", length {what.length:,}"
    static = f", {format_size(what.static_memory, what.units.build())} static" if what.static_memory else ""
    return [f"{type(what).__name__}({shown_name(what.name) or '(unnamed)'!r}{extent}{static})"]


@singledispatch
def text(what: object) -> str:
    """Return the table of the command line."""
    raise TypeError(f"objects of type {type(what).__name__} have no view")


@text.register
def _(what: Result) -> str:
    with sizes_as_limits(what.machine):
        return summary.summary(what)


@text.register
def _(what: Sweep) -> str:
    return curve_tables.sweep_table(what)


@text.register
def _(what: BaseInstance) -> str:
    facts = show(cast("Instance", what))
    with sizes_as_limits(facts.machine):
        return facts_table(facts)


MOST_LETTERS = 2_000_000
"""Size of a page that a notebook is given; of larger ones it has a picture, where matplotlib is installed."""


def html(what: Any) -> str:
    """Return a few lines, the interactive page of a schedule or sweep, and the folded table; of an instance, the facts.

    The lines and the table also work where scripts are forbidden. Everything is exactly as wide as the cell.
    """
    if isinstance(what, BaseInstance):
        return cell(text(what) if is_small(what) else "\n".join(lines(what)))
    shown = ""
    with suppress(OptionError), _sizes_of(what):
        document = page(what) if isinstance(what, Result) else curves_page(what)
        shown = framed(document) if len(document) <= MOST_LETTERS else _still(what)
    return cell("\n".join(lines(what)), shown, text(what))


def cell(told: str, shown: str = "", table: str = "") -> str:
    """Return the contents of a notebook cell: text, a picture or a frame, and a table that unfolds."""
    pre = '<pre style="overflow-x:auto;margin:0;line-height:1.35">'
    folded = f"<details><summary>table</summary>{pre}{escape(table)}</pre></details>" if table else ""
    return f'<div class="remat" style="max-width:100%">{pre}{escape(told)}</pre>{shown}{folded}</div>'


def framed(document: str, height: int = 720) -> str:
    """Return a page in a separate frame, which isolates its style and scripts."""
    style = f"width:100%;height:{height}px;border:1px solid #8884;border-radius:4px;margin:6px 0"
    return f'<iframe sandbox="allow-scripts" loading="lazy" style="{style}" srcdoc="{escape(document)}"></iframe>'


def _still(what: Any) -> str:
    with suppress(MissingExtraError):
        return svg_of(_picture(what)).replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    return ""


def is_small(instance: BaseInstance) -> bool:
    """Whether the facts of an instance can be computed immediately."""
    sizes = (getattr(instance, "tasks", ()), getattr(instance, "parent", ()))
    return max(instance.length or 0, *map(len, sizes)) <= MOST_TASKS


def figure(what: Any, **options: Any) -> Figure:
    """Return the picture as a matplotlib figure."""
    with _sizes_of(what):
        return figure_of(_picture(what, **options))


def save(what: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the picture, or the interactive page of a schedule."""
    with _sizes_of(what):
        if isinstance(what, Result):
            alone = os.path.splitext(os.fspath(path))[1].lower() == PAGE and not options
            schedule.plot(what, path, view="time" if alone else _view(what, **options))
        elif isinstance(what, Sweep) and not options:
            pareto.plot_sweep(what, path)
        else:
            save_figure(path, _picture(what, **options))


def _sizes_of(what: Any) -> AbstractContextManager[None]:
    """Show the sizes of a result in the kind of unit of its limits, as the command line does."""
    return sizes_as_limits(what.machine) if isinstance(what, Result) else nullcontext()


def _picture(what: Any, view: str | None = None) -> Callable[[], Figure]:
    if isinstance(what, Result):
        return schedule.picture(what, _view(what, view))
    if isinstance(what, Sweep):
        return pareto.picture_of_sweep(what)
    raise OptionError("an instance has no pictures; solve it first")


def _view(result: Result, view: str | None = None) -> str:
    return view or ("time" if result.orders is None else "devices")


def records(what: Result | Sweep) -> list[dict[str, Any]]:
    """Return one row per step of a result, or per answer of a sweep."""
    return list(_steps(what)) if isinstance(what, Result) else what.to_records()


def _steps(result: Result) -> Iterator[dict[str, Any]]:
    for step in result.steps:
        row: dict[str, Any] = {"kind": type(step).__name__.lower(), "start": step.start}
        if isinstance(step, Run):
            row |= {"what": step.task, "where": ", ".join(step.on or ())}
        elif isinstance(step, Copy):
            row |= {"what": step.value, "where": f"{step.source}->{step.target}"}
        else:
            row |= {"what": ", ".join(step.values), "where": step.memory}
        yield row
