"""The compiled kernels of floating schedules; their plain twins are `FloatingTable._fill`, `LeastFloating.ways`."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from remat.plugin import IntArray

FloatTable = NDArray[np.float64]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"}, inline="never")  # type: ignore[untyped-decorator,unused-ignore]
def _relax_one(out: FloatTable, inner: FloatTable, cost: float) -> None:
    for r in range(out.shape[0]):
        out[r] = min(inner[r] + cost, out[r])


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"}, inline="never")  # type: ignore[untyped-decorator,unused-ignore]
def _relax_two(out: FloatTable, rest: FloatTable, inner: FloatTable, cost: float) -> None:
    for r in range(out.shape[0]):
        out[r] = min(rest[r] + (inner[r] + cost), out[r])


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator,unused-ignore]
def _cell(first: int, target: int, last: int) -> int:
    before = last * (last + 1) * (last + 2) // 6
    return before + first * (last + 1) - first * (first - 1) // 2 + target - first


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def time_row(
    first: int,
    last: int,
    time: FloatTable,
    checkpoint: IntArray,
    saving: IntArray,
    taped_slots: IntArray,
    move: IntArray,
    split: IntArray,
    save: IntArray,
    leaf: IntArray,
    forward_time: FloatTable,
    save_time: FloatTable,
    backward_time: FloatTable,
    leaf_time: FloatTable,
    tape_row: IntArray,
) -> None:
    """Fill the cells (first, t, last), for t = last..first, without and with the tape of `last`."""
    rows = time.shape[2]
    for target in range(last, first - 1, -1):
        own = _cell(first, target, last)
        for taped in range(2):
            out = time[taped, own]
            out[:] = np.inf
            if first == last:
                out[leaf[taped, first] :] = leaf_time[taped, first]
                continue
            if first == target:
                held = saving[first]
                low = max(save[taped, first], held)
                inner = _cell(first + 1, first + 1, last)
                cost = save_time[first] + backward_time[first]
            else:
                held = 0
                low = move[taped, first]
                inner = _cell(first + 1, target, last)
                cost = forward_time[first]
            if low < rows:
                _relax_one(out[low:], time[taped, inner, low - held : rows - held], cost)
            held = checkpoint[first]
            low = max(split[taped, first], held)
            if low < rows:
                for j in range(target + 1, last + 1):
                    _relax_two(
                        out[low:],
                        time[0, _cell(first, target, j - 1), low:],
                        time[taped, _cell(first + 1, j, last), low - held : rows - held],
                        forward_time[first],
                    )
            swept = 0.0
            for j in range(first + 1, last):
                swept += forward_time[j - 1]
                held = taped_slots[first, j]
                low = max(tape_row[taped, first, j], held)
                if j >= target and low < rows:
                    _relax_two(
                        out[low:],
                        time[1, _cell(first, target, j), low:],
                        time[taped, _cell(j + 1, j + 1, last), low - held : rows - held],
                        swept + save_time[j],
                    )


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def least_column(
    last: int,
    least: IntArray,
    checkpoint: IntArray,
    saving: IntArray,
    tape: IntArray,
    live: IntArray,
    move_need: IntArray,
    split_need: IntArray,
    save_need: IntArray,
    backward_need: IntArray,
    leaf_need: IntArray,
) -> None:
    """Fill ``least[:, :, :, last]``."""
    for first in range(last, -1, -1):
        held = checkpoint[first]
        for target in range(last, first - 1, -1):
            for taped in range(2):
                around = live[taped, last]
                if first == last:
                    least[taped, first, target, last] = leaf_need[taped, first]
                    continue
                if first == target:
                    inner = least[taped, first + 1, first + 1, last] + saving[first]
                    best = max(save_need[first] + around, backward_need[first], inner)
                else:
                    best = max(move_need[first] + around, least[taped, first + 1, target, last])
                forward = split_need[first] + around
                for j in range(target + 1, last + 1):
                    inner = least[taped, first + 1, j, last] + held
                    best = min(best, max(forward, inner, least[0, first, target, j - 1]))
                sweep = split_need[first]
                for j in range(first + 1, last):
                    if j > first + 1:
                        sweep = max(sweep, move_need[j - 1] + held)
                    if j >= target:
                        run = max(sweep, held + save_need[j]) + around
                        inner = least[taped, j + 1, j + 1, last] + tape[j] + held
                        best = min(best, max(run, inner, least[1, first, target, j]))
                least[taped, first, target, last] = best
