"""Ruin and recreate: drop reruns, let the greedy mend the plan, prune, accept what is not much worse.

Interpreted or compiled, like `replay` and `greedy`.
"""

from __future__ import annotations

from remat_algorithms.dag_auto.greedy import Room, draw, greedy, take_trial
from remat_algorithms.dag_auto.model import Row, Tables
from remat_algorithms.dag_auto.replay import Work, replay

WORSENING = 0.0008
"""Share of the makespan by which an accepted plan may be worse than the present one, at the most."""

RESTARTS = 0.1
"""Share of the rounds that begin from the best plan."""


def is_first(tables: Tables, stage: int, task: int) -> bool:
    """Say whether a run is the first one of the stage's task."""
    return stage < len(tables.first) and tables.first[stage] == task


def without(room: Room, place: int) -> None:
    """Make the present plan without the run at a position the plan to try."""
    count = room.counts[0]
    for other in range(place):
        room.trial_item[other] = room.item[other]
        room.trial_stage[other] = room.stage[other]
    for other in range(place + 1, count):
        room.trial_item[other - 1] = room.item[other]
        room.trial_stage[other - 1] = room.stage[other]
    room.counts[1] = count - 1


def _hopeless(tables: Tables, work: Work, room: Room, place: int, budget: int) -> bool:
    """Whether a plan without a run must exceed the budget: its outputs would be kept too long elsewhere."""
    task = room.item[place]
    spare = 0
    for entry in range(tables.read_start[task], tables.read_start[task + 1]):
        spare += tables.size[tables.read_value[entry]]
    for entry in range(tables.write_start[task], tables.write_start[task + 1]):
        value = tables.write_value[entry]
        low, high = work.head[value], work.head[value + 1]
        while low < high:
            middle = (low + high) // 2
            if work.access[middle] < 2 * place + 1:
                low = middle + 1
            else:
                high = middle
        used = low + 1 < work.head[value + 1] and work.access[low + 1] % 2 == 0
        if low == work.head[value] or not used:
            continue
        for between in range(work.access[low - 1] // 2 + 1, place):
            if work.memory[between] + tables.size[value] - spare > budget:
                return True
    return False


def prune(tables: Tables, work: Work, spare: Work, room: Room, budget: int) -> None:
    """Drop each rerun that is not needed, dearest first; the present plan must fit. O(reruns) replays."""
    reruns = 0
    for place in range(room.counts[0]):
        if not is_first(tables, room.stage[place], room.item[place]):
            reruns += 1
    previous = -1.0
    passed = -1
    replay(tables, work, room.item, room.counts[0], budget)
    for _ in range(reruns):
        # The dearest of those that have not been looked at: below the last one by (time, key).
        place = _next_dearest(tables, room, previous, passed)
        if place < 0 or room.stop[0] != 0:
            break
        previous = tables.time[room.item[place]]
        passed = _key(tables, room, place)
        if _hopeless(tables, work, room, place, budget):
            continue
        without(room, place)
        if replay(tables, spare, room.trial_item, room.counts[1], budget) == 0.0:
            take_trial(room)
            replay(tables, work, room.item, room.counts[0], budget)
    room.cost[0] = work.figures[1]


def _key(tables: Tables, room: Room, place: int) -> int:
    return room.stage[place] * (len(tables.time) + 1) + room.item[place]  # type: ignore[no-any-return]


def _next_dearest(tables: Tables, room: Room, previous: float, passed: int) -> int:
    """Return the position of the dearest rerun after the one last looked at; by time, then from the front."""
    best = -1
    most = -1.0
    for place in range(room.counts[0]):
        task = room.item[place]
        time = tables.time[task]
        if time <= most or is_first(tables, room.stage[place], task):
            continue
        later = passed < 0 or time < previous or (time == previous and _key(tables, room, place) > passed)
        if later:
            most = time
            best = place
    return best


def ruin(tables: Tables, room: Room) -> None:
    """Drop reruns: those of a window of stages, some anywhere, or most of them."""
    kind = draw(room)
    stages = len(tables.first) + 1
    low, high, share = 0, stages, 1.0
    if kind < 0.55:
        width = 1 + int(draw(room) * max(1.0, 0.3 * stages))
        low = int(draw(room) * stages) - width // 2
        high = low + width
        share = 0.5 + 0.5 * draw(room)
    elif kind < 0.85:
        share = 0.1 + 0.3 * draw(room)
    else:
        share = 0.5 + 0.5 * draw(room)
    length = 0
    for place in range(room.counts[0]):
        stage, task = room.stage[place], room.item[place]
        inside = low <= stage < high and not is_first(tables, stage, task)
        if inside and draw(room) < share:
            continue
        room.item[length] = task
        room.stage[length] = stage
        length += 1
    room.counts[0] = length


def copy_plan(item: Row, stage: Row, count: int, to_item: Row, to_stage: Row) -> None:
    """Copy a plan."""
    for place in range(count):
        to_item[place] = item[place]
        to_stage[place] = stage[place]


def construct(tables: Tables, work: Work, spare: Work, room: Room, budget: int, alpha: float, noise: float) -> bool:
    """Mend the present plan with the greedy and prune it; return whether it fits."""
    if greedy(tables, work, spare, room, budget, alpha, noise) > 0.0:
        return False
    prune(tables, work, spare, room, budget)
    return True


def improve(
    tables: Tables,
    work: Work,
    spare: Work,
    room: Room,
    here_item: Row,
    here_stage: Row,
    budget: int,
    rounds: int,
) -> int:
    """Ruin and recreate for some rounds; the saved plan becomes the best one found.

    Parameters
    ----------
    tables, work, spare, room
        `room.saved_*` holds a plan that fits, `room.cost[1]` its time.
    here_item, here_stage : rows
        The plan that rounds start from; ``room.counts[2]`` and ``room.cost[2]`` are its length and time.
    budget, rounds : int

    Returns
    -------
    int
        Rounds that were finished.
    """
    done = 0
    while done < rounds and room.stop[0] == 0:
        if draw(room) < RESTARTS:
            _restart(room, here_item, here_stage)
        copy_plan(here_item, here_stage, room.counts[2], room.item, room.stage)
        room.counts[0] = room.counts[2]
        ruin(tables, room)
        pick = draw(room)
        alpha = 1.0 if pick < 1.0 / 3 else (0.7 if pick < 2.0 / 3 else 0.5)
        noise = 2.0 * draw(room) * draw(room)
        fits = construct(tables, work, spare, room, budget, alpha, noise)
        done += 1
        if not fits:
            continue
        slack = draw(room)
        if room.cost[0] <= room.cost[2] + WORSENING * slack * slack * room.cost[2]:
            copy_plan(room.item, room.stage, room.counts[0], here_item, here_stage)
            room.counts[2] = room.counts[0]
            room.cost[2] = room.cost[0]
        if room.cost[0] < room.cost[1] * (1.0 - 1e-12):
            copy_plan(room.item, room.stage, room.counts[0], room.saved_item, room.saved_stage)
            room.counts[3] = room.counts[0]
            room.cost[1] = room.cost[0]
    return done


def _restart(room: Room, here_item: Row, here_stage: Row) -> None:
    copy_plan(room.saved_item, room.saved_stage, room.counts[3], here_item, here_stage)
    room.counts[2] = room.counts[3]
    room.cost[2] = room.cost[1]
