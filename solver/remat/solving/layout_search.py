"""`remat.solve(..., layout=True)`: find a schedule whose addresses, not only its bytes, fit the budgets.

The search first lays out the fastest schedule. If its arena exceeds a budget, it tries the algorithm's earlier
incumbents, the same runs in other orders, schedules for smaller budgets, and orders with one more recomputation. The
fastest schedule that fits is the answer. All bounds remain valid, since a schedule that fits with addresses fits
without them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from remat.errors import OptionError
from remat.placement import Unplaceable, place
from remat.plugin.context import Context, Progress
from remat.plugin.emit import run_in_order
from remat.plugin.layouts import Buffers
from remat.plugin.problem import Problem
from remat.plugin.proposal import Author, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.schedule.steps import StepBuilder, StepKind, Steps, concatenate
from remat.solving.conclusion import conclude
from remat.solving.questions.layout import Addresses, layout
from remat.solving.result import Result
from remat.solving.run_orders import Lifetime, OrderSearch, RunOrders
from remat.units import Number, format_budget, format_percent, format_time
from remat.verifier import check

FIRST_SHARE, SHARE, SMALLER_SHARE = 0.5, 0.3, 0.5
"""Shares of the time left for the first solve, for each one with smaller budgets, and for all of those if orders of
runs can be changed after them. Changes count work, and would otherwise find no time left."""

WORK, SOME_WORK, QUICK_WORK = 1_000_000_000, 100_000_000, 3_000_000
"""Work of a layout search: for the first schedule if no other schedule fits, for each other schedule, and for an order
that results from a change."""

MOST_INCUMBENTS, MOST_BUDGETS, MOST_CHANGES, MOST_STEPS = 20, 12, 84_000, 1000
"""Maximum numbers of intermediate schedules, of smaller budgets, of changes to a schedule, and of steps of a changed
one."""

SHORT, FEW_CHANGES = 50, 1 / 3
"""Number of runs up to which all changes are tried (in quadratic time each), and the share of changes to try early."""

RERUNS = 0.4
"""Share of the changes that add or remove a rerun, if changes of the order are not enough."""


@dataclass(frozen=True)
class LaidOut:
    """A schedule with the layouts of all memories in question.

    Attributes
    ----------
    result : Result
    layouts : tuple of Addresses
    """

    result: Result
    layouts: tuple[Addresses, ...]

    @property
    def fits(self) -> bool:
        """Whether all layouts were found."""
        return all(one.offset is not None for one in self.layouts)

    @property
    def proved(self) -> bool:
        """Whether it is proved that some memory has no layout within its budget."""
        return any(one.offset is None and one.infeasible_within is not None for one in self.layouts)

    def addressed(self) -> Result:
        """Return the schedule with its addresses."""
        result = self.result
        for one in self.layouts:
            result = result.with_addresses(one)
        return result


def solve_with_layout(
    problem: Problem, solver: Algorithm, context: Context, solve: Callable[[Problem, Context], Result]
) -> Result:
    """Solve and find addresses; try other schedules if no layout fits.

    Parameters
    ----------
    problem : Problem
    solver : Algorithm
    context : Context
        Its time is for all solves.
    solve : callable
        Returns a concluded result for a problem.

    Raises
    ------
    OptionError
        For periodic schedules.
    """
    if problem.instance.is_stream:
        raise OptionError("a schedule that repeats itself without end has no addresses", argument="layout")
    return _Search(problem, solver, context, solve).run()


@dataclass
class _Search:
    """State of the search: the first schedule, all layouts, and the fastest schedule that fits."""

    problem: Problem
    solver: Algorithm
    context: Context
    solve: Callable[[Problem, Context], Result]
    best: LaidOut | None = None
    fitted: bool = False  # whether the last one that was laid out fits
    tried: int = 0
    unproved: int = 0
    incumbents: list[Steps] = field(default_factory=list[Steps])

    def run(self) -> Result:
        """Return the fastest schedule that fits, or the known reason why none does."""
        first = self._first()
        if first.report is None:
            return first
        laid_out = self._laid_out(first, SOME_WORK)
        for result in () if laid_out.fits else self._others(first, laid_out):
            self._laid_out(result, SOME_WORK)
            if self._enough(first):
                break
        if self.best is None and not laid_out.proved:
            self.tried, self.unproved = self.tried - 1, self.unproved - 1  # it is counted again
            laid_out = self._laid_out(first, WORK)
        return self._without(first, laid_out) if self.best is None else self._with(first, self.best)

    def _first(self) -> Result:
        """Solve without addresses, and keep the incumbents."""
        inner = self.context.aside(share=FIRST_SHARE)
        inner.gap, inner.patience = self.context.gap, self.context.patience
        inner.limit_given, inner.started = self.context.limit_given, self.context.started

        def listen(progress: Progress) -> None:
            if progress.steps is not None:
                self.incumbents.append(progress.steps)
            if self.context.listener is not None and self.context.listener(progress) is False:
                self.context.interrupted = True

        inner.listener = listen
        return self._solved(self.problem, inner)

    def _solved(self, problem: Problem, inner: Context) -> Result:
        """Solve; an interrupt also ends the search."""
        result = self.solve(problem, inner)
        self.context.interrupted = self.context.interrupted or inner.interrupted
        return result

    def _laid_out(self, result: Result, work: int) -> LaidOut:
        """Lay out all memories with a budget, the working memory in any case."""
        machine = result.machine
        working = machine.processors[0].memory
        layouts = []
        for index, memory in enumerate(machine.memories):
            if memory.capacity is None and index != working:
                continue
            options = {"work": work}
            found = layout(
                result, memory=memory.name, capacity=memory.capacity, options=options, context=self._quiet_context()
            )
            layouts.append(found)
            if found.offset is None:
                break
        answer = LaidOut(result, tuple(layouts))
        self.tried, self.fitted = self.tried + 1, answer.fits
        self.unproved += not answer.fits and not answer.proved
        if answer.fits and (self.best is None or _time(result) < _time(self.best.result)):
            self.best = answer
        return answer

    def _quiet_context(self) -> Context:
        return self.context.aside()

    def _enough(self, first: Result) -> bool:
        """Whether the answer cannot improve, or no time is left."""
        if self.context.stopped:
            return True
        return self.best is not None and _time(self.best.result) <= max(_time(first), first.lower_bound)

    # --- other schedules ----------------------------------------------------------------------------------------------

    def _others(self, first: Result, laid_out: LaidOut) -> Iterator[Result]:
        """Yield schedules that fit the budgets in bytes; those that cost nothing come first."""
        seen = 0
        for steps in reversed(self.incumbents[:-1]):
            result = self._judged(first, steps, self.problem)
            if result is not None and seen < MOST_INCUMBENTS:
                seen += 1
                yield result
        yield from self._changed(first, reruns=0.0)
        yield from self._changed(first, reruns=RERUNS, share=FEW_CHANGES)
        yield from self._smaller(first, laid_out)
        yield from self._changed(first, reruns=RERUNS)

    def _judged(self, first: Result, steps: Steps | None, problem: Problem) -> Result | None:
        """Return a schedule on the machine as a result; None if it breaks a rule, such as a budget."""
        graph, machine = problem.graph, problem.machine
        if steps is None:
            return None
        if steps.start is None:
            placed = place(graph, machine, steps)
            if isinstance(placed, Unplaceable):
                return None
            steps = steps.placed(placed.start)
        report = check(graph, machine, steps, reference_time=problem.no_recompute_time)
        return replace(first, machine=machine, columns=steps, report=report, orders=None) if report.ok else None

    def _smaller(self, first: Result, laid_out: LaidOut) -> Iterator[Result]:
        """Solve for smaller budgets: by as much as arenas exceed them, twice as much, ..., then in between."""
        machine, bounds = self.problem.machine, self.problem.memory_bounds
        last = laid_out.layouts[-1]
        memory = machine.memory_index[last.memory]  # the one whose layout was not found
        capacity = machine.memories[memory].capacity
        if capacity is None:
            return
        bound = bounds[memory]
        floor = 0 if bound is None else bound.size
        low, high = floor - 1, capacity  # budgets without a schedule or with a slow one, and without a layout
        step = max(1, capacity - first.peak_memory[last.memory] + 1, _excess(first, last))
        budget = max(capacity - step, floor)
        within = self.context.aside(share=SMALLER_SHARE if _is_sequence(self.problem, first) else 1.0)
        for _ in range(MOST_BUDGETS):
            if within.stopped or not low < budget < high:
                return
            inner = within.aside(share=SHARE)
            found = self._restored(
                first, self._solved(self.problem.with_capacities(self._budgets(memory, budget)), inner)
            )
            if found is None:
                low = budget
            else:
                yield found
                low, high = (budget, high) if self.fitted else (low, budget)
            step *= 2
            budget = (low + high) // 2 if low >= floor else max(high - step, floor)

    def _budgets(self, memory: int, budget: int) -> dict[str, int | None]:
        """Return the capacities for a smaller budget: those of all devices, where one budget is for all."""
        machine = self.problem.machine
        chosen = {memory}
        if self.problem.instance.budgets_are_for_all:
            chosen |= {processor.memory for processor in machine.processors}
        sizes = ((machine.memories[index].name, machine.memories[index].capacity) for index in sorted(chosen))
        return {name: budget if capacity is None else min(budget, capacity) for name, capacity in sizes}

    def _restored(self, first: Result, found: Result) -> Result | None:
        """Return a schedule for smaller budgets on the machine of the problem."""
        if found.columns is None or found.steady is not None:
            return None
        proposal = Proposal(steps=None if found.orders is not None else found.columns, orders=found.orders)
        result = conclude(self.problem, self.solver, proposal, found.options, seed=found.seed)
        if result.report is None:
            return None
        return replace(result, algorithm=found.algorithm, solve_seconds=first.solve_seconds + found.solve_seconds)

    def _changed(self, first: Result, *, reruns: float, share: float = 1.0) -> Iterator[Result]:
        """Yield changed orders of a schedule of runs in one memory whose addresses fit, each faster than the last one.

        The search begins with the fastest schedule that fits, if reruns are allowed, otherwise with the first one.
        """
        begin = self.best.result if self.best is not None and reruns else first
        steps = begin.columns
        if steps is None or not _is_sequence(self.problem, begin):
            return
        head = int(np.argmax(steps.kind == StepKind.RUN))
        before, order = _drops(steps, head), steps.item[head:].tolist()
        graph, machine = self.problem.graph, self.problem.machine
        search = OrderSearch(RunOrders(self.problem), self._has_layout, random.Random(self.context.seed), reruns)
        changes = int(share * MOST_CHANGES * min(1.0, (SHORT / len(order)) ** 2))
        for changed in search.run(order, changes, _time(first), lambda: self.context.stopped):
            runs = run_in_order(graph, machine, changed)
            result = self._judged(first, concatenate([before, runs]) if head else runs, self.problem)
            search.refused = result is None
            if result is not None:
                yield result

    def _has_layout(self, lives: list[Lifetime]) -> bool:
        """Whether a quick search finds a layout within the capacity of the working memory."""
        machine = self.problem.machine
        working = machine.processors[0].memory
        start, end, size = (np.array(column, dtype=np.int64) for column in zip(*lives, strict=True))
        static, capacity = self.problem.graph.static_bytes(machine, working), machine.memories[working].capacity
        buffers = Buffers(start, end, size, capacity=capacity, reserved=((0, static),) if static else ())
        found = layout(buffers, options={"work": QUICK_WORK}, context=self._quiet_context())
        return found.offset is not None

    # --- the answer ---------------------------------------------------------------------------------------------------

    def _with(self, first: Result, best: LaidOut) -> Result:
        """Return the fastest schedule that fits, with the proofs for the budgets without addresses."""
        found = best.result
        if found is not first:
            same = _time(found) == _time(first)
            proposal = Proposal(
                steps=None if found.orders is not None else found.columns,
                orders=found.orders,
                bounds=first.bounds,
                optimal_within=first.optimal_within if same else None,
                termination=self.context.termination,
                notes=first.notes,
                author=Author(found.algorithm, found.options),
                log=first.log,
            )
            verified = None if found.orders is not None else found
            found = conclude(
                self.problem,
                self.solver,
                proposal,
                first.options,
                seed=first.seed,
                verified=verified,
                solve_seconds=first.solve_seconds,
            )
            found = replace(found, history=first.history)
        price = _price(first, found)
        return replace(replace(best, result=found).addressed(), notes=(*found.notes, price))

    def _without(self, first: Result, laid_out: LaidOut) -> Result:
        """Return that no schedule was found whose layout fits; a proof holds for those that were laid out."""
        arena = self._value_of_arena(first, laid_out)
        counted = "the schedule that was" if self.tried == 1 else f"the {self.tried} schedules that were"
        proposal = Proposal(
            bounds=first.bounds,
            infeasible_within=None if self.unproved else f"{counted} laid out",
            termination=self.context.termination if self.context.ended else Termination.COMPLETED,
            notes=(*first.notes, arena),
            author=Author(first.algorithm, first.options),
            log=first.log,
        )
        result = conclude(
            self.problem, self.solver, proposal, first.options, seed=first.seed, solve_seconds=first.solve_seconds
        )
        assert result.status is Status.UNKNOWN
        return replace(result, history=first.history)

    def _value_of_arena(self, first: Result, laid_out: LaidOut) -> str:
        """Describe the budget that the fastest schedule needs with addresses."""
        name, units = laid_out.layouts[-1].memory, first.units
        found = layout(first, memory=name, options={"work": QUICK_WORK}, context=self._quiet_context())
        peak = format_budget(first.peak_memory[name], units)
        assert found.arena is not None
        return (
            f"a schedule with a peak of {peak} in {name} was found, in {format_time(_time(first), units)}; "
            f"its addresses need {format_budget(found.arena, units)}"
        )


def _time(result: Result) -> Number:
    assert result.report is not None
    return result.report.objective


def _excess(result: Result, refused: Addresses) -> int:
    """Return the excess of a quick layout over the capacity."""
    found = layout(result, memory=refused.memory, algorithm="best-fit")
    assert refused.capacity is not None
    return max(0, (found.arena or 0) - refused.capacity)


def _price(first: Result, found: Result) -> str:
    """Describe the cost of addresses in makespan."""
    before, after = _time(first), _time(found)
    if after <= before:
        return "the addresses cost no time: no faster schedule was found without them"
    share = f" ({format_percent(after / before - 1, 2)})" if before else ""
    return f"the addresses cost {format_time(after - before, found.units)}{share}: without them a schedule takes " + (
        format_time(before, found.units)
    )


def _is_sequence(problem: Problem, result: Result) -> bool:
    """Whether a schedule consists of drops, followed by one sequence of runs on one processor."""
    steps, machine = result.columns, problem.machine
    if machine.memories[machine.processors[0].memory].capacity is None:
        return False
    if steps is None or result.orders is not None or len(machine.processors) > 1 or problem.graph.parts:
        return False
    if not 0 < len(steps) <= MOST_STEPS:
        return False
    runs = steps.kind == StepKind.RUN
    head = int(np.argmax(runs))
    return bool(runs[head:].all()) and bool((steps.kind[:head] == StepKind.DROP).all()) and not steps.initial


def _drops(steps: Steps, count: int) -> Steps:
    """Return the first steps, which only drop values."""
    builder = StepBuilder()
    for step in range(count):
        builder.drop(steps.drop[step].tolist(), int(steps.source[step]))
    return builder.build()
