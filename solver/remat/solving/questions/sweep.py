"""`remat.sweep`: time-memory curves with verified points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError, checked_call
from remat.instance import digest, load
from remat.messages import counted, unknown_memory
from remat.plugin.context import Progress, interruptible
from remat.plugin.forms import Forms
from remat.plugin.labels import read_label
from remat.plugin.problem import Problem, budget_memory
from remat.plugin.registry import Algorithm, name_of
from remat.solving import auto
from remat.solving.batch_splitting import one_division
from remat.solving.budget import read_capacity
from remat.solving.problem_setup import AnyInstance, AnyMachine, Control, make_problem, read_whole
from remat.solving.questions import QUESTIONS
from remat.solving.questions.bisection import Limit, Search, search_least
from remat.solving.questions.curves import Curve, Least, Point, Sweep
from remat.solving.questions.pool import Answered, with_budget
from remat.solving.questions.portfolio_curve import PortfolioCurve
from remat.solving.questions.prober import Effort, Prober
from remat.solving.relative_budget import Wholes
from remat.units import format_budget

if TYPE_CHECKING:
    from remat.plugin.cancel import Cancel

POINTS = 20
MOST_POINTS = 100_000
ATTEMPTS = 3
RESOLUTION = 0.01
"""Share of the budget to which the least one is searched with algorithms that are not exact."""


@checked_call(OptionError)
def sweep(
    instance: AnyInstance,
    algorithms: str | Algorithm | Sequence[str | Algorithm] = ("auto",),
    *,
    budgets: Iterable[float | str] | None = None,
    points: int | None = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Sweep:
    """Compute time-memory curves.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithms : str, Algorithm or sequence of these
        As in `remat.solve`; a curve each. ``LABEL=NAME`` asks an algorithm under a name of your own, for example with
        other options.
    budgets : iterable of int, float or str, optional
        Capacities of the working memory (of the fastest storage level, for an adjoint with storage), or shares such as
        0.8 or ``"80%"``; also with the name of this memory, ``"device=8GB"``. Default: between the minimum budget and
        the peak of the schedule without a budget.
    points : int, optional
        Budgets to choose. Default: all breakpoints of an algorithm that answers many budgets at once, else 20.
    machine, options : optional
        As in `remat.solve`; each option goes to the algorithms that have it, ``rotor.slots`` to `rotor` (or to the
        label of this name) alone.
    time_limit : float or str, optional
        For each curve. Default: none, but 60 s (10 s if it is anytime) for each solve of ``auto``.
    gap, patience, seed, threads, progress, cancel : see `remat.solve`

    Returns
    -------
    Sweep
        Infeasible and unknown answers are points without a schedule. After Ctrl-C or at a limit, the points so far.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.
    remat.errors.ClaimError
        If a schedule or a claim does not survive verification (a bug in the algorithm).

    Notes
    -----
    For exact algorithms the minimum budget is exact, by bisection if they do not report it; for others the search
    ends at 1 %. The budgets between it and the largest peak have equal ratios, on the grid of budgets at which the set
    of schedules changes (`remat.solving.budget_grid`). If the schedules at both ends are equally fast, no other
    budget is solved.
    """
    asked = (algorithms,) if isinstance(algorithms, (str, Algorithm)) else tuple(algorithms)
    problem = make_problem(one_division(load(instance)), machine=machine)
    control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
    return sweep_of(problem, asked, budgets, points, options or {}, control)


def sweep_of(
    problem: Problem,
    asked: Sequence[str | Algorithm],
    budgets: Iterable[float | str] | None,
    points: int | None,
    options: Mapping[str, Any],
    control: Control,
    forms: Forms | None = None,
) -> Sweep:
    """Answer `sweep` for a problem."""
    loaded = one_division(problem.instance)
    if loaded is not problem.instance:
        problem = Problem(loaded, problem.machine)
    forms = forms or Forms(loaded)
    memory = budget_memory(loaded, problem.machine)
    chosen = _budgets(budgets, problem, problem.machine.memories[memory].name)
    if chosen is not None and points is not None:
        raise OptionError("the budgets are given already", argument="points")
    count = None if points is None else min(read_whole(points, "points", 2), MOST_POINTS)
    unbounded = with_budget(problem, memory, None)
    curves = []
    labelled = [read_label(algorithm) for algorithm in asked]
    for (label, algorithm), own in zip(labelled, _options(problem, labelled, options), strict=True):
        effort = Effort.of(algorithm, own, control, forms)
        effort.label = "" if label == name_of(algorithm) else label
        with interruptible(effort.outer):
            curves.append(_Sweeping(Prober(unbounded, memory, effort), chosen, count).curve())
        if effort.outer.interrupted:
            break
    return Sweep(
        instance_name=loaded.name,
        instance_digest=digest(loaded),
        kind=problem.kind,
        units=problem.units,
        machine=problem.machine.to_document(),
        memory=problem.machine.memories[memory].name,
        no_recompute_time=problem.reference_time,
        seed=control.seed,
        curves=tuple(curves),
    )


def _budgets(given: Iterable[float | str] | None, problem: Problem, memory: str) -> tuple[int, ...] | None:
    """Read the budgets of a memory; descending, each once."""
    if given is None:
        return None
    wholes = Wholes(problem)
    try:
        listed = [_of_memory(size, memory, problem) for size in given]
        sizes = {read_capacity(size, wholes, memory, problem.units) for size in listed}
    except OptionError as error:
        raise OptionError(error.message, argument="budgets") from None
    if not sizes:
        raise OptionError("there are no budgets", argument="budgets")
    return tuple(sorted(sizes, reverse=True))


def _of_memory(budget: float | str, memory: str, problem: Problem) -> float | str:
    """Return a budget without the name of the swept memory, as in ``device=8GB``."""
    if not isinstance(budget, str) or "=" not in budget:
        return budget
    name, _, size = (part.strip() for part in budget.partition("="))
    if name == memory:
        return size
    if name not in problem.machine.memory_index:
        raise OptionError(unknown_memory(name, problem.machine.memory_index), argument="budgets")
    raise OptionError(
        f"a sweep is over the budgets of {memory!r}, not {name!r}; give the capacity of {name!r} in the machine",
        argument="budgets",
    )


def _options(
    problem: Problem, asked: Sequence[tuple[str, str | Algorithm]], given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Share the options among the algorithms, each with its name or label."""
    names = [label for label, _ in asked]
    if not names:
        raise OptionError("there are none", argument="algorithms")
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise OptionError(
            f"{twice!r} is given twice; LABEL={twice} asks it under another name, with other options",
            argument="algorithms",
        )
    shares: list[dict[str, Any]] = [{} for _ in names]
    fields: list[set[str]] = []
    for _, algorithm in asked:
        if name_of(algorithm) == auto.NAME:
            fields.append(auto.option_names(problem) - QUESTIONS if given else set())
            continue
        effort = Effort.of(algorithm, {}, Control())
        model = Prober(problem, budget_memory(problem.instance, problem.machine), effort).solver.load_options()
        fields.append(set() if model is None else set(model.model_fields))
    for key, value in given.items():
        owner, dot, option = key.rpartition(".")
        takers = [k for k, name in enumerate(names) if (name == owner if dot else option in fields[k])]
        if not takers:
            if not dot and option in QUESTIONS:
                raise OptionError(f"{option!r} is a question for `remat solve`, not for a sweep", argument="options")
            # Let the algorithm itself say which options it has.
            whose = (
                f"{owner!r} is not among the algorithms"
                if dot
                else f"no algorithm of {', '.join(names)} has the option {option!r}"
            )
            raise OptionError(f"{whose}; see `remat algorithms NAME`", argument="options")
        for k in takers:
            shares[k][option] = value
    return shares


