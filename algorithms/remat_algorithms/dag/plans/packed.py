"""What the search works on, packed into few arrays: a kernel's compile time grows with the arrays that it passes on.

Interpreted, the arrays hold Python objects, so that integers of any size are exact.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from remat_algorithms.dag.plans.model import StageModel

Array = Any
"""An int64 or float64 array where functions are compiled, an array of objects where they are interpreted."""

# Rows of `Packed.items`.
FIRST, READ_START, WRITE_START, WORKSPACE, IN_PLACE, BYTES, LIGHT, LIGHT_WORKSPACE, LIGHT_SPARED, REPEAT = range(10)
# Rows of `Packed.times`.
TIME, LIGHT_TIME = range(2)
# Rows of `Packed.values`.
SIZE, MAKER, INITIAL, PINNED, STAYS = range(5)
# Rows of `Packed.entries`.
READ, WRITE, SPARED = range(3)
# Places in `Packed.fixed`.
STAGES, ITEMS, VALUES, STATIC = range(4)

# Rows of `Work.runs`.
MEMORY, FULL, CHANGE, FREED = range(4)
# Places in `Work.figures`.
AREA, TOTAL, HIGHEST, STAGE_AREA = range(4)

# Plans, by the number p of the plan: rows 2 p and 2 p + 1 of `Room.plans` are its items and its stages.
NOW, TRIAL, HERE, BEST = range(4)
# Then items and stages of runs to insert; differences of memory from position to position, which those are, and of each
# block the least and the most excess.
NEW_ITEM, NEW_STAGE, DELTA, TOUCHED, LEAST, PEAK = range(8, 14)
# After their times in `Room.cost`: beyond which time the greedy gives up.
DEAREST = 4
# Rows of `Room.items`.
TODO, DEPTH, MARK = range(3)
# Rows of `Room.promise`.
MOST, STAGE, LISTED, FACTOR, FREED_BY, READ_BY = range(6)
# Places in `Room.state`: the lengths of the four plans come first.
STAMP, RANDOM, STOP, LOW, HIGH, TOUCHES, SALT, ADDED, BATCH = range(4, 13)

CANDIDATES = 25
"""Candidates that are replayed in each step of the greedy."""

MANY, MANY_FROM = 400, 2000
"""Candidates that are ranked in graphs of so many tasks or more, to take several at once."""

LONGEST = 12
"""Most runs of a plan, as a multiple of the order's."""


LARGE = 100
"""Tasks beyond which plans may only be four times as long as the order."""


class Packed(NamedTuple):
    """The tables of a model (see `model.Tables`): a property a row, an item, value or access a column."""

    items: Array
    times: Array
    values: Array
    entries: Array
    fixed: Array


class Work(NamedTuple):
    """What a replay fills.

    Attributes
    ----------
    runs : (4, longest + 2)
        Bytes while each run lasts; 0 where a light twin stands in for the item; differences of memory from run
        to run; bytes that a run reads and frees.
    head, access : rows of value v, ``access[head[v]:head[v + 1]]``
        Its accesses in order of time: 2 * position for a read, 2 * position + 1 for a write.
    figures : (4,) float
        Area above the budget, time of all runs, highest position; and the area where each stage counts once, with the
        highest of its runs.
    """

    runs: Array
    head: Array
    access: Array
    figures: Array


class Room(NamedTuple):
    """What the search writes into.

    Attributes
    ----------
    plans : (14, longest + 2)
        The present plan, one that is tried, the one that rounds of improvement start from, the best one;
        runs to insert; and differences of memory that a candidate would make, with summaries of what they change.
    items : (3, items + 1)
        Items of a rerun, how deep each lies, in which call each item was entered.
    ranking : (4, CANDIDATES or MANY) float
        Score, value and depth of the best candidates, and whether each is one of several to take.
    promise : (6, values) float
        Of each value as a candidate: the most that it may gain, the stage of its rerun, how many runs it was collected
        with, its noise; and the last batch that frees, and that reads it.
    state : (13,)
        Lengths of the plans; then by `STAMP` to `BATCH`: numbers of the call and of the batch, the random generator's
        state, whether to stop (set from another thread), what is touched, the salt of a run of the greedy.
    cost : (5,) float
        Times of the plans, and the time beyond which the greedy gives up.
    """

    plans: Array
    items: Array
    ranking: Array
    promise: Array
    state: Array
    cost: Array


def pack(model: StageModel, *, compiled: bool) -> Packed:
    """Pack the tables of a model."""
    tables, whole = model.tables, np.int64 if compiled else np.object_
    width = len(model.task) + 1
    return Packed(
        items=_rows(
            [
                *(tables.first, tables.read_start, tables.write_start, tables.workspace, tables.in_place),
                *(tables.written, tables.light, tables.light_workspace, tables.light_spared, tables.repeat),
            ],
            width,
            whole,
        ),
        times=_rows([tables.time, tables.light_time], width, np.float64 if compiled else np.object_),
        values=_rows([tables.size, tables.maker, tables.initial, tables.pinned, tables.stays], len(tables.size), whole),
        entries=_rows(
            [tables.read_value, tables.write_value, tables.spared],
            max(len(tables.read_value), len(tables.write_value)),
            whole,
        ),
        fixed=np.array([model.stages, len(model.task), len(tables.size), tables.static[0]], dtype=whole),
    )


def _rows(rows: list[list[Any]], width: int, kind: Any) -> Array:
    table = np.zeros((len(rows), width), dtype=kind)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return table


def work_room(model: StageModel, *, compiled: bool) -> Work:
    """Return room for replays of plans of a model."""
    tables, whole = model.tables, np.int64 if compiled else np.object_
    real = np.float64 if compiled else np.object_
    # Plans whose runs read and write more, on average, than a dozen times what the order does are not looked at.
    accesses = longest(model) // max(1, model.stages) * (len(tables.read_value) + len(tables.write_value)) + 64
    return Work(
        runs=np.zeros((4, longest(model) + 2), dtype=whole),
        head=np.zeros(len(tables.size) + 1, dtype=whole),
        access=np.zeros(accesses, dtype=whole),
        figures=np.zeros(4, dtype=real),
    )


def random_state(seed: int) -> int:
    """Return the first state of the random generator (see `plans.drawn`) for a seed."""
    return 1 + (seed * 7919 + 12345) % 2147483645


def search_room(model: StageModel, seed: int, *, compiled: bool) -> Room:
    """Return room for a search, its generator seeded."""
    whole, real = (np.int64, np.float64) if compiled else (np.object_, np.object_)
    state = np.zeros(13, dtype=whole)
    state[RANDOM] = random_state(seed)
    return Room(
        plans=np.zeros((14, longest(model) + 2), dtype=whole),
        items=np.zeros((3, len(model.task) + 1), dtype=whole),
        ranking=np.zeros((4, MANY if model.stages >= MANY_FROM else CANDIDATES), dtype=real),
        promise=np.zeros((6, len(model.tables.size)), dtype=real),
        state=state,
        cost=np.array([0.0, 0.0, 0.0, 0.0, math.inf], dtype=real),
    )


def longest(model: StageModel) -> int:
    """Return the most runs of a plan."""
    return (LONGEST if model.stages <= LARGE else 4) * model.stages + 64
