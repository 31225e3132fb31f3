"""Proposals of the offloading algorithms: a plan's steps, and bounds for schedules of the same order of runs."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import Bound, Context, IntArray, LeastBudget, Number, Proposal
from remat_algorithms.offload.swaps.dispatch import Dispatched
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.only_program import dispatch_only
from remat_algorithms.offload.swaps.program import Program
from remat_algorithms.offload.swaps.routes import device_of
from remat_algorithms.offload.swaps.swaps import Order

REFERENCE_ORDER = "whole-value offloading in the reference order"
"""Name of the class of schedules: each needed task once, in the reference order; values leave and return whole."""


def proposal_of(
    plan: Plan,
    context: Context,
    *,
    bound: Number | None = None,
    source: str,
    notes: Sequence[str] = (),
) -> Proposal:
    """Propose a plan; if its makespan meets a bound of its class, it is optimal within the class."""
    bounds = () if bound is None else (Bound(min(bound, plan.makespan), REFERENCE_ORDER, source),)
    rounded = isinstance(plan.makespan, float)
    met = bound is not None and plan.makespan <= (bound * (1 + 1e-12) if rounded else bound)
    return Proposal(
        steps=plan.outcome.steps,
        makespan=plan.makespan,
        bounds=bounds,
        optimal_within=REFERENCE_ORDER if met else None,
        termination=context.termination,
        notes=tuple(notes),
    )


def nothing_fits(choice: Choice, name: str, *, within: str | None = REFERENCE_ORDER) -> Proposal:
    """Answer a budget for which no plan was found, with a proof if the runs alone exceed it.

    Every schedule of the class `within` holds, during a run, the values that the run reads and writes; None: of no
    class.
    """
    order, budget = choice.order, choice.budget
    least = _least_profile(choice)
    need = int(least.max(initial=0))
    if budget is not None and need > budget:
        if within is None:
            return Proposal()
        task = order.task_at(int(least.argmax()))
        memory = device_of(order.machine)
        return Proposal(infeasible_within=within, least=LeastBudget(need, task, sufficient=False, memory=memory))
    return Proposal(notes=(f"{name} found no schedule: the values that must leave do not fit into the other memories",))


def rule_proposal(order: Order, program: Program, plan: Plan | None, name: str, context: Context) -> Proposal:
    """Propose the single plan of a rule, or name the budget that it needs."""
    if plan is not None:
        return Proposal(steps=plan.outcome.steps, makespan=plan.makespan, termination=context.termination)
    outcome = dispatch_only(order.graph, order.machine, program)
    if isinstance(outcome, Dispatched):
        return Proposal(steps=outcome.steps, makespan=outcome.makespan, termination=context.termination)
    if outcome.needed:
        least = LeastBudget(outcome.needed, order.task_at(outcome.position), sufficient=False, memory=outcome.memory)
        return Proposal(infeasible_within=f"the {name} schedule", least=least)
    return Proposal(notes=(f"{name}: the memories wait for each other",))


def _least_profile(choice: Choice) -> IntArray:
    profile = choice.profile.copy()
    for index in choice.candidates.tolist():
        profile[int(choice.after[index]) + 1 : int(choice.before[index])] -= choice.size[index]
    return profile
