"""Display of comparisons in a notebook (see `remat.solving.display`)."""

from __future__ import annotations

import os
from typing import Any

from remat.comparing.comparison import Comparison
from remat.comparing.report.page import page
from remat.comparing.report.terminal import comparison_table
from remat.errors import OptionError
from remat.messages import counted
from remat.report.notebook import MOST_LETTERS, cell, framed
from remat.report.text.readable_names import shown_name


def lines(comparison: Comparison) -> list[str]:
    """Return at most five lines: the number of cells, and the best algorithms."""
    standings = comparison.standings()
    solved = sum(standing.solved for standing in standings)
    found = [f"{counted(len(comparison.cells), 'cell')} of {counted(len(standings), 'algorithm')}, {solved:,} solved"]
    for standing in standings[:4]:
        ratio = "" if standing.ratio_to_best is None else f", {standing.ratio_to_best:.4f} of the best makespan"
        found.append(f"  {shown_name(standing.algorithm)}: {standing.solved:,} of {standing.cases:,} solved{ratio}")
    return found


def text(comparison: Comparison) -> str:
    """Return the table of the command line."""
    return comparison_table(comparison)


def html(comparison: Comparison) -> str:
    """Return a few lines, the report in a frame, and the folded table."""
    document = page(comparison)
    shown = framed(document) if len(document) <= MOST_LETTERS else ""
    return cell("\n".join(lines(comparison)), shown, text(comparison))


def figure(comparison: Comparison, **options: Any) -> Any:
    """Raise an error: pictures of comparisons are in their report."""
    raise OptionError("pictures of comparisons are in the report that `output` writes")


def save(comparison: Comparison, path: str | os.PathLike[str], **options: Any) -> None:
    """Raise an error: pictures of comparisons are in their report."""
    figure(comparison)


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one row per cell."""
    return comparison.to_records()
