"""One algorithm's verified answers at many budgets for one memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from remat.errors import OptionError
from remat.plugin import registry
from remat.plugin.applicability import check_reach
from remat.plugin.context import Context, Progress, interruptible
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Author, LeastBudget, Proposal, Termination
from remat.plugin.selection import for_many
from remat.solving import auto
from remat.solving.budget_grid import Grid
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import AUTO_SECONDS, Control, contained, end_of, propose, values_of
from remat.solving.questions.pool import Answered, Pool, with_budget
from remat.solving.result import Result
from remat.solving.time_guard import guarded
from remat.units import Number

if TYPE_CHECKING:
    from remat.plugin.forms import Forms
    from remat.schedule.orders import Orders


@dataclass(kw_only=True)
class Effort:
    """Algorithm, options and limits that all solves of a sweep or a question share.

    Attributes
    ----------
    algorithm : str or Algorithm
        As in `remat.solve`.
    label : str
        The user's name for the algorithm with these options; empty: its own name.
    options : mapping
        The creator checks that the names are valid (see `chosen`).
    deadline : float or None
        `time.monotonic()` value for all solves together.
    limit_given : bool
        Whether the user set the deadline; if not, it only guards against long runs, and work limits decide.
    gap, patience : float or None
        Gap and patience of each solve.
    solves, answers : int
        Number of solves, and of solves that the algorithm did not reject.
    seconds : float
        Spent by the algorithm.
    forms : Forms or None
        Prepared forms of algorithms, if all solves are of one instance.
    outer : Context
        Receives interrupts between solves.
    """

    algorithm: str | registry.Algorithm
    options: Mapping[str, Any]
    deadline: float | None = None
    seed: int = 0
    threads: int = 1
    gap: float | None = None
    patience: float | None = None
    listener: Callable[[Progress], object] | None = None
    limit_given: bool = True
    solves: int = 0
    answers: int = 0
    seconds: float = 0.0
    forms: Forms | None = None
    label: str = ""
    outer: Context = field(default_factory=Context)

    @staticmethod
    def of(
        algorithm: str | registry.Algorithm, options: Mapping[str, Any], control: Control, forms: Forms | None = None
    ) -> Effort:
        """Check the arguments, which are those of `remat.solve`."""
        checked = control.context(registry.name_of(algorithm), time.monotonic())
        return Effort(
            algorithm=algorithm,
            options=options,
            deadline=checked.deadline,
            gap=checked.gap,
            patience=checked.patience,
            seed=checked.seed,
            threads=checked.threads,
            listener=checked.listener,
            limit_given=checked.limit_given,
            forms=forms,
            outer=Context(cancel=control.cancel),
        )

    @property
    def stopped(self) -> bool:
        """Whether the time limit or a user interrupt has struck."""
        return self.outer.interrupted or (self.deadline is not None and time.monotonic() >= self.deadline)

    @property
    def termination(self) -> Termination:
        """The reason why the solves ended."""
        if self.outer.interrupted:
            return Termination.INTERRUPTED
        return Termination.TIME_LIMIT if self.stopped else Termination.COMPLETED

    def solver(self, problem: Problem) -> registry.Algorithm:
        """Return the algorithm for a problem."""
        found = auto.find(self.algorithm, problem.kind)
        check_reach(problem, found)
        return found

    @property
    def default_limit(self) -> float | None:
        """Seconds of the default time limit for all solves together; None if the user gave a limit or none applies."""
        return None if self.limit_given or self.deadline is None else AUTO_SECONDS

    @property
    def name(self) -> str:
        """Name of the algorithm, or the user's label."""
        return self.label or registry.name_of(self.algorithm)

    @property
    def registered(self) -> str:
        """Name of the algorithm if it has a label; otherwise empty."""
        return registry.name_of(self.algorithm) if self.label else ""

    @property
    def is_auto(self) -> bool:
        """Whether the algorithm is the portfolio."""
        return registry.name_of(self.algorithm) == auto.NAME

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Limit the solves inside to a share of the remaining time."""
        deadline, now = self.deadline, time.monotonic()
        if deadline is not None:
            self.deadline = now + share * max(0.0, deadline - now)
        try:
            yield
        finally:
            self.deadline = deadline

    def reaches(self, problem: Problem, solver: registry.Algorithm) -> bool:
        """Whether an algorithm accepts a problem."""
        try:
            check_reach(problem, solver)
        except OptionError:
            return False
        return True

    def chosen(self, problem: Problem, solver: registry.Algorithm) -> Any:
        """Return the options for an algorithm; one that answers for `auto` gets the options that it has."""
        options = self.options
        if self.is_auto and solver.name != auto.NAME:
            model = solver.load_options()
            known = set() if model is None else set(model.model_fields)
            options = {name: value for name, value in options.items() if name in known}
        if solver.name == auto.NAME:
            solver = auto.AUTO
        return auto.read_options(problem, solver, options)

    def allowed(self, left: float) -> float | None:
        """Return the seconds that one of `left` solves has; None without a limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic()) / max(1, left)

    def context(self, solver: registry.Algorithm, left: float) -> Context:
        """Return the context of one solve; an anytime algorithm gets its share of the time, among `left` solves."""
        deadline, now = self.deadline, time.monotonic()
        if deadline is not None and solver.anytime:
            deadline = now + (deadline - now) / max(1, left)
        return Context(
            deadline=deadline,
            gap=self.gap,
            patience=self.patience,
            seed=self.seed,
            threads=self.threads,
            listener=self.listener,
            started=self.outer.started,
            limit_given=self.limit_given,
            forms=self.forms,
            cancel=self.outer.cancel,
        )

    def tell(self, makespan: Number | None, bound: Number | None, message: str) -> None:
        """Report progress; the callback may stop the question."""
        if self.listener is not None:
            progress = Progress(time.monotonic() - self.outer.started, makespan, bound, message)
            self.outer.interrupted |= self.listener(progress) is False

    def propose(
        self,
        problem: Problem,
        solver: registry.Algorithm,
        left: float,
        *,
        enough: Fraction | float | None = None,
        start: Answered | None = None,
        neighbours: tuple[Orders, ...] = (),
    ) -> tuple[Proposal, Any]:
        """Run one solve; return its proposal and its options.

        It stops at a makespan of `enough`. It begins with the schedule of `start`, which fits, and with the orders of
        `neighbours`, which may not fit. If an algorithm that has answered before refuses this problem (for example
        because its schedule would be too long), the answer is unknown, with the reason as a note.
        """
        chosen = self.chosen(problem, solver)
        context = self.context(solver, left)
        context.enough = enough
        context.neighbours = neighbours
        if start is not None:
            context.report(start.result.columns, orders=start.result.orders, makespan=start.result.makespan)
        self.solves += 1
        try:
            proposal, seconds = propose(problem, solver, chosen, context)
        except OptionError as error:
            if self.answers == 0:
                raise
            return Proposal(notes=(str(error),)), None
        finally:
            self.outer.interrupted |= context.interrupted
        self.seconds += seconds
        self.answers += 1
        if context.satisfied and proposal.termination is Termination.GAP:
            proposal = replace(proposal, termination=Termination.COMPLETED)
        if start is not None and _is(proposal, start.result):
            proposal = replace(proposal, author=Author(start.result.algorithm, start.result.options))
        return proposal, chosen


