"""The page of one schedule: facts, the picture, what lies where the cursor stands, and the peaks in words."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

from remat.documents import write_text
from remat.errors import OptionError
from remat.report.page.data import pack
from remat.report.palette import DARK, LIGHT, OF_KIND, OF_PHASE, Role
from remat.report.text.readable_names import shown_name
from remat.report.text.summary import summary
from remat.report.views.composition import Kind
from remat.report.views.phases import Phase
from remat.solving.result import Result
from remat.units import format_size, format_time
from remat.version import __version__

SCRIPTS = ("figures.js", "page.js", "pointer.js")

KEYS = (
    ("wheel, + and -", "zoom"),
    ("drag, ← and →", "move"),
    ("shift and drag", "zoom into a stretch"),
    ("double click, 0", "the whole schedule"),
    ("p", "the peak of each memory in turn"),
    (", and .", "the change of memory before and after the cursor"),
    ("click", "keep the cursor where it is; again: let it go"),
    ("/", "find tasks and values by words of their names; n and N: next and previous match"),
    ("y", "fit the height to what is in sight"),
    ("d", "light or dark"),
    ("Escape", "let the cursor go"),
)


def write_page(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the page of a schedule, atomically.

    Parameters
    ----------
    result : Result
        With a schedule.
    path : path

    Raises
    ------
    remat.OptionError
        If the result has no schedule.
    remat.RematError
        If the file cannot be written.
    """
    write_text(path, [page(result)])


def page(result: Result) -> str:
    """Return one HTML document; equal results give equal pages, but for the time of solving.

    Raises
    ------
    remat.OptionError
        If the result has no schedule.
    """
    if result.report is None:
        raise OptionError("there is no schedule to plot")
    head, data = pack(result)
    name = shown_name(result.instance_name) or "(unnamed)"
    body = [
        f"<header><h1>{escape(name)}</h1><p>{' · '.join(escape(fact) for fact in _facts(result))}</p></header>",
        _controls(),
        _legend(result, head),
        _picture(_in_words(head, result)),
        '<p id="trouble" hidden>This browser cannot unpack the schedule: it takes one of 2023 or later.</p>',
        "<noscript><p>The picture needs JavaScript; nothing is loaded from elsewhere.</p></noscript>",
        _RESIDENTS,
        f"<section><h2>At the peak</h2>{''.join(_peaks(head, result))}</section>",
        f"<details><summary>How it was found</summary><pre>{escape(summary(result))}</pre></details>",
        _help(),
    ]
    scripts = "\n".join(_asset(script) for script in SCRIPTS)
    described = json.dumps(head, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)}: remat</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_colours()}{_asset('style.css')}</style></head>\n<body>{''.join(body)}\n"
        f'<script type="application/json" id="head">{described}</script>\n'
        f'<script type="text/plain" id="data">{data}</script>\n<script>{scripts}</script></body></html>\n'
    )


_RESIDENTS = (
    '<section><h2 id="when">Point at the picture: what lies there, largest first</h2><div class="scroll"><table>'
    "<thead><tr><th>value<th>size<th>kind<th>since<th>until<th>why</tr></thead>"
    '<tbody id="residents"></tbody></table></div></section>'
)


def _picture(words: str) -> str:
    return (
        f'<figure><canvas id="picture" tabindex="0" role="img" aria-label="{escape(words)}"></canvas>'
        '<canvas id="overlay" aria-hidden="true"></canvas><div id="tip" role="status" hidden></div></figure>'
    )


def _asset(name: str) -> str:
    return resources.files("remat.report.page").joinpath(name).read_text("utf-8")


def _colours() -> str:
    """Return the palette as variables of the style, for light and for dark."""

    def variable(name: str, value: str) -> str:
        return f"--{name}:{value};"

    def rules(palette: Mapping[Role, str]) -> str:
        named = [(f"kind-{int(kind)}", role) for kind, role in OF_KIND.items()]
        named += [(f"phase-{int(phase)}", role) for phase, role in OF_PHASE.items()]
        return "".join(variable(name, palette[role]) for name, role in [*named, ("budget", Role.BUDGET)])

    shown = [*(f"kind-{int(kind)}" for kind in Kind), *(f"phase-{int(phase)}" for phase in OF_PHASE)]
    classes = "".join(f".{name}{{{variable('swatch', f'var(--{name})')}}}" for name in shown)
    return (
        f":root{{{rules(LIGHT)}}}:root[data-theme=dark]{{{rules(DARK)}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{rules(DARK)}}}}}{classes}"
    )


