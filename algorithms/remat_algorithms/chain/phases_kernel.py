"""The compiled kernels of `chain-best`; `.py_func` of each is its plain twin."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from remat.plugin import BoolArray, IntArray

FloatArray = NDArray[np.float64]
RandomState = NDArray[np.uint64]

SHARE_OF_RESTARTS = 0.05
"""Share of the rounds that begin with the best schedule again."""

WORSE = 0.6
"""A schedule that is worse by up to this share of the mean forward time may be accepted."""


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def peak(runs: BoolArray, sizes: IntArray, workspace: IntArray, reads: BoolArray, in_place: bool, enough: int) -> int:
    """Return the bytes that a matrix needs, or some figure above `enough` if it needs more.

    The schedule is gone through from its end, with the values that later runs read: a value that a run reads and
    that no later run does is freed by this run. O(runs).
    """
    length = runs.shape[1]
    x_live = np.zeros(length + 1, dtype=np.bool_)
    s_live = np.zeros(length, dtype=np.bool_)
    saved = np.zeros(length, dtype=np.bool_)  # stages whose last forward has been passed
    live: int = 0
    highest: int = 0
    for phase in range(length + 1):
        # The backward of the phase: it reads y_{phase+1}, and writes y_phase, which the next one reads.
        freed = 0
        if phase < length:
            freed = sizes[1, phase + 1]
            live += freed
        if reads[0, phase] and not x_live[phase]:
            x_live[phase] = True
            live += sizes[0, phase]
            freed += sizes[0, phase]
        if reads[1, phase] and not x_live[phase + 1]:
            x_live[phase + 1] = True
            live += sizes[0, phase + 1]
            freed += sizes[0, phase + 1]
        if reads[2, phase]:
            s_live[phase] = True
            live += sizes[2, phase]
            freed += sizes[2, phase]
        written = sizes[1, phase]
        if in_place:
            written = max(0, written - freed)
        highest = max(highest, live + written + workspace[2, phase])
        if highest > enough:
            return int(highest)
        for stage in range(min(phase, length - 1), -1, -1):
            if not runs[phase, stage]:
                continue
            written = sizes[0, stage + 1]
            kind = 0
            if x_live[stage + 1]:
                x_live[stage + 1] = False
                live -= sizes[0, stage + 1]
            if reads[2, stage] and not saved[stage]:
                kind = 1
                written += sizes[2, stage]
                if s_live[stage]:
                    s_live[stage] = False
                    live -= sizes[2, stage]
            saved[stage] = True
            freed = 0
            if not x_live[stage]:
                x_live[stage] = True
                live += sizes[0, stage]
                freed = sizes[0, stage]
            if in_place:
                written = max(0, written - freed)
            highest = max(highest, live + written + workspace[kind, stage])
            if highest > enough:
                return int(highest)
        if phase < length:
            live -= sizes[1, phase + 1]
    return highest


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _random(state: RandomState) -> float:
    """Return the next number from [0, 1) (xorshift64*)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def prune(
    runs: BoolArray,
    added: BoolArray,
    time: FloatArray,
    sizes: IntArray,
    workspace: IntArray,
    reads: BoolArray,
    in_place: bool,
    enough: int,
    state: RandomState,
    late: float,
) -> float:
    """Remove forwards that can be spared, in a random order that favours dear ones; return the time removed.

    With probability 1 - `late`, what has just been added is looked at last.
    """
    length = runs.shape[1]
    places = np.argwhere(runs[:length])
    keys = np.empty(len(places))
    last = _random(state) >= late
    for i in range(len(places)):
        keys[i] = -time[places[i, 1]] * (0.2 + _random(state))
        if last and added[places[i, 0], places[i, 1]]:
            keys[i] = 1.0
    gone = 0.0
    for i in np.argsort(keys):
        phase, stage = places[i]
        runs[phase, stage] = False
        if peak(runs, sizes, workspace, reads, in_place, enough) > enough:
            runs[phase, stage] = True
        else:
            gone += time[stage]
    return float(gone)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def _add(runs: BoolArray, added: BoolArray, time: FloatArray, state: RandomState) -> float:
    """Add a few sweeps, or shift the forwards of a phase to another one; return the time added."""
    length = runs.shape[1]
    total = 0.0
    count = 1 + int(_random(state) * 3)
    for _ in range(count):
        phase = int(_random(state) * length)
        end = phase - int(_random(state) ** 2 * (phase + 1))
        begin = end - int(_random(state) ** 2 * (end + 1))
        for stage in range(begin, end + 1):
            if not runs[phase, stage]:
                runs[phase, stage] = True
                added[phase, stage] = True
                total += time[stage]
    return total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator,unused-ignore]
def improve(
    rounds: int,
    current: BoolArray,
    best: BoolArray,
    cost: FloatArray,
    time: FloatArray,
    sizes: IntArray,
    workspace: IntArray,
    reads: BoolArray,
    in_place: bool,
    enough: int,
    state: RandomState,
) -> int:
    """Go on for some rounds: add sweeps, prune, accept what is not much worse; return the round of the last best.

    Parameters
    ----------
    current, best : (L+1, L) bool
        Changed in place.
    cost : (2,) float64
        Their times; changed in place.
    state : (1,) uint64
        Of the random numbers; changed in place.
    """
    step = time.mean()
    found = -1
    trial = np.empty_like(current)
    added = np.empty_like(current)
    for number in range(rounds):
        if _random(state) < SHARE_OF_RESTARTS:
            current[:] = best
            cost[0] = cost[1]
        trial[:] = current
        added[:] = False
        total = cost[0] + _add(trial, added, time, state)
        tries = 0
        while peak(trial, sizes, workspace, reads, in_place, enough) > enough and tries < 3:
            total += _add(trial, added, time, state)
            tries += 1
        if peak(trial, sizes, workspace, reads, in_place, enough) > enough:
            continue
        total -= prune(trial, added, time, sizes, workspace, reads, in_place, enough, state, 0.3)
        if total <= cost[0] + WORSE * step * _random(state) ** 4:
            current[:] = trial
            cost[0] = total
            if total < cost[1] * (1 - 1e-12):
                best[:] = trial
                cost[1] = total
                found = number
    return found
