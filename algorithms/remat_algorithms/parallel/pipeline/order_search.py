"""`pipe-search` and `pipe-exact` on instances: orders of evenly cut layers, placed and weighed as they are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from pydantic import Field

from remat.plugin import (
    Bound,
    Context,
    Number,
    OptionError,
    Options,
    Orders,
    PipelineInstance,
    Problem,
    Proposal,
    Termination,
)
from remat_algorithms.parallel.pipeline.model import Lists
from remat_algorithms.parallel.pipeline.named_schedules import named_orders
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps, search_hosted
from remat_algorithms.parallel.pipeline.offload.selective_offload import offload_selectively
from remat_algorithms.parallel.pipeline.pipe_exact import prove
from remat_algorithms.parallel.pipeline.pipe_search import search
from remat_algorithms.parallel.pipeline.stages import SHAPES, Staging, placed, staging

ROUNDS = 5
"""How often a device is given less room, where what is only passing does not fit beside what is kept."""


LARGE = 1_000
"""Tasks from which a named order is reported before anything else: smaller pipelines are answered in no time."""


class PlacementOptions(Options):
    """Options of those that try one placement after the other."""

    placement: Literal["any", "chain", "v", "interleaved"] = Field(
        default="any",
        description="one stage a device (chain), two in a V, several in turns (interleaved), or whichever is quickest",
    )
    chunks: int = Field(default=2, ge=2, le=64, description="stages a device, where they are interleaved")


class SearchOptions(PlacementOptions):
    """Options of `pipe-search`."""

    moves: int = Field(default=6_000, ge=1, le=100_000_000, description="schedules a placement, at most")


class ExactOptions(Options):
    """Options of `pipe-exact`."""

    placement: Literal["chain", "v", "interleaved"] = Field(
        default="chain", description="one stage a device (chain), two in a V, several in turns (interleaved)"
    )
    chunks: int = Field(default=2, ge=2, le=64, description="stages a device, where they are interleaved")
    moves: int = Field(default=20_000, ge=1, le=100_000_000, description="schedules of the search before it")
    work: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="limit of the program in CP-SAT's units, for answers without a clock",
    )


class BestOrders:
    """The quickest orders so far that fit, as they will be judged."""

    def __init__(self, problem: Problem, context: Context) -> None:
        self.problem, self.context = problem, context
        self.orders: Orders | None = None
        self.hanging: Orders | None = None
        self.makespan: Number | None = None

    @property
    def answer(self) -> Orders | None:
        """The best orders; where all hang, some of these: the answer is to say so."""
        return self.orders or self.hanging

    def consider(self, staged: Staging, lists: Lists) -> list[int]:
        """Place and weigh lists, keep them if they are better; return by how much they exceed each device."""
        return self.weigh(staged.orders(lists))

    def weigh(self, orders: Orders) -> list[int]:
        """Place and weigh orders, keep them if they are better; return by how much they exceed each device."""
        outcome = placed(self.problem, orders)
        if outcome is None:  # neither the search nor a rule makes a deadlock, unless transfers take both ends
            self.hanging = orders
            return [0] * len(self.problem.machine.processors)
        steps, makespan, peaks = outcome
        machine = self.problem.machine
        limits = [machine.memories[processor.memory].capacity for processor in machine.processors]
        excess = [
            0 if capacity is None else max(0, peak - capacity) for peak, capacity in zip(peaks, limits, strict=True)
        ]
        if not any(excess) and (self.makespan is None or makespan < self.makespan):
            self.orders, self.makespan = orders, makespan
            self.context.report(steps, makespan=makespan)
        return excess


def report_named(problem: Problem, context: Context) -> None:
    """Report the first named order of a large pipeline that fits, so that whoever is stopped early has an answer.

    Without a time limit there is no need for one.
    """
    if context.deadline is None or len(problem.graph.tasks) < LARGE:
        return
    best = BestOrders(problem, context)
    for orders in named_orders(problem):
        best.weigh(orders)
        if best.orders is not None or context.stopped:
            return


def solve_search(problem: Problem, options: SearchOptions, context: Context) -> Proposal:
    """Search for orders of evenly cut layers, on one placement after the other (see `pipe_search`).

    Notes
    -----
    It begins with all named schedules, and is never slower than one of these that fits. The search sees a relaxation
    (`Staging.model`); what it finds is placed and weighed. Where values that are only
    passing take a device beyond its capacity, that has so much less room the next time. Where devices have a host
    behind them, orders with copies there are searched, too (`hosted.walk`).
    """
    best, hosted = searched(problem, options, context)
    if hosted is not None and hosted.steps is not None:
        best.orders, best.hanging, best.makespan = None, None, hosted.makespan
    return Proposal(
        steps=None if hosted is None else hosted.steps,
        orders=best.answer,
        makespan=best.makespan,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def searched(problem: Problem, options: SearchOptions, context: Context) -> tuple[BestOrders, BestSteps | None]:
    """Return the best orders, and, where there is a host, the best plan with copies there, if that is quicker."""
    best = BestOrders(problem, context)
    for orders in named_orders(problem):
        best.weigh(orders)
    limited: dict[str, Lists] = {}
    for staged in stagings(problem, options):
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
    """Whether plans have no copies to a host: there is none, or steps end with more than backwards."""
    instance = problem.instance
    assert isinstance(instance, PipelineInstance)
    return instance.cluster.host is None or instance.closes or bool(instance.cut)


def _search_hosted(
    problem: Problem, options: SearchOptions, context: Context, others: BestOrders, limited: Mapping[str, Lists]
) -> BestSteps:
    """Search for plans with copies to the host that are quicker than all without, of which some are given."""
    best = BestSteps(problem, context, others.makespan)
    for staged in stagings(problem, options):
        if not context.stopped:
            offload_selectively(best, staged)
            known = [limited[staged.name]] if staged.name in limited else []
            search_hosted(best, staged, starts=known, moves=options.moves, stop=lambda: context.stopped)
    return best


def stagings(problem: Problem, options: PlacementOptions) -> Iterator[Staging]:
    """Yield the placements for which there are enough layers; the first one in any case."""
    shapes = SHAPES if options.placement == "any" else (options.placement,)
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
    """Find the quickest orders of evenly cut layers on one placement, and prove it (see `pipe_exact`).

    Notes
    -----
    The program's memory and transfers are a relaxation, so that its bound holds for the class; the class is proved
    optimal where what is found, as placed and weighed, meets it. Where some stage reads nothing of the one before it,
    stages of different branches could run at once, and nothing is proved but that orders do not fit.
    """
    report_named(problem, context)
    staged = staging(problem, options.placement, options.chunks)
    scope, best = staged.name, BestOrders(problem, context)
    bound: Number = 0
    for turn in range(ROUNDS):
        proof = prove(
            staged.model,
            starts=staged.starts,
            seed=context.seed,
            threads=context.threads or 1,
            moves=options.moves,
            work=options.work,
            stop=lambda: context.stopped,
            bounded=_reported(context, scope) if turn == 0 and staged.chained else (lambda value: None),
        )
        if turn == 0:
            if proof.lists is None and proof.proved:
                return Proposal(infeasible_within=scope)
            bound = proof.bound
        excess = [] if proof.lists is None else best.consider(staged, proof.lists)
        if not any(excess) or context.stopped:
            break
        staged = staged.tightened(excess)
    met = staged.chained and best.makespan is not None and best.makespan <= bound
    return Proposal(
        orders=best.answer,
        makespan=best.makespan,
        bounds=(Bound(bound, scope, "constraint program on orders"),) if staged.chained else (),
        optimal_within=scope if met else None,
        termination=context.termination if context.stopped else Termination.COMPLETED,
    )


def _reported(context: Context, scope: str) -> Callable[[float], object]:
    """Return who passes bounds on."""
    return lambda value: context.report(bound=value, scope=scope)
