"""Questions around solves: the least budget for a time, and the largest batch for a budget.

They are asked with options of `remat.solve` (an algorithm's own option of the same name wins):

- ``max_overhead`` (``0.2`` or ``20%``) and ``max_makespan`` (a time): the least budget of the memory that ``--budget``
  means whose schedule is no slower;
- ``scale=batch``: the largest batch for which the instance, scaled, fits the budget (and these limits). ``batch`` says
  at which batch the instance was measured (default 1).

Any algorithm can be asked. The answer is proved where the algorithm proves that one step less (one more) will not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Protocol

from remat.errors import OptionError
from remat.graph.bounds import makespan_bound
from remat.plugin.context import interruptible
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Termination
from remat.plugin.registry import Algorithm
from remat.solving.questions.bisection import Limit, Search, least_budget
from remat.solving.questions.prober import Answered, Effort, Prober, with_budget
from remat.solving.result import Answer, Result
from remat.solving.single import QUESTIONS, Budget, budget_memory, conclude
from remat.units import LARGEST_TOTAL, format_time, parse_time

RESOLUTION = 1e-3
"""Share of the budget at which the search with a heuristic ends."""

LARGEST_BATCH = 2**31 - 1


class Question(Protocol):
    """Something to be asked of many solves."""

    def answer(self, problem: Problem, effort: Effort, budget: Budget) -> Result:
        """Return the verified result that is the answer."""
        ...


def asked(options: Mapping[str, Any], solver: Algorithm, problem: Problem) -> tuple[Question | None, dict[str, Any]]:
    """Part the question from the algorithm's options.

    Returns
    -------
    question : Question or None
        None where all options are the algorithm's own.
    own : dict
        What is left for the algorithm.
    """
    model = solver.load_options()
    fields = set() if model is None else set(model.model_fields)
    given = {name: value for name, value in options.items() if name in QUESTIONS - fields}
    own = {name: value for name, value in options.items() if name not in given}
    if not given:
        return None, own
    limits = Limits.of(given.get("max_overhead"), given.get("max_makespan"), problem)
    if "scale" in given:
        from remat.solving.questions.largest_batch import LargestBatch, read_batch, read_scale

        read_scale(given["scale"])
        return LargestBatch(limits, read_batch(given.get("batch", 1))), own
    if "batch" in given:
        raise OptionError("--option batch: it says at which batch the instance was measured; add --option scale=batch")
    return LeastBudgetFor(limits), own


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the time, as they were given.

    Attributes
    ----------
    overhead : Fraction or None
        Of the no-recompute time.
    makespan : Fraction or None
        In the instance's unit.
    text : str
        In words; empty where there is no limit.
    """

    overhead: Fraction | None
    makespan: Fraction | None
    text: str

    @staticmethod
    def of(overhead: object, makespan: object, problem: Problem) -> Limits:
        """Read the two options."""
        share = None if overhead is None else read_share(overhead)
        texts = [] if share is None else [f"an overhead of at most {_percent(share)}"]
        longest = None
        if makespan is not None:
            try:
                time = parse_time(_plain(makespan), problem.units, largest=LARGEST_TOTAL)
            except ValueError as error:
                raise OptionError(f"--option max_makespan: {error}") from None
            longest = Fraction(time)
            texts.append(f"a makespan of at most {format_time(time, problem.units)}")
        return Limits(share, longest, " and ".join(texts))

    def of_problem(self, problem: Problem) -> Limit:
        """Return the largest admissible makespan of a problem."""
        given = [] if self.makespan is None else [self.makespan]
        if self.overhead is not None:
            given.append((1 + self.overhead) * Fraction(problem.no_recompute_time))
        return Limit(min(given, default=None))


def read_share(value: object) -> Fraction:
    """Read ``0.2``, ``"0.2"`` or ``"20%"`` exactly."""
    text = str(value).strip()
    try:
        if isinstance(value, bool):
            raise ValueError
        number = Decimal(text.removesuffix("%").strip())
        if not number.is_finite() or not 0 <= number <= 10**12:
            raise ValueError
    except (InvalidOperation, ValueError):
        raise OptionError(f"--option max_overhead: {text[:60]!r} is no share >= 0; write 0.2 or 20%") from None
    return Fraction(number) / (100 if text.endswith("%") else 1)


