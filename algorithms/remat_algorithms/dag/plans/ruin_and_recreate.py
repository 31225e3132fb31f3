"""Ruin and recreate: drop reruns, repair the plan with the greedy, prune, and accept slightly worse plans.

Interpreted or compiled, like `replay` and `greedy`.
"""

from __future__ import annotations

from remat_algorithms.dag.plans.greedy import greedy
from remat_algorithms.dag.plans.plans import draw, find, insert, take_trial
from remat_algorithms.dag.plans.records import NOW, TRIAL, Packed, Room, Work
from remat_algorithms.dag.plans.replay import first_access, replay

RUIN, MEND, PRUNE, REPLAY, CLEAR = range(5)
"""Actions of `act`: drop reruns, run the greedy, drop unnecessary reruns, only replay, drop reruns near the peak."""

FORCED = 4
"""Upper bound (exclusive) on the number of reruns that are forced after the ruin."""

EARLIER, EARLIEST = 0.4, 20
"""Share of the forced reruns that may come earlier than needed, and upper bound (exclusive) on the number of stages."""

MANY, MOST = 12.0, 0.3
"""Approximate maximum of reruns that the usual round drops, as a number and as a share: more seldom pays."""

WIDEST = 7
"""Exponent of two that bounds the width, in stages, of the ruin around the highest memory."""


def is_first(tables: Packed, stage: int, task: int) -> bool:
    """Return whether a run is the first one of the stage's task."""
    return bool(stage < tables.stages and tables.first[stage] == task)


def without(room: Room, place: int) -> None:
    """Copy the current plan to the trial plan, without the run at a position."""
    count = room.length[NOW]
    for other in range(place):
        room.item[TRIAL, other] = room.item[NOW, other]
        room.stage[TRIAL, other] = room.stage[NOW, other]
    for other in range(place + 1, count):
        room.item[TRIAL, other - 1] = room.item[NOW, other]
        room.stage[TRIAL, other - 1] = room.stage[NOW, other]
    room.length[TRIAL] = count - 1


def _spared(tables: Packed, work: Work, task: int, place: int, between: int) -> int:
    """Return the bytes of inputs that a run alone keeps at an earlier position."""
    spared = 0
    for entry in range(tables.read_start[task], tables.read_start[task + 1]):
        read = tables.read[entry]
        index = first_access(work, read, 2 * place)
        again = index + 1 < work.head[read + 1] and work.access[index + 1] % 2 == 0
        before = work.access[index - 1] // 2 if index > work.head[read] else 0
        if not again and before < between:
            spared += tables.size[read]
    return spared