def _is(proposal: Proposal, known: Result) -> bool:
    """Whether a proposal is the schedule of a known result."""
    same_orders = known.orders is not None and proposal.orders == known.orders
    return same_orders or (proposal.steps is not None and proposal.steps is known.columns)


@dataclass(frozen=True)
class Prober:
    """Solves with one algorithm at many budgets for one memory (by index), overriding its capacity."""

    problem: Problem
    memory: int
    effort: Effort
    pool: Pool = field(default_factory=Pool)

    @cached_property
    def grid(self) -> Grid:
        """The budgets at which the answer can change."""
        return Grid.of(self.problem, self.memory)

    @cached_property
    def solver(self) -> registry.Algorithm:
        """The algorithm; for `auto`, its choice at a budget between the smallest and an ample one."""
        total = int(self.problem.graph.size.sum()) + self.grid.offset
        return self.effort.solver(with_budget(self.problem, self.memory, (max(0, self.floor) + total) // 2))

    @cached_property
    def floor(self) -> int:
        """The largest budget that a bound proves too small for every schedule; -1 if unknown."""
        bound = self.problem.least_of(self.memory)
        return -1 if bound is None else bound.size - 1

    @cached_property
    def many_at_once(self) -> registry.Algorithm | None:
        """The algorithm that answers many budgets at once: the requested one, or a member of the portfolio."""
        solver = self.solver
        if self.effort.is_auto:
            total = int(self.problem.graph.size.sum()) + self.grid.offset
            typical = with_budget(self.problem, self.memory, (max(0, self.floor) + total) // 2)
            found = for_many(typical.used)
            return found if found is not None and found.sweep and self.effort.reaches(typical, found) else None
        return solver if solver.sweep else None

    def at(
        self,
        budget: int | None,
        left: float = 1,
        *,
        member: registry.Algorithm | None = None,
        enough: Fraction | float | None = None,
    ) -> Answered:
        """Solve at a budget (None: unbounded); `left` solves share the time.

        `member` is the form of the portfolio to ask; a schedule with a makespan of `enough` ends it.
        """
        problem = with_budget(self.problem, self.memory, budget)
        solver = self.effort.solver(problem) if member is None else member
        before, allowed = self.effort.seconds, self.effort.allowed(left)
        start = self.pool.fastest(budget) if self.effort.is_auto else None
        start = start if start is not None and start.starts else None
        above = self.pool.next_above(budget) if self.effort.is_auto else None
        orders = None if above is None else above.result.orders
        proposal, chosen = self.effort.propose(
            problem, solver, left, enough=enough, start=start, neighbours=() if orders is None else (orders,)
        )
        seconds = self.effort.seconds - before
        return self._conclude(problem, solver, proposal, values_of(chosen), seconds, allowed=allowed)

    def refused(self, budget: int, least: LeastBudget | None) -> Answered:
        """Return the answer at a budget that is proved too small for every schedule."""
        problem = with_budget(self.problem, self.memory, budget)
        proposal = Proposal(infeasible_within=ALL_SCHEDULES, least=least)
        return self._conclude(problem, self.effort.solver(problem), proposal, {}, 0.0)

    def repeats(self, answer: Answered) -> bool:
        """Whether the algorithm has already run at the peak of its schedule, or always builds the same schedule."""
        strategy = answer.solver.guarantee == "strategy" and not self.effort.is_auto
        return strategy or answer.asked == answer.peak

    def many(self, budgets: tuple[int, ...]) -> Iterator[Answered]:
        """Answer a descending tuple of budgets at once; an empty tuple requests every breakpoint.

        Each breakpoint is checked at its peak, the smallest budget that admits it. The last answer, if it has no
        schedule, is one unit below the minimum budget.

        Notes
        -----
        The algorithm's hook is called with an unbounded capacity; budgets are totals, as in `remat.solve`. Leaving the
        iteration closes it.
        """
        solver = self.many_at_once
        hook = None if solver is None else solver.load_sweep()
        assert solver is not None
        assert hook is not None
        chosen = self.effort.chosen(self.problem, solver)
        context = self.effort.context(solver, 1)
        unbounded = with_budget(self.problem, self.memory, None)
        # Found once, for all budgets.
        _ = self.problem.least_objective, self.problem.memory_bounds, self.problem.no_recompute_time
        self.effort.solves += 1
        known: Answered | None = None
        proposals = iter(hook(unbounded, chosen, context, budgets))
        for k in count():
            context.interrupted |= self.effort.outer.interrupted
            started = time.perf_counter()
            try:
                with interruptible(context), contained(solver):
                    proposal, _ = guarded(lambda: next(proposals, None), end_of(context), context.cancel)
            finally:
                self.effort.outer.interrupted |= context.interrupted
            seconds = time.perf_counter() - started
            self.effort.seconds += seconds
            if proposal is None or (budgets and k >= len(budgets)):
                return
            budget = budgets[k] if budgets else self._beneath(proposal, None if known is None else known.peak)
            problem = with_budget(self.problem, self.memory, budget)
            same = known is not None and known.proposal.steps is proposal.steps
            verified = known.result if known is not None and same else None
            answer = self._conclude(problem, solver, proposal, values_of(chosen), seconds, verified)
            if answer.solved:
                known = answer = answer if budgets else self._at_peak(answer)
            yield answer

    def _at_peak(self, answer: Answered) -> Answered:
        """Return a breakpoint at its own peak, and add it to the pool."""
        found = answer.at_peak()
        if found is not answer:
            self.pool.note(found)
        return found

    def _beneath(self, proposal: Proposal, last: int | None) -> int | None:
        """Return the budget at which to conclude a breakpoint: unbounded for a schedule, else below the least."""
        if proposal.steps is not None:
            return None
        least = proposal.least
        if least is not None and least.memory == self.memory and least.sufficient:
            return max(0, least.size - 1)
        return self.floor if last is None and self.floor >= 0 else max(0, (last or 0) - 1)

    def slots(self, size: int) -> int | None:
        """Return a budget in states if the memory is a storage level with states of one size; else None."""
        if self.memory == 0 or not self.problem.instance.has_states:
            return None
        chain = self.problem.chain
        state = int(chain.activation_size[0])
        if chain.saves or state == 0 or bool((chain.activation_size != state).any()):
            return None
        return -(-size // state)

    def _conclude(
        self,
        problem: Problem,
        solver: registry.Algorithm,
        proposal: Proposal,
        options: Mapping[str, Any],
        seconds: float,
        verified: Result | None = None,
        allowed: float | None = None,
    ) -> Answered:
        result = conclude(
            problem, solver, proposal, options, seed=self.effort.seed, solve_seconds=seconds, verified=verified
        )
        asked = problem.machine.memories[self.memory].capacity
        answer = Answered(
            memory=self.memory,
            asked=asked,
            solver=solver,
            problem=problem,
            proposal=proposal,
            result=result,
            allowed=allowed,
        )
        self.pool.note(answer)
        return answer
