"""One solve: an instance on its machine, the algorithm's run, and the arguments that every solve has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from remat.errors import AlgorithmError, OptionError, QuantityError, RematError
from remat.instance import MachineModel
from remat.instance.loading import machine_argument
from remat.instance.lowering import machine_of
from remat.messages import brief
from remat.plugin import registry
from remat.plugin.context import Context, Progress, interruptible
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Proposal, Termination
from remat.solving.budget import Budget, apply_budget
from remat.solving.hints import PORTFOLIO
from remat.solving.scopes import speaks_for_all
from remat.solving.time_guard import grace, guarded
from remat.units import parse_duration, parse_number

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.cancel import Cancel

AnyMachine = str | os.PathLike[str] | dict[str, Any] | MachineModel | None
AnyInstance: TypeAlias = "str | os.PathLike[str] | IO[Any] | dict[str, Any] | Instance"

SMALLEST_SHARE = Decimal("1e-300")
MOST_DIGITS = 1000
"""Limits of shares: positive numbers below, and numbers with more digits, are not shares."""

AUTO_SECONDS = 60.0
"""Default time limit of the algorithm ``auto``."""


@dataclass(frozen=True)
class Control:
    """The arguments of a solve that control its end; see `remat.solve`."""

    time_limit: float | str | None = None
    gap: float | str | None = None
    patience: float | str | None = None
    seed: int = 0
    threads: int = 1
    progress: Callable[[Progress], object] | None = None
    cancel: Cancel | None = None

    def context(self, algorithm: str, started: float) -> Context:
        """Check the arguments; return the context of a solve that began at a `time.monotonic()` value."""
        limit = read_seconds(self.time_limit, default=AUTO_SECONDS if algorithm == PORTFOLIO else None)
        if self.cancel is not None:
            from remat.plugin.cancel import Cancel

            if not isinstance(self.cancel, Cancel):
                raise OptionError(f"expected a remat.Cancel, not {type(self.cancel).__name__:.60}", argument="cancel")
        return Context(
            deadline=None if limit is None else started + limit,
            limit_given=self.time_limit is not None,
            started=started,
            gap=None if self.gap is None else float(read_share(self.gap, "gap")),
            patience=read_seconds(self.patience, default=None, argument="patience"),
            seed=read_whole(self.seed, "seed", 0),
            threads=read_whole(self.threads, "threads", 1),
            listener=self.progress,
            cancel=self.cancel,
        )


def propose(problem: Problem, solver: registry.Algorithm, chosen: Any, context: Context) -> tuple[Proposal, float]:
    """Run an algorithm; return its proposal and the seconds that it took.

    A reported schedule is never lost, not even by a second Ctrl-C.
    """
    started = time.perf_counter()
    if problem.unreachable is not None:
        return Proposal(notes=(problem.unreachable,)), 0.0  # a proof: there is nothing to ask
    context.speaks_for_all = speaks_for_all(problem.used.machine, solver)
    try:
        with interruptible(context):
            proposal = run(problem, solver, chosen, context)
    except KeyboardInterrupt:
        if not context.has_schedule:
            raise
        proposal = Proposal(termination=Termination.INTERRUPTED)
    return with_reported(proposal, solver, context), time.perf_counter() - started


def run(problem: Problem, solver: registry.Algorithm, chosen: Any, context: Context) -> Proposal:
    """Call an algorithm, and interrupt it if it exceeds its time limit.

    It sees the machine without memories and links that no value can use (`Problem.used`). Its prepared form is
    called instead if the context has one.

    Raises
    ------
    remat.RematError
        The algorithm refuses the instance, or an option.
    remat.errors.AlgorithmError
        Any other exception of the algorithm, including a call to end the program.
    """

    def call() -> Proposal:
        if context.forms is not None:
            return context.forms.solve(solver, problem.used, chosen, context)
        return solver.load()(problem.used, chosen, context)  # type: ignore[no-any-return]

    with contained(solver):
        proposal, over = guarded(call, end_of(context), context.cancel)
    if over:
        return Proposal(termination=Termination.INTERRUPTED if context.interrupted else Termination.TIME_LIMIT)
    if not isinstance(proposal, Proposal):
        raise AlgorithmError(f"{solver.name} returned {brief(proposal)}, and no Proposal", solver.package)
    return proposal


def end_of(context: Context) -> float | None:
    """Return the `time.monotonic()` value at which an algorithm is interrupted; None if it never is."""
    return None if context.deadline is None else context.deadline + grace(context.limit)


def last_end_of(context: Context) -> float | None:
    """Return the `time.monotonic()` value at which placement and verification are given up; None if they never are.

    Where a call that cannot be interrupted was late, they still have the time that they have after any other.
    """
    if context.deadline is None:
        return None
    last = grace(context.limit, last=True)
    return max(context.deadline + last, time.monotonic() + last - grace(context.limit))


@contextmanager
def contained(solver: registry.Algorithm) -> Iterator[None]:
    """Convert exceptions of an algorithm to `AlgorithmError`, except the library's own, `MemoryError` and interrupts.

    Raises
    ------
    remat.errors.AlgorithmError
        Instead of any other.
    """
    try:
        yield
    except (RematError, AlgorithmError, MemoryError):
        raise
    except SystemExit as stop:
        message = f"{solver.name} asked to end the program, with code {stop.code!r:.60}"
        raise AlgorithmError(message, solver.package) from None
    except Exception as error:
        message = f"{solver.name} failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise AlgorithmError(message, solver.package) from error


def with_reported(proposal: Proposal, solver: registry.Algorithm, context: Context) -> Proposal:
    """Return a proposal completed by its progress reports: the best reported schedule if it has none, and bounds.

    Therefore no answer retracts a gap that was shown, or at which the algorithm was stopped. A bound above a schedule's
    makespan is a wrong claim, like any other.
    """
    if proposal.steps is None and proposal.pattern is None and proposal.orders is None and context.has_schedule:
        orders = context.best_orders
        found = {
            "steps": context.best_steps if orders is None else None,
            "orders": orders,
            "pattern": context.best_pattern,
        }
        proposal = replace(proposal, **found, infeasible_within=None, least=None)  # type: ignore[arg-type]
    best = context.best_bound
    stated = [bound.value for bound in proposal.bounds if bound.scope == ALL_SCHEDULES]
    if best is None or best <= max(stated, default=0):
        return proposal
    return replace(proposal, bounds=(*proposal.bounds, Bound(best, ALL_SCHEDULES, solver.name)))


def values_of(chosen: Any) -> dict[str, Any]:
    """Return the options that differ from their defaults, as a result records them."""
    if chosen is None or not chosen.model_fields_set:
        return {}
    values: dict[str, Any] = chosen.model_dump(mode="json", exclude_defaults=True)
    return {**values.pop("others", {}), **values}


def make_problem(
    instance: Instance,
    *,
    budget: Budget = None,
    machine: AnyMachine = None,
) -> Problem:
    """Put an instance on its machine, with the budgets applied."""
    model = machine_argument(machine, instance.units.build())
    return apply_budget(Problem(instance, machine_of(instance, model)), budget)


LEAST_PERCENT = 2
"""Larger bare numbers may be meant in per cent."""


def read_share(value: object, argument: str) -> Fraction:
    """Read ``0.2``, ``"0.2"`` or ``"20%"`` exactly; a bare 10, which may mean 10 %, is refused."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        number = Decimal(text.removesuffix("%").strip() if isinstance(value, str) else str(parse_number(value)))
        # A fraction of 1e-999999 would have a million digits.
        if not number.is_finite() or not 0 <= number <= 10**12 or len(number.as_tuple().digits) > MOST_DIGITS:
            raise ValueError
        if 0 < number < SMALLEST_SHARE:
            raise ValueError
    except (InvalidOperation, ValueError):
        raise OptionError(f"{brief(value)} is not a share >= 0; write 0.2 or 20%", argument=argument) from None
    percent = text.endswith("%")
    if number >= LEAST_PERCENT and not percent:
        raise OptionError(
            f"{brief(value)} may mean {float(number):g}% or {float(100 * number):g}%; write the one that is meant",
            argument=argument,
        )
    return Fraction(number) / (100 if percent else 1)


def read_seconds(limit: float | str | None, default: float | None, argument: str = "time_limit") -> float | None:
    """Read a time limit."""
    if limit is None:
        return default
    try:
        text = limit if isinstance(limit, str) else repr(float(parse_number(limit)))
    except QuantityError:
        raise OptionError(f"{brief(limit)} is not a duration; write 30, 30s, 5min or 1h", argument=argument) from None
    try:
        return parse_duration(text)
    except QuantityError as error:
        raise OptionError(f"{error}", argument=argument) from None


def read_whole(value: object, name: str, least: int) -> int:
    """Check an argument that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"expected a whole number >= {least}, not {brief(value)}", argument=name)
    return value