def _plain(value: object) -> object:
    """Return numbers that came as text as numbers; bare ones are in the instance's unit."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        return value


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.6g} %"


@dataclass(frozen=True, slots=True)
class LeastBudgetFor:
    """The least budget whose schedule is within the limits."""

    limits: Limits

    def answer(self, problem: Problem, effort: Effort, budget: Budget) -> Result:
        """Search, and conclude at the budget that is found."""
        memory = budget_memory(problem.instance, problem.machine)
        name = problem.machine.memories[memory].name
        if (isinstance(budget, Mapping) and budget.keys() & {"", name}) or isinstance(budget, (int, str)):
            raise OptionError(
                f"--budget: the budget of {name!r} is what max_overhead and max_makespan ask for; leave one of them out"
            )
        prober = Prober(with_budget(problem, memory, None), memory, effort)
        make_options(prober.solver, effort.options)  # or say what is wrong with them
        limit = self.limits.of_problem(problem)
        answer = Answer(
            question=f"the least budget of {name} for {self.limits.text}", quantity="budget", value=None, memory=name
        )
        bound = makespan_bound(problem.graph, problem.machine, problem.needed)
        if not limit.admits(bound):
            shown = format_time(bound, problem.units)
            reason = f"no budget will do: whatever the memory, the makespan is at least {shown}"
            return _refused(prober, answer, reason, ALL_SCHEDULES)
        with interruptible(effort.outer):
            search = least_budget(prober, limit, resolution=RESOLUTION)
            if search.best is None:
                return _unmet(prober, answer, search, limit)
            return _met(prober, answer, search, search.best, limit)


def _met(prober: Prober, answer: Answer, search: Search, best: Answered, limit: Limit) -> Result:
    effort, size = prober.effort, best.peak or 0
    notes, ask = best.result.notes, size if prober.repeats(best) else best.asked
    if ask != size and not effort.stopped:
        if limit.met_by(prober.at(size, left=2)):
            ask = size
        else:
            keep = "keep this schedule" + ("" if ask is None else f", or ask for --budget {ask}")
            notes = (*notes, f"{keep}: for its own peak, {best.solver.name} finds a slower one or none")
    answer = replace(
        answer,
        value=size,
        ask=ask,
        slots=slots(prober, size),
        bound=size if search.complete else prober.grid.above(search.refuted),
        scope=search.scope,
        solves=effort.solves,
    )
    if not answer.proved:
        notes = (*notes, "the budget is the least that was found; it is not proved that no smaller one will do")
    return replace(
        best.result,
        answer=answer,
        notes=notes,
        solve_seconds=effort.seconds,
        termination=best.result.termination if effort.termination is Termination.COMPLETED else effort.termination,
    )


def _unmet(prober: Prober, answer: Answer, search: Search, limit: Limit) -> Result:
    """Answer that no budget will do; proved, if the answer with unbounded memory is a proof."""
    refusal = search.refusal
    if refusal is None:
        return _refused(prober, answer, "stopped before the first answer", None)
    result, scope = refusal.result, limit.refuted_by(refusal)
    if result.makespan is None:  # not even a schedule, whatever the time
        return replace(result, answer=replace(answer, scope=scope, solves=prober.effort.solves))
    if refusal.solver.guarantee == "strategy":
        scope = scope or refusal.solver.within or f"the {refusal.solver.name} schedule"
    least = format_time(result.makespan, result.units)
    outcome = "nothing was found" if scope is None else "no budget will do"
    reason = f"{outcome}: even without a budget, the makespan of {refusal.solver.name} is {least}"
    return _refused(prober, answer, reason, scope)


def _refused(prober: Prober, answer: Answer, reason: str, scope: str | None) -> Result:
    effort = prober.effort
    proposal = Proposal(infeasible_within=scope, notes=(reason,), termination=effort.termination)
    solver = prober.solver
    result = conclude(prober.problem, solver, proposal, {}, seed=effort.seed, solve_seconds=effort.seconds)
    return replace(result, answer=replace(answer, scope=scope, solves=effort.solves), least_budget=None)


def slots(prober: Prober, size: int) -> int | None:
    """Return a budget in states, for a storage level that holds states of one size; None for other memories."""
    if prober.memory == 0 or prober.problem.kind != "adjoint":
        return None
    chain = prober.problem.chain
    state = int(chain.activation_size[0])
    if chain.saves or state == 0 or bool((chain.activation_size != state).any()):
        return None
    return -(-size // state)
