"""Conversion of an order of the needed tasks to a proposal."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import (
    LeastBudget,
    Problem,
    Proposal,
    StepBuilder,
    Steps,
    Termination,
    concatenate,
    format_size,
    run_in_order,
)
from remat_algorithms.dag.order.model import NO_RECOMPUTATION, OrderModel


def steps_of(problem: Problem, model: OrderModel, order: Sequence[int]) -> Steps:
    """Return the steps of an order: useless inputs are dropped first, every value after its last use."""
    steps = run_in_order(problem.graph, problem.machine, [model.tasks[index] for index in order])
    if not model.unused:
        return steps
    head = StepBuilder()
    head.drop(model.unused, problem.machine.processors[0].memory)
    return concatenate([head.build(), steps])


def propose(
    problem: Problem,
    model: OrderModel,
    order: Sequence[int],
    *,
    bound: int,
    setting: int | None,
    termination: Termination = Termination.COMPLETED,
    notes: tuple[str, ...] = (),
) -> Proposal:
    """Return an order as a proposal if it fits, else the known bounds on the minimum budget.

    Parameters
    ----------
    problem, model, order
    bound : int
        Lower bound on the peak of every order of the needed tasks; the order's peak if that is proved optimal.
    setting : int or None
        The graph's task that sets the bound.
    termination, notes
        As in `Proposal`.
    """
    peak = model.peak(order)
    budget = problem.budget
    if budget is None or peak <= budget:
        return Proposal(
            steps=steps_of(problem, model, order),
            makespan=problem.no_recompute_time,
            peak=peak,
            termination=termination,
            notes=notes,
        )
    own = problem.machine.processors[0].memory
    least = LeastBudget(peak, model.setting_task(order), True, own)
    if bound < peak:
        least = LeastBudget(bound, setting, False, own)
    scope = NO_RECOMPUTATION if bound > budget else None
    if scope is None:
        notes = (*notes, f"the order found needs {format_size(peak, problem.units)}")
    return Proposal(infeasible_within=scope, least=least, termination=termination, notes=notes)