def _hopeless(tables: Packed, work: Work, room: Room, place: int, budget: int) -> bool:
    """Whether a plan without a run must exceed the budget, because its outputs would be kept too long elsewhere."""
    task = room.item[NOW, place]
    for entry in range(tables.write_start[task], tables.write_start[task + 1]):
        value = tables.write[entry]
        index = first_access(work, value, 2 * place + 1)
        used = index + 1 < work.head[value + 1] and work.access[index + 1] % 2 == 0
        if index == work.head[value] or not used:
            continue
        size = tables.size[value]
        for between in range(work.access[index - 1] // 2 + 1, place):
            excess = work.memory[between] + size - budget
            if excess > 0 and excess > _spared(tables, work, task, place, between):
                return True
    return False


def prune(tables: Packed, work: Work, room: Room, budget: int) -> None:
    """Drop each unnecessary rerun, the most expensive first; the current plan must fit. O(reruns) replays."""
    reruns = 0
    for place in range(room.length[NOW]):
        if not is_first(tables, room.stage[NOW, place], room.item[NOW, place]):
            reruns += 1
    previous = -1.0
    passed = -1
    replay(tables, work, room, NOW, budget)
    for _ in range(reruns):
        # The most expensive one not yet tried: below the last one by (time, key).
        place = _next_dearest(tables, room, previous, passed)
        if place < 0 or room.state.stop != 0:
            break
        previous = tables.time[room.item[NOW, place]]
        passed = _key(tables, room, place)
        if _hopeless(tables, work, room, place, budget):
            continue
        without(room, place)
        if replay(tables, work, room, TRIAL, budget) == 0.0:
            take_trial(room)
        else:
            replay(tables, work, room, NOW, budget)
    room.cost[NOW] = work.figures.total


def _key(tables: Packed, room: Room, place: int) -> int:
    return room.stage[NOW, place] * (tables.item_count + 1) + room.item[NOW, place]  # type: ignore[no-any-return]


def _next_dearest(tables: Packed, room: Room, previous: float, passed: int) -> int:
    """Return the position of the most expensive rerun after the last one tried; by time, then from the front."""
    best = -1
    most = -1.0
    for place in range(room.length[NOW]):
        task = room.item[NOW, place]
        time = tables.time[task]
        if time <= most or is_first(tables, room.stage[NOW, place], task):
            continue
        later = passed < 0 or time < previous or (time == previous and _key(tables, room, place) > passed)
        if later:
            most = time
            best = place
    return best


def ruin(tables: Packed, room: Room) -> None:
    """Drop reruns: those of a window of stages, some anywhere, or most of them."""
    kind = draw(room)
    stages = tables.stages + 1
    low, high, share = 0, stages, 1.0
    few = min(MOST, MANY / float(max(1, room.length[NOW] - tables.stages)))
    if kind < 0.55:
        width = 1 + int(draw(room) * max(1.0, few * stages))
        low = int(draw(room) * stages) - width // 2
        high = low + width
        share = 0.5 + 0.5 * draw(room)
    elif kind < 1.0 - 0.5 * few:
        share = few * (0.3 + draw(room))
    else:
        share = 0.5 + 0.5 * draw(room)
    length = 0
    for place in range(room.length[NOW]):
        stage, task = room.stage[NOW, place], room.item[NOW, place]
        inside = low <= stage < high and not is_first(tables, stage, task)
        if inside and draw(room) < share:
            continue
        room.item[NOW, length] = task
        room.stage[NOW, length] = stage
        length += 1
    room.length[NOW] = length


def clear(tables: Packed, work: Work, room: Room) -> None:
    """Drop reruns around the highest memory of the plan that was replayed last."""
    centre = room.stage[NOW, work.figures.highest]
    width = 1 << int(WIDEST * draw(room))
    length = 0
    for place in range(room.length[NOW]):
        stage, task = room.stage[NOW, place], room.item[NOW, place]
        if abs(stage - centre) <= width and not is_first(tables, stage, task) and draw(room) < 0.9:
            continue
        room.item[NOW, length] = task
        room.stage[NOW, length] = stage
        length += 1
    room.length[NOW] = length


def force(tables: Packed, room: Room) -> None:
    """Recompute an input of a random run just before it: a start that the greedy would not choose."""
    stage = int(draw(room) * tables.stages)
    task = tables.first[stage]
    low, high = tables.read_start[task], tables.read_start[task + 1]
    if low == high:
        return
    maker = tables.maker[tables.read[low + int(draw(room) * (high - low))]]
    if maker < 0:
        return
    if draw(room) < EARLIER:
        stage = max(0, stage - int(draw(room) * draw(room) * EARLIEST))
        if tables.first[stage] <= maker:
            return
    place = find(room, stage, maker)
    if room.stage[NOW, place] == stage and room.item[NOW, place] == maker:
        return
    room.todo[0] = maker
    if insert(room, 1, stage) >= 0:
        take_trial(room)


def act(
    tables: Packed, work: Work, spare: Work, room: Room, budget: int, what: int, alpha: float, noise: float
) -> bool:
    """Apply an action to the current plan; return whether it then fits. One entry point saves compile time.

    It reads no contents of `work` from an earlier call, which may have been interpreted while this one is compiled.
    """
    if what == RUIN:
        ruin(tables, room)
        for _ in range(int(FORCED * draw(room))):
            force(tables, room)
        return False
    if what == CLEAR:
        replay(tables, work, room, NOW, budget)
        clear(tables, work, room)
        return False
    if what == MEND:
        return greedy(tables, work, spare, room, budget, alpha, noise) == 0.0
    if what == PRUNE:
        prune(tables, work, room, budget)
        return True
    return replay(tables, work, room, NOW, budget) == 0.0
