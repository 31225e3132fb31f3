"""`pipe-search` and `pipe-exact` on instances: orders of evenly cut layers, placed and measured like final answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from remat.plugin import (
    Bound,
    Context,
    LeastBudget,
    Number,
    OptionError,
    Options,
    Orders,
    Problem,
    Proposal,
    Termination,
)
from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.linked_devices import on_linked_devices
from remat_algorithms.parallel.pipeline.model import Lists, one_by_one
from remat_algorithms.parallel.pipeline.named_schedules import named_orders
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps, search_hosted
from remat_algorithms.parallel.pipeline.offload.offload_model import check_host
from remat_algorithms.parallel.pipeline.offload.selective_offload import offload_selectively
from remat_algorithms.parallel.pipeline.pipe_exact import prove
from remat_algorithms.parallel.pipeline.pipe_search import search
from remat_algorithms.parallel.pipeline.stages import ONE_COPY, SHAPES, Staging, excess_of, placed, staging

ROUNDS = 5
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""


SPLITS = 3
"""Numbers of micro-batches in the first of two directions that the search tries."""

LARGE = 1_000
"""Number of tasks from which a named order is reported first; smaller pipelines are solved immediately."""


class PlacementOptions(Options):
    """Options of algorithms that try several placements."""

    placement: Literal["any", "chain", "v", "interleaved"] = Field(
        default="any",
        description="stages per device: one (chain), two in a V (v), or several round-robin (interleaved); any: the "
        "fastest of these",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="number of stages per device if they are interleaved")


class SearchOptions(Options):
    """Options of `pipe-search`."""

    placement: Literal["any", "chain", "v", "interleaved", "bidirectional"] = Field(
        default="any",
        description="stages per device: one (chain), two in a V (v), several round-robin (interleaved), or two copies "
        "of the layers in opposite directions (bidirectional); any: the fastest of these",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="number of stages per device if they are interleaved")
    moves: int = Field(default=6_000, ge=1, le=100_000_000, description="maximum number of schedules per placement")


class ExactOptions(Options):
    """Options of `pipe-exact`."""

    placement: Literal["chain", "v", "interleaved", "bidirectional"] = Field(
        default="chain",
        description="stages per device: one (chain), two in a V (v), several round-robin (interleaved), or two copies "
        "of the layers in opposite directions (bidirectional)",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="number of stages per device if they are interleaved")
    moves: int = Field(
        default=20_000, ge=1, le=100_000_000, description="number of schedules of the local search that runs first"
    )
    work: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="work limit of the program, in CP-SAT's deterministic units",
    )


class BestOrders:
    """Fastest feasible orders found, measured after placement."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.orders: Orders | None = None
        self.hanging: Orders | None = None
        self.makespan: Number | None = None
        self.least: LeastBudget | None = None  # with which one of the orders fits

    @property
    def answer(self) -> Orders | None:
        """Best orders; if all deadlock, one of those, so that the error is reported."""
        return self.orders or self.hanging

    def consider(self, staged: Staging, lists: Lists) -> list[int]:
        """Place and measure lists, keep them if they are better; return their excess over each device's capacity."""
        return self.weigh(staged.orders(lists))

    def weigh(self, orders: Orders) -> list[int]:
        """Place and measure orders, keep them if they are better; return their excess over each device's capacity."""
        outcome = placed(self.problem, orders)
        if outcome is None:  # search and rules avoid deadlock, unless transfers occupy both ends
            self.hanging = orders
            return [0] * len(self.problem.machine.processors)
        steps, makespan, peaks = outcome
        machine = self.problem.machine
        most = max(range(len(peaks)), key=lambda device: (peaks[device], -device))
        if self.least is None or peaks[most] < self.least.size:
            self.least = LeastBudget(peaks[most], None, True, machine.processors[most].memory, orders=orders)
        excess = excess_of(machine, peaks)
        if not any(excess) and (self.makespan is None or makespan < self.makespan):
            self.orders, self.makespan = orders, makespan
            self.context.report(steps, orders=orders, makespan=makespan)
        return excess


