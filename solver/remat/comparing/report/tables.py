"""A comparison as text: summary, grid of cells, CSV, Markdown and JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from remat.comparing.cells import Cell, Outcome
from remat.comparing.comparison import Comparison, Ranking, Standing, by_algorithm, geometric_mean
from remat.comparing.report.verdict import about_algorithms, table_legend, verdict
from remat.messages import counted, printable
from remat.report.text.comma_separated import to_csv as to_csv_text
from remat.report.text.readable_names import shown_name
from remat.units import Units, format_budget, format_percent, format_time, size_to_paste

SHORT = {
    Outcome.INFEASIBLE: "infeasible",
    Outcome.UNKNOWN: "unknown",
    Outcome.REFUSED: "refused",
    Outcome.TIME_LIMIT: "time",
    Outcome.MEMORY_LIMIT: "memory",
    Outcome.CLAIM: "claim!",
    Outcome.CRASHED: "crashed",
    Outcome.UNREADABLE: "unreadable",
}
"""Text for a cell without a schedule."""

BEST = "ratio to best"

_HEADER = (
    "algorithm",
    "cells",
    "solved",
    "proved",
    "infeasible",
    "unknown",
    "refused",
    "failed",
    "best",
    BEST,
    "ratio to floor",
    "ratio to bound",
    "planning time, sum",
)


def standings_header(comparison: Comparison) -> list[str]:
    """Return the headings of `standings_rows`."""
    return [f"ratio to {comparison.baseline}" if name == BEST and comparison.baseline else name for name in _HEADER]


def ratio_heading(comparison: Comparison) -> str:
    """Return the heading of the mean ratio over the cells that an algorithm solved."""
    return standings_header(comparison)[_HEADER.index(BEST)]


def standings_rows(standings: Sequence[Standing]) -> list[list[str]]:
    """Return the standings as rows of text, under `standings_header`."""
    return [
        [
            s.algorithm,
            str(s.cases),
            str(s.solved),
            str(s.proved),
            str(s.infeasible),
            str(s.unknown),
            str(s.refused),
            str(s.failed),
            str(s.wins),
            with_spread(s.ratio_to_best, s.spread),
            _ratio(s.ratio_to_floor),
            _ratio(s.ratio_to_bound),
            format_time(s.seconds),
        ]
        for s in standings
    ]


RANKING_HEADER = ("rank", "algorithm", "ratio on common cells", "best of common", "solved", "cells")


def ranking_title(ranking: Ranking, comparison: Comparison) -> str:
    """Describe the cells on which algorithms are ranked."""
    where = f"{ranking.family}: " if ranking.family else ""
    if not ranking.common:
        return f"{where}no cell was solved by all {counted(len(ranking.ranks), 'algorithm')}; ranked by solved cells"
    over = f"{comparison.baseline}'s" if comparison.baseline else "the best"
    count = len(ranking.ranks)
    every = ranking.ranks[0].algorithm if count == 1 else "both algorithms" if count == 2 else f"all {count} algorithms"
    if count > 1 and comparison.without_schedule(ranking.family):
        every += " with a schedule"
    return f"{where}mean makespan over {over} on the {counted(ranking.common, 'cell')} that {every} solved"


def ranking_rows(ranking: Ranking) -> list[list[str]]:
    """Return a ranking as rows of text, under `RANKING_HEADER`."""
    return [
        [
            str(place),
            rank.algorithm,
            _ratio(rank.ratio),
            f"{rank.wins:,} of {ranking.common:,}",
            f"{rank.solved:,}",
            f"{rank.cells:,}",
        ]
        for place, rank in enumerate(ranking.ranks, 1)
    ]


def budget_text(cell: Cell) -> str:
    """Return the budget of a cell with its size and unit: as requested, and converted."""
    given, capacity = cell.job.budget, cell.job.capacity
    if not given or capacity is None:
        return given
    size = format_budget(capacity, units_of(cell))
    if given.endswith("%"):
        return f"{given} = {size}"
    return size if given.replace(",", "").isdigit() else given


def grid(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the grid: a row for each instance and budget, a column for each algorithm.

    A cell shows the makespan / the best one of its row (or the baseline's), with ``*`` if it is proved optimal. Over
    several seeds it shows their mean and spread. The column `best` is the best makespan, or the required budget if no
    algorithm found a schedule.
    """
    algorithms = list(dict.fromkeys(cell.job.algorithm for cell in comparison if cell.job.algorithm))
    lines = []
    for (instance, _), cells in comparison.by_case.items():
        first, of_case = cells[0], by_algorithm(cells)
        if not first.job.algorithm:  # the document is not an instance
            lines.append([shown_name(instance), "", SHORT[first.answer.outcome], *["" for _ in algorithms]])
            continue
        shown = [_shown(comparison, of_case.get(name, [])) for name in algorithms]
        lines.append([shown_name(instance), budget_text(first) or "-", _best(comparison, cells), *shown])
    return ["instance", "budget", "best", *algorithms], lines


