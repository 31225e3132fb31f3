"""Results of a comparison: cells, ratios to the best and to the bound, wins, means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from remat.comparing.cells import SOLVED, Cell, Outcome
from remat.solving.display import Shown
from remat.units import Number

SAME = 1e-9
"""Makespans that differ by a smaller share count as equal."""

Case = tuple[str, str]
"""An instance and a budget, on which algorithms are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The results of one algorithm.

    Attributes
    ----------
    algorithm : str
    family : str
        Folder of the instances; empty for all of them.
    cases : int
        Number of cells; each seed counts.
    solved, proved : int
        Cells with a verified schedule; cells proved optimal over all schedules.
    infeasible, unknown, refused, failed : int
    wins : int
        Solved cells that no other algorithm beats on the same instance and budget.
    ratio_to_best : float or None
        Geometric mean, over the solved cells, of makespan / best makespan known for the case. With a baseline: of
        makespan / the baseline's makespan.
    spread : float or None
        Standard deviation, over the seeds, of that mean; None with fewer than two seeds.
    ratio_to_floor : float or None
        The same mean relative to `Answer.floor`, a bound that does not depend on the other algorithms.
    ratio_to_bound : float or None
        The same mean relative to the best lower bound known for the case.
    seconds : float
        Total time of all its jobs.
    """

    algorithm: str
    family: str
    cases: int
    solved: int
    proved: int
    infeasible: int
    unknown: int
    refused: int
    failed: int
    wins: int
    ratio_to_best: float | None
    spread: float | None
    ratio_to_floor: float | None
    ratio_to_bound: float | None
    seconds: float

    def to_record(self) -> dict[str, Any]:
        """Return the standing as a flat record."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The results of one algorithm on the cells that all ranked algorithms solved.

    Attributes
    ----------
    algorithm : str
    ratio : float or None
        Geometric mean of makespan / best over these cells (with a baseline: / the baseline's makespan).
    wins : int
        Number of these cells that no other algorithm beats.
    solved, cells : int
        Counted over all cells.
    """

    algorithm: str
    ratio: float | None
    wins: int
    solved: int
    cells: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Algorithms, best first, on `common` cells that all of them solved; algorithms without a solved cell are left out.

    Without a common cell, `common` is 0, ratios are None, and the order is by solved cells.
    """

    family: str
    common: int
    ranks: tuple[Rank, ...]

    def to_record(self) -> dict[str, Any]:
        """Return the ranking as a JSON value."""
        ranks = [{name: getattr(rank, name) for name in rank.__slots__} for rank in self.ranks]
        return {"family": self.family, "common": self.common, "ranks": ranks}


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """The result of `remat.compare`.

    Attributes
    ----------
    cells : tuple of Cell
        In the order of instances, budgets, algorithms, seeds.
    interrupted : bool
        Whether cells are missing because the run was interrupted.
    notes : tuple of str
        Notes for the reader, such as damaged lines of the journal.
    baseline : str
        The algorithm that ratios are relative to; empty: the best one for each case.
    """

    _shown_by: ClassVar[str] = "remat.comparing.report.notebook"

    cells: tuple[Cell, ...]
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    baseline: str = ""

    @cached_property
    def best(self) -> Mapping[Case, Number]:
        """Best makespan of each case that any algorithm solved."""
        return self._extremes(min, lambda cell: cell.answer.makespan if cell.answer.solved else None)

    @cached_property
    def reference(self) -> Mapping[Case, Number]:
        """Reference of the ratios of each case: the best makespan, or the baseline's best over its seeds."""
        if not self.baseline:
            return self.best
        return self._extremes(
            min,
            lambda cell: cell.answer.makespan if cell.answer.solved and cell.job.algorithm == self.baseline else None,
        )

    @cached_property
    def bound(self) -> Mapping[Case, Number]:
        """Best lower bound of each case; all of them hold for all schedules, whichever algorithm proved them."""
        return self._extremes(max, lambda cell: cell.answer.lower_bound)

    @cached_property
    def by_case(self) -> Mapping[Case, Sequence[Cell]]:
        """The cells of each case, in their order; a file that is not an instance is a separate case."""
        grouped: dict[Case, list[Cell]] = {}
        for cell in self.cells:
            grouped.setdefault(case_of(cell), []).append(cell)
        return grouped

    def _extremes(self, better: Any, figure: Any) -> dict[Case, Number]:
        found: dict[Case, Number] = {}
        for cell in self.cells:
            value = figure(cell)
            if value is not None:
                case = case_of(cell)
                found[case] = better(found[case], value) if case in found else value
        return found

    def ratio_to_best(self, cell: Cell) -> float | None:
        """Return makespan / best makespan known for the case; None without a schedule."""
        return _ratio(cell.answer.makespan, self.best.get(case_of(cell))) if cell.answer.solved else None

    def ratio(self, cell: Cell) -> float | None:
        """Return makespan / the baseline's makespan, or / the best; None if either is missing."""
        return _ratio(cell.answer.makespan, self.reference.get(case_of(cell))) if cell.answer.solved else None

    def ratio_to_floor(self, cell: Cell) -> float | None:
        """Return makespan / the bound that remat computes for every instance and budget; None without a schedule."""
        return _ratio(cell.answer.makespan, cell.answer.floor) if cell.answer.solved else None

    def spread(self, cells: Iterable[Cell]) -> float | None:
        """Return the standard deviation over seeds of the mean ratio of some cells of one algorithm."""
        by_seed: dict[int, list[float | None]] = {}
        for cell in cells:
            by_seed.setdefault(cell.job.seed, []).append(self.ratio(cell))
        means = [mean for ratios in by_seed.values() if (mean := geometric_mean(ratios)) is not None]
        return statistics.stdev(means) if len(means) > 1 else None

    def ratio_to_bound(self, cell: Cell) -> float | None:
        """Return makespan / best bound known for the case; None without a schedule."""
        return _ratio(cell.answer.makespan, self.bound.get(case_of(cell))) if cell.answer.solved else None

    def wins(self, cell: Cell) -> bool:
        """Whether no other cell beats this one."""
        ratio = self.ratio_to_best(cell)
        return ratio is not None and ratio <= 1 + SAME

    def winners(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the unbeaten ones of some cells of a case, those proved optimal first: the first is the best."""
        unbeaten = [cell for cell in cells if self.wins(cell)]
        return sorted(unbeaten, key=lambda cell: cell.answer.outcome is not Outcome.OPTIMAL)

    def standings(self, *, by_family: bool = False) -> list[Standing]:
        """Return the results of each algorithm in the order of the ranking; last those that solved no cell.

        Without a cell that all solved, the order is by unbeaten cells, solved cells and ratio to the best.
        """
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in self.cells:
            if cell.job.algorithm:
                groups.setdefault((cell.job.family if by_family else "", cell.job.algorithm), []).append(cell)
        listed = [self._standing(algorithm, family, cells) for (family, algorithm), cells in groups.items()]
        place: dict[tuple[str, str], int] = {}
        for family in {family for family, _ in groups}:
            ranking = self.ranking(family if by_family else None)
            ranks = ranking.ranks if ranking.common else ()
            place |= {(family, rank.algorithm): k for k, rank in enumerate(ranks)}

        def key(s: Standing) -> tuple[Any, ...]:
            rank = place.get((s.family, s.algorithm), len(listed))
            return s.family, rank, -s.wins, -s.solved, s.ratio_to_best or math.inf, s.algorithm

        return sorted(listed, key=key)

    def ranking(self, family: str | None = None) -> Ranking:
        """Rank the algorithms with solved cells on the cells that all of them solved, for a fair comparison.

        Parameters
        ----------
        family : str, optional
            Only cells of this folder of instances.
        """
        cells = [cell for cell in self.cells if cell.job.algorithm and family in (None, cell.job.family)]
        by_name = by_algorithm(cells)
        solved = {name: {case_of(cell) for cell in listed if cell.answer.solved} for name, listed in by_name.items()}
        names = [name for name, cases in solved.items() if cases]
        common = set.intersection(*(solved[name] for name in names)) if names else set[Case]()
        ranks = []
        for name in names:
            shared = [cell for cell in by_name[name] if case_of(cell) in common and cell.answer.solved]
            won = {case_of(cell) for cell in shared if self.wins(cell)}
            rank = Rank(
                algorithm=name,
                ratio=geometric_mean(map(self.ratio, shared)),
                wins=len(won),
                solved=sum(cell.answer.solved for cell in by_name[name]),
                cells=len(by_name[name]),
            )
            ranks.append(rank)
        ranks.sort(key=lambda rank: (rank.ratio or math.inf, -rank.solved, rank.algorithm))
        return Ranking(family or "", len(common), tuple(ranks))

    def rankings(self) -> list[Ranking]:
        """Return one ranking of all cells, or one for each family if the algorithms have no cell in common."""
        whole = self.ranking()
        families = list(dict.fromkeys(cell.job.family for cell in self.cells if cell.job.algorithm))
        if whole.common or len(families) < 2:
            return [whole] if whole.ranks else []
        return [ranking for family in families if (ranking := self.ranking(family)).ranks]

    def without_schedule(self, family: str = "") -> list[str]:
        """Return the algorithms that accepted cells (of a family) and solved none, in the order of the standings."""
        listed = [one for one in self.standings(by_family=bool(family)) if one.family == family]
        return [one.algorithm for one in listed if not one.solved and one.cases > one.refused]

    def _standing(self, algorithm: str, family: str, cells: list[Cell]) -> Standing:
        counts = dict.fromkeys(Outcome, 0)
        for cell in cells:
            counts[cell.answer.outcome] += 1
        solved = sum(counts[outcome] for outcome in SOLVED)
        known = (Outcome.INFEASIBLE, Outcome.UNKNOWN, Outcome.REFUSED)
        return Standing(
            algorithm=algorithm,
            family=family,
            cases=len(cells),
            solved=solved,
            proved=counts[Outcome.OPTIMAL],
            infeasible=counts[Outcome.INFEASIBLE],
            unknown=counts[Outcome.UNKNOWN],
            refused=counts[Outcome.REFUSED],
            failed=len(cells) - solved - sum(counts[outcome] for outcome in known),
            wins=sum(self.wins(cell) for cell in cells),
            ratio_to_best=geometric_mean(self.ratio(cell) for cell in cells),
            spread=self.spread(cells),
            ratio_to_floor=geometric_mean(self.ratio_to_floor(cell) for cell in cells),
            ratio_to_bound=geometric_mean(self.ratio_to_bound(cell) for cell in cells),
            seconds=round(sum(cell.answer.seconds for cell in cells), 3),
        )

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat record for each cell, for pandas, polars or a CSV file."""
        return [
            cell.to_record()
            | {
                "ratio_to_best": self.ratio_to_best(cell),
                "ratio_to_baseline": self.ratio(cell) if self.baseline else None,
                "ratio_to_floor": self.ratio_to_floor(cell),
                "ratio_to_bound": self.ratio_to_bound(cell),
                "best": self.wins(cell),
            }
            for cell in self.cells
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON document."""
        return {
            "schema": "remat.comparison/1",
            "interrupted": self.interrupted,
            "notes": list(self.notes),
            "baseline": self.baseline or None,
            "standings": [standing.to_record() for standing in self.standings()],
            "rankings": [ranking.to_record() for ranking in self.rankings()],
            "families": [standing.to_record() for standing in self.standings(by_family=True)],
            "cells": self.to_records(),
        }

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)


def case_of(cell: Cell) -> Case:
    """Return the case of a cell."""
    return cell.job.instance, cell.job.budget


def by_algorithm(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Return the cells by algorithm: several seeds, or sets of options."""
    grouped: dict[str, list[Cell]] = {}
    for cell in cells:
        grouped.setdefault(cell.job.algorithm, []).append(cell)
    return grouped


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the known ratios; None if none is known, or one is infinite."""
    logs = [math.log(ratio) for ratio in ratios if ratio is not None and 0 < ratio < math.inf]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def _ratio(value: Number | None, reference: Number | None) -> float | None:
    if value is None or reference is None:
        return None
    if value == reference:
        return 1.0
    return value / reference if reference else math.inf