class _Sweeping:
    """Computes one curve."""

    def __init__(self, prober: Prober, budgets: tuple[int, ...] | None, points: int | None) -> None:
        self.prober, self.budgets, self.points = prober, budgets, points
        self.effort = prober.effort
        self.found: list[Answered] = []
        self.answers: dict[tuple[int | None, bool], Point] = {}
        self.refused: Answered | None = None
        self.search: Search | None = None
        self.least: Least | None = None
        self.exhaustive = False

    def curve(self) -> Curve:
        ours = PortfolioCurve(self.prober, self.budgets, self.points, self._told) if self.effort.is_auto else None
        try:
            if ours is not None:
                ours.fill()
            else:
                self._fill()
        except KeyboardInterrupt:  # the second Ctrl-C: return the finished points
            self.effort.outer.interrupted = True
        if ours is not None:
            return ours.curve()
        answers = sorted(
            self.answers.values(), key=lambda point: (point.budget is None, point.budget or 0, point.peak or 0)
        )
        return Curve(
            algorithm=self.effort.name,
            registered=self.effort.registered,
            options=dict(self.effort.options),
            answers=tuple(answers),
            least=self._concluded(),
            exhaustive=self.exhaustive,
            termination=self.effort.termination,
            default_limit=self.effort.default_limit,
        )

    def _note(self, answer: Answered) -> None:
        point = Point.of(answer.result, answer.memory)
        known = self.answers.get((point.budget, point.solved))
        if known is None or (point.makespan or 0) < (known.makespan or 0):
            self.answers[point.budget, point.solved] = point
        if point.least_budget is not None and (
            self.refused is None or point.budget is None or _larger(answer, self.refused)
        ):
            self.refused = answer
        self._told(answer)

    def _told(self, answer: Answered) -> None:
        """Report an answer as progress."""
        count, units = len(self.prober.pool.answers), answer.problem.units
        shown = "no budget" if answer.budget is None else format_budget(answer.budget, units, enough=answer.solved)
        message = f"{self.effort.name} at {shown}, {counted(count, 'answer')}"
        self.effort.tell(answer.result.makespan, answer.result.lower_bound, message)

    def _fill(self) -> None:
        prober = self.prober
        if self.budgets is not None:
            self._all(self.budgets)
            self._named(self._smallest())
        elif self.points is None and prober.solver.sweep:
            lowest: Answered | None = None
            with closing(prober.many(())) as answers:  # type: ignore[type-var]
                for answer in answers:
                    self._note(answer)
                    lowest = answer if answer.solved else lowest
                    if self.effort.stopped:
                        return
            # The last answer of a hook is that there is no schedule for less.
            self.exhaustive = self.refused is not None
            self._named(found=None if lowest is None or self._confirmed(lowest, as_good=False) is None else lowest.peak)
        else:
            self._between()

    def _all(self, budgets: tuple[int, ...], seen: tuple[Answered, ...] = ()) -> None:
        """Answer descending budgets; skip the solve if an optimal schedule for a larger budget fits."""
        if self.prober.solver.sweep:
            with closing(self.prober.many(budgets)) as answers:  # type: ignore[type-var]
                for answer in answers:
                    self._note(answer)
                    if self.effort.stopped:
                        return
            return
        known = list(seen)
        for k, budget in enumerate(budgets):
            if self.effort.stopped:
                return
            if seen and any(_settles(answer, budget) for answer in known):
                continue
            answer = self.prober.at(budget, len(budgets) - k)
            known.append(answer)
            self._note(answer)

    def _between(self) -> None:
        """Find both ends, then answer budgets between them."""
        count = self.points or POINTS
        top = self.prober.at(None, count + 10)
        if not top.solved:
            self._note(top)
            self._named(None)
            return
        first = self._confirmed(top.at_peak(), as_good=True) or top
        self._note(first)
        self.search = search_least(self.prober, Limit(), top=top, resolution=RESOLUTION)
        if self.search.refusal is not None:
            self._note(self.search.refusal)
        if self.search.best is None:
            return
        low = self._confirmed(self.search.best, as_good=False)
        if low is None:  # the algorithm wants more than its schedule needs
            self.search = None
            self._named(self._smallest())
            self._upwards(self.prober.grid.above(first.peak or 0))
            return
        self._note(low)
        if _no_slower(low, first) or self.effort.stopped:
            return
        budgets = self.prober.grid.spread(low.peak or 0, first.peak or 0, count)
        self._all(budgets[1:-1], (first, low))

    def _confirmed(self, answer: Answered, *, as_good: bool) -> Answered | None:
        """Return an answer of the algorithm at the peak of its schedule, if it finds a schedule there.

        An algorithm that rounds or overestimates sizes may need a larger budget.
        """
        if self.prober.repeats(answer) or self.effort.stopped:
            return answer
        again = self.prober.at(answer.peak)
        if again.solved and (not as_good or _no_slower(again, answer)):
            return again
        self._note(again)
        return None

    def _named(self, found: int | None) -> None:
        """Try the minimum budget of an infeasible answer if it is below the smallest budget in `found`."""
        named = self.refused
        least = None if named is None else named.result.least_budget
        if named is None or least is None or self.effort.stopped:
            return
        if least.sufficient and (found is None or least.size < found):
            answer = self.prober.at(least.size)
            if answer.solved:
                found = least.size
                if self.budgets is None:
                    self._note(answer)
        if found is None:
            self.least = Least(size=least.size, sufficient=False, proved_within=least.scope)
        else:
            proved = least.scope if found <= least.size else None
            self.least = Least(size=found, sufficient=True, proved_within=proved)

    def _upwards(self, budget: int) -> None:
        """Find a sufficient budget by increasing it, if only the unlimited one is known to suffice."""
        for _ in range(ATTEMPTS):
            if (
                self._smallest() is not None
                or (self.least is not None and self.least.sufficient)
                or self.effort.stopped
            ):
                return
            self.least, budget = None, 2 * budget
            self._note(self.prober.at(budget))

    def _smallest(self) -> int | None:
        """Return the smallest budget at which there is a schedule."""
        budgets = [point.budget for point in self.answers.values() if point.solved and point.budget is not None]
        return min(budgets, default=None)

    def _concluded(self) -> Least | None:
        """Return the known minimum budget; at worst, the peak of the smallest schedule."""
        if self.least is not None:
            return self.least
        if self.search is not None and self.search.best is not None:
            scope = self.search.scope if self.search.complete else None
            return Least(size=self.search.best.peak or 0, sufficient=True, proved_within=scope)
        found = self._smallest()
        return None if found is None else Least(size=found, sufficient=True, proved_within=None)


def _settles(answer: Answered, budget: int) -> bool:
    """Whether an answer also settles a smaller budget: optimal in its class, and within that budget."""
    result = answer.result
    larger = answer.budget is None or answer.budget >= budget
    return larger and answer.solved and result.optimal_within is not None and (answer.peak or 0) <= budget


def _larger(one: Answered, other: Answered) -> bool:
    return (one.budget or 0) > (other.budget or 0)


def _no_slower(one: Answered, other: Answered) -> bool:
    first, second = one.result.makespan, other.result.makespan
    return first is not None and second is not None and first <= second
