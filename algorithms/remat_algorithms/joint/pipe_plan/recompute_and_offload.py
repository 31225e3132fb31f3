"""Recomputation and offloading in one plan: the layers to recompute and to offload, by stage and micro-batch.

The levels of an outline (`recompute_options`) define the recomputation. Parts of the values that a level holds may be
offloaded to the host. The search covers orders, levels and parts together
(`remat_algorithms.parallel.pipeline.offload`), and starts from the results of either alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from remat.plugin import IntArray, PipelineInstance
from remat_algorithms.joint.pipe_plan.encoding import UNLIMITED, Outline
from remat_algorithms.joint.pipe_plan.recompute_options import Level
from remat_algorithms.joint.pipe_plan.search import Entry, Walks, fitting_levels
from remat_algorithms.kit.subsample import spread_out
from remat_algorithms.parallel.pipeline.model import Lists, complete
from remat_algorithms.parallel.pipeline.offload.incumbent import MORE, BestSteps, roomier_orders, search_ways
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting, Way, Ways
from remat_algorithms.parallel.pipeline.offload.search import Start, keys_of, worth_sending
from remat_algorithms.parallel.pipeline.stages import Staging

FEW = 3
"""Maximum number of layers and segments of a level for which any subset may be offloaded; with more, the first ones."""

MOST_PARTS = 5
"""Maximum number of offload options of a level with more layers."""

FINE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.04, 0.0)
"""Shares of the worthwhile offloads that schedules with recomputation make."""

SENT = (0.75, 0.5, 0.25, 0.125)
"""Shares of the worthwhile offloads that are made while other micro-batches recompute."""

ROOMIER = (1.1, 1.2, 1.35, 1.6, 2.0)
"""Memory factors for the search for schedules that recompute; the excess of a device is then offloaded."""

ROOMS = (1.0, 1.5, 2.0)
"""Memory factors for fitting levels to orders; the excess of a device is then offloaded."""


def ways_of(hosting: Hosting, levels: Sequence[Sequence[Level]]) -> Ways:
    """Return the options of stages: for each level, the offload options that differ in the offloaded values."""
    every = tuple(
        tuple(tuple(_parts(level, len(own.layers))) for level in of_stage)
        for own, of_stage in zip(hosting.staged.stages, levels, strict=True)
    )
    trips = replace(hosting, several=every).trips
    found = []
    for stage, of_stage in enumerate(every):
        kept = []
        for ways, own in zip(of_stage, trips[stage], strict=True):
            unlike = {trip.values: way for way, trip in reversed(list(zip(ways, own, strict=True)))}
            kept.append(tuple(way for way in ways if way in unlike.values()))
        found.append(tuple(kept))
    return tuple(found)


def _parts(level: Level, layers: int) -> Iterator[Way]:
    """Yield a level without offloading, then with more and more offloading, then with all of it."""
    again = {layer for segment in level.segments for layer in segment}
    firsts = {segment[0] for segment in level.segments}
    units = [layer for layer in range(layers) if layer not in again or layer in firsts]
    if len(units) <= FEW:
        chosen = [some for count in range(len(units) + 1) for some in combinations(units, count)]
    else:
        chosen = [(), *(tuple(units[:count]) for count in spread_out(range(1, len(units) + 1), MOST_PARTS - 1))]
    figures = (level.recompute_time, level.held, level.forward, level.backward, level.early)
    yield from (Way(level.segments, sent, *figures) for sent in chosen)


def search_both(
    best: BestSteps,
    outline: Outline,
    *,
    entries: Sequence[Entry],
    starts: Sequence[Lists],
    known: Start | None,
    moves: int,
    stop: Callable[[], bool],
) -> None:
    """Search for plans that recompute and offload.

    Parameters
    ----------
    best : BestSteps
    outline : Outline
    entries : sequence of Entry
        Schedules of the outline without offloading.
    starts : sequence of Lists
        Further orders, for which levels are fitted.
    known : Start, optional
        A schedule of the outline's stages without recomputation.
    moves : int
        As of a search without offloading.
    stop : callable
    """
    instance = best.problem.instance
    assert isinstance(instance, PipelineInstance)
    staged = Staging(outline.name, instance, outline.stages, outline.model, tuple(starts))
    if not staged.model.holds_fixed or min(outline.room) >= UNLIMITED:
        return
    hosting = Hosting(best.problem, staged)
    hosting = replace(hosting, several=ways_of(hosting, outline.levels))
    most = np.array([[len(own[0]) - 1] for own in hosting.ways])
    entries = [*entries, *_roomier(outline, entries, best.context.seed, moves, stop)]
    begun = [Start(entry.lists, level=entry.level, shares=FINE) for entry in entries]
    if known is not None and known.choice is not None:
        begun.append(Start(sequence=known.sequence, choice=Choice(known.choice.level, known.choice.part * most)))
    every = [*(entry.lists for entry in entries), *roomier_orders(staged, best.context.seed, moves, stop), *starts]
    for lists in dict.fromkeys(every):
        begun += [Start(lists, level=level) for level in _levels(outline, lists)]
        begun += [Start(lists, choice=Choice(level, sent * most)) for level, sent in _apart(outline, hosting, lists)]
    search_ways(best, hosting, begun, MORE * moves, stop)


def _roomier(
    outline: Outline, entries: Sequence[Entry], seed: int, moves: int, stop: Callable[[], bool]
) -> Iterator[Entry]:
    """Yield schedules that recompute, for devices with more memory."""
    for times in ROOMIER:
        if stop():
            return
        walks = Walks(_with_room(outline, times), seed, stop)
        begun = walks.begin([entry.lists for entry in entries])
        if begun:
            yield walks.improve(begun, moves)


def _with_room(outline: Outline, times: float) -> Outline:
    """Return an outline whose devices have `times` the memory."""
    return outline.tightened([0 if size >= UNLIMITED else -int((times - 1) * size) for size in outline.room])


def _apart(outline: Outline, hosting: Hosting, lists: Lists) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the pairs to offload, by shares of the worthwhile ones, and the levels with which the others fit."""
    whole, keys = complete(outline.model, lists), keys_of(hosting, lists, 1.0)
    if whole is None or keys is None:
        return
    for share in SENT:
        sent = worth_sending(hosting, keys, share)
        level = fitting_levels(outline, whole, sent)
        if level is not None and level.any() and sent.any():
            yield np.where(sent, 0, level), sent


def _levels(outline: Outline, lists: Lists) -> Iterator[IntArray | None]:
    """Yield levels with which lists fit into multiples of the memory; None: no recomputation."""
    whole = complete(outline.model, lists)
    if whole is None:
        return
    yield None
    for times in ROOMS:
        level = fitting_levels(_with_room(outline, times), whole)
        if level is not None and level.any():
            yield level
