"""Which algorithms `auto` asks for a problem: what they declare of themselves, and nothing else.

No algorithm and no kind of instance has a name here. Each algorithm declares when, and with which options, it is worth
a try (`Trial`), whether it is cheap, and which others are hardly ever worse (`Algorithm.covered_by`). The portfolio in
`remat.solving.portfolio` asks the candidates in this order, so an algorithm of somebody else's is taken up as soon as
it is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError
from remat.plugin import registry
from remat.plugin.applicability import check_reach
from remat.plugin.registry import Algorithm, Trial

if TYPE_CHECKING:
    from remat.plugin.problem import Problem


GROUPS = ("early", "cheap", "ending", "anytime", "others", "covered")
"""Groups of candidates, in the order in which they are asked."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm, and the options with which to ask it.

    Attributes
    ----------
    algorithm : Algorithm
    trial : Trial
    """

    algorithm: Algorithm
    trial: Trial

    @property
    def key(self) -> str:
        """What tells it from another candidate."""
        return self.algorithm.name + repr(sorted(self.trial.options.items()))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Whom to ask about a problem, in the order in which to ask.

    Attributes
    ----------
    early : tuple of Candidate
        Take next to no time, and often prove their answer.
    cheap : tuple of Candidate
        Take little time.
    ending : tuple of Candidate
        End by themselves.
    anytime : tuple of Candidate
        Get better for as long as they may.
    others : tuple of Candidate
        Meant for other instances: asked if nobody has found a schedule, or if time is left.
    covered : tuple of Candidate
        Seldom better than another one that is asked: asked last, if nobody has found a schedule, or if time is left.
    """

    early: tuple[Candidate, ...]
    cheap: tuple[Candidate, ...]
    ending: tuple[Candidate, ...]
    anytime: tuple[Candidate, ...]
    others: tuple[Candidate, ...]
    covered: tuple[Candidate, ...]

    @property
    def asked(self) -> tuple[Candidate, ...]:
        """Those that are asked first, whatever they find."""
        return self.early + self.cheap + self.ending + self.anytime


def candidates(problem: Problem) -> Candidates:
    """Return whom `auto` asks about a problem."""
    known = [a for a in registry.algorithms(problem.kind, available=True) if _reaches(problem, a)]
    suited = {a.name: tuple(trial for trial in a.trials if trial.suits(problem)) for a in known}
    own = {name for name, trials in suited.items() if trials}
    groups: dict[str, list[Candidate]] = {name: [] for name in GROUPS}
    for algorithm in known:
        trials = suited[algorithm.name]
        covered = bool((own - {algorithm.name}) & set(algorithm.covered_by))
        if not trials or covered:
            group = groups["covered" if covered else "others"]
            group.append(Candidate(algorithm, trials[0] if trials else Trial()))
            continue
        for candidate in {
            Candidate(algorithm, trial).key: Candidate(algorithm, trial) for trial in trials[::-1]
        }.values():
            groups[_group(problem.kind, algorithm, candidate.trial)].append(candidate)
    rank = _ranking(problem.kind)
    return Candidates(**{name: tuple(sorted(group, key=rank)) for name, group in groups.items()})


def _reaches(problem: Problem, algorithm: Algorithm) -> bool:
    try:
        check_reach(problem, algorithm)
    except OptionError:
        return False
    return True


def _applies(predicate: str, problem: Problem) -> bool:
    """Whether a predicate holds; what it asks of a problem may be refused, and then it does not."""
    try:
        return bool(registry.load(predicate)(problem))
    except OptionError:
        return False


def _group(kind: str, algorithm: Algorithm, trial: Trial) -> str:
    if trial.early:
        return "early"
    if kind in algorithm.cheap:
        return "cheap"
    return "anytime" if algorithm.anytime else "ending"


GUARANTEES = ("strategy", "exact", "bounded", "heuristic")
"""In the order in which they are asked: one schedule costs least, and a proof may spare the others."""


def _ranking(kind: str) -> Callable[[Candidate], tuple[Any, ...]]:
    """Return the order within a group: whoever covers most others comes first, then who has the fewest options."""
    covers = Counter(name for algorithm in registry.algorithms(kind) for name in algorithm.covered_by)

    def rank(candidate: Candidate) -> tuple[Any, ...]:
        algorithm, options = candidate.algorithm, candidate.trial.options
        order = GUARANTEES.index(algorithm.guarantee)
        return -covers[algorithm.name] if algorithm.anytime else 0, order, algorithm.name, len(options), candidate.key

    return rank


def for_many(problem: Problem) -> Algorithm | None:
    """Return the algorithm to ask first about problems that differ in budget or batch; None where there is none."""
    known = registry.algorithms(problem.kind, available=True)
    found = [algorithm for algorithm in known if algorithm.many and _reaches(problem, algorithm)]
    found = [algorithm for algorithm in found if _applies(algorithm.many, problem)]
    return min(found, key=lambda algorithm: GUARANTEES.index(algorithm.guarantee), default=None)


def declared(kind: str) -> list[tuple[str, Candidate]]:
    """Return all candidates for a kind of instance, each with its group, in the order in which they are asked."""
    found = [
        (_group(kind, algorithm, trial), Candidate(algorithm, trial))
        for algorithm in registry.algorithms(kind)
        for trial in algorithm.trials
        if not trial.kinds or kind in trial.kinds
    ]
    rank = _ranking(kind)
    return sorted(found, key=lambda entry: (GROUPS.index(entry[0]), rank(entry[1])))
