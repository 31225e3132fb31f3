"""Memory and transfers with a host: allocations wait until enough bytes are free.

A micro-batch's offload starts when its forward ends, first come, first served, and frees its bytes when it ends. A
*return*, the copy back, is an operation. It allocates the bytes again when it starts, on the return channel of its
device. Operations on a device allocate bytes in the order in which they are scheduled. If no operation can ever
continue, the keys yield no schedule.
"""

from __future__ import annotations

from remat_algorithms.parallel.pipeline.local_search.records import Facts, State


def begin_transfers(facts: Facts, state: State) -> int:
    """Reset channels and releases; return the number of returns to make."""
    for device in range(facts.devices):
        state.sending[device] = 0.0
        state.coming[device] = 0.0
        state.taking[device] = 0.0
        state.first_freed[device] = 0
        state.last_freed[device] = 0
    total = 0
    for stage in range(facts.stages):
        _skip(facts, state, stage)
        for batch in range(facts.batches):
            total += 1 if is_sent(facts, state, stage, batch) else 0
    return total


def is_sent(facts: Facts, state: State, stage: int, batch: int) -> bool:
    """Whether any bytes of a micro-batch wait at the host."""
    return bool(facts.offloaded_bytes[stage, state.option[stage, batch]] > 0)


def _skip(facts: Facts, state: State, stage: int) -> None:
    """Advance to the next micro-batch with a return."""
    index = 3 * facts.stages + stage
    while state.done[index] < facts.batches and not is_sent(facts, state, stage, state.done[index]):
        state.done[index] += 1


def wait_for_memory(facts: Facts, state: State, index: int) -> None:
    """Compute the earliest start and end of a class's next operation, whose data are ready."""
    stages = facts.stages
    device = facts.device[index]
    stage = index % stages
    option = state.option[stage, state.done[index]]
    ready, clock = state.ready[index], state.clock[device]
    if index >= 3 * stages:
        size = facts.offloaded_bytes[stage, option]
        _place(facts, state, index, max(ready, state.coming[device]), size, 0.0, facts.return_time[stage, option])
    elif index >= 2 * stages:
        _place(facts, state, index, max(ready, clock), 0, 0.0, facts.duration[index])
    elif index >= stages:
        _place_backward(facts, state, index, option)
    else:
        size = facts.forward_bytes[stage, option]
        _place(facts, state, index, max(ready, clock), size, 0.0, facts.duration[index])


def _place(facts: Facts, state: State, index: int, ready: float, size: int, recompute: float, time: float) -> None:
    start = _first_fit(facts, state, facts.device[index], ready, size)
    state.ready[index] = start
    state.finish[index] = start + recompute + time
    state.needs[index] = size


def _first_fit(facts: Facts, state: State, device: int, start: float, size: int) -> float:
    """Return the first time, from `start`, at which the given bytes are free; negative if never."""
    if size <= 0:
        return start
    start = max(start, state.taking[device])
    total = state.held[device] + size
    place = state.first_freed[device]
    while place < state.last_freed[device] and state.freed_at[device, place] <= start:
        total -= state.freed[device, place]
        place += 1
    while total > facts.free_bytes[device]:
        if place == state.last_freed[device]:
            return -1.0
        start = state.freed_at[device, place]
        total -= state.freed[device, place]
        place += 1
    return start


def _place_backward(facts: Facts, state: State, index: int, option: int) -> None:
    """Compute the earliest start of a backward, including its recomputation."""
    stages = facts.stages
    stage, device = index - stages, facts.device[index]
    batch = state.done[index]
    own = float(state.end[stage, batch])
    if facts.offloaded_bytes[stage, option] > 0:
        if state.done[3 * stages + stage] <= batch:
            state.ready[index] = -1.0
            return
        own = max(own, state.end[3 * stages + stage, batch])
    ready = max(own, state.ready[index])
    if not facts.tail[stage]:
        # Recomputation does not replace a value before it has arrived at the next stage.
        own = max(own, state.end[stage, batch] + facts.delay[stage + 1])
    clock, time = float(state.clock[device]), float(facts.duration[index])
    recompute = float(facts.recompute_time[stage, option])
    _place(facts, state, index, max(ready, clock), facts.backward_bytes[stage, option], recompute, time)
    if recompute > 0.0 and ready > clock:
        size = facts.early_bytes[stage, option]
        early = _first_fit(facts, state, device, max(max(own, ready - recompute), clock), size)
        end = max(early + recompute, ready) + time
        if early >= 0.0 and (state.ready[index] < 0.0 or end < state.finish[index]):
            state.ready[index] = early
            state.finish[index] = end
            state.needs[index] = size


def transfer(facts: Facts, state: State, index: int) -> None:
    """Allocate the bytes of a class's next operation, and schedule its offload and its releases."""
    stages = facts.stages
    device, batch = facts.device[index], state.done[index]
    stage = index % stages
    option = state.option[stage, batch]
    start, end, size = state.ready[index], state.finish[index], state.needs[index]
    if size > 0:
        state.taking[device] = start
        while (
            state.first_freed[device] < state.last_freed[device]
            and state.freed_at[device, state.first_freed[device]] <= start
        ):
            state.held[device] -= state.freed[device, state.first_freed[device]]
            state.first_freed[device] += 1
        state.held[device] += size
    if index < stages:
        _free(state, device, end, size - facts.held_bytes[stage, option])
        offloaded = facts.offloaded_bytes[stage, option]
        if offloaded > 0:
            gone = max(end, state.sending[device]) + facts.offload_time[stage, option]
            state.sending[device] = gone
            state.gone[stage, batch] = gone
            _free(state, device, gone, offloaded)
    elif index < 2 * stages:
        _free(state, device, end, facts.held_bytes[stage, option] + size - facts.kept[stage])
    elif index < 3 * stages:
        _free(state, device, end, facts.kept[stage])
    else:
        state.coming[device] = end


def _free(state: State, device: int, time: float, size: int) -> None:
    """Record a future release of bytes."""
    if size == 0:
        return
    place = state.last_freed[device]
    while place > state.first_freed[device] and state.freed_at[device, place - 1] > time:
        state.freed_at[device, place] = state.freed_at[device, place - 1]
        state.freed[device, place] = state.freed[device, place - 1]
        place -= 1
    state.freed_at[device, place] = time
    state.freed[device, place] = size
    state.last_freed[device] += 1


def next_return(facts: Facts, state: State, index: int) -> None:
    """Advance to the next micro-batch with a return if an operation was one."""
    if index >= 3 * facts.stages:
        _skip(facts, state, index % facts.stages)


def date_returns(facts: Facts, state: State) -> None:
    """Give micro-batches that are not sent the start that their return would have."""
    stages = facts.stages
    for stage in range(stages):
        index = 3 * stages + stage
        for batch in range(facts.batches):
            if not is_sent(facts, state, stage, batch):
                state.start[index, batch] = state.start[stages + stage, batch] - facts.duration[index]
