"""`remat.largest_batch`: the largest batch for which a scaled instance fits a budget (and a time limit)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remat.errors import InstanceError, OptionError, checked_call
from remat.graph.machine import Machine
from remat.instance import Instance, load
from remat.instance.batch_size import scaled
from remat.instance.lowering import machine_of
from remat.plugin import registry
from remat.plugin.context import Progress, interruptible
from remat.plugin.problem import Problem, budget_memory
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Termination
from remat.solving import auto
from remat.solving.batch_splitting import one_division
from remat.solving.budget import Budget
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import AnyInstance, AnyMachine, Control, make_problem, values_of
from remat.solving.questions.bisection import Limit
from remat.solving.questions.pool import Answered
from remat.solving.questions.prober import Effort
from remat.solving.questions.time_limits import Limits
from remat.solving.result import Answer, Result
from remat.units import format_budget

if TYPE_CHECKING:
    from remat.plugin.cancel import Cancel
    from remat.plugin.registry import Algorithm

LARGEST_BATCH = 2**31 - 1

FASTEST_SHARE = 0.25
"""Share of the time left in which the fastest schedule for the largest batch is searched."""


@checked_call(OptionError)
def largest_batch(
    instance: AnyInstance,
    *,
    budget: Budget = None,
    batch: int | str = 1,
    max_overhead: float | str | None = None,
    max_makespan: float | str | None = None,
    algorithm: str | Algorithm = "auto",
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Result:
    """Find the largest batch for which the scaled instance fits the budget and the makespan limits.

    Parameters
    ----------
    instance : path, open file, dict or instance
        A chain, an adjoint or a dag.
    budget : int, str or mapping
        As in `remat.solve`; optional if the machine's working memory has a capacity.
    batch : int
        The batch at which the instance was measured.
    max_overhead, max_makespan : float or str, optional
        As in `remat.least_budget`.
    algorithm, machine, options, time_limit, gap, patience, seed, threads, progress, cancel
        As in `remat.solve`; the time limit is for all solves together.

    Returns
    -------
    Result
        The schedule of the scaled instance, which is `Result.answer.instance`; `Result.answer` states whether the
        batch is proved the largest.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.

    Notes
    -----
    O(log(largest conceivable batch)) solves: the memory bound of the scaled instance gives the upper end without a
    solve. A schedule for a batch is also one for each smaller batch. Its overhead may be more there: what moves
    parameters takes as long for a small batch. Where no batch meets a limit of the overhead so far, powers of two are
    tried, the largest first.
    """
    problem = make_problem(one_division(load(instance)), budget=budget, machine=machine)
    limits = Limits.of(max_overhead, max_makespan, problem)
    measured = read_batch(batch)
    control = Control(time_limit, gap, patience, seed, threads, progress, cancel)
    effort = Effort.of(algorithm, options or {}, control)
    memory = budget_memory(problem.instance, problem.machine)
    capacity = problem.machine.memories[memory].capacity
    name = problem.machine.memories[memory].name
    if capacity is None:
        raise OptionError(f"how much memory is there? Give one for {name!r}", argument="budget")
    auto.read_options(problem, effort.solver(problem), effort.options)  # reject wrong options early
    limit = f" with {limits.text}" if limits.text else ""
    answer = Answer(
        question=f"the largest batch within {format_budget(capacity, problem.units)} of {name}{limit}; "
        f"the instance is for a batch of {measured}",
        quantity="batch",
        value=None,
        memory=name,
    )
    batches = _Batches(problem, memory, limits, measured, effort)
    with interruptible(effort.outer):
        try:
            batches.search()
        except KeyboardInterrupt:  # the second Ctrl-C: end with the current results
            effort.outer.interrupted = True
    return batches.conclude(answer)


def read_batch(value: object) -> int:
    """Read the batch at which the instance was measured."""
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LARGEST_BATCH:
        raise OptionError(
            f"{value!r:.60} is not a batch size;  write a whole number between 1 and {LARGEST_BATCH}", argument="batch"
        )
    return number


class _Batches:
    """State of a search: `low` is feasible (0: none known), `high` is not."""

    def __init__(self, problem: Problem, memory: int, limits: Limits, of: int, effort: Effort) -> None:
        self.problem, self.machine, self.memory = problem, problem.machine, memory
        self.limits, self.of, self.effort = limits, of, effort
        self.low, self.high = 0, LARGEST_BATCH + 1
        own, machine = machine_of(problem.instance), problem.machine
        same = replace(own, memories=machine.memories) == machine and len(own.memories) == len(machine.memories)
        self.built = problem.instance.has_storage and same
        self.best: tuple[Instance, Answered] | None = None
        self.refusal: tuple[Instance, Answered] | None = None
        self.proof: str | None = None

    def at(self, batch: int) -> Problem | None:
        """Return the problem for a batch; None if its sizes exceed all limits."""
        try:
            instance = scaled(self.problem.instance, batch, self.of)
        except InstanceError:
            return None
        return Problem(instance, self._machine(instance))

    def _machine(self, instance: Instance) -> Machine:
        """Return the machine for a scaled instance: unchanged except for the working memory of an adjoint.

        That memory, and the times to read and write a checkpoint, come from the instance unless they are replaced.
        """
        if not self.built:
            return self.machine
        own, machine = machine_of(self.problem.instance), machine_of(instance)
        given = {
            memory.name: memory.capacity
            for index, (memory, usual) in enumerate(zip(self.machine.memories, own.memories, strict=True))
            if index > 0 or memory.capacity != usual.capacity
        }
        return machine.with_capacities(given)

    def search(self) -> None:
        """Find the largest batch: try the largest that no bound refutes, then bisect."""
        low, high = 0, self.high
        while high - low > 1:
            middle = self._next(low, high)
            low, high = (low, middle) if self._refuted(middle) else (middle, high)
        self.high = high
        self.proof = None if high > LARGEST_BATCH or self.at(high) is None else ALL_SCHEDULES
        if 1 < self.high <= LARGEST_BATCH and not self.effort.stopped:
            self._try(self.high - 1)
        while self.high - self.low > 1 and not self.effort.stopped:
            self._try(self._next(self.low, self.high))
        if self.low == 0 and self.refusal is None and not self.effort.stopped:
            self._try(1)
        if self.low == 0 and self.limits.overhead is not None:
            self._try_powers(high)
        self._quicken()

    def _try_powers(self, high: int) -> None:
        """Try powers of two below a batch that no memory holds, until one meets the limits; then bisect above it."""
        refused = self.refusal
        for exponent in reversed(range(1, (high - 1).bit_length())):
            if self.effort.stopped:
                break
            above = min(high, 2 << exponent)
            self.high = above
            self._try(1 << exponent)
            if self.low:
                while self.high - self.low > 1 and not self.effort.stopped:
                    self._try((self.low + self.high) // 2)
                self.proof = None
                return
        self.refusal = refused or self.refusal

    def _quicken(self) -> None:
        """Search for the fastest schedule of the portfolio at the found batch, in the remaining time."""
        if self.best is None or not self.effort.is_auto or self.effort.stopped:
            return
        instance, known = self.best
        with self.effort.within(FASTEST_SHARE):
            answer = self._answer(known.problem, auto.ALONE, None)
        if answer.solved and _time(answer) < _time(known):
            self.best = instance, answer

    def _next(self, low: int, high: int) -> int:
        """Return the next batch to probe: above the largest feasible batch, at most at the middle to the upper end."""
        return min((low + high) // 2, max(self.of, 4 * low))

    def _refuted(self, batch: int) -> bool:
        problem = self.at(batch)
        if problem is None:
            return True
        pairs = zip(problem.machine.memories, problem.memory_bounds, strict=True)
        return any(
            bound is not None and memory.capacity is not None and bound.size > memory.capacity
            for memory, bound in pairs
        )

    def _try(self, batch: int) -> None:
        problem = self.at(batch)
        if problem is None:
            self.high, self.proof = batch, None
            return
        limit = self.limits.of_problem(problem)
        # Ask the quick members of the portfolio first.
        first, then = (auto.QUICK, auto.ALONE) if self.effort.is_auto else (None, None)
        answer = self._answer(problem, first, limit)
        if then is not None and not limit.met_by(answer) and limit.refuted_by(answer) != ALL_SCHEDULES:
            answer = self._answer(problem, then, limit)
        if limit.met_by(answer):
            self.low, self.best = batch, (problem.instance, answer)
            return
        self.high, self.refusal = batch, (problem.instance, answer)
        self.proof = limit.refuted_by(answer)
        if self.limits.overhead is not None and not self.built and self.machine.links:
            self.proof = None  # latencies and parameters weigh less in a larger batch: its overhead may be less

    def _answer(self, problem: Problem, member: registry.Algorithm | None, limit: Limit | None) -> Answered:
        """Solve for a batch, until the limit is met."""
        effort = self.effort
        solver = effort.solver(problem) if member is None else member
        enough = None
        if member is not None and limit is not None:
            enough = math.inf if limit.makespan is None else limit.makespan
        before, left = effort.seconds, (self.high - self.low).bit_length()
        proposal, chosen = effort.propose(problem, solver, left, enough=enough)
        seconds = effort.seconds - before
        result = conclude(problem, solver, proposal, values_of(chosen), seed=effort.seed, solve_seconds=seconds)
        return Answered(
            memory=self.memory, asked=None, solver=solver, problem=problem, proposal=proposal, result=result
        )

    def conclude(self, answer: Answer) -> Result:
        """Return the result, with the answer."""
        found = self.best or self.refusal
        notes: tuple[str, ...] = ()
        if found is None:
            found = self._unanswered()
        instance, answered = found
        value = self.low or None
        proved = value is not None and self.proof is not None and self.high == self.low + 1
        if value is None:
            notes = (f"not even a batch of 1 fits{' the limits' if self.limits.text else ''}",)
        elif self.low >= LARGEST_BATCH:
            notes = ("memory sets no limit to the batch",)
        elif not proved:
            notes = ("the batch is the largest that was found; it is not proved that no larger one fits",)
        answer = replace(
            answer,
            value=value,
            bound=self.high - 1 if self.proof is not None and value is not None else None,
            scope=self.proof,
            solves=self.effort.solves,
            instance=instance,
        )
        result = answered.result
        ended = self.effort.termination
        termination = result.termination if ended is Termination.COMPLETED else ended
        result = replace(
            result,
            answer=answer,
            notes=(*result.notes, *notes),
            solve_seconds=self.effort.seconds,
            termination=termination,
            default_limit=self.effort.default_limit,
        )
        return result if value is not None or result.report is None else self._too_slow(result, answered)

    def _too_slow(self, result: Result, answered: Answered) -> Result:
        """Turn a schedule that exceeds the limits into an answer without a schedule."""
        proposal: Any = replace(answered.proposal, steps=None, makespan=None, peak=None, optimal_within=None)
        proposal = replace(proposal, infeasible_within=self.proof)
        refused = conclude(answered.problem, answered.solver, proposal, result.options, seed=result.seed)
        kept = ("answer", "notes", "solve_seconds", "termination", "default_limit")
        return replace(refused, least_budget=None, **{name: getattr(result, name) for name in kept})

    def _unanswered(self) -> tuple[Instance, Answered]:
        """Conclude without a solve, since the time limit struck before the first."""
        problem = self.at(1) or self.problem
        solver = self.effort.solver(problem)
        proposal = Proposal(termination=self.effort.termination)
        result = conclude(problem, solver, proposal, {}, seed=self.effort.seed)
        answered = Answered(
            memory=self.memory, asked=None, solver=solver, problem=problem, proposal=proposal, result=result
        )
        return problem.instance, answered


def _time(answer: Answered) -> float:
    makespan = answer.result.makespan
    return math.inf if makespan is None else float(makespan)
