"""Kernel of `pipe-search`: local search over the orders of a pipeline; interpreted, `walk` is its plain twin.

List scheduling builds an order from *keys*, one per operation (after Giffler & Thompson 1960). Of the operations that
could run, the one that could end first selects a device. The candidates are the operations that could start on this
device before that end (`patience` 1), or no later than the first one (`patience` 0). The candidate with the smallest
key runs. For a negative `patience`, the operation with the smallest key of all runs, however long its device waits for
it. The start times of any schedule, used as keys, thus reproduce that schedule.

Deadlock is impossible by construction, because all admitted micro-batches can finish one after another. A forward is
admitted only if its device keeps enough free memory for the oldest micro-batch that has not passed all of its stages.
That memory covers the micro-batch's forwards in the device's other stages. Its backwards need no additional memory, and
the next micro-batch reuses what it frees. A check of the forward's device and of that oldest micro-batch suffices:
other devices do not change, and younger micro-batches hold less when their turn comes. With two chains, no order of
finishing is given, and all micro-batches in flight are checked.

`drift` looks for regular schedules. In these, every micro-batch repeats the previous one a period later, until memory
or a busy device delays it. Few numbers describe them for any number of micro-batches. `walk` changes a few keys of the
current schedule, whose keys are its start times. Both accept a neighbour that is not, or hardly, worse.
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

LARGEST = 2**62
"""Clock value that marks a failed schedule."""


class Facts(NamedTuple):
    """The pipeline, by class: class ``phase * stages + stage`` has one operation per micro-batch, or none.

    Attributes
    ----------
    duration, device, runs : (classes,)
        Time, device and number of the operations.
    delay : (stages,)
        Hop into each stage from the previous one.
    head, tail : (stages,) int
        Whether a stage is the first or the last one of its chain, 0 or 1. There are at most two chains.
    taken, left : (classes,) int
        Bytes that an operation allocates at its start, and its net change of the bytes held.
    room : (devices,) int
        Memory of each device for activations.
    spared : (devices,) int
        Part of it that forwards leave free for the allocations of backwards.
    first_own, own : (devices + 1,), (stages,)
        Stages of device d, ascending: ``own[first_own[d]:first_own[d + 1]]``.
    stages, devices, batches : int
    second : int
        First stage of the second chain; `stages` if there is one chain.
    spans : bool
        Whether the objective is the largest span of a device instead of the makespan.
    step, load : float
        Mean time of an operation; maximum work of a device per micro-batch.
    """

    duration: Array
    device: IntArray
    runs: IntArray
    delay: Array
    head: IntArray
    tail: IntArray
    taken: IntArray
    left: IntArray
    room: IntArray
    spared: IntArray
    first_own: IntArray
    own: IntArray
    stages: int
    devices: int
    batches: int
    second: int
    spans: bool
    step: float
    load: float


class State(NamedTuple):
    """Mutable state of the local search.

    Attributes
    ----------
    key : (classes, batches) float64
    start, end : (classes, batches)
        Times of the last schedule built.
    current, best : (classes, batches) float64
        Keys of the current and of the best schedule: their start times.
    done : (classes,)
        Number of operations scheduled.
    ready : (classes,)
        Time at which the data of the next operation are available; negative while unknown.
    clock, held, spare : (devices,)
        When each device is free, the bytes held, and those not needed by the micro-batches that have not finished.
    order, used : (devices, operations), (devices,)
        Classes in the order of each device.
    best_order : (devices, operations)
    gap, late : (2, 2 * stages), (2, stages) float64
        Regular schedules: the candidate and the current one. `gap` is the wait of each stage beyond the necessary, for
        forwards and backwards; `late` is the delay of each W.
    offset : (classes,) float64
        Start times of micro-batch 0 in a regular schedule.
    reach, path : (devices, devices) float64, (devices + 1, devices) float64
        Longest paths from the first start of a device to the last end of another, and longest chains of that many
        paths.
    """

    key: FloatArray
    start: Array
    end: Array
    current: FloatArray
    best: FloatArray
    done: IntArray
    ready: Array
    clock: Array
    held: IntArray
    spare: IntArray
    order: IntArray
    used: IntArray
    best_order: IntArray
    gap: FloatArray
    late: FloatArray
    offset: FloatArray
    reach: FloatArray
    path: FloatArray
    progress: Progress


def _admitted(facts: Facts, state: State, index: int) -> bool:
    """Whether the next operation of a class fits and leaves every micro-batch in flight able to finish."""
    device = facts.device[index]
    stages = facts.stages
    if index >= stages:
        return bool(state.held[device] + facts.taken[index] <= facts.room[device])
    room = facts.room[device] - facts.spared[device]
    if state.held[device] + facts.taken[index] > room:
        return False
    if facts.second < stages:
        return _is_safe(facts, state, index)
    first, last = facts.first_own[device], facts.first_own[device + 1]
    oldest = state.done[facts.own[last - 1]]
    if oldest >= state.done[index]:
        return True
    total = 0
    for place in range(first, last):
        stage = facts.own[place]
        passed = state.done[stage] + (1 if stage == index else 0)
        total += facts.taken[stage] * max(1, passed - oldest)
    return bool(total <= room)


def _is_safe(facts: Facts, state: State, index: int) -> bool:
    """Whether all micro-batches of two chains can finish one after another if a forward runs (Dijkstra 1965).

    The oldest micro-batch of a chain finishes if the forwards that it lacks fit on every device, and frees what it
    holds. Pending W's count as done: they need no memory.
    """
    stages = facts.stages
    for device in range(facts.devices):
        state.spare[device] = facts.room[device] - facts.spared[device]
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            stage = facts.own[place]
            there = state.done[stage] - state.done[stages + stage] + (1 if stage == index else 0)
            state.spare[device] -= facts.taken[stage] * there
    finished, finished_too = state.done[stages], state.done[stages + facts.second]
    begun = state.done[0] + (1 if index == 0 else 0)
    begun_too = state.done[facts.second] + (1 if index == facts.second else 0)
    moving = True
    while moving:
        moving = False
        while finished < begun and _finishes(facts, state, index, 0, facts.second, finished):
            finished += 1
            moving = True
        while finished_too < begun_too and _finishes(facts, state, index, facts.second, stages, finished_too):
            finished_too += 1
            moving = True
    return bool(finished == begun and finished_too == begun_too)


def _finishes(facts: Facts, state: State, index: int, first: int, end: int, batch: int) -> bool:
    """Let a micro-batch of the chain of stages `first` to `end` finish, if there is enough memory for it."""
    stages = facts.stages
    for device in range(facts.devices):
        lacking = 0
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            stage = facts.own[place]
            if first <= stage and stage < end and state.done[stage] + (1 if stage == index else 0) <= batch:
                lacking += facts.taken[stage]
        if lacking > state.spare[device]:
            return False
    for stage in range(first, end):
        passed = state.done[stage] + (1 if stage == index else 0)
        if passed > batch and state.done[stages + stage] <= batch:
            state.spare[facts.device[stage]] += facts.taken[stage]
    return True


def schedule(facts: Facts, state: State, patience: float) -> None:
    """Build a schedule from the keys."""
    classes = len(facts.runs)
    total = 0
    for index in range(classes):
        state.done[index] = 0
        total += facts.runs[index]
    for device in range(facts.devices):
        state.clock[device] = 0
        state.held[device] = 0
        state.used[device] = 0
    for index in range(classes):
        find_ready(facts, state, index)
    for _ in range(total):
        chosen = _least_key(facts, state) if patience < 0.0 else _in_time(facts, state, patience)
        if chosen < 0:
            # This happens only if bytes are spared for backwards. A dead end yields no schedule.
            state.clock[0] = LARGEST
            return
        _run(facts, state, chosen)


def _least_key(facts: Facts, state: State) -> int:
    """Return the class whose next operation has the smallest key; -1 if none is admitted."""
    chosen = -1
    key = math.inf
    for index in range(len(facts.runs)):
        if state.ready[index] >= 0 and state.key[index, state.done[index]] < key and _admitted(facts, state, index):
            key = state.key[index, state.done[index]]
            chosen = index
    return chosen


def _in_time(facts: Facts, state: State, patience: float) -> int:
    """Return the class that runs next on the device that could end an operation first; -1 if none is admitted."""
    stages, classes = facts.stages, len(facts.runs)
    chosen = -1
    least = math.inf
    begin = math.inf
    for index in range(classes):
        if state.ready[index] >= 0:
            start = float(max(state.clock[facts.device[index]], state.ready[index]))
            end = start + facts.duration[index]
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
            if state.ready[index] >= 0 and _admitted(facts, state, index):
                begin = min(begin, float(max(state.clock[device], state.ready[index])))
    limit = begin + patience * (least - begin)
    key = math.inf
    for phase in range(classes // stages):
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            index = phase * stages + facts.own[place]
            if state.ready[index] >= 0 and state.key[index, state.done[index]] < key:
                start = float(max(state.clock[device], state.ready[index]))
                if (start < limit or start == begin) and _admitted(facts, state, index):
                    key = state.key[index, state.done[index]]
                    chosen = index
    return chosen


def _run(facts: Facts, state: State, index: int) -> None:
    """Append the next operation of a class to the order of its device."""
    device = facts.device[index]
    batch = state.done[index]
    start = max(state.clock[device], state.ready[index])
    state.start[index, batch] = start
    state.end[index, batch] = start + facts.duration[index]
    state.clock[device] = state.end[index, batch]
    state.held[device] += facts.left[index]
    put(facts, state, index)


def figure(facts: Facts, state: State) -> float:
    """Return the makespan or the minimum largest span of the last schedule; infinite if it failed."""
    if state.clock[0] == LARGEST:
        return math.inf
    if facts.spans:
        return span(facts, state)
    most = 0.0
    for device in range(facts.devices):
        most = max(most, float(state.clock[device]))
    return most


def span(facts: Facts, state: State) -> float:
    """Return the minimum largest span of the last orders: the maximum cycle mean of longest paths (Karp 1978).

    If the next step starts on each device when the device has finished, this is the time between two steps.
    """
    devices = facts.devices
    for device in range(devices):
        _longest(facts, state, device)
    for target in range(devices):
        state.path[0, target] = 0.0
    for length in range(1, devices + 1):
        for target in range(devices):
            most = -math.inf
            for source in range(devices):
                most = max(most, state.path[length - 1, source] + state.reach[source, target])
            state.path[length, target] = most
    best = 0.0
    for target in range(devices):
        if state.path[devices, target] > -math.inf:
            least = math.inf
            for length in range(devices):
                if state.path[length, target] > -math.inf:
                    mean = (state.path[devices, target] - state.path[length, target]) / (devices - length)
                    least = min(least, mean)
            best = max(best, least)
    return best


def _longest(facts: Facts, state: State, source: int) -> None:
    """Find the longest paths from the first start on a device, along the last lists; overwrites `key`."""
    stages = facts.stages
    # Merge the lists into a topological order of the operations.
    for device in range(facts.devices):
        state.held[device] = 0
        state.reach[source, device] = 0.0 if device == source else -math.inf
    for index in range(len(facts.runs)):
        state.done[index] = 0
    left = 0
    for device in range(facts.devices):
        left += state.used[device]
    while left > 0:
        for device in range(facts.devices):
            moving = True
            while moving and state.held[device] < state.used[device]:
                index = state.order[device, state.held[device]]
                batch = state.done[index]
                stage = index % stages
                before = -math.inf
                if index < stages:
                    if not facts.head[stage]:
                        moving = state.done[index - 1] > batch
                        before = state.key[index - 1, batch] + facts.delay[stage] if moving else before
                elif index >= 2 * stages:
                    moving = state.done[index - stages] > batch
                    before = state.key[index - stages, batch] if moving else before
                elif facts.tail[stage]:
                    moving = state.done[stage] > batch
                    before = state.key[stage, batch] if moving else before
                else:
                    moving = state.done[index + 1] > batch
                    before = state.key[index + 1, batch] + facts.delay[stage + 1] if moving else before
                if moving:
                    end = max(state.reach[source, device], before) + facts.duration[index]
                    state.key[index, batch] = end
                    state.reach[source, device] = end
                    state.done[index] = batch + 1
                    state.held[device] += 1
                    left -= 1


def _disturb(facts: Facts, state: State) -> None:
    """Change the keys of one operation, of a class for some micro-batches, or of a micro-batch."""
    progress = state.progress
    set_keys(facts, state)
    count = 1 + int(3 * random(progress) * random(progress))
    for _ in range(count):
        kind = random(progress)
        index = int(random(progress) * len(facts.runs))
        batch = int(random(progress) * facts.batches)
        shift = draw_shift(facts, progress)
        whose = ONE if kind < 0.5 else (SOME if kind < 0.8 else (ONWARDS if kind < 0.9 else SO_FAR))
        move_keys(facts, state, whose, index, batch, shift)


def walk(facts: Facts, state: State, moves: int, heat: float, bound: float) -> None:
    """Make the given number of moves, or fewer if the bound is reached."""
    progress = state.progress
    for _ in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        if random(progress) < BACK:
            recall(facts, state)
        _disturb(facts, state)
        schedule(facts, state, STRICT if random(progress) < 0.5 else FREE)
        value = figure(facts, state)
        if value <= progress.current + heat * facts.step * random(progress) * random(progress):
            take_times(facts, state, value)


def drift(facts: Facts, state: State, moves: int, spread: float, bound: float) -> None:
    """Look for a regular schedule; stop at the bound.

    The search starts with random gaps of up to `spread` loads. If `spread` is negative, it starts with the current
    gaps.
    """
    progress = state.progress
    begun = spread < 0.0
    if not begun:
        first_gaps(facts, state, spread)
    for number in range(moves):
        if progress.best <= bound:
            return
        progress.moves += 1
        period = progress.period
        copy_gaps(facts, state, 1, 0)
        if begun or number > 0:
            for _ in range(1 + int(3 * random(progress))):
                if random(progress) < 0.1:
                    period = facts.load * (1 + 0.15 * random(progress) * random(progress))
                _vary(facts, state)
        _lay_out(facts, state, period)
        kind = random(progress)
        schedule(facts, state, STRICT if kind < 0.4 else (FREE if kind < 0.8 else 0.0))
        value = figure(facts, state)
        if value <= progress.current:
            take_times(facts, state, value)
            progress.period = period
            copy_gaps(facts, state, 0, 1)


def _vary(facts: Facts, state: State) -> None:
    """Change one gap, some consecutive gaps, or the delay of a stage's W."""
    progress = state.progress
    kind = random(progress)
    shift = facts.load * (random(progress) + random(progress) - 1)
    first = int(random(progress) * 2 * facts.stages)
    vary_gaps(facts, state, kind, 0.25, first, shift)


def _lay_out(facts: Facts, state: State, period: float) -> None:
    """Compute the keys of a regular schedule."""
    stages = facts.stages
    clock = 0.0
    for step in range(2 * stages):
        index = step if step < stages else 3 * stages - 1 - step
        stage = index % stages
        if step < stages:
            clock = 0.0 if facts.head[stage] else clock + facts.delay[stage]
        elif facts.tail[stage]:
            clock = state.offset[stage] + facts.duration[stage]
        else:
            clock += facts.delay[stage + 1]
        clock += state.gap[0, step]
        state.offset[index] = clock
        clock += facts.duration[index]
    repeat(facts, state, period)
