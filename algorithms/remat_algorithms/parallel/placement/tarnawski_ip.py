"""`tarnawski-ip`: placements of a stream by an integer program, contiguous or not (after Tarnawski et al. 2020).

The search starts from the answer of `tarnawski-dp` and from splits by memory and by speed, so it is never worse. Its
class contains the placements of each unit on one processor for all samples (`program`). If parameters force every unit
into one place, and the machine is a star, the proofs hold for all schedules.

With `contiguous`, the class is that of `tarnawski-dp`. That algorithm proves optimality if there are not too many
down-sets. Otherwise a program improves the placement, under the condition that no value flows backwards in some order
of the processors.

Limits are in CP-SAT's own units of work. If transient values do not fit along with parameters, the next round has less
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import Field

from remat.plugin import ALL_SCHEDULES, Bound, Context, Options, Problem, Proposal, Termination
from remat_algorithms.parallel.placement.best_pattern import CONTIGUOUS, ONE_PLACE, ROUNDS, Best, over_all, sharpened
from remat_algorithms.parallel.placement.block_bound import Blocks
from remat_algorithms.parallel.placement.bounds import cheap_bounds, pinned
from remat_algorithms.parallel.placement.feasibility import pack, refuse
from remat_algorithms.parallel.placement.groups import Groups, groups_of
from remat_algorithms.parallel.placement.local_search import walked
from remat_algorithms.parallel.placement.manual_splits import shares
from remat_algorithms.parallel.placement.model import Model, model_of
from remat_algorithms.parallel.placement.program import Outlook, PlacementProgram
from remat_algorithms.parallel.placement.tarnawski_dp import (
    DownSetOptions,
    Found,
    class_bound,
    conclude_class,
    contiguous,
)


class ProgramOptions(Options):
    """Options of `tarnawski-ip`."""

    contiguous: bool = Field(default=False, description="assign only consecutive units to each device")
    bound_work: float = Field(
        default=5.0,
        ge=0,
        le=1e6,
        description="work limit of the block bound, in CP-SAT's deterministic units, on instances for which it is "
        "valid",
    )
    moves: int = Field(
        default=5_000_000, ge=0, le=10**10, description="maximum number of moves in the local search that runs first"
    )
    work: float = Field(
        default=20.0, gt=0, le=1e6, description="work limit of the program, in CP-SAT's deterministic units"
    )
    sets: int = Field(
        default=400_000,
        ge=2,
        le=10_000_000,
        description="maximum number of down-sets that the initial dynamic program examines",
    )


def solve(problem: Problem, options: ProgramOptions, context: Context) -> Proposal:
    """Improve the best contiguous placement, and prove bounds."""
    model = model_of(problem, "tarnawski-ip")
    refused = refuse(problem, model, context)
    if refused is not None:
        return refused
    bounds = list(cheap_bounds(model, context))
    for bound in bounds:
        context.report(bound=bound.value, scope=bound.scope)
    best = Best(problem, model, context)
    found = contiguous(best, DownSetOptions(sets=options.sets))
    if options.contiguous:
        return _within_order(best, bounds, found, options.work)
    scope = ALL_SCHEDULES if everywhere(model) else ONE_PLACE
    termination = Termination.COMPLETED
    within = None
    if not context.stopped:
        for split in shares(model):
            best.consider(split)
        if best.placed is None and (start := packed(model, context)) is not None:
            best.consider(start)
        walk_on(best, options.moves)
        outlook = improve(best, context, options.work, scope)
        termination = Termination.COMPLETED if outlook.ended else Termination.ITERATION_LIMIT
        source = "placement program"
        if not model.counted:
            outlook = improve(best, context, options.work / 2, scope, transfers=False)
            source += " without transfers"
        if model.settled:
            if outlook.infeasible and best.placed is None:
                return best.proposal(bounds, infeasible_within=scope)
            bound = _bound(best, outlook, scope, source)
            bounds += [bound] if bound.value > 0 else []
            within = scope if bound.value == best.time and scope != ALL_SCHEDULES else None
            bounds += block_bound(best, bounds, options.bound_work)
    return best.proposal(bounds, optimal_within=within, termination=termination)


def _within_order(best: Best, bounds: list[Bound], found: Found, work: float) -> Proposal:
    """Complete the search over contiguous placements: prove the best one, by a program if down-sets do not suffice."""
    model, context = best.model, best.context
    known = class_bound(found, best)
    bounds += [] if known is None else [known]
    if found.none or context.stopped or (known is not None and known.value == best.time):
        return conclude_class(best, bounds, found)
    groups = groups_of(model)
    outlook = improve(best, context, work, CONTIGUOUS, groups=groups)
    found.termination = Termination.COMPLETED if outlook.ended else Termination.ITERATION_LIMIT
    if model.counted and model.settled:
        found.none = outlook.infeasible and best.placed is None
        bounds.append(_bound(best, outlook, CONTIGUOUS, "contiguous program"))
    return conclude_class(best, bounds, found)


def _bound(best: Best, outlook: Outlook, scope: str, source: str) -> Bound:
    whole = outlook.bound.denominator == 1
    return sharpened(Bound(int(outlook.bound) if whole else float(outlook.bound), scope, source), best.time)


def block_bound(best: Best, bounds: Sequence[Bound], work: float) -> list[Bound]:
    """Return the bound of blocks, if the star is separable and every unit stays in one place."""
    model, time = best.model, best.time
    star = model.star
    known = max((float(bound.value) for bound in bounds if bound.scope == ALL_SCHEDULES), default=0.0)
    useful = everywhere(model) and star is not None and star.separable and model.alone
    if not useful or time is None or known >= float(time) or work <= 0:
        return []
    value = Blocks(model, best.context, work).bound(known, float(time))
    return [sharpened(over_all(value, "blocks"), time)] if value > known else []


def walk_on(best: Best, moves: int) -> None:
    """Improve the best placement by local search; if transient values do not fit, retry with less memory."""
    model, context = best.model, best.context
    less = [0] * len(model.machine.memories)
    for _ in range(ROUNDS):
        start = best.homes[0] if best.homes is not None and len(best.homes) == 1 else None
        if start is None:
            start = packed(model, context)
        if start is None or context.stopped or moves <= 0:
            return
        last: list[int] | None = None
        for homes in walked(model, start, moves=moves, seed=context.seed, less=less, stop=lambda: context.stopped):
            last = homes
        if last is None:
            return
        excess = best.consider(last)
        if not any(excess):
            return
        less = [room + more for room, more in zip(less, excess, strict=True)]


def everywhere(model: Model) -> bool:
    """Whether bounds on placements hold for all schedules, because no unit can run in two places."""
    return model.certain and all(pinned(model))


def improve(
    best: Best, context: Context, work: float, scope: str, *, transfers: bool = True, groups: Groups | None = None
) -> Outlook:
    """Solve the program, retrying with less memory if transient values do not fit; return the first result."""
    model = best.model
    less = [0] * len(model.machine.memories)
    first: Outlook | None = None
    for _ in range(ROUNDS):
        hint = best.homes[0] if best.homes is not None and len(best.homes) == 1 else None
        excess: list[int] = []

        def consider(homes: tuple[int, ...]) -> None:
            nonlocal excess
            known = best.time
            if known is None or model.load(homes) < float(known) * (1 - 1e-12):
                excess = best.consider(homes)

        program = PlacementProgram(model, less, None if best.time is None else float(best.time), transfers, groups)
        holds = (model.counted or not transfers) and model.settled and first is None
        outlook = program.solve(
            hint=hint,
            found=consider,
            bounded=_reporting(context, scope) if holds else lambda bound: None,
            stop=lambda: context.stopped,
            work=work,
            seed=context.seed,
        )
        first = first or outlook
        work -= outlook.work
        if not any(excess) or context.stopped or work <= 0 or not transfers:
            break
        less = [room + more for room, more in zip(less, excess, strict=True)]
    assert first is not None
    return first


def _reporting(context: Context, scope: str) -> Callable[[float], object]:
    """Return a callback that reports bounds."""
    return lambda bound: context.report(bound=bound, scope=scope)


def packed(model: Model, context: Context) -> list[int] | None:
    """Return a placement whose parameters fit: the fastest processor of the memory assigned to each unit."""
    packing = pack(model, context)
    if packing.homes is None:
        return None
    placed: list[int] = []
    for unit, memory in enumerate(packing.homes):
        own = [p for p in range(model.processors) if model.memory_of[p] == memory]
        placed.append(min(own, key=lambda p: (model.time[p, unit], p)))
    return placed
