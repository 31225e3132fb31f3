"""Memory without a host: forwards leave enough bytes free for all micro-batches to finish.

Deadlock is impossible by construction, because all admitted micro-batches can finish one after another. A forward is
admitted only if its device keeps enough free memory for the oldest micro-batch that has not passed all of its stages.
That memory covers the micro-batch's forwards in the device's other stages. It also leaves the bytes that backwards need
in addition to the held ones. The next micro-batch reuses what the oldest one frees. A check of the forward's device and
of that micro-batch suffices: other devices do not change, and younger micro-batches hold less when their turn comes.
With two chains, no order of finishing is given, and all micro-batches in flight are checked.
"""

from __future__ import annotations

from remat_algorithms.parallel.pipeline.local_search.records import Facts, State


def option_of(facts: Facts, state: State, stage: int, batch: int) -> int:
    """Return the option of a micro-batch."""
    return int(state.option[stage, batch] if facts.chooses else 0)


def reserve(facts: Facts, state: State) -> None:
    """Compute the bytes that forwards leave free for the allocations of backwards."""
    for device in range(facts.devices):
        state.reserved[device] = 0
    for stage in range(facts.stages):
        device = facts.device[stage]
        for batch in range(facts.batches if facts.chooses else 1):
            more = facts.backward_bytes[stage, option_of(facts, state, stage, batch)]
            state.reserved[device] = max(state.reserved[device], more)


def is_admitted(facts: Facts, state: State, index: int) -> bool:
    """Whether the next operation of a class fits and leaves every micro-batch in flight able to finish."""
    stages = facts.stages
    if facts.offloads or index >= 2 * stages:
        return True
    device, batch = facts.device[index], state.done[index]
    stage = index % stages
    option = option_of(facts, state, stage, batch)
    if index >= stages:
        return bool(state.held[device] + facts.backward_bytes[stage, option] <= facts.free_bytes[device])
    free = facts.free_bytes[device] - state.reserved[device]
    if state.held[device] + facts.held_bytes[stage, option] > free:
        return False
    if facts.chooses and state.held[device] + facts.forward_bytes[stage, option] > facts.free_bytes[device]:
        return False
    if facts.second < stages:
        return _is_safe(facts, state, index)
    first, last = facts.first_own[device], facts.first_own[device + 1]
    oldest = int(state.done[facts.own[last - 1]])
    if oldest >= batch:
        return True
    total = 0
    for place in range(first, last):
        other = facts.own[place]
        passed = int(state.done[other]) + (1 if other == stage else 0)
        total += _held_bytes(facts, state, other, oldest, max(passed, oldest + 1))
    return bool(total <= free)


def _held_bytes(facts: Facts, state: State, stage: int, first: int, end: int) -> int:
    """Return the bytes that a stage holds for consecutive micro-batches."""
    if not facts.chooses:
        return int(facts.held_bytes[stage, 0] * (end - first))
    total = 0
    for batch in range(first, end):
        total += facts.held_bytes[stage, state.option[stage, batch]]
    return total


def _is_safe(facts: Facts, state: State, index: int) -> bool:
    """Whether all micro-batches of two chains can finish one after another if a forward runs (Dijkstra 1965).

    The oldest micro-batch of a chain finishes if the forwards that it lacks fit on every device, and frees what it
    holds. Pending W's count as done: they need no memory.
    """
    stages = facts.stages
    for device in range(facts.devices):
        state.spare[device] = facts.free_bytes[device] - state.reserved[device]
        for place in range(facts.first_own[device], facts.first_own[device + 1]):
            stage = facts.own[place]
            passed = int(state.done[stage]) + (1 if stage == index else 0)
            state.spare[device] -= _held_bytes(facts, state, stage, int(state.done[stages + stage]), passed)
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
                lacking += _held_bytes(facts, state, stage, batch, batch + 1)
        if lacking > state.spare[device]:
            return False
    for stage in range(first, end):
        passed = state.done[stage] + (1 if stage == index else 0)
        if passed > batch and state.done[stages + stage] <= batch:
            state.spare[facts.device[stage]] += _held_bytes(facts, state, stage, batch, batch + 1)
    return True


def hold(facts: Facts, state: State, index: int) -> None:
    """Change the bytes held as an operation does."""
    stages = facts.stages
    device = facts.device[index]
    stage = index % stages
    if index >= 2 * stages:
        state.held[device] -= facts.kept[stage]
        return
    own = facts.held_bytes[stage, option_of(facts, state, stage, state.done[index])]
    state.held[device] += own if index < stages else facts.kept[stage] - own
