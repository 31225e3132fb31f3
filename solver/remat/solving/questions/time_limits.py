"""Makespan limits of a question."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from remat.errors import OptionError
from remat.plugin.problem import Problem
from remat.solving.problem_setup import read_share
from remat.solving.questions.bisection import Limit
from remat.units import LARGEST_TOTAL, format_time, parse_time


@dataclass(frozen=True, slots=True)
class Limits:
    """Makespan limits, as given.

    Attributes
    ----------
    overhead : Fraction or None
        Share of the no-recompute time.
    makespan : Fraction or None
        In the instance's unit.
    text : str
        In words; empty without a limit.
    """

    overhead: Fraction | None
    makespan: Fraction | None
    text: str

    @staticmethod
    def of(overhead: object, makespan: object, problem: Problem) -> Limits:
        """Read the two options."""
        endless = problem.instance.is_stream
        if endless and overhead is not None:
            raise OptionError("a stream has no overhead: limit its time per sample", argument="max_overhead")
        share = None if overhead is None else read_share(overhead, "max_overhead")
        texts = [] if share is None else [f"an overhead of at most {_percent(share)}"]
        longest = None
        if makespan is not None:
            try:
                time = parse_time(_plain(makespan), problem.units, largest=LARGEST_TOTAL)
            except ValueError as error:
                raise OptionError(str(error), argument="max_makespan") from None
            longest = Fraction(time)
            what = "time per sample" if endless else "makespan"
            texts.append(f"a {what} of at most {format_time(time, problem.units)}")
        return Limits(share, longest, " and ".join(texts))

    def of_problem(self, problem: Problem) -> Limit:
        """Return the largest admissible makespan of a problem."""
        given = [] if self.makespan is None else [self.makespan]
        if self.overhead is not None:
            given.append((1 + self.overhead) * Fraction(problem.reference_time))
        return Limit(min(given, default=None))


def _plain(value: object) -> object:
    """Convert numbers given as text; bare numbers are in the instance's unit."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        return value


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.6g} %"
