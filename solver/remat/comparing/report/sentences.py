"""A comparison in sentences, one for each instance and budget, and the circumstances of the run."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from remat.comparing.cells import Cell, Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.report.tables import remedy, units_of
from remat.messages import counted
from remat.report.text.readable_names import shown_name
from remat.units import format_time
from remat.version import __version__

MOST_SENTENCES = 200
"""Maximum number of instances and budgets that are described in words; the tables contain all."""

SOLVERS = ("numpy", "ortools", "pulp", "llvmlite")
"""Packages whose releases may change answers or times."""


def circumstances(command: Sequence[str], limits: Sequence[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the circumstances of a run for later readers, as (label, text); they differ from run to run.

    Parameters
    ----------
    command : sequence of str
        The arguments of the command line.
    limits : sequence of (label, value)
        The limits of each job; None values are omitted.
    """
    releases = [f"remat {__version__}", f"Python {platform.python_version()}"]
    for package in SOLVERS:
        try:
            releases.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return [
        ("command", shlex.join(["remat", *command])),
        ("date", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
        ("machine", f"{platform.system()} {platform.machine()}, {counted(os.cpu_count() or 1, 'core')}"),
        ("versions", ", ".join(releases)),
        ("limits of each job", ", ".join(f"{label} {value}" for label, value in limits if value is not None)),
    ]


def grouped(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield each statement once, with all instances and budgets for which it holds, and their figures."""
    groups: dict[str, dict[str, list[str]]] = {}
    for cells in comparison.by_case.values():
        job = cells[0].job
        if not job.algorithm:
            continue
        statement, figure, found = _statement(comparison, cells)
        budget = job.budget or "without a budget"
        of_instance = groups.setdefault(f"{statement}{found}", {}).setdefault(shown_name(job.instance), [])
        of_instance.append(f"{budget} ({figure})" if figure else budget)
    for statement, instances in groups.items():
        yield statement, "; ".join(f"{name}: {', '.join(told)}" for name, told in instances.items())


def sentences(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield, for each instance and budget, its name and a sentence about the result."""
    for cells in comparison.by_case.values():
        job = cells[0].job
        if not job.algorithm:
            continue
        budget = f" within {job.budget}" if job.budget else ""
        yield f"{shown_name(job.instance)}{budget}", _sentence(comparison, cells)


def _sentence(comparison: Comparison, cells: Sequence[Cell]) -> str:
    statement, figure, found = _statement(comparison, cells)
    return f"{statement}{', ' if figure and found else '; ' if figure else ''}{figure}{found}."


def _statement(comparison: Comparison, cells: Sequence[Cell]) -> tuple[str, str, str]:
    """Return who is best, the figures of this case, and how many found a schedule."""
    names = {cell.job.algorithm for cell in cells}
    solved = [cell for cell in cells if cell.answer.solved]
    found = f"; {len({cell.job.algorithm for cell in solved})} of {len(names)} found a schedule"
    if not solved:
        if any(cell.answer.outcome is Outcome.INFEASIBLE for cell in cells):
            return "proved that no schedule exists", remedy(cells), ""
        who = counted(len(names), "algorithm")
        return f"{who} found no schedule, without a proof that none exists", remedy(cells), ""
    unbeaten = comparison.winners(cells)
    winners, best = list(dict.fromkeys(cell.job.algorithm for cell in unbeaten)), unbeaten[0]
    assert best.answer.makespan is not None
    who = " and ".join(winners) if len(winners) <= 2 else f"{winners[0]} and {counted(len(winners) - 1, 'other')}"
    time = format_time(best.answer.makespan, units_of(best))
    if any(cell.answer.outcome is Outcome.OPTIMAL for cell in cells):
        quality = "proved optimal"
    else:
        ratio = comparison.ratio_to_bound(best)
        quality = "no bound is known" if ratio is None else f"{100 * (ratio - 1):.3g} % above the lower bound"
    return f"{who} {'is' if len(winners) == 1 else 'are'} the quickest", f"{time}, {quality}", found
