"""`offload-dp` and `pofo`: dynamic programs over a chain's stages with fluid transfers; the placed schedule counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from remat.plugin import Chain, Context, Link, OptionError, Problem, Proposal, TaskGraph
from remat_algorithms.chain.rotor.rotor import RotorOptions
from remat_algorithms.chain.rotor.rotor import solve as solve_rotor
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.segments import RunList, Segments
from remat_algorithms.chain.unsupported import refuse_alternatives
from remat_algorithms.offload.chains.bound import bounded
from remat_algorithms.offload.offload_greedy import OffloadOptions, greedy_plan, rankings
from remat_algorithms.offload.pofo.table import Decision, PofoTable, Rates, remade_segments
from remat_algorithms.offload.swaps.fluid_bound import fluid_bound
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import Route, device_of, required_routes, routes
from remat_algorithms.offload.swaps.swaps import Order

MARGINS = (1.0, 0.97, 0.93, 0.87)
"""Shares of the memory that the model is given; the rest covers what it neglects."""

MOST_STAGES = 2000
"""Longest chain whose table is filled."""

OFFLOAD_SLOTS, POFO_SLOTS = 40, 30
"""Slots, if the options do not say."""


class OffloadDpOptions(OffloadOptions):
    """Options of `offload-dp`."""

    slots: int = Field(
        OFFLOAD_SLOTS,
        ge=2,
        le=100,
        description="number of units into which the memory is divided; time grows with its cube",
    )


class PofoOptions(OffloadDpOptions):
    """Options of `pofo`."""

    bound: bool = Field(
        True, description="also compute a lower bound for all schedules, with programs about single moments"
    )
    slots: int = Field(
        POFO_SLOTS,
        ge=2,
        le=100,
        description="number of units into which the memory is divided; time grows with its cube",
    )


@dataclass(frozen=True)
class Modelled:
    """A plan and its time in the model."""

    plan: Plan
    estimate: float


def solve_offload_dp(problem: Problem, options: OffloadDpOptions, context: Context) -> Proposal:
    """Choose what each stage of a chain offloads, without recomputation.

    Takes instances of kind `chain`, on a machine with links out of the processor's memory and back. Gives the fastest
    placed plan of the table and of `offload-greedy`; a note gives the table's estimate.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back, or a stage has variants.

    Notes
    -----
    O(L slots^3), four times: once for each share of the memory that the model is given.
    """
    refuse_alternatives(problem, "offload-dp")
    ways = required_routes(problem, "offload-dp")
    choice = Choice(problem, Order.of(problem), ways)
    greedy = greedy_plan(choice, lambda: context.stopped)
    if greedy is None:
        return nothing_fits(choice, "offload-dp")
    context.report(greedy.outcome.steps, makespan=greedy.makespan)
    if choice.fits:
        return proposal_of(greedy, context, bound=greedy.makespan, source="offload-dp")
    modelled = modelled_plans(problem, ways, options.slots, context, remake=False)
    plan = best_of([*(found.plan for found in modelled), greedy])
    assert plan is not None
    bound = fluid_bound(choice, context) if options.bound else None
    notes = _notes(plan, modelled)
    proposal = proposal_of(plan, context, bound=bound, source="fluid relaxation", notes=notes)
    return bounded(proposal, problem, context, work=0) if options.bound else proposal


def solve_pofo(problem: Problem, options: PofoOptions, context: Context) -> Proposal:
    """Choose offloading and recomputation on a chain in one dynamic program.

    Takes instances of kind `chain`. Without links out of the processor's memory and back, the answer is that of
    `rotor`. Gives the fastest of the table's placed plans and of the schedules of `rotor` and `offload-greedy`; a note
    gives the table's estimate. Its bound holds for all schedules (`remat_algorithms.offload.chains.bound`).

    Raises
    ------
    remat.OptionError
        If a stage has variants, or the chain is too long.

    Notes
    -----
    O(L^2 slots^3), for each share of the memory that the model is given, and the fronts of `rotor`.
    """
    refuse_alternatives(problem, "pofo")
    ways = routes(problem.machine)
    choice = Choice(problem, Order.of(problem), ways)
    if not ways or choice.fits:
        return solve_rotor(problem, RotorOptions(gap=None), context)
    start = best_of([rotor_plan(problem, ways, context), greedy_plan(choice, lambda: context.stopped)])
    if start is not None:
        context.report(start.outcome.steps, makespan=start.makespan)
    modelled = modelled_plans(problem, ways, options.slots, context, remake=True)
    plan = best_of([*(found.plan for found in modelled), start])
    if plan is None:
        return replace(nothing_fits(choice, "pofo", within=None), termination=context.termination)
    proposal = proposal_of(plan, context, source="pofo", notes=_notes(plan, modelled))
    return bounded(proposal, problem, context) if options.bound else proposal


def rotor_plan(problem: Problem, ways: tuple[Route, ...], context: Context) -> Plan | None:
    """Return rotor's schedule, which offloads nothing; None if it finds none."""
    alone = solve_rotor(problem, RotorOptions(gap=None), context)
    if alone.steps is None:
        return None
    order = Order(problem.graph, problem.machine, alone.steps.runs.tolist())
    return Choice(problem, order, ways).plan([])


