"""Tables for a terminal, through rich: as wide as necessary, and with colour only on an interactive terminal."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

from remat.comparing.comparison import Comparison
from remat.comparing.report.tables import (
    RANKING_HEADER,
    grid,
    leaders,
    problems,
    ranking_rows,
    ranking_title,
    ratio_heading,
    refusals,
    relative_to,
    standings_header,
    standings_rows,
)
from remat.comparing.report.verdict import about_algorithms, table_legend, verdict
from remat.messages import counted, printable
from remat.report.text.columns import WIDEST, fitted, room, text_width

MOST_COLUMNS = 8
"""Maximum number of algorithms with a column in a grid; with more, a terminal shows the best of each row."""

MOST_ROWS = 200
"""Maximum number of rows of the grid on a terminal; the files contain all."""


def comparison_table(comparison: Comparison) -> str:
    """Return standings, grid, failures and refusals as text."""
    wide = text_width(WIDEST)
    parts = [textwrap.fill(printable(verdict(comparison)), wide)]
    for ranking in comparison.rankings():
        if len(ranking.ranks) > 1:
            title = textwrap.fill(f"ranking ({ranking_title(ranking, comparison)}):", wide)
            parts += [title, text_table(RANKING_HEADER, ranking_rows(ranking), left=2)]
    header = standings_header(comparison)
    parts.append(text_table(header, standings_rows(comparison.standings()), left=1))
    parts.append("\n".join(textwrap.fill(line, wide) for line in table_legend(comparison, ratio_heading(comparison))))
    about = list(about_algorithms(comparison))
    if about:
        parts.append("\n".join(textwrap.fill(f"{printable(name)}: {printable(told)}", wide) for name, told in about))
    header, rows = grid(comparison)
    if len(header) > 3 + MOST_COLUMNS:
        header, rows = leaders(comparison)
        parts.append(
            "the best of each instance and budget (* proved optimal; all cells: in the output folder, or as csv):"
        )
    else:
        parts.append(f"{relative_to(comparison)} (* proved optimal):")
    parts.append(text_table(header, rows[:MOST_ROWS], left=2))
    if len(rows) > MOST_ROWS:
        parts.append(f"... and {counted(len(rows) - MOST_ROWS, 'row')} more: in the output folder, or as csv")
    failed = problems(comparison)
    if failed:
        parts.append("\n".join(["failures:", *(f"  {line}" for line in failed)]))
    refused = refusals(comparison)
    if refused:
        parts.append("\n".join(["refused:", *(f"  {line}" for line in refused)]))
    parts += [f"note: {printable(note)}" for note in comparison.notes]
    return "\n\n".join(parts)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    """Align columns: the first `left` ones to the left, figures to the right. Tables that are too wide are split."""
    tables = fitted([header, *rows], left=left, between=3, width=room())
    return "\n\n".join(_rich(part[0], part[1:], left) for part in tables)


def _rich(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for k, name in enumerate(header):
        table.add_column(escape(printable(name)), justify="left" if k < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    out = io.StringIO()
    width = sum(max(len(printable(line[k])) for line in [header, *rows]) + 3 for k in range(len(header))) + 4
    Console(file=out, width=max(40, width), color_system=None, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")
