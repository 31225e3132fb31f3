"""The records of the search, for interpreted and compiled code (see `remat_algorithms.kit.compile`).

In interpreted code, the arrays hold Python objects, so that integers of any size are exact.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from remat_algorithms.dag.plans.model import StageModel
from remat_algorithms.kit.compile.records import cells

Array = Any
"""An int64 or float64 array in compiled code, an array of objects in interpreted code."""

# Plans: their rows of `Room.item`, `Room.stage`, `Room.length` and `Room.cost`.
NOW, TRIAL, HERE, BEST = range(4)

CANDIDATES = 25
"""Candidates that each step of the greedy replays."""

MANY, MANY_FROM = 400, 2000
"""Number of candidates that large graphs rank, to take several at once; minimum number of tasks of these graphs."""

LONGEST = 12
"""Maximum number of runs of a plan, as a multiple of the order's length."""


LARGE = 100
"""Maximum number of tasks for this multiple; in larger graphs, plans have at most four times the order's runs."""


class Packed(NamedTuple):
    """The tables of a model (see `remat_algorithms.dag.plans.model`, `Tables`), by item, by value, and by access.

    Attributes
    ----------
    first, read_start, write_start, workspace, in_place, written, light, light_workspace, light_spared, repeat, lent
        By item; the first and the last by stage.
    time, light_time
        By item.
    size, maker, initial, pinned, stays
        By value.
    read, write, spared
        By access: values read; values written, and whether a light twin omits them.
    stages, item_count, value_count, static : int
    """

    first: Array
    read_start: Array
    write_start: Array
    workspace: Array
    in_place: Array
    written: Array
    light: Array
    light_workspace: Array
    light_spared: Array
    repeat: Array
    lent: Array
    time: Array
    light_time: Array
    size: Array
    maker: Array
    initial: Array
    pinned: Array
    stays: Array
    read: Array
    write: Array
    spared: Array
    stages: int
    item_count: int
    value_count: int
    static: int


@cells
class Figures(ctypes.Structure):
    """Result of a replay.

    Attributes
    ----------
    area, stage_area : float
        Bytes above the budget, summed over the runs; and summed over the stages, with the highest run of each.
    total : float
        Time of all runs.
    highest : int
        Position of the highest memory.
    """

    area: float
    stage_area: float
    total: float
    highest: int


class Work(NamedTuple):
    """Arrays that a replay fills.

    Attributes
    ----------
    memory, full, change, freed : (longest + 2,)
        Bytes during each run; 0 if a light twin replaces the item; differences of memory from run to run; bytes that a
        run reads and frees.
    head, access : rows of value v, ``access[head[v]:head[v + 1]]``
        Its accesses in order of time: 2 * position for a read, 2 * position + 1 for a write.
    figures : Figures
    """

    memory: Array
    full: Array
    change: Array
    freed: Array
    head: Array
    access: Array
    figures: Figures


@cells
class Draws(ctypes.Structure):
    """The state of a random generator."""

    random: int


@cells
class State(ctypes.Structure):
    """Scalar state of a search.

    Attributes
    ----------
    stamp, batch : int
        Serial numbers of the call and of the batch.
    stop : int
        Whether to stop; set from another thread.
    low, high, touches : int
        Range and number of the recorded differences.
    salt : int
        Random salt of a run of the greedy.
    added : int
        Number of runs to insert.
    dearest : float
        Maximum time of a plan, above which the greedy gives up.
    """

    stamp: int
    batch: int
    stop: int
    low: int
    high: int
    touches: int
    salt: int
    added: int
    dearest: float


