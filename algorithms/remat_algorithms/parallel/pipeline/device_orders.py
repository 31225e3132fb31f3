"""Orders in which micro-batches pass devices that differ, for searches that take devices in a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise, permutations

import numpy as np

from remat.plugin import (
    Context,
    Number,
    OptionError,
    Orders,
    Pass,
    Pattern,
    PipelineInstance,
    Problem,
    Proposal,
    Ragged,
    Steps,
)
from remat_algorithms.parallel.pipeline.device_links import are_linked
from remat_algorithms.parallel.pipeline.planners.planner_input import Site
from remat_algorithms.parallel.pipeline.planners.stage_measures import least_largest, serial
from remat_algorithms.parallel.pipeline.stages import excess_of, placed

MOST_COMPARED = 120
"""Maximum number of orders whose even partitions are compared: all of five different devices."""

MOST_SEARCHED, MOST_TASKS = 5, 3_000
"""Maximum number of orders searched besides the listed one, and of their tasks in sum."""

Solve = Callable[[Problem, Context], Proposal]


def on_device_orders(problem: Problem, context: Context, solve: Solve) -> Proposal:
    """Solve with the devices as listed, and, if they differ in type, memory or links, in other orders.

    Parameters
    ----------
    problem : Problem
        A pipeline whose devices form a row.
    context : Context
    solve : callable
        Solves a problem whose devices are in a row.

    Returns
    -------
    Proposal
        The fastest, in terms of the listed devices. The bounds are those of the listed order.

    Notes
    -----
    The orders with the smallest time of the slowest stage, with its transfers, in a partition of all layers are
    searched, each for an equal share of the time. As far as all different orders are searched, the answer does not
    depend on the list.
    """
    others = _promising(problem)
    if not others:
        return solve(problem, context)
    best: Proposal | None = None
    refused: OptionError | None = None
    try:
        best = solve(problem, context.part(context.source, share=1 / (1 + len(others))))
    except OptionError as error:  # these devices cannot run the layers in this order
        refused = error
    for number, order in enumerate(others):
        if context.stopped:
            break
        try:
            found = solve(rearranged(problem, order), context.aside(share=1 / (len(others) - number)))
        except OptionError:
            continue
        best = _faster(problem, best or Proposal(), as_listed(found, order, len(problem.machine.processors)))
    if best is None:
        assert refused is not None
        raise refused
    return replace(best, termination=context.termination) if context.stopped else best


def rearranged(problem: Problem, row: Sequence[int]) -> Problem:
    """Return the problem on some of its devices, in this order."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    entries = [machine.processors[device] for device in row]
    listed = [{"name": entry.name, "type": entry.type} for entry in entries]
    cluster = type(instance.cluster).model_validate(
        instance.cluster.model_dump(exclude={"devices", "levels"}, exclude_unset=True) | {"devices": listed}
    )
    return Problem(instance.model_copy(update={"cluster": cluster}), replace(machine, processors=tuple(entries)))


def as_listed(found: Proposal, row: Sequence[int], count: int) -> Proposal:
    """Return a proposal for a row of devices in terms of all `count` listed devices, without its proofs."""
    return replace(
        found,
        orders=None if found.orders is None else _orders(found.orders, row, count),
        steps=None if found.steps is None else _steps(found.steps, row),
        pattern=_pattern(found.pattern, row) if isinstance(found.pattern, Pattern) else None,
        bounds=(),
        optimal_within=None,
        infeasible_within=None,
    )


def _faster(problem: Problem, best: Proposal, other: Proposal) -> Proposal:
    """Return the faster proposal; of equal ones, the first. Ties of transfers depend on the list: place again."""
    makespan, known = _time(other), _time(best)
    if other.orders is not None:
        outcome = placed(problem, other.orders)
        makespan = None if outcome is None else outcome[1]
        if outcome is None or any(excess_of(problem.machine, outcome[2])):
            return best
    if makespan is None or (known is not None and known <= makespan):
        return best
    own = makespan if other.orders is not None else None
    return replace(other, makespan=own, bounds=best.bounds, notes=(*other.notes, _told(problem, other)))


def _time(proposal: Proposal) -> Number | None:
    """Return the makespan, or the period of a stream."""
    return proposal.makespan if proposal.pattern is None else proposal.pattern.period


