"""Local search over placements of each unit in one place, with memories and all resources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from remat_algorithms.parallel.placement import move_units
from remat_algorithms.parallel.placement.model import Model

STEP = 0.0003
"""Relative improvement of each target over the best load."""

SLICE = 20_000
"""Number of moves between two checks for a stop."""

COMPILED_FROM = 5_000
"""Number of moves from which the kernel is compiled."""

DESCENT = 2_000_000
"""Number of moves from hot to cold; an improvement continues from its placement."""

HOT, COLD = 1e-5, 1e-8
"""Temperatures at the start and at the end of a descent."""


def walked(
    model: Model,
    start: Sequence[int],
    *,
    moves: int,
    seed: int,
    less: Sequence[int] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[int]]:
    """Yield each improved placement of units on processors.

    Parameters
    ----------
    model : Model
    start : sequence of int
        A processor for each unit.
    moves : int
        Total number of moves.
    seed : int
    less : sequence of int
        Reduction of each memory, in bytes.
    stop : callable
    """
    ground = _ground(model, less)
    if ground is None or model.processors < 2:
        return
    state = _state(model, ground, start)
    cells = move_units.Walked()
    cells.draws = 1 + (seed * 7919 + 12345) % (move_units.MODULUS - 1)
    bound: Any = None
    if moves >= COMPILED_FROM:
        from remat_algorithms.parallel.placement.move_units_compiled import WALK

        bound = WALK.bind(ground, state, cells)
    best = float(state.busy.max()) if not _lacks(ground, state) else math.inf
    reference = best if math.isfinite(best) else float(state.busy.max())
    descent = max(1, min(moves, DESCENT))
    left = 0
    while moves > 0 and not stop() and reference > 0:
        if left <= 0:
            cells.temperature, cells.cooling = HOT, (COLD / HOT) ** (1 / descent)
            left = descent
        cells.target = reference * (1 - STEP) if math.isfinite(best) else reference * 4
        before = cells.moves
        some = min(left, moves, SLICE)
        hit = bool(bound(some) if bound is not None else move_units.walk(ground, state, cells, some))
        spent = max(1, cells.moves - before)
        left, moves = left - spent, moves - spent
        if hit:
            found = state.best.tolist()
            state = _reset(model, ground, state, found)
            best = reference = float(state.busy.max())
            yield found


def _lacks(ground: move_units.Ground, state: move_units.State) -> bool:
    return bool((state.used > ground.room + 1e-12).any())


def _ground(model: Model, less: Sequence[int]) -> move_units.Ground | None:
    """Return a model as arrays; None for machines on which values take other routes."""
    machine, star = model.machine, model.star
    memories = len(machine.memories)
    link = np.full((memories, memories), -1, dtype=np.int64)
    for (source, target), index in machine.link_index.items():
        link[source, target] = index
    homes = set(model.memory_of)
    if star is None and any(
        model.shortest_way(one, other) != (link[one, other],) for one in homes for other in homes if one != other
    ):
        return None
    flows_of: list[list[int]] = [[] for _ in range(model.units)]
    for index, flow in enumerate(model.flows):
        for unit in {flow.maker, *flow.readers}:
            flows_of[unit].append(index)
    readers = [list(flow.readers) for flow in model.flows]
    total = float(sum(model.size)) or 1.0
    rooms = [
        4.0 if room is None else max(0, room - (less[memory] if less else 0)) / total
        for memory, room in enumerate(model.room)
    ]
    copy_time = np.array(
        [[float(model.copy_time(k, flow.value)) for flow in model.flows] for k in range(len(machine.links))] or [[0.0]],
        dtype=np.float64,
    ).reshape(max(1, len(machine.links)), -1)
    held = [list(own) for own in machine.held_by_link]
    able = np.isfinite(model.time)

    def flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        start = np.array([0, *accumulate(map(len, rows))], dtype=np.int64)
        return start, np.array([item for row in rows for item in row] or [0], dtype=np.int64)

    start, flow_items = flat(flows_of)
    reader_start, reader_items = flat(readers)
    held_start, held_items = flat(held)
    return move_units.Ground(
        np.where(able, model.time, 0.0),
        able,
        np.array(model.memory_of, dtype=np.int64),
        np.array(model.size, dtype=np.float64) / total,
        np.array(rooms, dtype=np.float64),
        np.array([flow.maker for flow in model.flows] or [0], dtype=np.int64),
        start,
        flow_items,
        reader_start,
        reader_items,
        link,
        np.ascontiguousarray(copy_time),
        held_start,
        held_items,
        -1 if star is None else star.hub,
    )


def _state(model: Model, ground: move_units.Ground, homes: Sequence[int]) -> move_units.State:
    state = move_units.State(
        np.zeros(model.units, dtype=np.int64),
        np.zeros((max(1, len(model.flows)), len(model.machine.memories)), dtype=np.int64),
        np.zeros(len(model.machine.resources), dtype=np.float64),
        np.zeros(len(model.machine.memories), dtype=np.float64),
        np.zeros(model.units, dtype=np.int64),
        np.zeros(1, dtype=np.float64),
    )
    return _reset(model, ground, state, homes)


def _reset(model: Model, ground: move_units.Ground, state: move_units.State, homes: Sequence[int]) -> move_units.State:
    """Store a placement in the state, with recomputed sums."""
    state.home[:] = homes
    state.readers[:] = 0
    for index, flow in enumerate(model.flows):
        for reader in flow.readers:
            state.readers[index, model.memory_of[homes[reader]]] += 1
    state.busy[:] = model.loads(homes)
    state.used[:] = 0.0
    for unit, processor in enumerate(homes):
        state.used[model.memory_of[processor]] += ground.size[unit]
    return state
