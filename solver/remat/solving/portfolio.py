"""`auto`: a portfolio that runs several algorithms and returns their best schedule and bounds.

The selection and order follow from the algorithms' declarations: `remat.plugin.selection`.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from remat.errors import AlgorithmError, OptionError, RematError
from remat.plugin import registry, selection
from remat.plugin.applicability import check_reach
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Author, Bound, LeastBudget, Proposal, Status, Termination
from remat.plugin.selection import Candidate
from remat.plugin.topological_order import in_listed_order
from remat.solving.auto import NAME, AutoOptions
from remat.solving.budget_grid import is_minimal, with_whole_values
from remat.solving.conclusion import OWN_SOURCES, conclude, holds
from remat.solving.lowered_budget import SMALL, Refutation, lowered
from remat.solving.minimum_budget import smallest_named
from remat.solving.named_budget import NAMED_SHARE, at, insufficient, may_fail, trial
from remat.solving.portfolio_answers import Answer, longest, refuted, remarks
from remat.solving.portfolio_untried import GROWTH, MOST_ASKED_OTHERS, untried
from remat.solving.problem_setup import last_end_of, run, values_of, with_reported
from remat.solving.result import Result
from remat.solving.scopes import scoped, speaks_for_all
from remat.solving.tighter_limits import tightened
from remat.solving.time_guard import guarded

EARLY_SHARE = 0.5
"""Share of the time left that an algorithm has which should take next to none: in large instances it may take more."""

EXPLORATION, SECOND_EXPLORATION = 0.25, 0.2
"""Shares of the time in which all anytime algorithms are tried, and again those that were too slow for a schedule; the
best of them has most of the rest."""

COMMITTED = 2 / 3
"""Share of the time after the first tries for the best of them, half of the limit, if other algorithms can go on."""

LATE_EXPLORATION = 0.5
"""Share of the second try if all were too slow: they start again, and would be as late in less time. If one has a
schedule, its gap decides between both shares.
"""

LARGE_GAP = 0.2
"""Gap from which the second try has that share if an exact algorithm has a first, poor schedule."""

NEAR = 0.1
"""Share by which the first try of an algorithm that starts again may be slower than the best schedule."""

CUT = (Termination.TIME_LIMIT, Termination.PATIENCE)
"""Terminations of algorithms that could have continued."""

GAIN = 0.001
"""Share of the makespan that counts as a gain."""

IDLE_ROUNDS, IDLE_ROUNDS_WITHIN = 1, 3
"""Rounds of deepening without a gain after which it ends: by default, and within a time limit that the user set."""

OTHERS = 0.5
"""Share of that time for a first run of all of them; the best ones then run again."""

LONGER = 0.5
"""Share of the time left for a round in which those that the time stopped run again, and most of it for one of them."""

MOST_TIGHTENED = 1_000
"""Most tasks for which algorithms run again with less memory."""

GAP = 0.001
"""Share of the makespan to which the gap is closed by default, in instances of more than `SMALL` tasks."""


def solve_quickly(problem: Problem, options: AutoOptions, context: Context) -> Proposal:
    """Run the quick candidates, as one solve of a question about many budgets."""
    portfolio = _prepared(problem, options, context)
    portfolio.ask_quick()
    return portfolio.merged(minimum=False)


def solve_alone(problem: Problem, options: AutoOptions, context: Context) -> Proposal:
    """Run all candidates, as one solve of a question about many budgets."""
    portfolio = _prepared(problem, options, context)
    portfolio.ask_all()
    return portfolio.merged(minimum=False)


def solve(problem: Problem, options: AutoOptions, context: Context) -> Proposal:
    """Run the candidates, quick ones first, until a proof or the time limit.

    Notes
    -----
    Each answer is checked like a direct request: the schedule is placed and verified, and the claims are compared. The
    result is the fastest schedule, with all bounds that hold for it. Each anytime algorithm runs for a while; then the
    best one gets the remaining time. If all have ended at their work limits, the best ones run once more with higher
    limits. If no candidate finds a schedule or a proof, the other algorithms for the kind run one after the other. They
    also run, the covered ones last, if the user's time limit is not used up. If a memory is too small for every
    schedule, the candidates still run, to report a sufficient budget.
    """
    portfolio = _prepared(problem, options, context)
    portfolio.ask_all()
    portfolio.deepen()
    portfolio.tighten()
    return portfolio.merged()


def _prepared(problem: Problem, options: AutoOptions, context: Context) -> _Portfolio:
    if problem.kind == "dag" and problem.graph.parts:
        task = problem.graph.described(min(problem.graph.parts), repr)
        raise OptionError(
            f"{NAME!r} does not support tasks such as {task}, which is a collective of several memories",
            argument="algorithm",
        )
    if context.gap is None and len(problem.graph.tasks) > SMALL:
        context.gap = GAP
    return _Portfolio(problem, options, context)


@dataclass
class _Portfolio:
    """The state of a solve."""

    problem: Problem
    options: AutoOptions
    context: Context
    answers: list[Answer] = field(default_factory=list[Answer])
    asked: set[str] = field(default_factory=set[str])
    refusals: list[str] = field(default_factory=list[str])
    log: list[str] = field(default_factory=list[str])
    seconds: float = 0.0  # that there were at the beginning

    hopeless: bool = False  # no schedule fits, or none that moves whole values

    def __post_init__(self) -> None:
        self.seconds = self.context.seconds_left or 0.0
        # The problem's own bounds come first: its copies share what is known of them.
        self.hopeless = self.problem.exceeded is not None or with_whole_values(self.problem).exceeded is not None

    def ask_all(self) -> None:
        """Run the candidates; then the others, if no schedule is found or the user's time limit is not used up."""
        chosen = selection.candidates(self.problem, timed=self.context.limit_given)
        for candidate in chosen.early + chosen.cheap:
            self._ask(candidate, share=EARLY_SHARE)
        rest = chosen.others + chosen.covered if self._asks_others else ()
        self._in_turn(self._ordered(chosen.ending), left=len(chosen.anytime) or min(1, len(rest)))
        stopped = self._explore_and_commit(self._ordered(chosen.anytime), chosen.others + chosen.covered)
        if self.hopeless:
            return
        covers = Counter(name for one in chosen.every for name in one.algorithm.covered_by)
        stopped += self._ask_others(chosen.others, covers, after=len(chosen.covered))
        stopped += self._ask_others(chosen.covered, covers)
        self._ask_longer(stopped if self._asks_others else [])

    def _ask_others(self, listed: Sequence[Candidate], covers: Counter[str], *, after: int = 0) -> list[Answer]:
        """Run algorithms for other instances, or covered ones, once; return the answers that the time cut short.

        If no schedule is known, they have equal shares. To improve one, each has a share for itself and for each
        algorithm that it covers, and they leave half of the time to searchers that may run deeper, or to their second
        runs. `after`: number of covered algorithms that follow.
        """
        goes_on, stopped = self._asks_others, list[Answer]()
        improves = goes_on and self.best is not None
        weights = [1 + improves * covers[candidate.algorithm.name] for candidate in listed]
        after = after if improves else min(1, after)
        reserve = sum(weights) * (1 / OTHERS - 1) if improves or self._searchers() else 0
        for k, candidate in enumerate(listed):
            if self.best is None or goes_on:
                share = weights[k] / (sum(weights[k:]) + after + reserve)
                answer = self._ask(candidate, share=share)
                stopped += [answer] if answer is not None and answer.proposal.termination in CUT else []
        return stopped

    def _ask_longer(self, stopped: Sequence[Answer]) -> None:
        """Run those that the time stopped again, for a multiple of their time; then the better half of them, and so on.

        A small share of the time says little of who could do better.
        """
        while stopped and not self.settled:
            alone, deeper = len(stopped) == 1, list[Answer]()
            until = (1 - LONGER) * (self.context.seconds_left or 0.0)
            for answer in sorted(stopped, key=lambda one: one.seconds):
                left = self.context.seconds_left or 0.0
                if left < until and deeper:
                    break
                share = min(LONGER, max(GROWTH * answer.seconds / max(left, 1e-9), LONGER / len(stopped)))
                found = self._ask(answer.candidate, share=1.0 if alone else share, again=True)
                deeper += [found] if found is not None and found.proposal.termination in CUT else []
            stopped = sorted(deeper, key=lambda one: one.rank[:3])[: len(stopped) // 2]

    @property
    def _asks_others(self) -> bool:
        """Whether others run even with a schedule: within a user's time limit, they may still beat the candidates."""
        return self.context.limit_given and len(self.problem.graph.tasks) <= MOST_ASKED_OTHERS

    def deepen(self) -> None:
        """Run the best searchers again with more and more work, until there is no gain, or no time for a round."""
        idle, factor = 0, 1
        searchers = self._searchers()
        while searchers and not self.settled:
            known, factor, deeper = self._figures(), factor * GROWTH, list[Answer]()
            for k, answer in enumerate(searchers):
                more = self._deeper(answer.candidate, factor) if self._has_time_for(answer) else None
                if more is not None:
                    found = self._ask(more, share=1 / (len(searchers) - k))
                    deeper += [replace(answer, seconds=found.seconds)] if found is not None else []
            searchers = deeper
            idle = 0 if self._gained(known) else idle + 1
            if idle >= (IDLE_ROUNDS_WITHIN if self.context.limit_given else IDLE_ROUNDS):
                return

    def _searchers(self) -> list[Answer]:
        """Return the answers that are the best ones, of algorithms whose work is limited by options not given."""
        best = self.best
        if best is None or self.hopeless:
            return []
        found = {answer.candidate.key: answer for answer in self.answers if answer.rank[:2] == best.rank[:2]}
        return [one for one in found.values() if one.result.optimal_within is None and self._limited(one.candidate)]

    def _limited(self, candidate: Candidate) -> bool:
        """Whether options limit the work of a candidate that the user gave no value."""
        return bool(candidate.work_limits) and candidate.work_limits.keys().isdisjoint(self.options.others)

    def _deeper(self, candidate: Candidate, factor: int) -> Candidate | None:
        """Return a candidate with a multiple of its work; None, with a line in the log, if it had the most before."""
        more = candidate.with_work(factor)
        if more.work_limits != candidate.with_work(factor // GROWTH).work_limits:
            return more
        shown = ", ".join(f"{name}={value}" for name, value in more.work_limits.items())
        self.log.append(f"{candidate.algorithm.name} ended at the largest {shown}")
        return None

    def _has_time_for(self, answer: Answer) -> bool:
        """Whether more work may end in time; a limit that the user set is used up in any case."""
        left = self.context.seconds_left
        return left is None or self.context.limit_given or GROWTH * answer.seconds <= left

    @property
    def _gap(self) -> float:
        """Gap of the best schedule to the best bound, as a share of its makespan; 1 without a schedule."""
        best = self.best
        if best is None:
            return 1.0
        makespan = float(best.result.makespan or 0)
        bound = max((float(answer.result.lower_bound or 0) for answer in self.answers), default=0.0)
        return max(0.0, 1.0 - bound / makespan) if makespan else 0.0

    def _figures(self) -> tuple[float, float]:
        best = self.best
        bounds = [bound.value for bound in self._bounds(best) if bound.scope == ALL_SCHEDULES]
        return float(best.result.makespan or 0) if best is not None else 0.0, float(max(bounds, default=0))

    def _gained(self, before: tuple[float, float]) -> bool:
        makespan, bound = self._figures()
        return max(before[0] - makespan, bound - before[1]) > GAIN * before[0]

    def tighten(self) -> None:
        """Run algorithms that take little time again with less memory, where they may find a better schedule."""
        if self.best is None or self.settled or len(self.problem.graph.tasks) > MOST_TIGHTENED:
            return
        select = partial(selection.with_little_time, small=SMALL)
        known, ask = list(self.answers), self._ask_with_less
        for answer in tightened(self.problem, known, select, ask, self._failed, self.context):
            self.answers.append(answer)
            self._report(answer.result)

    def _ask_with_less(self, problem: Problem, candidate: Candidate) -> Answer | None:
        other = _Portfolio(problem, self.options, self.context.aside())
        answer = other._ask(candidate)
        self.log.extend(other.log)
        return answer if answer is None or self._admissible(answer) else None

    def ask_quick(self) -> None:
        """Run the quick candidates, and the algorithm that answers questions about many budgets."""
        chosen, alone = selection.candidates(self.problem), selection.for_many(self.problem.used)
        many = () if alone is None else (selection.Candidate(alone, registry.Trial()),)
        few = tuple(selection.with_little_work(self.problem))
        for candidate in chosen.early + chosen.cheap + many + few:
            self._ask(candidate, share=EARLY_SHARE)

    def ask_alone(self, name: str) -> None:
        """Run one algorithm as it runs among all candidates."""
        for candidate in (one for one in selection.candidates(self.problem).every if one.algorithm.name == name):
            self._ask(candidate)

    def _ordered(self, listed: Sequence[Candidate]) -> list[Candidate]:
        """Put candidates that search for other orders last if the listed order must be kept."""
        return (
            sorted(listed, key=lambda candidate: candidate.trial.free) if self.options.order == "listed" else [*listed]
        )

    def _in_turn(self, listed: Sequence[Candidate], *, left: float = 0) -> None:
        """Run candidates one after the other, each with a share of the remaining time; `left` shares are left."""
        for k, candidate in enumerate(listed):
            self._ask(candidate, share=1 / (len(listed) - k + left))

    def _explore_and_commit(self, listed: Sequence[Candidate], others: Sequence[Candidate]) -> list[Answer]:
        """Run all candidates for a while, and then the best one for the remaining time; return the others it stopped.

        The best candidate of the first round gets at least half of the time, and each next one most of the rest.
        Candidates whose schedules are equally good share this time.
        Candidates that were stopped before their first schedule run once more, because their quality is unknown. If no
        candidate has a schedule, the `others` run before a second round. Without a limit of the user, each
        candidate continues up to its own work limit, as long as the others keep their share of the time.
        """
        if len(listed) < 2 or not self.context.limit_given:
            # On small instances an exact search ends soon, and its proof saves the other algorithms' whole work.
            small = len(self.problem.graph.tasks) <= SMALL
            leaves = 1 / COMMITTED - 1 if others and self._asks_others else 0
            self._in_turn(sorted(listed, key=lambda one: small and one.algorithm.guarantee != "exact"), left=leaves)
            return []
        unfinished = self._explore(listed, EXPLORATION)
        early = self._explore(others, EXPLORATION) if self.best is None and not self.hopeless else []
        late = [entry for entry in unfinished if self._is_late(entry[1])]
        if late:
            known = [entry for entry in unfinished if entry not in late]
            # One with a schedule is exact, and on its way to the best one of its class.
            large = LARGE_GAP if any(answer.result.makespan is not None for _, answer in late) else 1.0
            gap = min(1.0, self._gap / large) if known else 1.0
            share = SECOND_EXPLORATION + (LATE_EXPLORATION - SECOND_EXPLORATION) * gap
            share = SECOND_EXPLORATION if self.hopeless else share
            unfinished = known + self._explore([candidate for candidate, _ in late], share, again=True)
        ranked = sorted(unfinished, key=lambda entry: (not self._may_win(entry[1]), *entry[1].rank[:3]))
        for k, (candidate, answer) in enumerate(ranked):
            share = self._share_of(candidate, answer, ranked[k + 1 :])
            if k == len(ranked) - 1 and others and self._asks_others:
                share = COMMITTED  # as of a single candidate
            self._ask(candidate, share=share, again=True)
        return [answer for _, answer in early]

    @staticmethod
    def _share_of(candidate: Candidate, answer: Answer, after: Sequence[tuple[Candidate, Answer]]) -> float:
        """Return the share of the time left for an algorithm before others: most of it, but for those as good."""
        makespan = answer.result.makespan
        if makespan is None:
            return 1 / (len(after) + 1)
        unknown = any(late.result.makespan is None for _, late in after)
        equal = [one for one, late in after if abs((late.result.makespan or math.inf) - makespan) <= GAIN * makespan]
        other = {one.algorithm.name for one, _ in after if one not in equal} - {candidate.algorithm.name}
        return (COMMITTED if unknown or other else 1.0) / (1 + len(equal))

    def _may_win(self, answer: Answer) -> bool:
        """Whether an algorithm that starts again needs most of the time left for what it may still find.

        Others continue from the best schedule: its own, or what this algorithm finds before them.
        """
        best, makespan = self.best, answer.result.makespan
        if best is None or makespan is None or answer.continues:
            return False
        return makespan <= (1 + NEAR) * (best.result.makespan or 0)

    def _is_late(self, answer: Answer) -> bool:
        """Whether an answer cut short says nothing of what more time gives: no schedule, or of an exact algorithm."""
        best = self.best
        worse = best is not None and answer.rank[:2] > best.rank[:2]
        return answer.result.makespan is None or (worse and self._is_exact(answer.solver))

    def _is_exact(self, solver: registry.Algorithm) -> bool:
        """Whether an algorithm finds the best schedule of a class that uses all of the machine."""
        return solver.guarantee == "exact" and speaks_for_all(self.problem.machine, solver)

    def _explore(
        self, listed: Sequence[Candidate], share: float, *, again: bool = False
    ) -> list[tuple[Candidate, Answer]]:
        """Run each candidate for its part of a share of the time; return those that the limit stopped."""
        limit, unfinished = self.seconds, list[tuple[Candidate, Answer]]()
        for candidate in listed:
            left = max(self.context.seconds_left or 0.0, 1e-9)
            answer = self._ask(candidate, share=min(1.0, share * limit / len(listed) / left), again=again)
            if answer is None and again:  # it would not have had more time than before
                answer = self._last_of(candidate)
            if answer is not None and answer.proposal.termination in CUT:
                unfinished.append((candidate, answer))
        return unfinished

    @property
    def best(self) -> Answer | None:
        """The best answer with a schedule, in the listed order where that must be kept."""
        found = (answer for answer in self.answers if answer.result.columns is not None and self._admissible(answer))
        return min(found, key=lambda answer: answer.rank, default=None)

    def _admissible(self, answer: Answer) -> bool:
        columns = answer.result.columns
        return self.options.order == "free" or (columns is not None and in_listed_order(self.problem.graph, columns))

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to prove, no time, or no patience."""
        if self.hopeless:
            # Further algorithms only name a budget that is enough, until one is proved minimal.
            return self.context.ended or any(is_minimal(self.problem, one.result.least_budget) for one in self.answers)
        if any(answer.result.status is Status.INFEASIBLE for answer in self.answers):
            return True
        best = self.best
        return self.context.stopped or (best is not None and best.result.status is Status.OPTIMAL)

    def _ask(self, candidate: Candidate, *, share: float = 1.0, again: bool = False) -> Answer | None:
        """Run an algorithm, unless the answer is settled; after a refusal or failure, other algorithms follow."""
        if (
            self.settled
            or (candidate.key in self.asked and not again)
            or (again and not self._has_more(candidate, share))
        ):
            return None
        self.asked.add(candidate.key)
        started = time.monotonic()
        solver, options = candidate.algorithm, candidate.trial.options
        problem, listed = self.problem, self.options.order == "listed"
        admits = (lambda steps: in_listed_order(problem.graph, steps)) if listed else None
        whole = speaks_for_all(problem.machine, solver)
        context = self.context.part(solver.name, share=share, admits=admits, speaks_for_all=whole)
        try:
            check_reach(problem, solver)
            chosen = make_options(solver, {**options, **self._others(solver)})
            proposal = with_reported(run(problem, solver, chosen, context), solver, context)
            judge = partial(conclude, problem, solver, proposal, values_of(chosen), seed=context.seed)
            result, _ = guarded(judge, last_end_of(self.context))
        except RematError as error:
            self.refusals.append(f"{solver.name}: {error}")
            return None
        except (AlgorithmError, MemoryError) as error:
            self._failed(solver, error)
            return None
        if result is None:
            self.refusals.append(f"{solver.name}: no time was left to verify its schedule")
            return None
        seconds = time.monotonic() - started
        answer = Answer(solver, scoped(problem, solver, proposal), result, candidate, seconds, context.continues)
        self.answers.append(answer)
        if result.columns is not None and self._admissible(answer):
            self._report(result)
        elif result.columns is None:
            self.context.report(bound=result.lower_bound, scope=ALL_SCHEDULES)
        return answer

    def _has_more(self, candidate: Candidate, share: float) -> bool:
        """Whether an algorithm that runs again has more time than before, unless it continues from the best one."""
        before, left = self._last_of(candidate), self.context.seconds_left
        return before is None or before.continues or left is None or share * left > before.seconds

    def _last_of(self, candidate: Candidate) -> Answer | None:
        """Return the last answer of a candidate."""
        return next((answer for answer in reversed(self.answers) if answer.candidate.key == candidate.key), None)

    def _failed(self, solver: registry.Algorithm, error: Exception) -> None:
        """Log the failure of an algorithm; the others continue."""
        text = str(error) if isinstance(error, AlgorithmError) else f"{solver.name}: out of memory"
        self._bug(text, error)
        # Its reports are as untrustworthy as its answer.
        best, context = self.best, self.context
        result = None if best is None else best.result
        plain = result is not None and result.steady is None
        context.best_steps = result.columns if result is not None and plain else None
        context.best_pattern = None if result is None else result.pattern
        context.best_orders = None if result is None else result.orders
        context.best_makespan = None if result is None else result.makespan

    def _bug(self, text: str, error: Exception | None = None) -> None:
        import logging

        self.log.append(f"bug: {text}")
        logger = logging.getLogger("remat")
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())  # a library prints nothing
        logger.error("bug: %s", text, exc_info=error)

    def _report(self, result: Result) -> None:
        known = self.context.best_makespan
        better = known is None or (result.makespan is not None and result.makespan <= known)
        # The steps of a stream are a stretch of it, and no answer without their pattern.
        pattern = result.pattern if better else None
        steps = result.columns if better and result.steady is None else None
        self.context.source = result.algorithm
        makespan = result.makespan if better else None
        bound = result.lower_bound
        orders = None if steps is None else result.orders
        self.context.report(steps, pattern=pattern, orders=orders, makespan=makespan, bound=bound, scope=ALL_SCHEDULES)

    def _others(self, solver: registry.Algorithm) -> dict[str, Any]:
        model = solver.load_options() if self.options.others else None
        known: set[str] = set() if model is None else set(model.model_fields)
        return {name: value for name, value in self.options.others.items() if name in known}

    # --- the answer ---------------------------------------------------------------------------------------------------

    def merged(self, *, minimum: bool = True) -> Proposal:
        """Return the best schedule with the proofs of all algorithms, or the known reason why none exists.

        Without a schedule, `minimum` says whether to search for the smallest budget that has one.
        """
        best = self.best
        bounds = self._bounds(best)
        ended = self.context.termination if self.context.ended else None
        if best is None:
            within, least = refuted(self.problem, self.answers)
            if minimum:
                least = self._promised(least)
            notes = self._notes_without(proved=within is not None or self.problem.exceeded is not None)
            if minimum:
                least, more = lowered(self.problem, self.context, least, self._probe, self._named_by(least))
                notes += more
            termination = ended or longest(self.answers, self.answers)
            return Proposal(
                bounds=bounds,
                infeasible_within=within,
                least=least,
                termination=termination,
                notes=notes,
                log=tuple(self.log),
            )
        result, within = best.result, best.result.optimal_within
        notes = (*best.proposal.notes, *remarks(self.problem, self.answers, best, self.options.order))
        if any(bound.scope == within and not holds(bound, result) for bound in bounds):
            within = None  # faster than all schedules of that class, and so none of them
        return Proposal(
            steps=result.columns,
            orders=result.orders,
            pattern=result.pattern,
            period=None if result.steady is None or result.pattern is not None else result.steady.period,
            makespan=result.makespan,
            bounds=bounds,
            optimal_within=within,
            termination=ended or longest(self.answers, [best]),
            notes=tuple(dict.fromkeys(notes)),
            author=Author(result.algorithm, result.options),
            log=tuple(self.log),
            untried=untried(self.problem, self.asked, self._searchers()),
        )

    def _probe(
        self, capacities: Mapping[str, int | None], context: Context, quick: bool, only: str | None = None
    ) -> tuple[Result | None, Sequence[Refutation]]:
        """Ask for any schedule with other capacities; return the best one, and which classes have none."""
        context.forms = self.context.forms
        other = _Portfolio(self.problem.with_capacities(capacities), self.options, context)
        if only is not None:
            other.ask_alone(only)
        elif quick:
            other.ask_quick()
        else:
            other.ask_all()
        self.log.extend(other.log)
        best, told = other.best, [Refutation.of(answer.solver, answer.result) for answer in other.answers]
        return None if best is None else best.result, told

    def _bounds(self, best: Answer | None) -> tuple[Bound, ...]:
        """Return the best bound of each class, but for those over all schedules that another one's schedule refutes."""
        found: dict[str, Bound] = {}
        for answer in self.answers:
            for bound in answer.result.bounds:
                if bound.source in OWN_SOURCES:
                    continue
                if best is not None and bound.scope == ALL_SCHEDULES and not holds(bound, best.result):
                    made = f"{answer.solver.name} claims bound {bound.value} over {bound.scope}"
                    self._bug(f"{made}, and {best.solver.name} has a schedule of {best.result.makespan}")
                    continue
                known = found.get(bound.scope)
                if known is None or bound.value > known.value:
                    found[bound.scope] = bound
        if any(line.startswith("bug:") for line in self.log):  # reported bounds may have been refuted, too
            whole = found.get(ALL_SCHEDULES)
            self.context.best_bound = None if whole is None else whole.value
        return tuple(found.values())

    def _promised(self, least: LeastBudget | None) -> LeastBudget | None:
        """Return the smallest named budget at which the algorithm that names it finds a schedule."""
        first, named = least, [answer.result.least_budget for answer in self.answers]
        while least is not None and least.sufficient and not self.context.ended:
            if any(self._keeps(one, least) for one in self.answers if one.result.least_budget == least):
                break
            named = [insufficient(self.problem, one) if one is not None and one == least else one for one in named]
            least = smallest_named(named)
        return insufficient(self.problem, first) if least is None and first is not None else least

    def _keeps(self, answer: Answer, least: LeastBudget) -> bool:
        """Whether the algorithm of an answer has a schedule at the budget that it names, or no time to look for it."""
        if not may_fail(answer.solver, least):
            return True
        inner = trial(self.context, share=NAMED_SHARE)
        other = _Portfolio(at(self.problem, least), self.options, inner)
        other._ask(answer.candidate)
        self.log.extend(other.log)
        return other.best is not None or inner.ended

    def _named_by(self, least: LeastBudget | None) -> str | None:
        """Return the algorithm that named a budget."""
        return next((one.solver.name for one in self.answers if one.result.least_budget == least), None)

    def _notes_without(self, *, proved: bool) -> tuple[str, ...]:
        """Return notes on a missing schedule; after a proof, algorithms that refused the instance are not listed."""
        notes = [note for answer in self.answers for note in answer.proposal.notes]
        return tuple(dict.fromkeys([*notes, *(() if proved else self.refusals[:3])]))