class Room(NamedTuple):
    """Arrays that the search writes.

    Attributes
    ----------
    item, stage : (4, longest + 2)
        The current plan, the trial plan, the plan from which rounds of improvement start, and the best one.
    length, cost : (4,)
        Their lengths, and their times.
    new_item, new_stage : (longest + 2,)
        Runs to insert.
    delta, touched, least_excess, most_excess : (longest + 2,)
        Differences of memory of a candidate between positions, and the positions that have one; minimum and maximum
        excess of each block.
    todo, depth, mark : (items + 1,)
        Items of a rerun, depth of each, and call in which each item was entered.
    score, candidate, deepest, taken : (CANDIDATES or MANY,)
        Score, value and depth of the best candidates, and whether each belongs to the batch.
    most, factor, at, listed, freed_by, read_by : (values,)
        For each value as a candidate: its maximum gain, its noise factor, the stage of its rerun, and the number of
        runs collected for it; and the last batch that frees it, and that reads it.
    draws : Draws
    state : State
    """

    item: Array
    stage: Array
    length: Array
    cost: Array
    new_item: Array
    new_stage: Array
    delta: Array
    touched: Array
    least_excess: Array
    most_excess: Array
    todo: Array
    depth: Array
    mark: Array
    score: Array
    candidate: Array
    deepest: Array
    taken: Array
    most: Array
    factor: Array
    at: Array
    listed: Array
    freed_by: Array
    read_by: Array
    draws: Draws
    state: State


def pack(model: StageModel, *, compiled: bool) -> Packed:
    """Pack the tables of a model."""
    tables, whole = model.tables, np.int64 if compiled else np.object_
    width = len(model.task) + 1
    items = (
        *(tables.first, tables.read_start, tables.write_start, tables.workspace, tables.in_place),
        *(tables.written, tables.light, tables.light_workspace, tables.light_spared, tables.repeat, tables.lent),
    )
    times = _rows([tables.time, tables.light_time], width, np.float64 if compiled else np.object_)
    values = [tables.size, tables.maker, tables.initial, tables.pinned, tables.stays]
    entries = [tables.read_value, tables.write_value, tables.spared]
    parts = [
        *_rows(items, width, whole),
        *times,
        *_rows(values, len(tables.size), whole),
        *_rows(entries, max(len(tables.read_value), len(tables.write_value)), whole),
        *(model.stages, len(model.task), len(tables.size), int(tables.static[0])),
    ]
    return Packed._make(parts)


def _rows(rows: Sequence[Sequence[Any]], width: int, kind: Any) -> Array:
    table = np.zeros((len(rows), width), dtype=kind)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def work_room(model: StageModel, *, compiled: bool) -> Work:
    """Allocate the arrays for replays of plans of a model."""
    tables, whole = model.tables, np.int64 if compiled else np.object_
    # This excludes plans whose runs access, on average, a dozen times as many values as the order.
    accesses = longest(model) // max(1, model.stages) * (len(tables.read_value) + len(tables.write_value)) + 64
    memory, full, change, freed = np.zeros((4, longest(model) + 2), dtype=whole)
    return Work(
        memory=memory,
        full=full,
        change=change,
        freed=freed,
        head=np.zeros(len(tables.size) + 1, dtype=whole),
        access=np.zeros(accesses, dtype=whole),
        figures=Figures(),
    )


def random_state(seed: int) -> int:
    """Return the first state of the random generator (see `plans.drawn`) for a seed."""
    return 1 + (seed * 7919 + 12345) % 2147483645


def search_room(model: StageModel, seed: int, *, compiled: bool) -> Room:
    """Allocate the arrays for a search, with a seeded generator."""
    whole, real = (np.int64, np.float64) if compiled else (np.object_, np.object_)
    ranked, values = MANY if model.stages >= MANY_FROM else CANDIDATES, len(model.tables.size)

    def rows(count: int, width: int, kind: Any = whole) -> Array:
        return np.zeros((count, width), dtype=kind)

    parts = [
        *np.zeros((2, 4, longest(model) + 2), dtype=whole),
        *(*rows(1, 4), *rows(1, 4, real)),
        *rows(6, longest(model) + 2),
        *rows(3, len(model.task) + 1),
        *(*rows(1, ranked, real), *rows(3, ranked)),
        *(*rows(2, values, real), *rows(4, values)),
        *(Draws(random=random_state(seed)), State(dearest=math.inf)),
    ]
    return Room._make(parts)


def longest(model: StageModel) -> int:
    """Return the maximum number of runs of a plan."""
    return (LONGEST if model.stages <= LARGE else 4) * model.stages + 64
