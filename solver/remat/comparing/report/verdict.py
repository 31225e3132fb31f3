"""The verdict of a comparison in two sentences, its algorithms in one line each, and its words."""

from __future__ import annotations

from collections.abc import Iterator

from remat.comparing.comparison import Comparison, Ranking, Standing
from remat.messages import counted
from remat.plugin import registry
from remat.solving.auto import AUTO
from remat.units import format_percent, format_time

EQUAL = 5e-5
"""Means whose ratio differs by less than this are equal in all tables."""

LEAST_SHOWN = 0.001
"""Smaller differences would be printed as 0.0 %."""

MOST_OTHERS = 8
"""Maximum number of algorithms in a sentence; the tables contain all."""

CELL = "A cell is an instance at a budget, once for each algorithm and seed."

COMMON = (
    "ratio on common cells: geometric mean over the instances and budgets that all ranked algorithms solved; it "
    "compares algorithms."
)

OWN = (
    "{}: geometric mean over the cells that the algorithm itself solved; it compares algorithms only if all solved the "
    "same cells."
)

TIME = "planning time, sum: over all cells of the algorithm."


def verdict(comparison: Comparison) -> str:
    """Say which algorithm is best, by how much the others are slower, and how long planning took."""
    rankings = comparison.rankings()
    if not rankings:
        return "No cell was solved."
    best = " ".join(_best(ranking, comparison) for ranking in rankings[:MOST_OTHERS])
    standings = [standing for standing in comparison.standings() if standing.cases > standing.refused]
    times = _listed([f"{one.algorithm} {format_time(one.seconds)}" for one in standings])
    left = comparison.without_schedule()
    none = f" {_listed(left)} solved no cell." if left else ""
    return f"{best}{none} Planning took in all: {times}."


def _best(ranking: Ranking, comparison: Comparison) -> str:
    """Compare the best algorithm of a ranking with each other one."""
    where = f"In {ranking.family}, " if ranking.family else ""
    first = ranking.ranks[0]
    if len(ranking.ranks) == 1:
        proved = sum(one.proved for one in _standings(comparison, ranking) if one.algorithm == first.algorithm)
        cells = counted(first.cells, "cell")
        return f"{where}{first.algorithm} solved {first.solved:,} of {cells}, {proved:,} proved optimal."
    if not ranking.common or first.ratio is None:
        most = max(ranking.ranks, key=lambda rank: rank.solved)
        told = f"no instance was solved by all {counted(len(ranking.ranks), 'algorithm')} at the same budget"
        return f"{_begun(where, told)}; {most.algorithm} solved most cells, {most.solved:,} of {most.cells:,}."
    equal = [rank for rank in ranking.ranks if rank.ratio is not None and rank.ratio <= first.ratio * (1 + EQUAL)]
    others = [rank for rank in ranking.ranks if rank not in equal]
    whom = " and ".join(filter(None, (", ".join(rank.algorithm for rank in equal[:-1]), equal[-1].algorithm)))
    where_all = f"the {ranking.common:,} instances and budgets" if ranking.common > 1 else "the one instance and budget"
    both = "both" if len(ranking.ranks) == 2 else f"all {len(ranking.ranks)}"
    every = both if comparison.without_schedule(ranking.family) else "all"
    head = f"{where}{whom} {'is' if len(equal) == 1 else 'are equally'} the fastest on {where_all} that {every} solved"
    head = head.replace("equally the fastest", "equally fast")
    slower = [
        f"{rank.algorithm} needs {_more(rank.ratio / first.ratio - 1)} more time"
        for rank in others
        if rank.ratio is not None
    ]
    return f"{head}{': ' if slower else ''}{_listed(slower)}."


def _more(share: float) -> str:
    return format_percent(share) if share >= LEAST_SHOWN else f"under {format_percent(LEAST_SHOWN)}"


def _begun(where: str, text: str) -> str:
    return where + (text if where else text[0].upper() + text[1:])


def _standings(comparison: Comparison, ranking: Ranking) -> list[Standing]:
    if not ranking.family:
        return comparison.standings()
    return [one for one in comparison.standings(by_family=True) if one.family == ranking.family]


def _listed(parts: list[str]) -> str:
    shown = parts[:MOST_OTHERS]
    more = [f"and {len(parts) - MOST_OTHERS} more"] if len(parts) > MOST_OTHERS else []
    return ", ".join([*shown, *more])


def about_algorithms(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield each algorithm, in the order of the tables, with what it is."""
    known = {algorithm.name: algorithm for algorithm in (AUTO, *registry.algorithms())}
    jobs = {cell.job.algorithm: cell.job for cell in comparison}
    for standing in comparison.standings():
        job = jobs[standing.algorithm]
        algorithm = known.get(job.solver)
        summary = "" if algorithm is None else algorithm.summary
        options = ", ".join(f"{name}={value}" for name, value in job.options.items())
        asked = f"{job.registered}{f' with {options}' if options else ''}".strip()
        if summary:
            yield standing.algorithm, f"{asked}: {summary}" if asked else summary


def table_legend(comparison: Comparison, ratio: str) -> list[str]:
    """Return the words of the tables, one line each; `ratio` is the heading of the mean over an algorithm's cells."""
    ranked = any(len(ranking.ranks) > 1 and ranking.common for ranking in comparison.rankings())
    return [CELL, *((COMMON, OWN.format(ratio)) if ranked else ()), TIME]
