"""Objective of the local search over pipeline orders: the makespan, or the largest span of a device."""

from __future__ import annotations

import math

from remat_algorithms.parallel.pipeline.local_search.device_memory import option_of
from remat_algorithms.parallel.pipeline.local_search.records import Facts, State


def figure(facts: Facts, state: State) -> float:
    """Return the makespan of the last schedule, plus its weighted recomputation, or its minimum largest span."""
    if facts.spans:
        return span(facts, state)
    most = 0.0
    for device in range(facts.devices):
        most = max(most, float(state.clock[device]))
    if facts.recompute_weight == 0.0:
        return most
    recompute = 0.0
    for stage in range(facts.stages):
        for batch in range(facts.batches):
            recompute += facts.recompute_time[stage, option_of(facts, state, stage, batch)]
    return most + facts.recompute_weight * recompute / facts.devices


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
    """Find the longest paths from the first start on a device, along the last orders; overwrites `key`."""
    stages = facts.stages
    for device in range(facts.devices):
        state.reach[source, device] = 0.0 if device == source else -math.inf
    for number in range(state.progress.length):
        index, batch = state.order[number, 0], state.order[number, 1]
        device, stage = facts.device[index], index % stages
        before = -math.inf
        if index < stages:
            if not facts.head[stage]:
                before = state.key[index - 1, batch] + facts.delay[stage]
        elif index >= 2 * stages:
            before = state.key[index - stages, batch]
        elif facts.tail[stage]:
            before = state.key[stage, batch]
        else:
            before = state.key[index + 1, batch] + facts.delay[stage + 1]
        end = max(state.reach[source, device], before) + facts.duration[index]
        state.key[index, batch] = end
        state.reach[source, device] = end
