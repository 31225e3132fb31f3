"""Compiled kernels of floating schedules; their plain twins are `FloatingTable._fill` and `LeastFloating.ways`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel

FloatArray = NDArray[np.float64]


class Times(NamedTuple):
    """The table of `FloatingTable` and its `Rows`; `tape` belongs to the current last stage, (2, L+1, L)."""

    time: FloatArray
    tape: IntArray
    checkpoint: IntArray
    saving: IntArray
    taped: IntArray
    move: IntArray
    split: IntArray
    save: IntArray
    leaf: IntArray
    forward_time: FloatArray
    save_time: FloatArray
    backward_time: FloatArray
    leaf_time: FloatArray


class Least(NamedTuple):
    """The table of `LeastFloating` and its `Needs`."""

    least: IntArray
    checkpoint: IntArray
    saving: IntArray
    tape: IntArray
    live: IntArray
    move_need: IntArray
    split_need: IntArray
    save_need: IntArray
    backward_need: IntArray
    leaf_need: IntArray


def _relax_one(out: FloatArray, inner: FloatArray, low: int, held: int, cost: float) -> None:
    for row in range(low, len(out)):
        out[row] = min(out[row], inner[row - held] + cost)


def _relax_two(out: FloatArray, rest: FloatArray, inner: FloatArray, low: int, held: int, cost: float) -> None:
    for row in range(low, len(out)):
        out[row] = min(out[row], rest[row] + (inner[row - held] + cost))


def _cell(first: int, target: int, last: int) -> int:
    before = last * (last + 1) * (last + 2) // 6
    return before + first * (last + 1) - first * (first - 1) // 2 + target - first


def _leaf(table: Times, out: FloatArray, stage: int, taped: int) -> None:
    for row in range(table.leaf[taped, stage], len(out)):
        out[row] = table.leaf_time[taped, stage]


def _begin(table: Times, out: FloatArray, first: int, target: int, last: int, taped: int) -> None:
    """Save the first stage, or move its checkpoint."""
    if first == target:
        held = table.saving[first]
        low = max(table.save[taped, last, first], held)
        inner = _cell(first + 1, first + 1, last)
        cost = table.save_time[first] + table.backward_time[first]
    else:
        held = 0
        low = table.move[taped, last, first]
        inner = _cell(first + 1, target, last)
        cost = table.forward_time[first]
    _relax_one(out, table.time[taped, inner], low, held, cost)


def _fill(table: Times, first: int, target: int, last: int, taped: int) -> None:
    out = table.time[taped, _cell(first, target, last)]
    for row in range(len(out)):
        out[row] = math.inf
    if first == last:
        _leaf(table, out, first, taped)
        return
    _begin(table, out, first, target, last, taped)
    held = table.checkpoint[first]
    low = max(table.split[taped, last, first], held)
    if low < len(out):
        for j in range(target + 1, last + 1):
            rest, inner = table.time[0, _cell(first, target, j - 1)], table.time[taped, _cell(first + 1, j, last)]
            _relax_two(out, rest, inner, low, held, table.forward_time[first])
    swept = 0.0
    for j in range(first + 1, last):
        swept += table.forward_time[j - 1]
        held = table.taped[first, j]
        low = max(table.tape[taped, first, j], held)
        if j >= target and low < len(out):
            after, left = table.time[1, _cell(first, target, j)], table.time[taped, _cell(j + 1, j + 1, last)]
            _relax_two(out, after, left, low, held, swept + table.save_time[j])


def time_row(table: Times, first: int, last: int) -> None:
    """Fill the cells (first, t, last), for t = last..first, without and with the tape of `last`."""
    for target in range(last, first - 1, -1):
        for taped in range(2):
            _fill(table, first, target, last, taped)


def _least(table: Least, first: int, target: int, last: int, taped: int) -> int:
    """Return the minimum bytes of a segment of several stages."""
    around, held = table.live[taped, last], table.checkpoint[first]
    if first == target:
        inner = table.least[taped, first + 1, first + 1, last] + table.saving[first]
        best = max(table.save_need[first] + around, table.backward_need[first], inner)
    else:
        best = max(table.move_need[first] + around, table.least[taped, first + 1, target, last])
    forward = table.split_need[first] + around
    for j in range(target + 1, last + 1):
        inner = table.least[taped, first + 1, j, last] + held
        best = min(best, max(forward, inner, table.least[0, first, target, j - 1]))
    sweep = table.split_need[first]
    for j in range(first + 1, last):
        if j > first + 1:
            sweep = max(sweep, table.move_need[j - 1] + held)
        if j >= target:
            run = max(sweep, held + table.save_need[j]) + around
            inner = table.least[taped, j + 1, j + 1, last] + table.tape[j] + held
            best = min(best, max(run, inner, table.least[1, first, target, j]))
    return int(best)


def least_column(table: Least, last: int) -> None:
    """Fill ``least[:, :, :, last]``."""
    for first in range(last, -1, -1):
        for target in range(last, first - 1, -1):
            for taped in range(2):
                if first == last:
                    table.least[taped, first, target, last] = table.leaf_need[taped, first]
                else:
                    table.least[taped, first, target, last] = _least(table, first, target, last, taped)


TIME_ROW = Kernel(time_row, long_loops=True)
LEAST_COLUMN = Kernel(least_column)
