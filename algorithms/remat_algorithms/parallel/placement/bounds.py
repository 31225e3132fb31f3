"""Lower bounds on the time per sample of every schedule of a stream, by source.

`rates`
    A linear program over the fractions of samples for which each unit runs on each class of devices. The time and bytes
    of a class are those of its devices together. With one copy of the parameters, the fractions are those of a
    placement; with more copies, the bytes only grow. On a star, a value read where it is not produced must be received
    there and sent by another memory.
`longest unit`
    A unit with one copy of its parameters, in a memory with one processor, runs there for every sample.
`whole units`
    These units are indivisible: of any N of them, some device has at least the number given by counting
    (`kit.pigeonhole_bound`).
`blocks`
    Consider weights w of the units. A device that is busy for at most T runs units of weight at most P(T), including
    transfers, according to a constraint program. If all devices together cannot reach the total weight, every time per
    sample exceeds T. With minimum times as weights and equal devices, this is the bottleneck block of Archer et al.
    2024. Other weights come from a linear program over the known blocks (column generation, Farley 1990).

The bounds also hold for placements that change from sample to sample, and for recomputation where parameters allow it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from remat.plugin import Bound, Context
from remat_algorithms.kit.pigeonhole_bound import Bins, fullest
from remat_algorithms.kit.programs.duals import Solved, solve_linear
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.parallel.placement.best_pattern import over_all
from remat_algorithms.parallel.placement.fractional_loads import longest
from remat_algorithms.parallel.placement.model import Model

SAFE = 1 - 1e-12
"""Share of a floating-point sum of times that is certain."""

HIGH = 1e9
"""Upper bound for unbounded columns, as a multiple of the total time."""


def cheap_bounds(model: Model, context: Context) -> Iterator[Bound]:
    """Yield the bounds that take negligible time."""
    if not model.certain:
        return
    solved = rates(model, context)
    if math.isfinite(solved.bound) and solved.bound > 0:
        yield over_all(solved.bound, "rates")
    longest = longest_unit(model)
    if longest > 0:
        yield over_all(longest, "longest unit", whole=model.whole)
        counted = whole_units(model)
        if counted > longest:
            yield over_all(counted, "whole units", whole=model.whole)


def pinned(model: Model) -> list[bool]:
    """Return for each unit whether all its runs, for all samples, are on one processor."""
    of_memory = [0] * len(model.machine.memories)
    for memory in model.memory_of:
        of_memory[memory] += 1
    single = {place.value for place in model.graph.placeable if place.copies == 1}
    found = []
    for unit, tasks in enumerate(model.tasks):
        able = [p for p in range(model.processors) if np.isfinite(model.time[p, unit])]
        alone = all(of_memory[model.memory_of[p]] == 1 for p in able)
        kept = all(any(value in single for value in model.graph.reads[task].tolist()) for task in tasks)
        found.append(len(able) == 1 or (alone and (kept or len({model.memory_of[p] for p in able}) == 1)))
    return found


def longest_unit(model: Model) -> float:
    """Return the time of the longest pinned unit on its fastest processor."""
    least = model.time.min(axis=0)
    found = max((float(time) for time, stays in zip(least, pinned(model), strict=True) if stays), default=0.0)
    return found if model.whole else SAFE * found


def whole_units(model: Model) -> float:
    """Return the bound that counts pinned units."""
    stays = pinned(model)
    items = [[float(time) for time, one in zip(row, stays, strict=True) if one] for row in model.time]
    found = fullest([Bins([0.0] * len(own), items[own[0]]) for own in model.classes])
    return found if model.whole else SAFE * found


def rates(model: Model, context: Context) -> Solved:
    """Solve the linear program of fractions, within the time left."""
    classes = model.classes
    first = [own[0] for own in classes]
    time = model.time[first]
    builder = ProgramBuilder()
    period = builder.add_column(cost=1)
    share = [
        [builder.add_column(upper=1 if math.isfinite(time[kind, unit]) else 0) for unit in range(model.units)]
        for kind in range(len(classes))
    ]
    for unit in range(model.units):
        builder.add_row([(own[unit], 1) for own in share], lower=1)
    busy: list[list[tuple[int, float]]] = [
        [(share[kind][unit], float(time[kind, unit])) for unit in range(model.units) if math.isfinite(time[kind, unit])]
        for kind in range(len(classes))
    ]
    for kind, own in enumerate(classes):
        room = model.room[model.memory_of[own[0]]]
        together = len({model.memory_of[processor] for processor in own})
        if room is not None:
            entries = [(share[kind][unit], float(model.own[unit])) for unit in range(model.units) if model.own[unit]]
            for size, units in model.shared:
                lies = builder.add_column()  # once per memory, for all units there
                entries.append((lies, float(size)))
                for unit in units:
                    builder.add_row([(lies, 1), (share[kind][unit], -1)], lower=0)
            largest = max((size for _, size in entries), default=1.0)
            builder.add_row([(column, size / largest) for column, size in entries], upper=together * room / largest)
    if model.star is not None and model.star.separable:
        _add_transfers(builder, model, share, busy)
    builder.upper[period] = longest(busy)
    for kind, own in enumerate(classes):
        builder.add_row([*busy[kind], (period, -float(len(own)))], upper=0)
    return solve_linear(builder.build(), context.seconds_left)


def _add_transfers(
    builder: ProgramBuilder, model: Model, share: list[list[int]], busy: list[list[tuple[int, float]]]
) -> None:
    """Add the busy time of transfers that block processors."""
    star, machine = model.star, model.machine
    assert star is not None
    memories = [model.memory_of[own[0]] for own in model.classes]
    hubs = [kind for kind, memory in enumerate(memories) if memory == star.hub]
    for flow in model.flows:
        sent = []
        for kind, own in enumerate(model.classes):
            if kind in hubs:
                continue
            links = star.away[memories[kind]], star.back[memories[kind]]
            pays = [own[0] in machine.held_by_link[link] for link in links]
            away, back = (
                float(model.copy_time(link, flow.value)) if paid else 0.0
                for link, paid in zip(links, pays, strict=True)
            )
            out = builder.add_column()
            got = builder.add_column()
            sent.append((out, got))
            busy[kind] += [(out, away), (got, back)]
            for reader in flow.readers:
                builder.add_row([(got, 1), (share[kind][reader], -1), (share[kind][flow.maker], 1)], lower=0)
        made = [(share[kind][flow.maker], 1.0) for kind in hubs]
        for _, got in sent:
            builder.add_row([*((out, 1.0) for out, _ in sent), *made, (got, -1)], lower=0)
        for reader in flow.readers:
            for kind in hubs:
                entries = [*((out, 1.0) for out, _ in sent), *made, (share[kind][reader], -1.0)]
                builder.add_row(entries, lower=0)
