"""The kernel of `pipe-plan`: local search over pipeline orders, and over the levels of each stage and micro-batch.

Lists result from *keys*, one per operation, as in `remat_algorithms.parallel.pipeline.local_search`. Here each pair of
stage and micro-batch also has a *level*. It determines how much of the stage the backward recomputes, and therefore the
bytes held until then. While a backward waits for its gradient, its recomputation runs, if the memory suffices for all
of it.

Deadlocks cannot occur. A forward leaves memory for the bytes that backwards need in addition to held ones, and for its
device's other forwards of the oldest active micro-batch. A parameter gradient needs no additional memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.priority_keys import (
    BACK,
    FREE,
    ONE,
    ONWARDS,
    SO_FAR,
    SOME,
    STRICT,
    Progress,
    copy_gaps,
    draw_shift,
    find_ready,
    first_gaps,
    move_keys,
    put,
    random,
    recall,
    repeat,
    set_keys,
    take_times,
    vary_gaps,
)

Array = Any
FloatArray = NDArray[Any]

SMALL = 0.02
"""Weight of a second of recomputation on every device, relative to one of the makespan."""


class Facts(NamedTuple):
    """The pipeline, by class: class ``phase * stages + stage`` has one operation per micro-batch, or none.

    Attributes
    ----------
    duration, device, runs : (classes,)
        Time of an operation without recomputation, its device, and the number of operations.
    delay : (stages,)
        Transfer time into each stage from the one before it.
    head, tail : (stages,) int
        Whether a stage is the first or the last one, 0 or 1.
    levels : (stages,) int
        Number of levels of a stage.
    again : (stages, levels) float64
        Recomputation time of a level.
    held, forward, backward, ahead : (stages, levels) int
        Bytes from the end of F to the start of B; bytes that F takes at its start; bytes that B takes beyond the held
        ones if each segment is recomputed when needed, and if all are recomputed first.
    kept : (stages,) int
        Bytes from the end of B to the end of W.
    room : (devices,) int
    first_own, own : (devices + 1,), (stages,)
        Stages of device d, ascending: ``own[first_own[d]:first_own[d + 1]]``.
    stages, devices, batches : int
    step, load : float
        Mean time of an operation; maximum time of a device for one micro-batch.
    """

    duration: FloatArray
    device: IntArray
    runs: IntArray
    delay: FloatArray
    head: IntArray
    tail: IntArray
    levels: IntArray
    again: FloatArray
    held: IntArray
    forward: IntArray
    backward: IntArray
    ahead: IntArray
    kept: IntArray
    room: IntArray
    first_own: IntArray
    own: IntArray
    stages: int
    devices: int
    batches: int
    step: float
    load: float


class State(NamedTuple):
    """Arrays that the local search writes.

    Attributes
    ----------
    key, start, end : (classes, batches) float64
        Keys; times of the last schedule.
    level, advance : (stages, batches) int
        Levels; whether recomputation ran ahead of its backward, in the last schedule.
    current, best, current_level, best_level, best_advance
        Of the current schedule and of the best one.
    done, ready : (classes,)
    clock, use, spared : (devices,)
        When each device is free; bytes held; bytes that forwards leave for backwards.
    order, used, best_order : (devices, operations), (devices,)
    gap, late, offset
        As in `remat_algorithms.parallel.pipeline.local_search`.
    share : (2, stages) float64
        Mean level of each stage, in the trial and in the current regular schedule.
    """

    key: FloatArray
    start: FloatArray
    end: FloatArray
    level: IntArray
    advance: IntArray
    current: FloatArray
    best: FloatArray
    current_level: IntArray
    best_level: IntArray
    best_advance: IntArray
    done: IntArray
    ready: FloatArray
    clock: FloatArray
    use: IntArray
    spared: IntArray
    order: IntArray
    used: IntArray
    best_order: IntArray
    gap: FloatArray
    late: FloatArray
    offset: FloatArray
    share: FloatArray
    progress: Progress


def _admitted(facts: Facts, state: State, index: int) -> bool:
    """Whether the next operation of a class fits, and all active micro-batches can still finish."""
    device = facts.device[index]
    stages = facts.stages
    batch = state.done[index]
    stage = index % stages
    level = state.level[stage, batch]
    if index >= 2 * stages:
        return True
    if index >= stages:
        return bool(state.use[device] + facts.backward[stage, level] <= facts.room[device])
    room = facts.room[device] - state.spared[device]
    if state.use[device] + facts.held[stage, level] > room:
        return False
    if state.use[device] + facts.forward[stage, level] > facts.room[device]:
        return False
    first, last = facts.first_own[device], facts.first_own[device + 1]
    oldest = state.done[facts.own[last - 1]]
    if oldest >= batch:
        return True
    total = 0
    for place in range(first, last):
        other = facts.own[place]
        passed = state.done[other] + (1 if other == stage else 0)
        for number in range(oldest, max(passed, oldest + 1)):
            total += facts.held[other, state.level[other, number]]
    return bool(total <= room)


def _begin(facts: Facts, state: State, index: int) -> float:
    """Return when the next operation of a class could begin, including its recomputation."""
    stages = facts.stages
    device = facts.device[index]
    ready, clock = state.ready[index], state.clock[device]
    if index < stages or index >= 2 * stages or ready <= clock:
        return float(max(clock, ready))
    stage = index - stages
    level = state.level[stage, state.done[index]]
    if level == 0 or state.use[device] + facts.ahead[stage, level] > facts.room[device]:
        return float(ready)
    return float(max(clock, ready - facts.again[stage, level]))


def _end(facts: Facts, state: State, index: int, begin: float) -> float:
    """Return when it would end."""
    stages = facts.stages
    if index < stages or index >= 2 * stages:
        return float(begin + facts.duration[index])
    stage = index - stages
    again = facts.again[stage, state.level[stage, state.done[index]]]
    return float(max(begin + again, state.ready[index]) + facts.duration[index])


def schedule(facts: Facts, state: State, patience: float) -> None:
    """Build a schedule from the keys and levels."""
    classes, stages = len(facts.runs), facts.stages
    total = 0
    for index in range(classes):
        state.done[index] = 0
        total += facts.runs[index]
    for device in range(facts.devices):
        state.clock[device] = 0.0
        state.use[device] = 0
        state.used[device] = 0
        state.spared[device] = 0
    for stage in range(stages):
        device = facts.device[stage]
        for batch in range(facts.batches):
            state.spared[device] = max(state.spared[device], facts.backward[stage, state.level[stage, batch]])
    for index in range(classes):
        find_ready(facts, state, index)
    for _ in range(total):
        chosen = _least_key(facts, state) if patience < 0.0 else _in_time(facts, state, patience)
        if chosen < 0:
            state.clock[0] = math.inf
            return
        _run(facts, state, chosen)


def _least_key(facts: Facts, state: State) -> int:
    """Return the class whose next operation has the smallest key; -1: none is admitted."""
    chosen = -1
    key = math.inf
    for index in range(len(facts.runs)):
        if state.ready[index] >= 0.0 and state.key[index, state.done[index]] < key and _admitted(facts, state, index):
            key = state.key[index, state.done[index]]
            chosen = index
    return chosen


def _in_time(facts: Facts, state: State, patience: float) -> int:
    """Return the next class on the device that could finish an operation first; -1: none is admitted."""
    stages, classes = facts.stages, len(facts.runs)
    chosen = -1
    least = math.inf
    begin = math.inf
    for index in range(classes):
        if state.ready[index] >= 0.0:
            start = _begin(facts, state, index)
            end = _end(facts, state, index, start)
            if (end < least or (end == least and start < begin)) and _admitted(facts, state, index):
                least = end
                begin = start
                chosen = index
    if chosen < 0:
        return chosen
    device = facts.device[chosen]
    for phase in range(classes // stages):
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            index = phase * stages + facts.own[place]
            if state.ready[index] >= 0.0:
                start = _begin(facts, state, index)
                if start < begin and _admitted(facts, state, index):
                    begin = start
    limit = begin + patience * (least - begin)
    key = math.inf
    for phase in range(classes // stages):
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            index = phase * stages + facts.own[place]
            if state.ready[index] >= 0.0 and state.key[index, state.done[index]] < key:
                start = _begin(facts, state, index)
                if (start < limit or start == begin) and _admitted(facts, state, index):
                    key = state.key[index, state.done[index]]
                    chosen = index
    return chosen


def _run(facts: Facts, state: State, index: int) -> None:
    """Append the next operation of a class to its device."""
    stages = facts.stages
    device = facts.device[index]
    batch = state.done[index]
    stage = index % stages
    level = state.level[stage, batch]
    start = _begin(facts, state, index)
    end = _end(facts, state, index, start)
    if index < stages:
        state.use[device] += facts.held[stage, level]
    elif index < 2 * stages:
        state.advance[stage, batch] = 1 if start < state.ready[index] else 0
        state.use[device] += facts.kept[stage] - facts.held[stage, level]
    else:
        state.use[device] -= facts.kept[stage]
    state.start[index, batch] = start
    state.end[index, batch] = end
    state.clock[device] = end
    put(facts, state, index)


def figure(facts: Facts, state: State) -> float:
    """Return the makespan of the last schedule, plus a small weight for its recomputation; infinite if it failed."""
    if state.clock[0] == math.inf:
        return math.inf
    most = 0.0
    for device in range(facts.devices):
        most = max(most, float(state.clock[device]))
    again = 0.0
    for stage in range(facts.stages):
        for batch in range(facts.batches):
            again += facts.again[stage, state.level[stage, batch]]
    return most + SMALL * again / facts.devices


def _disturb(facts: Facts, state: State) -> None:
    """Change some keys, and the levels of some micro-batches."""
    progress = state.progress
    classes, batches, stages = len(facts.runs), facts.batches, facts.stages
    set_keys(facts, state)
    for stage in range(stages):
        for batch in range(batches):
            state.level[stage, batch] = state.current_level[stage, batch]
    count = 1 + int(3 * random(progress) * random(progress))
    for _ in range(count):
        kind = random(progress)
        index = int(random(progress) * classes)
        batch = int(random(progress) * batches)
        shift = draw_shift(facts, progress)
        if kind < 0.6:
            whose = ONE if kind < 0.3 else (SOME if kind < 0.5 else (ONWARDS if kind < 0.55 else SO_FAR))
            move_keys(facts, state, whose, index, batch, shift)
        else:
            _relevel(facts, state, index % stages, batch)


def _relevel(facts: Facts, state: State, stage: int, batch: int) -> None:
    """Change the level of a stage for one or several micro-batches; or exchange levels between two pairs."""
    progress = state.progress
    kind = random(progress)
    last = batch
    if kind < 0.25:
        last = batch + int((facts.batches - batch) * random(progress))
    change = 1 if random(progress) < 0.4 else -1
    for number in range(batch, last + 1):
        level = state.level[stage, number] + change
        state.level[stage, number] = max(0, min(facts.levels[stage] - 1, level))
    if kind > 0.6:
        device = facts.device[stage]
        first, end = facts.first_own[device], facts.first_own[device + 1]
        other = facts.own[first + int(random(progress) * (end - first))]
        number = int(random(progress) * facts.batches)
        level = state.level[other, number] - change
        state.level[other, number] = max(0, min(facts.levels[other] - 1, level))


def take(facts: Facts, state: State, value: float) -> None:
    """Make the last schedule the current one, and the best one if it is that."""
    better = value < state.progress.best
    take_times(facts, state, value)
    for stage in range(facts.stages):
        for batch in range(facts.batches):
            state.current_level[stage, batch] = state.level[stage, batch]
            if better:
                state.best_level[stage, batch] = state.level[stage, batch]
                state.best_advance[stage, batch] = state.advance[stage, batch]


def walk(facts: Facts, state: State, moves: int, heat: float, bound: float) -> None:
    """Make `moves` moves, or stop at the bound."""
    progress = state.progress
    for _ in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        if random(progress) < BACK:
            recall(facts, state)
            for stage in range(facts.stages):
                for batch in range(facts.batches):
                    state.current_level[stage, batch] = state.best_level[stage, batch]
        _disturb(facts, state)
        schedule(facts, state, STRICT if random(progress) < 0.5 else FREE)
        value = figure(facts, state)
        if value <= progress.current + heat * facts.step * random(progress) * random(progress):
            take(facts, state, value)


def drift(facts: Facts, state: State, moves: int, spread: float, bound: float) -> None:
    """Search for a regular schedule; `spread` as in `remat_algorithms.parallel.pipeline.local_search`.

    The recomputation of a stage is regular, too: with a mean level between two, micro-batches alternate between them.
    The search starts with the means of the current levels.
    """
    progress = state.progress
    stages = facts.stages
    begun = spread < 0.0
    if not begun:
        first_gaps(facts, state, spread)
        for stage in range(stages):
            state.share[1, stage] = 0.0
            for batch in range(facts.batches):
                state.share[1, stage] += state.current_level[stage, batch] / facts.batches
    for number in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        period = progress.period
        copy_gaps(facts, state, 1, 0)
        for index in range(stages):
            state.share[0, index] = state.share[1, index]
        if begun or number > 0:
            for _ in range(1 + int(3 * random(progress))):
                if random(progress) < 0.1:
                    period = facts.load * (1 + 0.3 * random(progress) * random(progress))
                _vary(facts, state)
        _lay_out(facts, state, period)
        kind = random(progress)
        schedule(facts, state, STRICT if kind < 0.4 else (FREE if kind < 0.8 else 0.0))
        value = figure(facts, state)
        if value <= progress.current:
            take(facts, state, value)
            progress.period = period
            copy_gaps(facts, state, 0, 1)
            for index in range(stages):
                state.share[1, index] = state.share[0, index]


def _vary(facts: Facts, state: State) -> None:
    """Change a gap, several consecutive gaps, the times of a stage's W's, or the mean levels of stages."""
    progress = state.progress
    kind = random(progress)
    shift = facts.load * (random(progress) + random(progress) - 1)
    first = int(random(progress) * 2 * facts.stages)
    if kind <= 0.6:
        vary_gaps(facts, state, kind, 0.15, first, shift)
        return
    stage = first % facts.stages
    end = stage + 1
    if kind > 0.9:
        end = stage + 1 + int(random(progress) * (facts.stages - stage))
    change = random(progress) + random(progress) - 1
    for index in range(stage, end):
        state.share[0, index] = max(0.0, min(facts.levels[index] - 1.0, state.share[0, index] + change))


def _lay_out(facts: Facts, state: State, period: float) -> None:
    """Set the keys and levels of a regular schedule."""
    stages = facts.stages
    for index in range(stages):
        share = state.share[0, index]
        for batch in range(facts.batches):
            state.level[index, batch] = int(share * (batch + 1) + 0.5) - int(share * batch + 0.5)
    clock = 0.0
    for step in range(2 * stages):
        index = step if step < stages else 3 * stages - 1 - step
        stage = index % stages
        if step < stages:
            clock += facts.delay[stage]
        elif stage < stages - 1:
            clock += facts.delay[stage + 1]
        clock += state.gap[0, step]
        state.offset[index] = clock
        clock += facts.duration[index]
        if step >= stages:
            clock += facts.again[stage, int(state.share[0, stage] + 0.5)]
    repeat(facts, state, period)
