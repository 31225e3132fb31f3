"""Compiled kernel of `chain-best`: local search over bit matrices; interpreted, `improve` is its plain twin."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from remat.plugin import BoolArray, IntArray
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells
from remat_algorithms.kit.random_numbers import next_state, number_of

Array = Any
FloatArray = NDArray[np.float64]

SHARE_OF_RESTARTS = 0.05
"""Share of the rounds that restart from the best schedule."""

WORSE = 0.6
"""Maximum increase of an accepted schedule, as a share of the mean forward time."""

LATE = 0.3
"""Share of the rounds that do not defer the pruning of newly added forwards."""

SMALL, DEEPEST = 15, 100
"""Size below which ranges are sorted by insertion, and the maximum number of ranges that wait to be sorted."""


class Facts(NamedTuple):
    """The chain (as in `Phases`), the available bytes, and the mean time of a forward."""

    sizes: IntArray
    workspace: IntArray
    reads: BoolArray
    time: FloatArray
    in_place: bool
    room: int
    step: float


@cells
class Progress(ctypes.Structure):
    """Times of the current and the best schedule, and the random state."""

    current: float
    best: float
    random: int


class Walk(NamedTuple):
    """Mutable state of the local search.

    Attributes
    ----------
    current, best, trial, added : (L+1, L) bool
        The current and the best schedule; the candidate, and the forwards added to it.
    x_live, s_live, saved : (L+1,) bool
        During the traversal of a schedule: the values in memory, and the stages whose last forward has been passed.
    places, keys, order : (2, forwards), (forwards,), (forwards,)
        Phase and stage of each forward, sort keys, and sorted indices.
    waiting : (2, DEEPEST)
        First and last index of the ranges that wait to be sorted.
    """

    current: BoolArray
    best: BoolArray
    trial: BoolArray
    added: BoolArray
    x_live: BoolArray
    s_live: BoolArray
    saved: BoolArray
    places: IntArray
    keys: FloatArray
    order: IntArray
    waiting: IntArray
    progress: Progress


def facts_of(phases: Phases, room: int) -> Facts:
    """Convert a chain to arrays."""
    return Facts(
        sizes=np.ascontiguousarray(phases.sizes),
        workspace=np.ascontiguousarray(phases.workspace),
        reads=np.ascontiguousarray(phases.reads),
        time=np.ascontiguousarray(phases.time),
        in_place=bool(phases.in_place),
        room=int(room),
        # Sequential summation: other orders differ in their last digits.
        step=float(np.cumsum(phases.time)[-1]) / phases.length,
    )


def walk_from(phases: Phases, current: BoolArray, seed: int) -> Walk:
    """Return the scratch space of a local search that starts with a schedule."""
    length, forwards = phases.length, phases.length**2
    time = float((current[:-1] * phases.time).sum())
    return Walk(
        current=current.copy(),
        best=current.copy(),
        trial=np.zeros_like(current),
        added=np.zeros_like(current),
        x_live=np.zeros(length + 1, dtype=np.bool_),
        s_live=np.zeros(length + 1, dtype=np.bool_),
        saved=np.zeros(length + 1, dtype=np.bool_),
        places=np.zeros((2, forwards), dtype=np.int64),
        keys=np.zeros(forwards),
        order=np.zeros(forwards, dtype=np.int64),
        waiting=np.zeros((2, DEEPEST), dtype=np.int64),
        progress=Progress(current=time, best=time, random=seed),
    )


def _visit_backward(facts: Facts, walk: Walk, phase: int) -> int:
    """Mark the values that the backward of a phase reads; return their bytes."""
    added = 0
    if facts.reads[0, phase] and not walk.x_live[phase]:
        walk.x_live[phase] = True
        added += facts.sizes[0, phase]
    if facts.reads[1, phase] and not walk.x_live[phase + 1]:
        walk.x_live[phase + 1] = True
        added += facts.sizes[0, phase + 1]
    if facts.reads[2, phase]:
        walk.s_live[phase] = True
        added += facts.sizes[2, phase]
    return added


def peak(facts: Facts, walk: Walk, runs: Array) -> int:
    """Return the bytes that a matrix needs, or some value above `facts.room` if it needs more.

    The schedule is traversed from its end, with the values that later runs read. A value that a run reads and no later
    run reads is freed by this run. O(runs).
    """
    length = runs.shape[1]
    for stage in range(length + 1):
        walk.x_live[stage] = False
        walk.s_live[stage] = False
        walk.saved[stage] = False
    live = 0
    highest = 0
    for phase in range(length + 1):
        # The backward of the phase reads y_{phase+1} and writes y_phase, which the next one reads.
        freed = 0
        if phase < length:
            freed = facts.sizes[1, phase + 1]
            live += freed
        read = _visit_backward(facts, walk, phase)
        live += read
        written = facts.sizes[1, phase]
        if facts.in_place:
            written = max(0, written - freed - read)
        highest = max(highest, live + written + facts.workspace[2, phase])
        if highest > facts.room:
            return int(highest)
        for stage in range(min(phase, length - 1), -1, -1):
            if not runs[phase, stage]:
                continue
            written = facts.sizes[0, stage + 1]
            kind = 0
            if walk.x_live[stage + 1]:
                walk.x_live[stage + 1] = False
                live -= facts.sizes[0, stage + 1]
            if facts.reads[2, stage] and not walk.saved[stage]:
                kind = 1
                written += facts.sizes[2, stage]
                if walk.s_live[stage]:
                    walk.s_live[stage] = False
                    live -= facts.sizes[2, stage]
            walk.saved[stage] = True
            freed = 0
            if not walk.x_live[stage]:
                walk.x_live[stage] = True
                live += facts.sizes[0, stage]
                freed = facts.sizes[0, stage]
            if facts.in_place:
                written = max(0, written - freed)
            highest = max(highest, live + written + facts.workspace[kind, stage])
            if highest > facts.room:
                return int(highest)
        if phase < length:
            live -= facts.sizes[1, phase + 1]
    return int(highest)


def _random(walk: Walk) -> float:
    """Return the next number from [0, 1)."""
    walk.progress.random = next_state(walk.progress.random)
    return number_of(walk.progress.random)


def _squared(number: float) -> float:
    return number * number


def _swap(order: Array, one: int, other: int) -> None:
    order[one], order[other] = order[other], order[one]


def _insert_sorted(keys: Array, order: Array, low: int, high: int) -> None:
    """Sort ``order[low:high + 1]`` by their keys, by insertion."""
    for index in range(low + 1, high + 1):
        number = order[index]
        other = index
        while other > low and keys[number] < keys[order[other - 1]]:
            order[other] = order[other - 1]
            other -= 1
        order[other] = number


def _partition(keys: Array, order: Array, low: int, high: int) -> int:
    """Partition ``order[low:high + 1]`` by the median of three; return its final position."""
    middle = (low + high) // 2
    if keys[order[middle]] < keys[order[low]]:
        _swap(order, low, middle)
    if keys[order[high]] < keys[order[middle]]:
        _swap(order, high, middle)
    if keys[order[middle]] < keys[order[low]]:
        _swap(order, low, middle)
    pivot = keys[order[middle]]
    _swap(order, high, middle)
    left, right = low, high - 1
    while True:
        while left < high and keys[order[left]] < pivot:
            left += 1
        while right >= low and pivot < keys[order[right]]:
            right -= 1
        if left >= right:
            break
        _swap(order, left, right)
        left += 1
        right -= 1
    _swap(order, left, high)
    return left


def sort(walk: Walk, count: int) -> None:
    """Sort the first numbers by their keys: quicksort, whose order of equal keys affects the results."""
    for index in range(count):
        walk.order[index] = index
    walk.waiting[0, 0] = 0
    walk.waiting[1, 0] = count - 1
    ranges = 1
    while ranges > 0:
        ranges -= 1
        low, high = walk.waiting[0, ranges], walk.waiting[1, ranges]
        while high - low >= SMALL:
            place = _partition(walk.keys, walk.order, low, high)
            # The larger part waits.
            if high - place > place - low:
                walk.waiting[0, ranges] = place + 1
                walk.waiting[1, ranges] = high
                high = place - 1
            else:
                walk.waiting[0, ranges] = low
                walk.waiting[1, ranges] = place - 1
                low = place + 1
            ranges += 1
        _insert_sorted(walk.keys, walk.order, low, high)


def prune(facts: Facts, walk: Walk) -> float:
    """Remove dispensable forwards in a random order that favours expensive ones; return the time removed.

    With probability 1 - `LATE`, newly added forwards are examined last.
    """
    length = walk.trial.shape[1]
    count = 0
    for phase in range(length):
        for stage in range(length):
            if walk.trial[phase, stage]:
                walk.places[0, count] = phase
                walk.places[1, count] = stage
                count += 1
    last = _random(walk) >= LATE
    for index in range(count):
        walk.keys[index] = -facts.time[walk.places[1, index]] * (0.2 + _random(walk))
        if last and walk.added[walk.places[0, index], walk.places[1, index]]:
            walk.keys[index] = 1.0
    gone = 0.0
    sort(walk, count)
    for index in range(count):
        number = walk.order[index]
        row, column = walk.places[0, number], walk.places[1, number]
        walk.trial[row, column] = False
        if peak(facts, walk, walk.trial) > facts.room:
            walk.trial[row, column] = True
        else:
            gone += facts.time[column]
    return float(gone)


def _add(facts: Facts, walk: Walk) -> float:
    """Add a few sweeps of forwards; return the time added."""
    length = walk.trial.shape[1]
    total = 0.0
    count = 1 + int(_random(walk) * 3)
    for _ in range(count):
        phase = int(_random(walk) * length)
        end = phase - int(_squared(_random(walk)) * (phase + 1))
        begin = end - int(_squared(_random(walk)) * (end + 1))
        for stage in range(begin, end + 1):
            if not walk.trial[phase, stage]:
                walk.trial[phase, stage] = True
                walk.added[phase, stage] = True
                total += facts.time[stage]
    return total


def _copy(source: Array, target: Array) -> None:
    for row in range(len(source)):
        for column in range(source.shape[1]):
            target[row, column] = source[row, column]


def _clear(target: Array) -> None:
    for row in range(len(target)):
        for column in range(target.shape[1]):
            target[row, column] = False


def improve(facts: Facts, walk: Walk, rounds: int) -> int:
    """Run some rounds: add sweeps, prune, accept slightly worse results; return the round of the last improvement."""
    found = -1
    for number in range(rounds):
        if _random(walk) < SHARE_OF_RESTARTS:
            _copy(walk.best, walk.current)
            walk.progress.current = walk.progress.best
        _copy(walk.current, walk.trial)
        _clear(walk.added)
        total = walk.progress.current + _add(facts, walk)
        tries = 0
        while peak(facts, walk, walk.trial) > facts.room and tries < 3:
            total += _add(facts, walk)
            tries += 1
        if peak(facts, walk, walk.trial) > facts.room:
            continue
        total -= prune(facts, walk)
        if total <= walk.progress.current + WORSE * facts.step * _squared(_squared(_random(walk))):
            _copy(walk.trial, walk.current)
            walk.progress.current = total
            if total < walk.progress.best * (1 - 1e-12):
                _copy(walk.trial, walk.best)
                walk.progress.best = total
                found = number
    return found


IMPROVE = Kernel(improve, long_loops=True)