def _facts(result: Result) -> Iterator[str]:
    report, units = result.report, result.units
    assert report is not None
    yield result.algorithm
    yield f"makespan {format_time(report.makespan, units)}"
    if report.steady is not None:  # what the bound and the gap are of
        yield f"{format_time(report.objective, units)} per {report.steady.what}"
    if result.overhead is not None and result.orders is None:
        yield f"overhead {result.overhead:.1%}"
    yield str(result.status)
    if result.lower_bound:
        gap = f", gap {result.gap:.2%}" if result.gap else ""
        yield f"lower bound {format_time(result.lower_bound, units)}{gap}"
    yield f"{len(result.steps):,} steps"
    yield f"verified by remat {__version__}"


def _controls() -> str:
    buttons = (
        ("-", "−", "zoom out"),
        ("+", "+", "zoom in"),
        ("0", "whole", "the whole schedule"),
        ("p", "peak", "the peak of each memory in turn"),
        ("d", "light / dark", "light or dark"),
        ("?", "keys", "all keys"),
    )
    drawn = "".join(
        f'<button type="button" data-key="{key}" title="{escape(title)} ({escape(key)})">{escape(text)}</button>'
        for key, text, title in buttons
    )
    return (
        '<div class="bar"><input id="filter" type="search" placeholder="find tasks and values ( / )" '
        f'aria-label="find tasks and values"><span id="found" role="status"></span>'
        f'<span class="gap"></span>{drawn}</div>'
    )


def _legend(result: Result, head: Mapping[str, Any]) -> str:
    """Return the colours that occur, those of bytes with what there is of each at the first memory's peak."""
    used = sorted({kind for memory in head["memories"] for kind in memory["kinds"]})
    at_peak = head["memories"][0]["at_peak"]
    sizes = {kind: f" {format_size(at_peak[str(kind)], result.units)}" for kind in used if str(kind) in at_peak}
    kinds = "".join(
        f'<button type="button" data-kind="{kind}" class="kind-{kind}" aria-pressed="false" '
        f'title="{escape(Kind(kind).meaning)}">{Kind(kind).label}<small>{sizes.get(kind, "")}</small></button>'
        for kind in used
    )
    phases = "".join(
        f'<span class="phase-{phase}">{Phase(phase).label}</span>' for phase in head["used_phases"] if phase
    )
    return f'<div class="legend"><div>{kinds}</div><div>{phases}</div></div>'


def _in_words(head: Mapping[str, Any], result: Result) -> str:
    peaks = (
        f"{memory['name']} peaks at {format_size(memory['peak'], result.units)} ({memory['cause']})"
        for memory in head["memories"]
        if memory["peak"]
    )
    return f"Memory by kind, and what runs, over time: {'; '.join(peaks)}. Keys: see below."


def _peaks(head: Mapping[str, Any], result: Result) -> Iterator[str]:
    for memory in head["memories"]:
        if not memory["peak"]:
            continue
        peak = memory["peak"]
        parts = "".join(
            f'<i class="kind-{kind}" style="flex:{size / peak:.5f}" title="{Kind(int(kind)).label}"></i>'
            for kind, size in memory["at_peak"].items()
        )
        words = ", ".join(
            f"{Kind(int(kind)).label} {format_size(size, result.units)} ({size / peak:.0%})"
            for kind, size in memory["at_peak"].items()
        )
        title = f"{memory['name']}: {format_size(peak, result.units)} at {memory['cause']}"
        yield f'<p><b>{escape(title)}</b></p><div class="parts">{parts}</div><p class="soft">{escape(words)}</p>'


def _help() -> str:
    rows = "".join(f"<dt>{escape(keys)}</dt><dd>{escape(what)}</dd>" for keys, what in KEYS)
    return f'<details id="help"><summary>Keys</summary><dl>{rows}</dl></details>'
