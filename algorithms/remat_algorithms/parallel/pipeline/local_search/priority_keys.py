"""Random numbers of the local search over pipeline orders, and moves of its keys."""

from __future__ import annotations

import math

from remat_algorithms.kit.random_numbers import next_state, number_of
from remat_algorithms.parallel.pipeline.local_search.records import Facts, Progress, State

BACK = 0.002
"""Share of the moves that start from the best schedule."""

FREE, STRICT = 1.0, -1.0
"""Time that the device waits for an operation with a smaller key: until another could end, or without limit."""

ONE, SOME, ONWARDS, SO_FAR = range(4)
"""Keys to move: of an operation; of a class for some micro-batches; of a micro-batch on this and later stages, or on
this and earlier stages.
"""


def random(progress: Progress) -> float:
    """Return a random number in [0, 1)."""
    progress.random = next_state(progress.random)
    return number_of(progress.random)


def draw_shift(facts: Facts, progress: Progress) -> float:
    """Return a random shift of keys in either direction, usually small."""
    wide = facts.step * facts.stages * 4 * random(progress) * random(progress)
    return float(wide if random(progress) < 0.5 else -wide)


def move_keys(facts: Facts, state: State, whose: int, index: int, batch: int, shift: float) -> None:
    """Shift some of the keys: see `ONE`."""
    first = index - index % facts.stages
    if whose == ONE:
        state.key[index, batch] += shift
    elif whose == SOME:
        last = batch + int((facts.batches - batch) * random(state.progress))
        for number in range(batch, last + 1):
            state.key[index, number] += shift
    elif whose == ONWARDS:
        for other in range(index, first + facts.stages):
            state.key[other, batch] += shift
    else:
        for other in range(first, index + 1):
            state.key[other, batch] += shift


def first_gaps(facts: Facts, state: State, spread: float) -> None:
    """Draw the gaps of a regular schedule, up to `spread` loads."""
    progress = state.progress
    progress.current = math.inf
    progress.period = facts.load
    for index in range(2 * facts.stages):
        state.gap[1, index] = spread * facts.load * random(progress)
    for index in range(facts.stages):
        state.late[1, index] = 0.0


def copy_gaps(facts: Facts, state: State, source: int, target: int) -> None:
    """Copy a regular schedule: 0 is the candidate, 1 the current one."""
    for index in range(2 * facts.stages):
        state.gap[target, index] = state.gap[source, index]
    for index in range(facts.stages):
        state.late[target, index] = state.late[source, index]
        state.share[target, index] = state.share[source, index]


def vary_gaps(facts: Facts, state: State, kind: float, several: float, first: int, shift: float) -> None:
    """Change a gap of a regular schedule.

    If `kind` is below `several`, some consecutive gaps change; below twice that, the delay of a stage's W.
    """
    last = first
    if kind < several:
        last = first + int(random(state.progress) * (2 * facts.stages - first))
        shift *= 0.4
    elif kind < 2 * several and len(facts.runs) > 2 * facts.stages:
        stage = first % facts.stages
        state.late[0, stage] = max(0.0, state.late[0, stage] + shift)
        return
    for index in range(first, last + 1):
        state.gap[0, index] = max(0.0, state.gap[0, index] + 0.7 * shift)


def repeat(facts: Facts, state: State, period: float) -> None:
    """Compute the keys of a regular schedule: the offsets of micro-batch 0, with each W after its B, plus periods."""
    stages = facts.stages
    for index in range(2 * stages, len(facts.runs)):
        source = index - stages
        state.offset[index] = state.offset[source] + facts.duration[source] + state.late[0, index % stages]
    for index in range(len(facts.runs)):
        for batch in range(facts.runs[index]):
            state.key[index, batch] = state.offset[index] + period * batch