def _told(problem: Problem, found: Proposal) -> str:
    names = [processor.name for processor in problem.machine.processors]
    schedule = found.orders or found.pattern
    stages = schedule.stages if isinstance(schedule, (Orders, Pattern)) else ()
    row = list(dict.fromkeys(names[stage.device] for stage in stages))
    return "micro-batches pass the devices in another order than listed" + (f": {', '.join(row)}" if row else "")


def _promising(problem: Problem) -> list[tuple[int, ...]]:
    """Return other orders than the listed one, by the slowest stage of their best partition."""
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    count, classes = len(machine.processors), _classes(problem)
    most = min(MOST_SEARCHED, MOST_TASKS // max(1, len(problem.graph.tasks)))
    # Ranks are groups of neighbours in the list.
    if len(set(classes)) < 2 or not most or instance.sharding is not None:
        return []
    orders = [order for order in _distinct(classes) if all(are_linked(machine, *pair) for pair in pairwise(order))]
    orders = [order for order in orders if [classes[device] for device in order] != classes]
    if len(orders) > most:
        site = Site.of(problem)
        orders.sort(key=lambda order: _slowest(site, order[: min(count, site.row.length)]))
    return orders[:most]


def _slowest(site: Site, order: Sequence[int]) -> Number:
    found = least_largest(site.line(order), serial)
    return math.inf if found is None else found[0]


def _classes(problem: Problem) -> list[int]:
    """Return the class of each device, numbered by its figures: devices of one class can be exchanged in a row."""
    graph, machine = problem.graph, problem.machine
    links = {ends: machine.links[index] for ends, index in machine.link_index.items()}
    ways = {ends: (link.bandwidth or math.inf, link.latency, link.delay) for ends, link in links.items()}
    keys: list[tuple[object, ...]] = []
    for processor in machine.processors:
        own = processor.memory
        out = sorted(way for (source, _), way in ways.items() if source == own)
        back = sorted(way for (_, target), way in ways.items() if target == own)
        capacity = machine.memories[own].capacity
        times = () if graph.times is None else tuple(graph.times[graph.types.index(processor.type)].tolist())
        keys.append((times, math.inf if capacity is None else capacity, tuple(out), tuple(back)))
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [numbers[key] for key in keys]


def _distinct(classes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the different orders of devices, or, if there are too many, those that keep classes together."""
    members = [[device for device, own in enumerate(classes) if own == kind] for kind in range(max(classes) + 1)]
    total = math.factorial(len(classes)) // math.prod(math.factorial(len(own)) for own in members)
    if total <= MOST_COMPARED:
        return [_named(order, members) for order in _arrangements([len(own) for own in members])]
    kinds = islice(permutations(range(len(members))), MOST_COMPARED)
    return [tuple(device for kind in order for device in members[kind]) for order in kinds]


def _arrangements(left: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the different sequences with these numbers of each class."""
    if not any(left):
        yield ()
    for kind, count in enumerate(left):
        if count:
            for rest in _arrangements([*left[:kind], count - 1, *left[kind + 1 :]]):
                yield (kind, *rest)


def _named(kinds: Sequence[int], members: Sequence[Sequence[int]]) -> tuple[int, ...]:
    fresh = [iter(own) for own in members]
    return tuple(next(fresh[kind]) for kind in kinds)


def _pattern(found: Pattern, row: Sequence[int]) -> Pattern:
    return replace(found, stages=tuple(replace(stage, device=row[stage.device]) for stage in found.stages))


def _orders(found: Orders, row: Sequence[int], count: int) -> Orders:
    stages = tuple(replace(stage, device=row[stage.device]) for stage in found.stages)
    lists: list[tuple[Pass, ...]] = [()] * count
    paired = [frozenset[int]()] * count
    for place, device in enumerate(row):
        lists[device] = found.lists[place]
        if found.paired:
            paired[device] = found.paired[place]
    return replace(found, stages=stages, lists=tuple(lists), paired=tuple(paired) if found.paired else ())


def _steps(found: Steps, row: Sequence[int]) -> Steps:
    on = found.on
    return found if on is None else replace(found, on=Ragged(on.start, np.array(row, dtype=np.int64)[on.items]))