def relative_to(comparison: Comparison) -> str:
    """Describe the content of the grid."""
    return f"Makespan over {comparison.baseline}'s" if comparison.baseline else "Makespan over the best of the row"


MOST_WINNERS = 2
"""Algorithms that are equally good and named."""

LEADERS_HEADER = ("instance", "budget", "best algorithm", "makespan", "overhead", "gap to bound", "solved")


@dataclass(frozen=True, slots=True)
class Leader:
    """The best result of an instance and a budget.

    Attributes
    ----------
    instance, budget : str
    winners : str
        The best algorithms; without a schedule, why there is none, and the budget that is needed, if known.
    makespan : str
        With ``*`` if it is proved optimal.
    overhead, gap : float or None
        The gap is the share of the makespan above the lower bound, as in the answer of a solve.
    solved : str
    """

    instance: str
    budget: str
    winners: str
    makespan: str = ""
    overhead: float | None = None
    gap: float | None = None
    solved: str = ""

    def row(self) -> list[str]:
        """Return the texts under `LEADERS_HEADER`."""
        overhead = "-" if self.overhead is None else format_percent(max(0.0, self.overhead))
        gap = "-" if self.gap is None else format_percent(self.gap, 2) if self.gap else "0 %"
        return [self.instance, self.budget or "-", self.winners, self.makespan or "-", overhead, gap, self.solved]


def leader(comparison: Comparison, cells: Sequence[Cell], *, to_paste: bool = True) -> Leader:
    """Describe the best result of the cells of a case; `to_paste` as of `remedy`."""
    first = cells[0]
    instance = shown_name(first.job.instance)
    if not first.job.algorithm:
        return Leader(instance, "", SHORT[first.answer.outcome])
    count = f"{sum(cell.answer.solved for cell in cells):,} of {len(cells):,}"
    unbeaten = comparison.winners(cells)
    if not unbeaten:
        outcomes = {cell.answer.outcome for cell in cells}
        why = next((one for one in (Outcome.INFEASIBLE, Outcome.UNKNOWN) if one in outcomes), first.answer.outcome)
        reason = "infeasible, proved" if why is Outcome.INFEASIBLE else SHORT[why]
        told = "; ".join(filter(None, (reason, remedy(cells, to_paste=to_paste))))
        return Leader(instance, budget_text(first), told, solved=count)
    best, winners = unbeaten[0], list(dict.fromkeys(cell.job.algorithm for cell in unbeaten))
    more = f" and {len(winners) - MOST_WINNERS} more" if len(winners) > MOST_WINNERS else ""
    ratio = comparison.ratio_to_bound(best)
    return Leader(
        instance,
        budget_text(first),
        f"{', '.join(winners[:MOST_WINNERS])}{more}",
        _best(comparison, cells) + ("*" if any(cell.answer.outcome is Outcome.OPTIMAL for cell in cells) else ""),
        best.answer.overhead,
        None if ratio is None else max(0.0, 1 - 1 / ratio),
        count,
    )


