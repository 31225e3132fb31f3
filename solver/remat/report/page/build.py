"""The page of one schedule: facts, the picture, the contents of memory at the cursor, and the peaks in words."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from remat.documents import write_text
from remat.errors import OptionError
from remat.messages import counted, printable
from remat.plugin.proposal import Status
from remat.report.page.data import pack
from remat.report.palette import DARK, GROUPS, GROUPS_DARK, LIGHT, OF_KIND, OF_PHASE, Role
from remat.report.text.readable_names import shown_name
from remat.report.text.run_times import limiting_lines, overhead_line, rank_lines, recompute_lines, speed_up_words
from remat.report.text.summary import summary
from remat.report.views.composition import Extra, labels_of
from remat.report.views.kinds import STACKED, Kind
from remat.report.views.phases import Phase, phase_labels
from remat.report.views.residents import fullest_memory
from remat.solving.decisions.training import stage_names
from remat.solving.decisions.words import MOST_STEPS, decision_words
from remat.solving.result import Result
from remat.units import format_budget, format_percent, format_sizes, format_time
from remat.version import __version__

SCRIPTS = ("figures.js", "page.js", "panels.js", "pointer.js")

KEYS = (
    ("wheel, + and -", "zoom"),
    ("drag, ← and →", "move"),
    ("shift and drag", "zoom into a stretch"),
    ("double click, 0", "the whole schedule"),
    ("p", "the peak of each memory, one after the other"),
    (", and .", "the change of memory before and after the cursor"),
    ("click", "keep the cursor where it is; again: let it go"),
    ("/", "find tasks and values by words of their names; n and N: next and previous match"),
    ("c", "colour memory by use, or by part of the program (task graphs)"),
    ("l", "lifetimes of the largest values at the peak"),
    ("Page Up, Page Down", "other devices (of more than 8)"),
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
    """Return one HTML document; equal results give equal pages, except for the solve time.

    Raises
    ------
    remat.OptionError
        If the result has no schedule.
    """
    if result.report is None:
        raise OptionError("there is no schedule to plot")
    head, data = pack(result)
    name = printable(result.instance_name) or "(unnamed)"
    facts = f"<p>{' · '.join(escape(fact) for fact in _facts(result, head))}</p>"
    body = [
        f"<header><h1>{escape(name)}</h1>{facts}{_decided(result)}</header>",
        _controls(),
        _legend(result, head),
        _picture(_in_words(head, result)),
        '<p id="trouble" hidden>This browser cannot unpack the schedule: it takes one of 2023 or later.</p>',
        "<noscript><p>The picture needs JavaScript; the page loads no other files.</p></noscript>",
        _RESIDENTS,
        f"<section><h2>At the peak</h2>{''.join(_peaks(head, result))}</section>",
        f"<details><summary>How it was found</summary><pre>{escape(summary(result))}</pre></details>",
        _help(),
    ]
    groups = head["groups"]["colours"] if head["groups"] else ()
    scripts = "\n".join(_script(script) for script in SCRIPTS)
    described = json.dumps(head, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)}: remat</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_colours(groups)}{_asset('style.css')}</style></head>\n<body>{''.join(body)}\n"
        f'<script type="application/json" id="head">{described}</script>\n'
        f'<script type="text/plain" id="data">{data}</script>\n<script>{scripts}</script></body></html>\n'
    )


_RESIDENTS = (
    '<section><h2 id="when"></h2><p class="soft">Largest first. Point at the picture for any other instant.</p>'
    '<div class="scroll"><table class="values">'
    "<thead><tr><th>value<th>size<th>share<th>use<th>since, made by<th>waits for<th>until</tr></thead>"
    '<tbody id="residents"></tbody></table></div><p class="soft" id="more"></p></section>'
)


def _picture(words: str) -> str:
    return (
        f'<figure><canvas id="picture" tabindex="0" role="img" aria-label="{escape(words)}"></canvas>'
        '<canvas id="overlay" aria-hidden="true"></canvas><div id="tip" role="status" hidden></div></figure>'
    )


def _script(name: str) -> str:
    """Return a script without indentation and without lines that are comments: an eighth of a small page."""
    lines = map(str.strip, _asset(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/**")))


def _asset(name: str) -> str:
    return resources.files("remat.report.page").joinpath(name).read_text("utf-8")


def _colours(groups: Sequence[int]) -> str:
    """Return the palette as CSS variables for the light and the dark theme, with the given colours of value groups."""
    count = len(groups)

    def variable(name: str, value: str) -> str:
        return f"--{name}:{value};"

    def rules(palette: Mapping[Role, str], areas: Sequence[str]) -> str:
        named = [(f"kind-{int(kind)}", palette[role]) for kind, role in OF_KIND.items()]
        named += [(f"phase-{int(phase)}", palette[role]) for phase, role in OF_PHASE.items()]
        if groups:
            named += [(f"group-{k}", areas[colour]) for k, colour in enumerate(groups)]
            named += [(f"group-{count + extra}", palette[role]) for extra, role in _EXTRA.items()]
        return "".join(variable(name, colour) for name, colour in [*named, ("budget", palette[Role.BUDGET])])

    shown = [*(f"kind-{int(kind)}" for kind in Kind), *(f"phase-{int(phase)}" for phase in OF_PHASE)]
    shown += [f"group-{k}" for k in range(count + len(Extra))] if groups else []
    classes = "".join(f".{name}{{{variable('swatch', f'var(--{name})')}}}" for name in shown)
    light, dark = rules(LIGHT, GROUPS), rules(DARK, GROUPS_DARK)
    return (
        f":root{{{light}}}:root[data-theme=dark]{{{dark}}}"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}{classes}"
    )


_EXTRA = {Extra.STATIC: Role.STATIC, Extra.WORKSPACE: Role.WORKSPACE, Extra.OTHER: Role.OTHER}


def _facts(result: Result, head: Mapping[str, Any]) -> Iterator[str]:
    report, units = result.report, result.units
    assert report is not None
    yield result.algorithm
    yield f"makespan {format_time(report.makespan, units)}"
    if report.steady is not None:  # the quantity that the bound and the gap refer to
        yield f"{format_time(report.objective, units)} per {report.steady.what}"
    if result.overhead is not None and result.orders is None:
        yield " ".join(overhead_line(result, report))
    if result.orders is not None and report.steady is None and (speed_up := speed_up_words(result, report)):
        yield f"speed-up {speed_up}"
    within = result.optimal_within if result.status is Status.FEASIBLE else None
    yield f"{result.status}{f', optimal within {within}' if within else ''}"
    yield from (" ".join(line) for line in rank_lines(result.instance))
    yield from (" ".join(line) for line in limiting_lines(result, report))
    if result.lower_bound:
        gap = f", gap {format_percent(result.gap, 2)}" if result.gap else ""
        yield f"lower bound {format_time(result.lower_bound, units)}{gap}"
    if report.recompute_time:
        yield from (" ".join(line) for line in recompute_lines(report, units))
    if not any(_of_devices(result)):
        yield from _unused_time(result)
    name = fullest_memory(result)
    memory = result.machine.memories[result.machine.memory_index[name]]
    size = report.peaks[name].size
    fullest = "fullest memory " if len(result.machine.memories) > 1 else "peak of "
    limit = _limit(size, memory.capacity, result)
    yield f"{fullest}{shown_name(name)} {format_budget(size, units)}{limit}{_when(head, head['fullest'], result)}"
    yield counted(len(result.steps), "step")
    yield f"verified by remat {__version__}"


MOST_DECISIONS = 6
"""Decisions that the page lists at its top; all of them are under "How it was found"."""


def _decided(result: Result) -> str:
    """Return what the schedule decides, in words."""
    names = stage_names(result)
    told = [*([f"stages: {names}"] if names else []), *decision_words(result)]
    left = len(told) - MOST_DECISIONS
    shown = told if left <= 1 else [*told[:MOST_DECISIONS], f"and {left} more, listed below"]
    shown += _of_devices(result)
    return f'<ul class="decisions">{"".join(f"<li>{escape(words)}</li>" for words in shown)}</ul>'


def _when(head: Mapping[str, Any], index: int, result: Result) -> str:
    """Say when a memory is at its peak, and what runs then."""
    memory = head["memories"][index]
    more = f" (the first of {memory['moments']:,} moments)" if memory["moments"] > 1 else ""
    return f" at {format_time(memory['at'] * head['tick'], result.units)}, during {memory['cause']}{more}"


def _of_devices(result: Result) -> list[str]:
    """Say how long each device of a pipeline is idle, and, if any recomputes, for how many micro-batches."""
    report = result.report
    assert report is not None
    if result.orders is None or len(result.machine.processors) > MOST_PEAKS or len(result.steps) > MOST_STEPS:
        return []
    rows = [row for row in result.stage_decisions if row.micro_batch is not None]
    batches, any_again = len({row.micro_batch for row in rows}), any(row.recompute_time for row in rows)
    told = []
    for name in (processor.name for processor in result.machine.processors):
        own = [row for row in rows if row.device == name and row.recompute_time]
        again = len({row.micro_batch for row in own})
        time = f" ({format_time(sum(row.recompute_time for row in own), result.units)})" if own else ""
        idle = format_percent(float(report.idle.get(name, 0)) / (float(report.makespan) or 1.0))
        work = f"recomputes for {again} of {counted(batches, 'micro-batch')}{time}, " if any_again else ""
        told.append(f"{shown_name(name)}: {work}idle {idle}")
    return told


def _unused_time(result: Result) -> Iterator[str]:
    """Yield the share of the makespan in which the processors that run tasks are idle, if there is any."""
    report = result.report
    assert report is not None
    share = {
        processor.name: float(report.idle.get(processor.name, 0)) / (float(report.makespan) or 1.0)
        for processor in result.machine.processors
        if report.busy.get(processor.name)
    }
    if not any(share.values()):
        return
    if len(share) <= MOST_PEAKS:
        yield f"idle {', '.join(f'{shown_name(name)} {format_percent(part)}' for name, part in share.items())}"
        return
    least, most = min(share, key=share.__getitem__), max(share, key=share.__getitem__)
    ends = " to ".join(f"{format_percent(share[name])} ({shown_name(name)})" for name in (least, most))
    yield f"idle {ends}, mean {format_percent(sum(share.values()) / len(share))}"


def _controls() -> str:
    buttons = (
        ("-", "−", "zoom out"),
        ("+", "+", "zoom in"),
        ("0", "whole", "the whole schedule"),
        ("p", "peak", "the peak of each memory, one after the other"),
        ("l", "lifetimes", "lifetimes of the largest values at the peak"),
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


_BY = {
    "module": "module",
    "part": "part of the program",
    "operation": "operation",
    "value": "value",
}


def _legend(result: Result, head: Mapping[str, Any]) -> str:
    """Return the colours that occur; those of bytes with their amounts at the peak of the fullest memory."""
    fullest = head["memories"][head["fullest"]]
    used, labels, name = _used(head, "kinds"), labels_of(result), fullest["name"]
    kinds = [(int(kind), labels[kind], kind.meaning) for kind in STACKED if kind in used]
    sizes = {int(kind): size for kind, size in fullest["at_peak"].items()}
    shown = [_memory_legend(result, "kind", "use", kinds, sizes, name, hidden=head["groups"] is not None)]
    if head["groups"] is not None:
        names = head["groups"]["labels"]
        groups = [(row, names[row], "") for row in sorted(_used(head, "groups"))]
        shown.append(
            _memory_legend(result, "group", _BY[head["groups"]["by"]], groups, fullest["groups_at_peak"], name)
        )
    named = phase_labels(result)
    phases = "".join(
        f'<span class="phase-{phase}">{named[Phase(phase)]}</span>' for phase in head["used_phases"] if phase
    )
    idle = '<span class="phase-idle">idle</span>'
    numbers = ""
    if result.orders is not None:
        numbers = "<small>numbers: micro-batches; lighter: later stages of a device</small>"
    return f'<div class="legend">{"".join(shown)}<div><b>time:</b>{phases}{idle}{numbers}</div></div>'


def _used(head: Mapping[str, Any], rows: str) -> set[int]:
    return {row for memory in head["memories"] for row in memory[rows]}


def _memory_legend(
    result: Result,
    by: str,
    title: str,
    rows: Sequence[tuple[int, str, str]],
    sizes: Mapping[int, int],
    memory: str,
    *,
    hidden: bool = False,
) -> str:
    switch = ' title="c: other colours" data-key="c"' if by == "group" or hidden else " disabled"
    listed = [row for row, _, _ in rows if sizes.get(row)]
    texts = format_sizes([sizes[row] for row in listed], result.units)
    size_of = {row: f"<small> {text}</small>" for row, text in zip(listed, texts, strict=True)}
    entries = "".join(
        f'<button type="button" data-kind="{row}" class="{by}-{row}" aria-pressed="false" title="{escape(meaning)}">'
        f"{escape(label)}{size_of.get(row, '')}</button>"
        for row, label, meaning in rows
    )
    state = " hidden" if hidden else ""
    of = f"at the peak of {escape(memory)}, by {title}:"
    head = f'<button type="button"{switch}><b>{of}</b></button>'
    return f'<div data-by="{by}"{state}>{head}{entries}</div>'


def _in_words(head: Mapping[str, Any], result: Result) -> str:
    peaks = (
        f"{memory['name']} peaks at {format_budget(memory['peak'], result.units)} ({memory['cause']})"
        for memory in head["memories"]
        if memory["peak"]
    )
    return f"Memory by kind, and what runs, over time: {'; '.join(peaks)}. Keys: see below."


MOST_PEAKS = 8
"""Number of memories whose peaks are described in words, the fullest first."""


def _peaks(head: Mapping[str, Any], result: Result) -> Iterator[str]:
    labels = labels_of(result)
    used = [memory for memory in head["memories"] if memory["peak"]]
    used.sort(key=lambda memory: -memory["peak"] / (memory["capacity"] or math.inf))
    if len(used) > MOST_PEAKS:
        yield f'<p class="soft">The {MOST_PEAKS} fullest of {counted(len(used), "memory")}.</p>'
    for memory in used[:MOST_PEAKS]:
        peak = memory["peak"]
        parts = "".join(
            f'<i class="kind-{kind}" style="flex:{size / peak:.5f}" title="{labels[Kind(int(kind))]}"></i>'
            for kind, size in memory["at_peak"].items()
        )
        sizes = [*memory["at_peak"].values()]
        shown = format_sizes(sizes, result.units) if len(sizes) > 1 else [format_budget(peak, result.units)]
        words = ", ".join(
            f"{labels[Kind(int(kind))]} {size} ({100 * share / peak:.0f} %)"
            for size, (kind, share) in zip(shown, memory["at_peak"].items(), strict=True)
        )
        size = f"{format_budget(peak, result.units)}{_limit(peak, memory['capacity'], result)}"
        title = f"{memory['name']}: {size}{_when(head, head['memories'].index(memory), result)}"
        yield f'<p><b>{escape(title)}</b></p><div class="parts">{parts}</div><p class="soft">{escape(words)}</p>'


def _limit(size: int, capacity: int | None, result: Result) -> str:
    if capacity is None:
        return ""
    share = 1000 * size // max(capacity, 1) / 10  # rounded down, so that 100 % means everything
    return f" of {format_budget(capacity, result.units)} ({share:.1f} %)"


def _help() -> str:
    rows = "".join(f"<dt>{escape(keys)}</dt><dd>{escape(what)}</dd>" for keys, what in KEYS)
    return f'<details id="help"><summary>Keys</summary><dl>{rows}</dl></details>'
