"""Kernel of the local search over orders with host offloading; interpreted, this is its plain twin.

As in `parallel.pipeline.local_search`, keys, one per operation, determine a schedule. Each stage has classes for
forwards, backwards and weight gradients. A fourth class contains the *returns*, the copies back of offloaded values. A
micro-batch's offload starts when its forward ends, first come, first served, and frees its bytes when it ends. A return
allocates them again when it starts, on the return channel of its device.

Operations on a device allocate bytes in the order in which they are scheduled, and wait until enough bytes are free. If
no operation can ever continue, the keys yield no schedule.

An option (`offload_model.Way`) determines how a stage treats a micro-batch. Its *level* selects the layers that are
recomputed for the backward. Its *part* selects the other layers that wait at the host. Recomputation may precede the
arrival of the gradient.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from remat.plugin import IntArray
from remat_algorithms.parallel.pipeline.priority_keys import BACK, Progress, draw_shift, random

Array = Any

STRICT = 0.9
"""Share of moves that follow their keys strictly. Others deadlock more often, because they allocate memory early."""


class Facts(NamedTuple):
    """The pipeline, by class: class ``phase * stages + stage``; phases are F, B, W and returns.

    Attributes
    ----------
    duration, device : (classes,)
        Time of an operation without recomputation, or of the longest return; its device.
    delay : (stages,)
        Hop into each stage from the previous one.
    levels : (stages,) int
        Number of levels of a stage.
    parts : (stages, levels) int
        Number of parts of a level.
    again : (stages, levels, parts)
        Time of the recomputation.
    held, forward, backward, ahead : (stages, levels, parts) int
        Bytes held from the end of F to the start of B, and bytes that F allocates at its start. The other two are the
        bytes that B allocates in addition to `held`: if it recomputes each segment just before its use, and if it
        recomputes all segments first.
    away : (stages, levels, parts) int
        Part of the held bytes that waits at the host.
    out, back : (stages, levels, parts)
        Times of the offload and of the return.
    kept : (stages,) int
        Bytes from the end of B to the end of W.
    halves : (stages,) int
        Whether the stage has separate weight gradients.
    room : (devices,) int
        Bytes of each device for micro-batches.
    first_own, own : (devices + 1,), (stages,)
        Stages of device d: ``own[first_own[d]:first_own[d + 1]]``.
    step : float
        Mean time of an operation.
    """

    duration: Array
    device: IntArray
    delay: Array
    levels: IntArray
    parts: IntArray
    again: Array
    held: IntArray
    forward: IntArray
    backward: IntArray
    ahead: IntArray
    away: IntArray
    out: Array
    back: Array
    kept: IntArray
    halves: IntArray
    room: IntArray
    first_own: IntArray
    own: IntArray
    stages: int
    devices: int
    batches: int
    step: float


class State(NamedTuple):
    """Mutable state of the local search.

    Attributes
    ----------
    key, start, current, best : (classes, batches)
        Keys; start times of the last schedule built; keys of the current and of the best schedule.
    level, current_level, best_level : (stages, batches) int
        Recomputation level of each micro-batch.
    sent, current_sent, best_sent : (stages, batches) int
        Offloaded part.
    end : (classes, batches)
        Ends of operations.
    gone : (stages, batches)
        Time at which a micro-batch has been offloaded.
    done : (classes,) int
        Next micro-batch of each class.
    possible, finish : (classes,) float64
        Earliest start and end of the next operation of a class; negative while unknown.
    taken : (classes,) int
        Bytes that it allocates at its start.
    clock, sending, coming, taking : (devices,) float64
        Times at which a device and its two channels become free, and of the last allocation.
    held : (devices,) int
    free_at, free_size : (devices, most)
        Times and sizes of future releases, in the order of time, from `head` to `tail`.
    head, tail : (devices,) int
    order, best_order : (most, 2) int
        Classes and micro-batches in the order in which they were scheduled.
    used : (1,) int
        Number of entries in `order`.
    """

    key: Array
    start: Array
    current: Array
    best: Array
    level: IntArray
    current_level: IntArray
    best_level: IntArray
    sent: IntArray
    current_sent: IntArray
    best_sent: IntArray
    end: Array
    gone: Array
    done: IntArray
    possible: Array
    finish: Array
    taken: IntArray
    clock: Array
    sending: Array
    coming: Array
    taking: Array
    held: IntArray
    free_at: Array
    free_size: IntArray
    head: IntArray
    tail: IntArray
    order: IntArray
    best_order: IntArray
    used: IntArray
    progress: Progress


def _room(facts: Facts, state: State, device: int, start: float, taken: int) -> float:
    """Return the first time, from `start`, at which the given bytes are free; negative if never."""
    if taken <= 0:
        return start
    start = max(start, state.taking[device])
    total = state.held[device] + taken
    place = state.head[device]
    while place < state.tail[device] and state.free_at[device, place] <= start:
        total -= state.free_size[device, place]
        place += 1
    while total > facts.room[device]:
        if place == state.tail[device]:
            return -1.0
        start = state.free_at[device, place]
        total -= state.free_size[device, place]
        place += 1
    return start


def _look(facts: Facts, state: State, index: int) -> None:
    """Compute the earliest start of the next operation of a class."""
    stages = facts.stages
    state.possible[index] = -1.0
    batch = state.done[index]
    stage = index % stages
    phase = index // stages
    if batch >= facts.batches or (phase == 2 and facts.halves[stage] == 0):
        return
    device = facts.device[index]
    level, part = state.level[stage, batch], state.sent[stage, batch]
    if phase == 1:
        _look_back(facts, state, index, level, part)
        return
    ready = 0.0
    taken = 0
    time = float(facts.duration[index])
    if phase == 0:
        if stage > 0:
            if state.done[index - 1] <= batch:
                return
            ready = state.end[index - 1, batch] + facts.delay[stage]
        taken = facts.forward[stage, level, part]
    elif phase == 2:
        if state.done[index - stages] <= batch:
            return
        ready = state.end[index - stages, batch]
    else:
        if state.done[stage] <= batch:
            return
        ready = state.gone[stage, batch]
        taken = facts.away[stage, level, part]
        time = float(facts.back[stage, level, part])
    start = _room(facts, state, device, max(ready, state.coming[device] if phase == 3 else state.clock[device]), taken)
    state.possible[index] = start
    state.finish[index] = start + time
    state.taken[index] = taken


def _look_back(facts: Facts, state: State, index: int, level: int, part: int) -> None:
    """Compute the earliest start of a backward, including its recomputation."""
    stages = facts.stages
    stage = index - stages
    batch = state.done[index]
    if state.done[stage] <= batch:
        return
    own = float(state.end[stage, batch])
    if facts.away[stage, level, part] > 0:
        if state.done[3 * stages + stage] <= batch:
            return
        own = max(own, state.end[3 * stages + stage, batch])
    ready = own
    again = float(facts.again[stage, level, part])
    if stage + 1 < stages:
        if state.done[index + 1] <= batch:
            return
        ready = max(ready, state.end[index + 1, batch] + facts.delay[stage + 1])
        # Recomputation does not replace a value before it has arrived at the next stage.
        own = max(own, state.end[stage, batch] + facts.delay[stage + 1])
    clock = float(state.clock[facts.device[index]])
    time = float(facts.duration[index])
    taken = facts.backward[stage, level, part]
    start = _room(facts, state, facts.device[index], max(ready, clock), taken)
    finish = start + again + time
    if again > 0.0 and ready > clock:
        more = facts.ahead[stage, level, part]
        early = _room(facts, state, facts.device[index], max(max(own, ready - again), clock), more)
        ends = max(early + again, ready) + time
        if early >= 0.0 and (start < 0.0 or ends < finish):
            start = early
            finish = ends
            taken = more
    state.possible[index] = start
    state.finish[index] = finish
    state.taken[index] = taken


def _frees(state: State, device: int, time: float, size: int) -> None:
    """Record a future release of bytes."""
    if size == 0:
        return
    place = state.tail[device]
    while place > state.head[device] and state.free_at[device, place - 1] > time:
        state.free_at[device, place] = state.free_at[device, place - 1]
        state.free_size[device, place] = state.free_size[device, place - 1]
        place -= 1
    state.free_at[device, place] = time
    state.free_size[device, place] = size
    state.tail[device] += 1


def _skip(facts: Facts, state: State, stage: int) -> None:
    """Advance to the next micro-batch with a return."""
    index = 3 * facts.stages + stage
    while state.done[index] < facts.batches and not _is_sent(facts, state, stage, state.done[index]):
        state.done[index] += 1


def _is_sent(facts: Facts, state: State, stage: int, batch: int) -> bool:
    """Whether any bytes of a micro-batch wait at the host."""
    return bool(facts.away[stage, state.level[stage, batch], state.sent[stage, batch]] > 0)


def _run(facts: Facts, state: State, index: int) -> None:
    """Schedule the next operation of a class."""
    stages = facts.stages
    stage = index % stages
    phase = index // stages
    device = facts.device[index]
    batch = state.done[index]
    level, part = state.level[stage, batch], state.sent[stage, batch]
    start = state.possible[index]
    end = state.finish[index]
    state.start[index, batch] = start
    state.end[index, batch] = end
    taken = state.taken[index]
    if taken > 0:
        state.taking[device] = start
        while state.head[device] < state.tail[device] and state.free_at[device, state.head[device]] <= start:
            state.held[device] -= state.free_size[device, state.head[device]]
            state.head[device] += 1
        state.held[device] += taken
    if phase == 3:
        state.coming[device] = end
    else:
        state.clock[device] = end
    if phase == 0:
        _frees(state, device, end, taken - facts.held[stage, level, part])
        if facts.away[stage, level, part] > 0:
            gone = max(end, state.sending[device]) + facts.out[stage, level, part]
            state.sending[device] = gone
            state.gone[stage, batch] = gone
            _frees(state, device, gone, facts.away[stage, level, part])
    elif phase == 1:
        _frees(state, device, end, facts.held[stage, level, part] + taken - facts.kept[stage])
    elif phase == 2:
        _frees(state, device, end, facts.kept[stage])
    state.order[state.used[0], 0] = index
    state.order[state.used[0], 1] = batch
    state.used[0] += 1
    state.done[index] = batch + 1
    if phase == 3:
        _skip(facts, state, stage)
    for place in range(facts.first_own[device], facts.first_own[device + 1]):
        for kind in range(4):
            _look(facts, state, kind * stages + facts.own[place])
    if phase == 0 and stage + 1 < stages:
        _look(facts, state, index + 1)
    if phase == 1 and stage > 0:
        _look(facts, state, index - 1)


def schedule(facts: Facts, state: State, strict: bool) -> bool:
    """Build a schedule from the keys; return whether it succeeds.

    With `strict`, the operation with the smallest key of all runs, however long its device waits for it. Otherwise, the
    operation that could end first selects a resource, a device or its return channel. Of the operations that could
    start there before that end, the one with the smallest key runs.
    """
    stages = facts.stages
    total = 0
    for index in range(4 * stages):
        state.done[index] = 0
    for stage in range(stages):
        _skip(facts, state, stage)
        total += 2 * facts.batches + (facts.batches if facts.halves[stage] != 0 else 0)
        for batch in range(facts.batches):
            total += 1 if _is_sent(facts, state, stage, batch) else 0
    for device in range(facts.devices):
        state.clock[device] = 0.0
        state.sending[device] = 0.0
        state.coming[device] = 0.0
        state.taking[device] = 0.0
        state.held[device] = 0
        state.head[device] = 0
        state.tail[device] = 0
    state.used[0] = 0
    for index in range(4 * stages):
        _look(facts, state, index)
    for _ in range(total):
        chosen = _of_least_key(facts, state) if strict else _in_time(facts, state)
        if chosen < 0:
            return False
        _run(facts, state, chosen)
    return True


def _of_least_key(facts: Facts, state: State) -> int:
    chosen = -1
    least = math.inf
    for index in range(4 * facts.stages):
        if state.possible[index] >= 0.0 and state.key[index, state.done[index]] < least:
            least = state.key[index, state.done[index]]
            chosen = index
    return chosen


def _in_time(facts: Facts, state: State) -> int:
    stages = facts.stages
    chosen = -1
    least = math.inf
    for index in range(4 * stages):
        if state.possible[index] >= 0.0:
            end = state.finish[index]
            if end < least:
                least = end
                chosen = index
    if chosen < 0:
        return chosen
    device = facts.device[chosen]
    comes = chosen >= 3 * stages
    begin = state.possible[chosen]
    key = math.inf
    for place in range(facts.first_own[device], facts.first_own[device + 1]):
        for kind in range(4):
            index = kind * stages + facts.own[place]
            at = state.possible[index]
            mine = (kind == 3) == comes and at >= 0.0 and (at < least or at <= begin)
            if mine and state.key[index, state.done[index]] < key:
                key = state.key[index, state.done[index]]
                chosen = index
    return chosen


def figure(facts: Facts, state: State) -> float:
    """Return the makespan of the last schedule."""
    most = 0.0
    for device in range(facts.devices):
        most = max(most, state.clock[device])
    return most


def take(facts: Facts, state: State, value: float) -> None:
    """Accept the last schedule as the current one, and as the best one if it is better."""
    stages = facts.stages
    better = value < state.progress.best
    state.progress.current = value
    for stage in range(stages):
        for batch in range(facts.batches):
            index = 3 * stages + stage
            if not _is_sent(facts, state, stage, batch):
                # Start time of the return if the values were sent.
                state.start[index, batch] = state.start[stages + stage, batch] - facts.duration[index]
    for index in range(4 * stages):
        for batch in range(facts.batches):
            state.current[index, batch] = state.start[index, batch]
            if better:
                state.best[index, batch] = state.start[index, batch]
    for stage in range(stages):
        for batch in range(facts.batches):
            state.current_level[stage, batch] = state.level[stage, batch]
            state.current_sent[stage, batch] = state.sent[stage, batch]
            if better:
                state.best_level[stage, batch] = state.level[stage, batch]
                state.best_sent[stage, batch] = state.sent[stage, batch]
    if better:
        state.progress.best = value
        for place in range(state.used[0]):
            state.best_order[place, 0] = state.order[place, 0]
            state.best_order[place, 1] = state.order[place, 1]
        for place in range(state.used[0], state.order.shape[0]):
            state.best_order[place, 0] = -1


def _again(facts: Facts, state: State, best: bool) -> None:
    """Restore the best or the current schedule."""
    for index in range(4 * facts.stages):
        for batch in range(facts.batches):
            if best:
                state.current[index, batch] = state.best[index, batch]
            state.key[index, batch] = state.current[index, batch]
    for stage in range(facts.stages):
        for batch in range(facts.batches):
            if best:
                state.current_level[stage, batch] = state.best_level[stage, batch]
                state.current_sent[stage, batch] = state.best_sent[stage, batch]
            state.level[stage, batch] = state.current_level[stage, batch]
            state.sent[stage, batch] = state.current_sent[stage, batch]
    if best:
        state.progress.current = state.progress.best


def _disturb(facts: Facts, state: State) -> None:
    """Change some keys, or the options of some micro-batches."""
    progress = state.progress
    stages, batches = facts.stages, facts.batches
    for _ in range(1 + int(3 * random(progress) * random(progress))):
        kind = random(progress)
        stage = int(random(progress) * stages)
        batch = int(random(progress) * batches)
        last = batch
        if random(progress) < 0.5:
            last = batch + int((batches - batch) * random(progress))
        if kind < 0.3:
            _change_ways(facts, state, stage, batch, last)
            continue
        shift = draw_shift(facts, progress)
        if kind < 0.4:
            for number in range(stages):
                state.key[number, batch] += shift
        else:
            index = int(random(progress) * 4) * stages + stage
            for number in range(batch, last + 1):
                state.key[index, number] += shift


def _change_ways(facts: Facts, state: State, stage: int, first: int, last: int) -> None:
    """Change the offloaded part or the recomputation level of some micro-batches of a stage."""
    progress = state.progress
    levels = facts.levels[stage]
    if levels == 1 and facts.parts[stage, 0] <= 2:
        now = 1 - state.sent[stage, first]
        for number in range(first, last + 1):
            state.sent[stage, number] = min(now, facts.parts[stage, 0] - 1)
        return
    kind = random(progress)
    level, part = state.level[stage, first], state.sent[stage, first]
    if kind < 0.35:
        part = int(random(progress) * facts.parts[stage, level])
    elif kind < 0.7:
        level += 1 if random(progress) < 0.5 else -1
    else:
        level = int(random(progress) * levels)
        part = int(random(progress) * facts.parts[stage, max(0, min(levels - 1, level))])
    level = max(0, min(levels - 1, level))
    part = min(part, facts.parts[stage, level] - 1)
    for number in range(first, last + 1):
        state.level[stage, number] = level
        state.sent[stage, number] = part


def walk(facts: Facts, state: State, moves: int, heat: float, bound: float) -> None:
    """Make the given number of moves, or fewer if the bound is reached."""
    progress = state.progress
    for _ in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        _again(facts, state, random(progress) < BACK)
        _disturb(facts, state)
        if schedule(facts, state, random(progress) < STRICT):
            value = figure(facts, state)
            if value <= progress.current + heat * facts.step * random(progress) * random(progress):
                take(facts, state, value)
