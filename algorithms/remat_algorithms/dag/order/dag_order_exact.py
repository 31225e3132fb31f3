"""`dag-order-exact`: the order of minimum peak among all orders that run each needed task once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from remat.plugin import Context, OptionError, Options, Problem, Proposal, Termination
from remat_algorithms.dag.order.bound import residency_bounds
from remat_algorithms.dag.order.model import OrderModel, order_model
from remat_algorithms.dag.order.order_proposal import propose, steps_of
from remat_algorithms.dag.order.search import block_of, search
from remat_algorithms.dag.order.sp_order import series_parallel_order
from remat_algorithms.dag.order.window_search import good_order, improved

MOST_TASKS = 20_000
"""Maximum number of tasks for a search: the bit masks of ancestors take tasks^2 / 8 bytes."""


class ExactOptions(Options):
    """Options of `dag-order-exact`."""

    states: int = Field(
        default=500_000, ge=0, description="maximum number of states (sets of finished tasks) to expand"
    )


def solve(problem: Problem, options: ExactOptions, context: Context) -> Proposal:
    """Find the order of minimum peak.

    The minimum peak is a bottleneck path over the sets of finished tasks (down-sets):

        peak(D + t) = min over t of max( peak(D), resident(D) + hill(t, D) ).

    The heuristics give a first order; for a series-parallel graph, `sp-order` adds its order and bound. Local search
    improves the order around its peak. The lower bound is the memory that must be resident while each task runs. Then
    the order is cut wherever every earlier task must precede every later one, for instance at dominators. The resulting
    blocks are independent. Only blocks whose peak exceeds the proved bound are searched
    (`remat_algorithms.dag.order.search`), highest first. The cost depends on the width of the graph, not on its length:
    up to 2^width * tasks states.

    Accepts instances of any kind. Claims makespan and peak; infeasible within `NO_RECOMPUTATION` if the proved bound is
    above the budget. If it hits a limit (states, time, interrupt, `MOST_TASKS`), it returns the best known order, with
    a note.

    Raises
    ------
    OptionError
        If a value has several origins.
    """
    model = order_model(problem, "dag-order-exact")
    state = _State(model, good_order(model))
    _try_series_parallel(problem, state, context)
    _report(problem, state, context)
    if not state.proved:
        state.adopt(improved(model, state.order, lambda: context.stopped, state.bound))
        _report(problem, state, context)
    termination = Termination.COMPLETED
    if not state.proved:
        if len(model) > MOST_TASKS:
            termination = Termination.ITERATION_LIMIT
        else:
            termination = _search_blocks(problem, state, options.states, context)
    notes: tuple[str, ...] = ()
    if not state.proved:
        notes = (f"the smallest peak without recomputation is at least {state.bound}; this order's is {state.peak}",)
    return propose(
        problem, model, state.order, bound=state.bound, setting=state.setting, termination=termination, notes=notes
    )


@dataclass
class _State:
    """The best order, and the highest bound proved for all orders."""

    model: OrderModel
    order: list[int]

    def __post_init__(self) -> None:
        self.peak = self.model.peak(self.order)
        self.bound = self.model.start_peak
        self.setting: int | None = None
        self.bounds = residency_bounds(self.model)
        if len(self.bounds) and int(self.bounds.max()) >= self.bound:
            task = int(self.bounds.argmax())
            self.raise_bound(int(self.bounds[task]), self.model.tasks[task])

    @property
    def proved(self) -> bool:
        return self.peak <= self.bound

    def adopt(self, order: list[int]) -> None:
        self.order, self.peak = order, self.model.peak(order)

    def raise_bound(self, bound: int, setting: int | None) -> None:
        self.bound, self.setting = bound, setting


def _try_series_parallel(problem: Problem, state: _State, context: Context) -> None:
    """Take over the order and the bound of `sp-order` if the graph is series-parallel."""
    try:
        found = series_parallel_order(problem, state.model, lambda: context.stopped)
    except OptionError:
        return
    if found is None:
        return
    order, bound = found
    if state.model.peak(order) < state.peak:
        state.adopt(order)
    if bound > state.bound:
        state.raise_bound(bound, state.model.setting_task(order) if bound == state.peak else state.setting)


def _report(problem: Problem, state: _State, context: Context) -> None:
    if problem.budget is None or state.peak <= problem.budget:
        context.report(
            steps_of(problem, state.model, state.order),
            makespan=problem.no_recompute_time,
            message=f"peak {state.peak}, at least {state.bound}",
        )


def _search_blocks(problem: Problem, state: _State, states: int, context: Context) -> Termination:
    """Search the blocks, highest first, until the bound meets the peak; return why it ended."""
    model = state.model

    def stopped() -> bool:
        return context.stopped

    usage = model.usage(state.order)
    blocks = sorted(pairwise(_cuts(model, state.order)), key=lambda block: -max(usage[block[0] : block[1]]))
    exhausted = False
    for first, last in blocks:
        highest = max(usage[first:last])
        if highest <= state.bound:
            break
        if stopped():
            return context.termination
        tasks = state.order[first:last]
        floor = max(state.bound, int(state.bounds[tasks].max()))
        found = search(
            block_of(model, state.order, first, last),
            floor=floor,
            ceiling=highest,
            limit=states,
            stopped=stopped,
        )
        states -= found.states
        if found.order is not None:
            state.adopt(state.order[:first] + [tasks[index] for index in found.order] + state.order[last:])
            _report(problem, state, context)
        if found.bound > state.bound:
            after = model.usage(state.order)[first:last]
            at_peak = found.complete and max(after) == found.bound
            setting = model.tasks[state.order[first + after.index(max(after))]] if at_peak else state.setting
            state.raise_bound(found.bound, setting)
        if not found.complete:
            if stopped():
                return context.termination
            exhausted = True
    return Termination.ITERATION_LIMIT if exhausted and not state.proved else Termination.COMPLETED


def _cuts(model: OrderModel, order: list[int]) -> list[int]:
    """Return the positions of an order, ends included, before which every task precedes every later one."""
    n = len(order)
    place = [0] * n
    for index, task in enumerate(order):
        place[task] = index
    masks: list[int] = []
    complete: list[int] = []  # number of first tasks of the order that are all ancestors
    for task in order:
        mask = 0
        for other in model.predecessors[task]:
            mask |= masks[place[other]] | 1 << place[other]
        masks.append(mask)
        complete.append((~mask & mask + 1).bit_length() - 1)
    cuts, least = [n], n
    for index in range(n - 1, -1, -1):
        least = min(least, complete[index])
        if least >= index:
            cuts.append(index)
    return sorted(set(cuts) | {0})
