"""The page: figures, charts, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import islice

from remat.comparing.cells import Cell, Outcome
from remat.comparing.comparison import Comparison, Standing, by_algorithm, geometric_mean
from remat.comparing.report.page.charts import COLOURS, curves, legend, profile
from remat.comparing.report.page.schedules import schedules
from remat.comparing.report.sentences import MOST_SENTENCES, grouped
from remat.comparing.report.tables import (
    LEADERS_HEADER,
    RANKING_HEADER,
    SHORT,
    budget_text,
    leader,
    peak_text,
    problems,
    ranking_title,
    ratio_heading,
    relative_to,
    standings_header,
    units_of,
    with_spread,
)
from remat.comparing.report.verdict import CELL, about_algorithms, table_legend, verdict
from remat.messages import counted, noun_of, printable
from remat.report.glossary import find_term
from remat.report.palette import DARK, LIGHT, Role
from remat.units import Number, format_budget, format_time
from remat.version import __version__

MOST_CHARTS = 60
"""Maximum number of instances with a chart; the tables contain all."""

WORDS = {
    "proved": "optimal",
    "best bound": "lower bound",
}
"""Headings that the glossary explains under another word."""

EXPLAINED = frozenset({"infeasible", "unknown", "budget", "makespan", "overhead", "peak", *WORDS})
"""Headings that the glossary explains."""

OVER_BEST = "The algorithm's makespan / the best makespan of any algorithm for the same instance and budget"
MEAN = "geometric mean over the cells that the algorithm solved"

MEANINGS = {
    "ratio on common cells": f"{OVER_BEST}; geometric mean over the cells that all ranked algorithms solved. "
    "1.0000: always the best.",
    "ratio to best": f"{OVER_BEST}; {MEAN}. 1.0000: always the best.",
    "ratio to floor": "The algorithm's makespan / the floor, a lower bound that remat computes and that is the same in "
    f"every comparison; {MEAN}.",
    "ratio to bound": "The algorithm's makespan / the best lower bound that any algorithm proved for the same instance "
    f"and budget; {MEAN}. 1.0000: proved optimal.",
    "gap to bound": "The share of the best makespan above the best lower bound: (makespan - bound) / makespan. "
    "0 %: proved optimal.",
    "best": "In the table of algorithms: cells in which no other algorithm is better. In the grid: the best makespan.",
    "best of common": "Cells that all ranked algorithms solved and in which no other one is better.",
    "solved": "Cells with a schedule that the verifier accepts.",
    "refused": "Cells that the algorithm rejects, because of the instance or an option.",
    "failed": "Cells that ran into a limit or an error.",
    "planning time": "Time to find the schedule, including placement and verification: not the time that it takes.",
    "planning time, sum": "Time to find the schedules of all cells of the algorithm: not the time that they take.",
}
"""Meanings of headings that are words of comparisons only."""

LONGEST_REMARK = 120
"""Maximum letters of a remark on the page; the tables contain all of it."""

GRID = "* proved optimal over all schedules; ± standard deviation over seeds. Click a heading to sort."

OUTCOMES = "Infeasible: no schedule exists, proved. Unknown: none was found; one may exist."

LEADERS = (
    "* proved optimal. Overhead: time over that without recomputation, or over that of longer mandatory transfers or "
    "exchanges between ranks. "
    "Gap: share of the makespan above the best lower bound."
)

MOST_WHOLE = 120
"""Rows of a table that is shown as a whole; a longer one scrolls in its frame."""

TOGETHER = (
    "Makespans and “look into it” link to pages in the folder {} next to this file. Send the file together with the "
    "folder, or write the report without pages, as one file."
)

Column = tuple[str, bool]
"""Heading, and whether the column is text (otherwise a figure)."""

Entry = tuple[str, object, str] | tuple[str, object, str, str]
"""Text of a table cell, its sort key, its class, and its link."""


def _asset(name: str) -> str:
    return resources.files("remat.comparing.report.page").joinpath(name).read_text("utf-8")


def page(comparison: Comparison, made: Sequence[tuple[str, str]] = (), pages: Mapping[str, str] | None = None) -> str:
    """Return the report as one HTML document.

    Text from documents is escaped; style, script and pictures are included.

    Parameters
    ----------
    comparison : Comparison
    made : sequence of (label, text)
        The circumstances of the run (`words.circumstances`); without them, equal comparisons give equal pages.
    pages : mapping of the keys of cells to links, optional
        Links to interactive pages of schedules.
    """
    links = pages or {}
    standings = comparison.standings()
    order = [standing.algorithm for standing in standings]
    pictured = schedules(comparison, links)
    link = '<a href="#schedules">Schedules</a>' if pictured else ""
    body = [
        "<header><h1>remat: comparison</h1>",
        f'<p class="soft">remat {escape(__version__)}. Every makespan and peak here was measured by the verifier.</p>',
        f"<p><b>{escape(printable(verdict(comparison)))}</b></p>",
        _figures(comparison, standings),
        *(f"<p>{escape(note)}</p>" for note in comparison.notes),
        "<p><b>Interrupted: cells are missing.</b></p>" if comparison.interrupted else "",
        (
            '<nav><a href="#ranking">Ranking</a><a href="#best">Best</a><a href="#algorithms">Algorithms</a>'
            f'<a href="#curves">Curves</a>{link}<a href="#grid">Grid</a><a href="#cells">Cells</a>'
            '<a href="#words">In words</a></nav></header>'
        ),
        f'<div class="firsts"><div>{_rankings(comparison)}</div>{_profile(comparison, order)}</div>',
        _leaders(comparison),
        '<h2 id="algorithms">Each algorithm on the cells that it solved</h2>',
        f'<p class="soft">{escape(" ".join(table_legend(comparison, ratio_heading(comparison))))}</p>',
        _standings(comparison, standings, by_family=False),
        _entries(list(about_algorithms(comparison))),
        _families(comparison),
        _curves(comparison, order),
        f'<h2 id="schedules">The best schedules</h2>{_together(links)}{pictured}' if pictured else "",
        f'<h2 id="grid">{escape(relative_to(comparison))}</h2>',
        f'<p class="soft">{GRID} {OUTCOMES}</p>',
        _grid(comparison, order),
        '<h2 id="cells">Cells</h2>',
        (
            '<input type="search" data-table="all-cells" placeholder="filter: words, such as rotor feasible" '
            'aria-label="filter the cells">'
        ),
        _together(links),
        _cells(comparison, links),
        _failures(comparison),
        _in_words(comparison),
        _list("How this was made", "made", made) if made else "",
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>remat: comparison</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<style>{_palette()}{_asset('style.css')}</style></head>"
    )
    return f"{head}<body>{''.join(body)}<script>{_asset('script.js')}</script></body></html>\n"


def _together(links: Mapping[str, str]) -> str:
    """Name the files that belong to a report with links."""
    folders = sorted({link.rpartition("/")[0] for link in links.values()})
    return f'<p class="soft">{escape(TOGETHER.format(", ".join(folders)))}</p>' if folders else ""


def _palette() -> str:
    """Return the colours of all pictures as style variables."""

    def rules(palette: Mapping[Role, str]) -> str:
        return "".join(f"--{role}:{colour};" for role, colour in palette.items())

    return f":root{{{rules(LIGHT)}}}@media(prefers-color-scheme:dark){{:root{{{rules(DARK)}}}}}"


def _in_words(comparison: Comparison) -> str:
    told = list(islice(grouped(comparison), MOST_SENTENCES + 1))
    more = ""
    if len(told) > MOST_SENTENCES:
        more = f'<p class="soft">The first {MOST_SENTENCES}; the tables have all.</p>'
    if not told:
        return ""
    return f'<details id="words"><summary>In words</summary>{_entries(told[:MOST_SENTENCES])}{more}</details>'


def _list(title: str, name: str, entries: Sequence[tuple[str, str]]) -> str:
    return f'<h2 id="{name}">{escape(title)}</h2>{_entries(entries)}'


def _entries(entries: Sequence[tuple[str, str]]) -> str:
    shown = "".join(f"<dt>{escape(printable(label))}</dt><dd>{escape(printable(text))}</dd>" for label, text in entries)
    return f"<dl>{shown}</dl>"


def _figures(comparison: Comparison, standings: Sequence[Standing]) -> str:
    instances = {cell.job.instance for cell in comparison if cell.job.algorithm}
    failed = sum(standing.failed for standing in standings) + sum(not cell.job.algorithm for cell in comparison)
    shown: list[tuple[str, int]] = [
        (noun_of(len(instances), "instance"), len(instances)),
        (noun_of(len(standings), "algorithm"), len(standings)),
        (noun_of(len(comparison), "cell"), len(comparison)),
        ("solved", sum(standing.solved for standing in standings)),
        ("proved optimal", sum(standing.proved for standing in standings)),
        ("infeasible", sum(standing.infeasible for standing in standings)),
        ("unknown", sum(standing.unknown for standing in standings)),
        ("refused", sum(standing.refused for standing in standings)),
        ("failed", failed),
    ]
    shown = [(name, number) for name, number in shown if number or name not in ("infeasible", "unknown", "refused")]
    told = {"cell": CELL, "cells": CELL, **{name: MEANINGS[name] for name in ("solved", "refused", "failed")}}
    titles = {name: f' title="{escape(meaning)}"' for name, meaning in told.items()}
    boxes = (
        f'<div class="figure"{titles.get(name, "")}><b>{number:,}</b>{escape(name)}</div>' for name, number in shown
    )
    return f'<div class="figures">{"".join(boxes)}</div>'


def _table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Entry]],
    name: str = "",
    meanings: Mapping[str, str] | None = None,
) -> str:
    """Return a table whose headings sort it; `meanings` explains headings of this table alone."""
    heads = "".join(
        f'<th scope="col"{" class=text" if text else ""}{_explained(title, meanings or {})}>'
        f'<button type="button">{escape(title)}</button></th>'
        for title, text in columns
    )
    lines = []
    for row in rows:
        cells = []
        for (shown, value, style, *link), (_, text) in zip(row, columns, strict=True):
            inside = f'<a href="{escape(link[0])}">{escape(shown)}</a>' if link else escape(shown)
            classes = " ".join(part for part in ("text" if text else "", style) if part)
            styled = f' class="{classes}"' if classes else ""
            sort = "" if value is None else escape(str(value))
            cells.append(f'<td{styled} data-v="{sort}">{inside}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    identity = f' id="{name}"' if name else ""
    framed, note = " whole", ""
    if len(rows) > MOST_WHOLE:
        framed, note = "", f'<p class="soft">{counted(len(rows), "row")}: scroll in the table.</p>'
    return (
        f'{note}<div class="scroll{framed}"><table class="sortable"{identity}><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _explained(title: str, meanings: Mapping[str, str]) -> str:
    """Return the attribute that explains a heading in a tooltip."""
    term = find_term(WORDS.get(title, title)) if title in EXPLAINED else None
    meaning = meanings.get(title) or MEANINGS.get(title) or (term.meaning if term is not None else "")
    return f' title="{escape(meaning)}"' if meaning else ""


def _standings(comparison: Comparison, standings: Sequence[Standing], *, by_family: bool) -> str:
    columns = [("family", True)] if by_family else []
    columns += [("algorithm", True)]
    columns += [(name, False) for name in ("cells", "solved", "proved", "infeasible", "unknown", "refused", "failed")]
    columns += [(name, False) for name in standings_header(comparison)[8:]]
    rows = []
    for s in standings:
        counts = (s.cases, s.solved, s.proved, s.infeasible, s.unknown, s.refused, s.failed, s.wins)
        row: list[Entry] = [(s.family, s.family, "")] if by_family else []
        row += [(s.algorithm, s.algorithm, "")]
        row += [(f"{count:,}" if count else "", count, "") for count in counts]
        row += [(with_spread(s.ratio_to_best, s.spread).strip("-"), s.ratio_to_best, "")]
        row += [_ratio(s.ratio_to_floor, plain=True), _ratio(s.ratio_to_bound, plain=True)]
        row += [(format_time(s.seconds), s.seconds, "")]
        rows.append(row)
    kept = [k for k, (name, _) in enumerate(columns) if name not in RARE or any(row[k][1] for row in rows)]
    rows = [[row[k] for k in kept] for row in rows]
    name = "families" if by_family else "standings"
    return _table([columns[k] for k in kept], rows, name, _baseline_meaning(comparison))


RARE = frozenset({"infeasible", "unknown", "refused", "failed"})
"""Columns of counts that are left out if they are zero for all algorithms."""


def _baseline_meaning(comparison: Comparison) -> dict[str, str]:
    """Explain the heading of the ratio to a baseline."""
    if not comparison.baseline:
        return {}
    over = f"The algorithm's makespan / that of {comparison.baseline} for the same instance and budget"
    return {f"ratio to {comparison.baseline}": f"{over}; {MEAN}. Below 1: faster than {comparison.baseline}."}


def _families(comparison: Comparison) -> str:
    standings = comparison.standings(by_family=True)
    if len({standing.family for standing in standings}) < 2:
        return ""
    return f"<h2>By family</h2>{_standings(comparison, standings, by_family=True)}"


def _ratio(ratio: float | None, *, plain: bool = False, star: bool = False) -> Entry:
    if ratio is None:
        return "", None, ""
    style = "" if plain else "good" if ratio <= 1.001 else "fair" if ratio <= 1.1 else "poor"
    return f"{ratio:.4f}{'*' if star else ''}", ratio, style


def _rankings(comparison: Comparison) -> str:
    """Rank algorithms on the cells that all of them solved, with the counts over all cells."""
    rankings = comparison.rankings()
    if not rankings:
        return '<h2 id="ranking">Ranking</h2><p class="soft">Nothing was solved.</p>'
    parts = ['<h2 id="ranking">Ranking</h2>']
    columns = [(name, name == "algorithm") for name in RANKING_HEADER]
    for ranking in rankings:
        parts.append(f"<p>{escape(ranking_title(ranking, comparison).capitalize())}.</p>")
        rows: list[list[Entry]] = []
        for place, rank in enumerate(ranking.ranks, 1):
            row: list[Entry] = [(str(place), place, ""), (rank.algorithm, rank.algorithm, "")]
            row += [_ratio(rank.ratio), (f"{rank.wins:,} of {ranking.common:,}", rank.wins, "")]
            rows.append([*row, (f"{rank.solved:,}", rank.solved, ""), (f"{rank.cells:,}", rank.cells, "")])
        parts.append(_table(columns, rows))
    ranked = {rank.algorithm for ranking in rankings for rank in ranking.ranks}
    left = [standing.algorithm for standing in comparison.standings() if standing.algorithm not in ranked]
    if left:
        parts.append(f'<p class="soft">Not ranked, since no cell was solved: {escape(", ".join(left))}.</p>')
    return "".join(parts)


def _leaders(comparison: Comparison) -> str:
    """List the best result of each instance and budget, with its overhead and its gap to the lower bound."""
    columns = [(name, name in ("instance", "best algorithm")) for name in LEADERS_HEADER]
    rows: list[list[Entry]] = []
    for case, cells in comparison.by_case.items():
        found, best = leader(comparison, cells, to_paste=False), comparison.best.get(case)
        texts = [text.removesuffix("-") if text == "-" else text for text in found.row()]
        quiet = "" if best is not None else "quiet"
        keys = (found.instance, cells[0].job.capacity, found.winners, best, found.overhead, found.gap, found.solved)
        rows.append([(text, key, quiet) for text, key in zip(texts, keys, strict=True)])
    missing = any(cells[0].job.algorithm and case not in comparison.best for case, cells in comparison.by_case.items())
    note = f'<p class="soft">{LEADERS}{f" {OUTCOMES}" if missing else ""}</p>'
    return f'<h2 id="best">The best of each instance and budget</h2>{note}{_table(columns, rows, "leaders")}'


def _profile(comparison: Comparison, order: Sequence[str]) -> str:
    """Draw the performance profile of the algorithms with solved cells.

    Cells that no algorithm solved, such as those that are proved infeasible, say nothing about the algorithms.
    """
    ratios: dict[str, list[float | None]] = {}
    for case, cells in comparison.by_case.items():
        for cell in cells if case in comparison.best else ():
            if cell.job.algorithm and cell.answer.outcome is not Outcome.REFUSED:
                ratios.setdefault(cell.job.algorithm, []).append(comparison.ratio_to_best(cell))
    solved = [name for name in order if any(ratio is not None for ratio in ratios.get(name, ()))]
    if not solved:
        return ""
    about = (
        "Performance profile: of the cells that an algorithm accepts and that any algorithm solved, the share that it "
        "solves within a factor of the best"
    )
    picture = f"<figure><figcaption>{about}</figcaption>{profile(ratios, solved)}{legend(solved)}</figure>"
    return f'<div class="charts" id="pictures">{picture}</div>'


def _curves(comparison: Comparison, order: Sequence[str]) -> str:
    by_instance: dict[str, list[Cell]] = {}
    for cell in comparison:
        by_instance.setdefault(cell.job.instance, []).append(cell)
    drawn = [chart for name, cells in by_instance.items() if (chart := _curve(name, cells, order))]
    if not drawn:
        return ""
    more = (
        f'<p class="soft">and {counted(len(drawn) - MOST_CHARTS, "instance")} more</p>'
        if len(drawn) > MOST_CHARTS
        else ""
    )
    return f'<h2 id="curves">Overhead over budget</h2><div class="charts">{"".join(drawn[:MOST_CHARTS])}</div>{more}'


def _curve(name: str, cells: Sequence[Cell], order: Sequence[str]) -> str:
    """Draw overhead against budget for instances that were solved at several budgets and have overheads."""
    best: dict[str, dict[int, float]] = {}
    for cell in cells:
        if cell.job.capacity is not None and cell.answer.solved and cell.answer.overhead is not None:
            points = best.setdefault(cell.job.algorithm, {})
            overhead = max(0.0, cell.answer.overhead)
            points[cell.job.capacity] = min(overhead, points.get(cell.job.capacity, overhead))
    budgets = sorted({budget for points in best.values() for budget in points})
    overheads = [overhead for points in best.values() for overhead in points.values()]
    if len(budgets) < 2 or not any(overheads):
        return ""
    units = units_of(cells[0])
    spread = budgets[:: max(1, len(budgets) // 4)]
    ticks = [(float(budget), format_budget(budget, units)) for budget in spread]
    series = {algorithm: [(float(b), y) for b, y in points.items()] for algorithm, points in best.items()}
    shown = order
    if len(order) > COLOURS:  # too many for globally fixed colours: each picture has its own
        shown = [algorithm for algorithm in order if algorithm in series]
    key = legend(shown, only=set(series))
    picture = curves(series, shown, ticks, "budget")
    return f"<figure><figcaption>{escape(name)}</figcaption>{picture}{key}</figure>"


def _grid(comparison: Comparison, order: Sequence[str]) -> str:
    columns: list[Column] = [("instance", True), ("budget", False), ("best", False)]
    columns += [(name, False) for name in order]
    lines = []
    for (instance, budget), cells in comparison.by_case.items():
        first = cells[0]
        if not first.job.algorithm:  # the document is not an instance
            continue
        best = comparison.best.get((instance, budget))
        shown = "" if best is None else format_time(best, units_of(first))
        line: list[Entry] = [(instance, instance, ""), (budget_text(first), first.job.capacity, ""), (shown, best, "")]
        by_name = by_algorithm(cells)
        lines.append([*line, *(_grid_entry(comparison, by_name.get(name, [])) for name in order)])
    over = f"that of {comparison.baseline}" if comparison.baseline else "the best makespan of the row"
    return _table(columns, lines, meanings={name: f"Makespan of {name} / {over}" for name in order})


def _grid_entry(comparison: Comparison, cells: Sequence[Cell]) -> Entry:
    solved = [cell for cell in cells if cell.answer.solved]
    if solved:
        mean, spread = geometric_mean(map(comparison.ratio, solved)), comparison.spread(solved)
        star = any(cell.answer.outcome is Outcome.OPTIMAL for cell in solved)
        shown, value, style, *_ = _ratio(mean, star=star)
        return shown if star else with_spread(mean, spread), value, style
    return (SHORT[cells[0].answer.outcome], None, "quiet") if cells else ("", None, "")


def _cells(comparison: Comparison, links: Mapping[str, str]) -> str:
    columns: list[Column] = [(name, True) for name in ("instance", "kind", "algorithm", "options")]
    columns += [("budget", False), ("seed", False), ("outcome", True)]
    columns += [(name, False) for name in ("makespan", "overhead", "best bound", "peak", "steps", "planning time")]
    columns += [("remarks", True)]
    known = {
        case: bound
        for case, bound in comparison.bound.items()
        if all(cell.answer.outcome is not Outcome.INFEASIBLE for cell in comparison.by_case[case])
    }
    rows = [
        list(_cell_entries(cell, links.get(cell.job.key, ""), known.get(case)))
        for case, cells in comparison.by_case.items()
        for cell in cells
    ]
    alike = {
        k: rows[0][k][0]
        for k, (name, _) in enumerate(columns)
        if len(rows) > 1 and name in MAY_BE_ALIKE and len({row[k][0] for row in rows}) == 1
    }
    said = [f"{columns[k][0]} {entry}" for k, entry in alike.items() if entry]
    note = f'<p class="soft">The same in all cells: {escape(", ".join(said))}.</p>' if said else ""
    kept = [k for k in range(len(columns)) if k not in alike]
    return note + _table([columns[k] for k in kept], [[row[k] for k in kept] for row in rows], "all-cells")


MAY_BE_ALIKE = frozenset({"kind", "options", "seed", "remarks"})
"""Columns that are left out if all cells have the same entry."""


def _cell_entries(cell: Cell, link: str, bound: Number | None) -> Iterator[Entry]:
    job, answer, units = cell.job, cell.answer, units_of(cell)
    for text in (job.instance, job.kind, job.algorithm):
        yield text, text, ""
    options = " ".join(f"{name}={value}" for name, value in job.options.items())
    yield options, options, ""
    yield budget_text(cell), job.capacity, ""
    yield (str(job.seed) if job.algorithm else ""), job.seed, ""
    yield str(answer.outcome), str(answer.outcome), "" if answer.solved else "quiet"
    makespan = "" if answer.makespan is None else format_time(answer.makespan, units)
    yield (makespan, answer.makespan, "", link) if link else (makespan, answer.makespan, "")
    yield ("" if answer.overhead is None else f"{max(0.0, 100 * answer.overhead):.3g} %"), answer.overhead, ""
    yield ("" if bound is None else format_time(bound, units)), bound, ""
    yield peak_text(cell), max(answer.peak_memory.values(), default=None), ""
    yield ("" if answer.steps is None else f"{answer.steps:,}"), answer.steps, ""
    yield format_time(answer.seconds), answer.seconds, ""
    detail = answer.detail
    yield (detail if len(detail) <= LONGEST_REMARK else f"{detail[:LONGEST_REMARK]}…"), detail[:LONGEST_REMARK], "wrap"


def _failures(comparison: Comparison) -> str:
    lines = problems(comparison, most=200)
    if not lines:
        return ""
    return f'<h2 id="failures">Failures</h2><ul>{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'