def modelled_plans(
    problem: Problem, ways: tuple[Route, ...], slots: int, context: Context, *, remake: bool
) -> list[Modelled]:
    """Return the table's proposals for several shares of the memory, placed."""
    chain = problem.chain
    if chain.length > MOST_STAGES:
        raise OptionError(
            f"the table takes chains of at most {MOST_STAGES} stages, not {chain.length}", argument="algorithm"
        )
    capacity = problem.machine.memories[device_of(problem.machine)].capacity
    assert capacity is not None, "everything fits an unbounded memory"
    found: list[Modelled] = []
    rates = _rates(problem, ways[0])
    base = float(problem.no_recompute_time)
    largest = int((capacity - chain.static_memory) * max(MARGINS))
    remade = remade_segments(chain, largest, lambda: context.stopped) if remake and largest > 0 else None
    if remake and remade is None:
        return []
    for margin in MARGINS:
        if context.stopped:  # setting up the table takes a while
            break
        memory = int((capacity - chain.static_memory) * margin)
        table = PofoTable(chain, memory, rates, slots, remade=remade)
        if memory <= 0 or not table.fill(lambda: context.stopped):
            break
        if np.isinf(table.estimate):
            continue
        plan = _placed(problem, ways, table)
        if plan is None:
            continue
        found.append(Modelled(plan, base + table.estimate))
        best = best_of(known.plan for known in found)
        if best is plan:
            context.report(plan.outcome.steps, makespan=plan.makespan, message=f"{margin:.0%} of the memory modelled")
    return found


def tasks_of(chain: Chain, table: PofoTable, decisions: list[Decision]) -> list[int]:
    """Return the runs that the decisions describe."""
    segments = Segments.of(chain)
    runs = RunList(segments, has_saving=chain.saves)
    for decision in decisions:
        if decision.remade:
            runs.sweep(decision.first, decision.last + 1)
        else:
            runs.save(decision.first)
    runs.backward(chain.length)
    for decision in reversed(decisions):
        if decision.remade:
            assert table.remade is not None
            runs.tasks.extend(Reader(table.remade).segment(decision.first, decision.last, decision.room))
        else:
            runs.backward(decision.first)
    return runs.tasks


def spanning(order: Order, position: int) -> dict[int, int]:
    """Return for each value its gap that spans a run."""
    return {gap.value: index for index, gap in enumerate(order.gaps) if gap.after < position < gap.before}


def _placed(problem: Problem, ways: tuple[Route, ...], table: PofoTable) -> Plan | None:
    """Dispatch the decisions of a table; values that the model overlooked are offloaded as well."""
    chain = problem.chain
    decisions = table.decisions()
    tasks = tasks_of(chain, table, decisions)
    order = Order(problem.graph, problem.machine, tasks)
    loss = tasks.index(chain.length * (2 if chain.saves else 1))
    gap_of = spanning(order, loss)
    wanted = []
    for decision in decisions:
        if decision.input_leaves:
            wanted.append(gap_of.get(decision.first))
        if decision.saved_leaves:
            wanted.append(gap_of.get(chain.length + 1 + decision.first))
    choice = Choice(problem, order, ways)
    first = [index for index in wanted if index is not None]
    plans = []
    for ranking in rankings(choice)[:2]:
        rest = [int(index) for index in ranking if index not in set(first)]
        plans.append(choice.plan(choice.select([*first, *rest])))
    return best_of(plans)


def _rates(problem: Problem, route: Route) -> Rates:
    """Return the rates of a route's slowest links; if values have ratios, the mean over the bytes of all values."""
    links = problem.machine.links
    out = min(_bandwidth(problem.graph, links[link]) for link in route.out)
    back = min(_bandwidth(problem.graph, links[link]) for link in route.back)
    return Rates(out, back)


def _bandwidth(graph: TaskGraph, link: Link) -> float:
    if not graph.ratios or link.bandwidth is None:
        return np.inf if link.bandwidth is None else float(link.bandwidth)
    rates = [graph.link_for(link, value).bandwidth for value in range(len(graph.values))]
    time = sum(size / rate for size, rate in zip(graph.size.tolist(), rates, strict=True) if rate is not None)
    return float(graph.size.sum()) / time if time else float(link.bandwidth)


def _notes(plan: Plan, modelled: list[Modelled]) -> list[str]:
    """Report the model's time of the plan that is returned."""
    for found in modelled:
        if found.plan is plan:
            return [f"the table's estimate is {found.estimate:.6g}, the placed schedule takes {plan.makespan:.6g}"]
    estimates = ", ".join(f"{found.estimate:.6g}" for found in modelled) or "none"
    return [f"another schedule is faster than the table's (estimates: {estimates})"]