def leaders(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the short grid: the best result of each instance and budget."""
    return list(LEADERS_HEADER), [leader(comparison, cells).row() for cells in comparison.by_case.values()]


def _best(comparison: Comparison, cells: Sequence[Cell]) -> str:
    best = comparison.best.get((cells[0].job.instance, cells[0].job.budget))
    return (remedy(cells) or "-") if best is None else format_time(best, units_of(cells[0]))


def remedy(cells: Sequence[Cell], *, to_paste: bool = True) -> str:
    """State the budgets that unsolved instances need, if known; otherwise return an empty text.

    A sufficient budget is rounded up, and a necessary one down: each statement holds as printed. Sizes that can be
    pasted are decimal, and stand beside those in the unit of all other sizes; otherwise there are only the latter.
    """
    if any(cell.answer.solved for cell in cells):
        return ""
    units = units_of(cells[0])

    def shown(size: int, *, up: bool) -> str:
        plain, decimal = format_budget(size, units, enough=up), size_to_paste(size, units, up=up)
        if not to_paste:
            return plain
        return decimal if decimal == plain.replace(",", "") else f"{decimal} ({plain})"

    enough = [cell.answer.least_budget for cell in cells if cell.answer.least_budget is not None]
    if enough:
        return f"{shown(min(enough), up=True)} is enough"
    needed = [cell.answer.least_needed for cell in cells if cell.answer.least_needed is not None]
    return f"at least {shown(max(needed), up=False)} is needed" if needed else ""


def _shown(comparison: Comparison, cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    solved = [cell for cell in cells if cell.answer.solved]
    if not solved:
        return SHORT[cells[0].answer.outcome]
    star = "*" if any(cell.answer.outcome is Outcome.OPTIMAL for cell in solved) else ""
    return with_spread(geometric_mean(map(comparison.ratio, solved)), comparison.spread(solved)) + star


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.4f}"


def with_spread(ratio: float | None, spread: float | None) -> str:
    """Return a ratio, with its standard deviation over seeds if it is visible."""
    return _ratio(ratio) + (f" ± {spread:.4f}" if ratio is not None and spread and spread >= 5e-5 else "")


def units_of(cell: Cell) -> Units:
    """Return the units of a cell's figures."""
    return Units(cell.job.time_unit or "unit", cell.job.memory_unit or "unit")  # type: ignore[arg-type]


def problems(comparison: Comparison, most: int = 10) -> list[str]:
    """List the failures, one line each; refusals and proofs of infeasibility are not failures."""
    quiet = (Outcome.REFUSED, Outcome.INFEASIBLE, Outcome.UNKNOWN)
    failed = [cell for cell in comparison if not cell.answer.solved and cell.answer.outcome not in quiet]
    lines = [
        " ".join(
            part
            for part in (
                shown_name(cell.job.instance),
                printable(cell.job.algorithm),
                printable(cell.job.budget),
                f"{cell.answer.outcome}: {printable(cell.answer.detail[:200])}",
            )
            if part
        )
        for cell in failed[:most]
    ]
    if len(failed) > most:
        lines.append(f"and {len(failed) - most} more")
    return lines


def refusals(comparison: Comparison, most: int = 10) -> list[str]:
    """List why algorithms refused cells, one line for each algorithm and reason."""
    counts = Counter(
        (cell.job.algorithm, cell.answer.detail) for cell in comparison if cell.answer.outcome is Outcome.REFUSED
    )
    lines = [
        f"{printable(name)}: {printable(detail[:200]) or 'no reason given'} ({counted(count, 'cell')})"
        for (name, detail), count in counts.most_common(most)
    ]
    return [*lines, f"and {len(counts) - most} more"] if len(counts) > most else lines


def to_csv(comparison: Comparison) -> str:
    """Return all cells as CSV, one line each."""
    return to_csv_text(comparison.to_records())


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON."""
    return printable(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False), lines=True)


def to_markdown(comparison: Comparison) -> str:
    """Return the standings, those of each family, and the grid, as Markdown tables."""
    parts = ["# Comparison", "", printable(verdict(comparison)), "", *_notes(comparison)]
    for ranking in comparison.rankings():
        parts += [f"## Ranking: {ranking_title(ranking, comparison)}", ""]
        parts += [*_markdown(RANKING_HEADER, ranking_rows(ranking)), ""]
    header = standings_header(comparison)
    parts += ["## Algorithms", "", *_markdown(header, standings_rows(comparison.standings())), ""]
    parts += [*(f"- {line}" for line in table_legend(comparison, ratio_heading(comparison))), ""]
    parts += [*(f"- `{printable(name)}`: {printable(about)}" for name, about in about_algorithms(comparison)), ""]
    by_family = comparison.standings(by_family=True)
    families = list(dict.fromkeys(standing.family for standing in by_family))
    if len(families) > 1:
        for family in families:
            rows = standings_rows([standing for standing in by_family if standing.family == family])
            parts += [f"### {family}", "", *_markdown(standings_header(comparison), rows), ""]
    header, lines = grid(comparison)
    parts += [f"## {relative_to(comparison)} (`*`: proved optimal)", "", *_markdown(header, lines), ""]
    failed = problems(comparison, most=1000)
    if failed:
        parts += ["## Failures", "", *(f"- {line}" for line in failed), ""]
    return "\n".join(parts)


def _notes(comparison: Comparison) -> list[str]:
    notes = [f"- {printable(note)}" for note in comparison.notes]
    if comparison.interrupted:
        notes.append("- interrupted: cells are missing")
    return [*notes, ""] if notes else []


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(printable(cell).replace("|", "\\|") for cell in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *(line(row) for row in rows)]


def peak_text(cell: Cell) -> str:
    """Return a cell's peaks in readable form: of the memories in use, and without a name if there is only one."""
    units = units_of(cell)
    peaks = {name: size for name, size in cell.answer.peak_memory.items() if size} or cell.answer.peak_memory
    if len(cell.answer.peak_memory) == 1:
        return format_budget(next(iter(peaks.values())), units)
    return ", ".join(f"{name}: {format_budget(size, units)}" for name, size in peaks.items())
