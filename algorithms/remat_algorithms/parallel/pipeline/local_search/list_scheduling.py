"""List scheduling from keys, the evaluator of the local search over pipeline orders; interpreted, it is its plain twin.

List scheduling builds an order from *keys*, one per operation (after Giffler & Thompson 1960). Of the operations that
could run, the one that could end first selects a device, or its return channel. The candidates are the operations that
could start there before that end (`patience` 1), or no later than the first one (`patience` 0; not with a host). The
candidate with the smallest key runs. For a negative `patience`, the operation with the smallest key of all runs,
however long its device waits for it. The start times of any schedule, used as keys, thus reproduce that schedule.

While a backward waits for its gradient, its recomputation runs, if the memory suffices for all of it.
"""

from __future__ import annotations

import math

from remat_algorithms.parallel.pipeline.local_search.device_memory import hold, is_admitted, option_of, reserve
from remat_algorithms.parallel.pipeline.local_search.records import Facts, State
from remat_algorithms.parallel.pipeline.local_search.transfers import (
    begin_transfers,
    next_return,
    transfer,
    wait_for_memory,
)


def schedule(facts: Facts, state: State, patience: float) -> bool:
    """Build a schedule from keys and options; return whether it succeeds.

    Without a host, it fails only if backwards allocate bytes or forwards need more than they hold.
    """
    classes, stages = len(facts.runs), facts.stages
    state.progress.length = 0
    for device in range(facts.devices):
        state.clock[device] = 0
        state.held[device] = 0
    total = 0
    for index in range(classes):
        state.done[index] = 0
        total += facts.runs[index] if index < 3 * stages else 0
    if facts.offloads:
        total += begin_transfers(facts, state)
    else:
        reserve(facts, state)
    for index in range(classes):
        find_ready(facts, state, index)
    for _ in range(total):
        chosen = _least_key(facts, state) if patience < 0.0 else _in_time(facts, state, patience)
        if chosen < 0:
            return False
        _run(facts, state, chosen)
    return True


def find_ready(facts: Facts, state: State, index: int) -> None:
    """Compute when the data of a class's next operation are available, if its sources have been scheduled."""
    stages = facts.stages
    batch = state.done[index]
    state.ready[index] = -1
    if batch >= facts.runs[index]:
        return
    stage = index % stages
    if index < stages:
        if facts.head[stage]:
            state.ready[index] = 0
        elif state.done[index - 1] > batch:
            state.ready[index] = state.end[index - 1, batch] + facts.delay[stage]
    elif facts.offloads and index >= 3 * stages:
        if state.done[stage] > batch:
            state.ready[index] = state.gone[stage, batch]
    elif index >= 2 * stages:
        if state.done[index - stages] > batch:
            state.ready[index] = state.end[index - stages, batch]
    elif facts.tail[stage]:
        if state.done[stage] > batch:
            state.ready[index] = state.end[stage, batch]
    elif state.done[index + 1] > batch:
        state.ready[index] = state.end[index + 1, batch] + facts.delay[stage + 1]
    if facts.offloads and state.ready[index] >= 0:
        wait_for_memory(facts, state, index)


def _least_key(facts: Facts, state: State) -> int:
    """Return the class whose next operation has the smallest key; -1 if none is admitted."""
    chosen = -1
    key = math.inf
    for index in range(len(facts.runs)):
        if state.ready[index] >= 0 and state.key[index, state.done[index]] < key and is_admitted(facts, state, index):
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
            start = _begin(facts, state, index)
            end = _end(facts, state, index, start)
            sooner = end < least or (not facts.offloads and end == least and start < begin)
            if sooner and is_admitted(facts, state, index):
                least = end
                begin = start
                chosen = index
    if chosen < 0:
        return chosen
    device = facts.device[chosen]
    comes = chosen >= 3 * stages
    limit = least
    if not facts.offloads:
        begin = _first_begin(facts, state, device, begin)
        limit = begin + patience * (least - begin)
    key = math.inf
    for phase in range(classes // stages):
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            index = phase * stages + facts.own[place]
            if state.ready[index] >= 0 and (phase == 3) == comes and state.key[index, state.done[index]] < key:
                start = _begin(facts, state, index)
                if (start < limit or start <= begin) and is_admitted(facts, state, index):
                    key = state.key[index, state.done[index]]
                    chosen = index
    return chosen


def _first_begin(facts: Facts, state: State, device: int, begin: float) -> float:
    """Return the first time, up to `begin`, at which an operation of a device could begin."""
    stages = facts.stages
    for phase in range(len(facts.runs) // stages):
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            index = phase * stages + facts.own[place]
            if state.ready[index] >= 0:
                start = _begin(facts, state, index)
                if start < begin and is_admitted(facts, state, index):
                    begin = start
    return begin


def _begin(facts: Facts, state: State, index: int) -> float:
    """Return when the next operation of a class could begin, including its recomputation."""
    ready = state.ready[index]
    if facts.offloads:
        return float(ready)
    device, stages = facts.device[index], facts.stages
    clock = state.clock[device]
    if not facts.chooses or index < stages or index >= 2 * stages or ready <= clock:
        return float(max(clock, ready))
    stage = index - stages
    option = option_of(facts, state, stage, state.done[index])
    if option == 0 or state.held[device] + facts.early_bytes[stage, option] > facts.free_bytes[device]:
        return float(ready)
    return float(max(clock, ready - facts.recompute_time[stage, option]))


def _end(facts: Facts, state: State, index: int, begin: float) -> float:
    """Return when it would end."""
    if facts.offloads:
        return float(state.finish[index])
    stages = facts.stages
    if not facts.chooses or index < stages or index >= 2 * stages:
        return float(begin + facts.duration[index])
    recompute = facts.recompute_time[index - stages, option_of(facts, state, index - stages, state.done[index])]
    return float(max(begin + recompute, state.ready[index]) + facts.duration[index])


def _run(facts: Facts, state: State, index: int) -> None:
    """Append the next operation of a class to the order of its device."""
    stages, device, batch = facts.stages, facts.device[index], state.done[index]
    if facts.chooses:
        start = _begin(facts, state, index)
        end = _end(facts, state, index, start)
    else:
        # The times of a plain pipeline may be integers.
        start = max(state.clock[device], state.ready[index])
        end = start + facts.duration[index]
    if facts.offloads:
        transfer(facts, state, index)
    else:
        hold(facts, state, index)
        if facts.chooses and index >= stages and index < 2 * stages:
            state.early[index - stages, batch] = 1 if start < state.ready[index] else 0
    state.start[index, batch] = start
    state.end[index, batch] = end
    if index < 3 * stages:
        state.clock[device] = end
    progress = state.progress
    state.order[progress.length, 0] = index
    state.order[progress.length, 1] = batch
    progress.length += 1
    state.done[index] = batch + 1
    _update(facts, state, index)


def _update(facts: Facts, state: State, index: int) -> None:
    """Look for the operations that an operation makes ready or delays."""
    stages, device = facts.stages, facts.device[index]
    stage = index % stages
    if facts.offloads:
        next_return(facts, state, index)
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            for phase in range(4):
                find_ready(facts, state, phase * stages + facts.own[place])
    else:
        find_ready(facts, state, index)
        if index + stages < len(facts.runs) and (index >= stages or facts.tail[stage]):
            find_ready(facts, state, index + stages)
    if index < stages:
        if not facts.tail[stage]:
            find_ready(facts, state, index + 1)
    elif index < 2 * stages and not facts.head[stage]:
        find_ready(facts, state, index - 1)