def report_named(problem: Problem, context: Context) -> None:
    """Report the first named order of a large pipeline that fits, as an answer in case of an early stop.

    Without a time limit, no early answer is needed.
    """
    if context.deadline is None or len(problem.graph.tasks) < LARGE:
        return
    best = BestOrders(problem, context)
    for orders in named_orders(problem):
        best.weigh(orders)
        if best.orders is not None or context.stopped:
            return


def solve_search(problem: Problem, options: SearchOptions, context: Context) -> Proposal:
    """Search for orders of evenly cut layers, one placement after another (see `pipe_search`).

    Notes
    -----
    The search starts from all named schedules, so it is never slower than any of them that fits. It uses a relaxation
    (`Staging.model`); the results are placed and measured. If transient values exceed a device's capacity, the next
    round has that much less memory there. If devices have a host, the algorithm also searches for orders with host
    offloading (`offload.search`).
    """
    return on_linked_devices(problem, context, lambda problem, context: _searched(problem, options, context))


def _searched(problem: Problem, options: SearchOptions, context: Context) -> Proposal:
    best, hosted = searched(problem, options, context, context.known_orders)
    if hosted is not None and hosted.steps is not None:
        best.orders, best.hanging, best.makespan = None, None, hosted.makespan
    return Proposal(
        steps=None if hosted is None else hosted.steps,
        orders=best.answer,
        makespan=best.makespan,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def searched(
    problem: Problem, options: SearchOptions, context: Context, known: Sequence[Orders] = ()
) -> tuple[BestOrders, BestSteps | None]:
    """Return the best orders and, if there is a host, the best plan with host offloading that is faster.

    The search also starts from `known` orders, where they are of the same stages; they may not fit.
    """
    best = BestOrders(problem, context)
    for orders in named_orders(problem):
        best.weigh(orders)
    limited: dict[str, Lists] = {}
    for staged in (one.with_starts(known) for one in _with_splits(problem, options)):
        for _ in range(ROUNDS):
            if context.stopped:
                break
            lists, _ = search(
                staged.model, starts=staged.starts, seed=context.seed, moves=options.moves, stop=lambda: context.stopped
            )
            excess = [] if lists is None else best.consider(staged, lists)
            if lists is not None:
                limited[staged.name] = lists
            if not any(excess):
                break
            staged = staged.tightened(excess)
    return best, None if has_no_host(problem) else _search_hosted(problem, options, context, best, limited)


def has_no_host(problem: Problem) -> bool:
    """Whether plans cannot use a host (see `check_host`)."""
    try:
        check_host(problem)
    except OptionError:
        return True
    return False


def _search_hosted(
    problem: Problem, options: SearchOptions, context: Context, others: BestOrders, limited: Mapping[str, Lists]
) -> BestSteps:
    """Search for plans with host offloading that beat all plans without, some of which are given."""
    best = BestSteps(problem, context, others.makespan)
    for staged in stagings(problem, options, SHAPES):
        if not context.stopped and all(count for _, count in staged.model.by_chain):
            offload_selectively(best, staged)
            known = [limited[staged.name]] if staged.name in limited else []
            search_hosted(best, staged, starts=known, moves=options.moves, stop=lambda: context.stopped)
    return best


def _with_splits(problem: Problem, options: SearchOptions) -> Iterator[Staging]:
    """Yield the placements, for two copies with a few numbers of micro-batches in each direction."""
    for staged in stagings(problem, options, SHAPES):
        yield staged
        if len(staged.model.chains) > 1:
            batches = staged.instance.micro_batches
            for forth in splits_of(batches)[1:SPLITS]:
                yield staging(problem, "bidirectional", forth=forth)


def splits_of(batches: int) -> list[int]:
    """Return all numbers of micro-batches in the first direction, the most even splits first."""
    return sorted(range(batches + 1), key=lambda forth: (abs(2 * forth - batches), -forth))


def stagings(
    problem: Problem, options: PlacementOptions | SearchOptions, every: Sequence[str] = ONE_COPY
) -> Iterator[Staging]:
    """Yield the placements for which the layers suffice; raise the first refusal if there are none."""
    shapes = every if options.placement == "any" else (options.placement,)
    refused: OptionError | None = None
    found = False
    for shape in shapes:
        try:
            staged = staging(problem, shape, options.chunks)
        except OptionError as error:
            refused = refused or error
            continue
        found = True
        yield staged
    if not found and refused is not None:
        raise refused


def solve_exact(problem: Problem, options: ExactOptions, context: Context) -> Proposal:
    """Find the fastest orders of evenly cut layers on one placement, and prove optimality (see `pipe_exact`).

    Notes
    -----
    The program relaxes memory and transfers, so its bound holds for the class. The result is optimal within the class
    if its makespan, after placement, equals the bound. If some stage reads nothing from the previous one, stages of
    different branches could run at the same time. Then only infeasibility is proved.
    """
    best, known = BestOrders(problem, context), context.known_orders
    for orders in named_orders(problem):
        if not context.stopped:
            best.weigh(orders)
    first = staging(problem, options.placement, options.chunks)
    searched = _Exact(problem, options, context, best, first)
    splits = splits_of(first.instance.micro_batches) if first.model.chains else [None]
    for number, forth in enumerate(splits):
        staged = first if number == 0 else staging(problem, options.placement, forth=forth)
        searched.prove(staged.with_starts(known))
    scope, bound = first.name, min(searched.bounds)
    if best.orders is None:
        # No order needs less memory; also after a timeout: a budget reported as sufficient needs orders.
        best.consider(first, one_by_one(first.model))
    if math.isinf(bound):
        none = best.orders is None
        return Proposal(
            orders=best.orders, makespan=best.makespan, infeasible_within=scope if none else None, least=best.least
        )
    met = first.chained and best.makespan is not None and best.makespan == bound
    return Proposal(
        orders=best.answer,
        makespan=best.makespan,
        bounds=(Bound(bound, scope, "constraint program on orders"),) if first.chained else (),
        optimal_within=scope if met else None,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


@dataclass
class _Exact:
    """The proofs for the placements of one class, and their lower bounds."""

    problem: Problem
    options: ExactOptions
    context: Context
    best: BestOrders
    first: Staging
    bounds: list[float] = field(default_factory=list[float])

    def prove(self, staged: Staging) -> None:
        """Search the orders of a placement for one that is faster than the best one known, and add a bound."""
        best, context = self.best, self.context
        least = lower_bound(staged.model) if staged.model.feasible else math.inf
        if (self.bounds and best.makespan is not None and least >= best.makespan) or context.stopped:
            self.bounds.append(least)
            return
        alone = not staged.model.chains
        for turn in range(ROUNDS):
            proof = prove(
                staged.model,
                starts=staged.starts,
                seed=context.seed,
                threads=context.threads or 1,
                moves=self.options.moves,
                work=self.options.work,
                stop=lambda: context.stopped,
                bounded=_reported(context, staged.name) if turn == 0 and alone and staged.chained else _ignored,
            )
            if turn == 0:
                self.bounds.append(proof.bound)
                if proof.lists is None and proof.proved:
                    return
            excess = [] if proof.lists is None else best.consider(staged, proof.lists)
            if not any(excess) or context.stopped:
                return
            staged = staged.tightened(excess)


def _ignored(bound: float) -> None:
    """Report nothing: a bound of one of several placements is none of their class."""


def _reported(context: Context, scope: str) -> Callable[[float], object]:
    """Return a callback that reports bounds."""
    return lambda value: context.report(bound=value, scope=scope)
