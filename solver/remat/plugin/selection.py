"""Selection of the algorithms that `auto` runs for a problem, from their metadata only.

This module names no algorithm and no kind of instance. Each algorithm declares when and with which options to try it
(`Trial`), whether it is cheap, and which others are hardly ever worse (`Algorithm.covered_by`). The portfolio in
`remat.solving.portfolio` runs the candidates in this order. Therefore `auto` includes the algorithms of every installed
plug-in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError
from remat.plugin import registry
from remat.plugin.applicability import check_reach
from remat.plugin.options import largest_values
from remat.plugin.registry import Algorithm, Trial

if TYPE_CHECKING:
    from remat.plugin.problem import Problem


GROUPS = ("early", "cheap", "ending", "anytime", "others", "covered")
"""Groups of candidates, in the order in which they run."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An algorithm, with the options to run it with.

    Attributes
    ----------
    algorithm : Algorithm
    trial : Trial
    """

    algorithm: Algorithm
    trial: Trial

    @property
    def key(self) -> str:
        """Key that distinguishes candidates."""
        return self.algorithm.name + repr(sorted(self.trial.options.items()))

    @property
    def work_limits(self) -> dict[str, Any]:
        """The options that limit its work, with their values; those without a limit are left out."""
        model = self.algorithm.load_options()
        if model is None:
            return {}
        fields, given = model.model_fields, self.trial.options
        values = {name: given.get(name, fields[name].default) for name in self.algorithm.work_limits}
        return {name: value for name, value in values.items() if value}

    def with_work(self, factor: int) -> Candidate:
        """Return the candidate with a multiple of its work, up to the largest values of its options."""
        most = largest_values(self.algorithm.load_options())
        more = {name: min(value * factor, most.get(name, math.inf)) for name, value in self.work_limits.items()}
        return replace(self, trial=replace(self.trial, options={**self.trial.options, **more}))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates for a problem, in the order in which they run.

    Attributes
    ----------
    early : tuple of Candidate
        Take negligible time, and often prove their answer.
    cheap : tuple of Candidate
        Take little time.
    ending : tuple of Candidate
        Terminate without a limit.
    anytime : tuple of Candidate
        Improve until they are stopped.
    others : tuple of Candidate
        Intended for other instances: run if there is no schedule yet, or if time is left.
    covered : tuple of Candidate
        Seldom better than another candidate: run last, if there is no schedule yet, or if time is left.
    """

    early: tuple[Candidate, ...]
    cheap: tuple[Candidate, ...]
    ending: tuple[Candidate, ...]
    anytime: tuple[Candidate, ...]
    others: tuple[Candidate, ...]
    covered: tuple[Candidate, ...]

    @property
    def asked(self) -> tuple[Candidate, ...]:
        """Candidates that always run, before the others."""
        return self.early + self.cheap + self.ending + self.anytime

    @property
    def every(self) -> tuple[Candidate, ...]:
        """All candidates."""
        return self.asked + self.others + self.covered


def candidates(problem: Problem, *, timed: bool = True) -> Candidates:
    """Return the candidates of `auto` for a problem; `timed`: within a time limit that the user has set."""
    known = [a for a in registry.algorithms(problem.kind, available=True) if _reaches(problem, a)]
    suited = {a.name: tuple(t for t in a.trials if timed >= t.timed and t.suits(problem)) for a in known}
    own = {name for name, trials in suited.items() if trials}
    groups: dict[str, list[Candidate]] = {name: [] for name in GROUPS}
    for algorithm in known:
        trials = suited[algorithm.name]
        covered = bool((own - {algorithm.name}) & set(algorithm.covered_by))
        covered &= not any(trial.uncovered for trial in trials)
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
    """Whether a predicate holds; false if the problem does not support what it uses."""
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
"""Guarantees in the order of running: building one schedule costs least, and a proof may save the other runs."""


def _ranking(kind: str) -> Callable[[Candidate], tuple[Any, ...]]:
    """Return the order within a group: anytime algorithms that cover most others first, then by guarantee and name."""
    covers = Counter(name for algorithm in registry.algorithms(kind) for name in algorithm.covered_by)

    def rank(candidate: Candidate) -> tuple[Any, ...]:
        algorithm, options = candidate.algorithm, candidate.trial.options
        order = GUARANTEES.index(algorithm.guarantee)
        return -covers[algorithm.name] if algorithm.anytime else 0, order, algorithm.name, len(options), candidate.key

    return rank


def for_many(problem: Problem) -> Algorithm | None:
    """Return the algorithm to run first for problems that differ in budget or batch; None if there is none."""
    known = registry.algorithms(problem.kind, available=True)
    found = [algorithm for algorithm in known if algorithm.many and _reaches(problem, algorithm)]
    found = [algorithm for algorithm in found if _applies(algorithm.many, problem)]
    return min(found, key=lambda algorithm: GUARANTEES.index(algorithm.guarantee), default=None)


def with_little_work(problem: Problem) -> list[Candidate]:
    """Return the algorithms that take little time with the options that they declare for this (`Algorithm.quick`)."""
    known = registry.algorithms(problem.kind, available=True)
    found = [a for a in known if a.quick and _reaches(problem, a) and any(trial.suits(problem) for trial in a.trials)]
    return [Candidate(algorithm, Trial(options=registry.load(algorithm.quick)(problem))) for algorithm in found]


def with_little_time(problem: Problem, *, small: int) -> list[Candidate]:
    """Return the algorithms that take little time; in graphs of up to `small` tasks, these include all that end."""
    chosen = candidates(problem)
    more = [*chosen.ending, *with_little_work(problem)] if len(problem.graph.tasks) <= small else []
    return [*chosen.early, *chosen.cheap, *more]


def declared(kind: str) -> list[tuple[str, Candidate]]:
    """Return all candidates for a kind of instance, each with its group, in the order in which they run."""
    found = [
        (_group(kind, algorithm, trial), Candidate(algorithm, trial))
        for algorithm in registry.algorithms(kind)
        for trial in algorithm.trials
        if not trial.kinds or kind in trial.kinds
    ]
    rank = _ranking(kind)
    return sorted(found, key=lambda entry: (GROUPS.index(entry[0]), rank(entry[1])))
