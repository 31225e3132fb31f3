"""Shortest path from the end of a schedule to its start: in time within a budget, or by its highest place."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from remat_algorithms.dag.exact.covers import Covers
from remat_algorithms.dag.exact.states import States

EACH = 64
"""States after which it is asked whether to stop."""

TOLD = 4096
"""States after which a bound is told."""


@dataclass(slots=True)
class Work:
    """What the searches of one solve may take together.

    Attributes
    ----------
    left : int
        States that may still be kept.
    stopped : callable
        Whether to stop for another reason.
    """

    left: int
    stopped: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Path:
    """How a search ended.

    Attributes
    ----------
    tasks : list of int or None
        The runs of the best schedule, in order; None if none was found.
    resident : int
        Inputs that its runs find, as bits; pinned ones aside.
    value : int or None
        Its time, or its peak. Without one, what no schedule can beat; None if no schedule is there to be found.
    finished : bool
        Whether the search came to its end.
    """

    tasks: list[int] | None
    resident: int
    value: int | None
    finished: bool


Came = dict[int, tuple[int, int, int]]
"""For each state its price, the state behind the run, and the task of the run."""


def quickest(
    states: States, room: int, work: Work, *, limit: int | None = None, told: Callable[[int], None] | None = None
) -> Path:
    """Find the schedule of least time within `room` bytes (A*).

    Parameters
    ----------
    states : States
    room : int
    work : Work
    limit : int, optional
        Only schedules that take less are looked for; where there are none, the answer is that none is to be found.
    told : callable, optional
        Receives the bound from time to time.
    """
    if max(states.start_memory, states.end_memory) > room:
        return Path(None, 0, None, True)
    came: Came = {}
    settled: set[int] = set()
    covers = Covers()
    queue: list[tuple[int, int, int]] = []
    ticket = 0
    before = states.time_before(states.end)
    if before is not None and (limit is None or before < limit):
        came[states.end] = (0, -1, -1)
        queue.append((before, 0, states.end))
    while queue:
        whole, _, state = heapq.heappop(queue)
        if state in settled:
            continue
        time = came[state][0]
        if states.is_start(state):
            return Path(*_trace(states, came, state), time, True)
        if work.left < 0 or (len(settled) % EACH == 0 and work.stopped()):
            return Path(None, 0, whole, False)
        if told is not None and len(settled) % TOLD == TOLD - 1:
            told(whole)
        settled.add(state)
        if covers.has_part(state, time):
            continue
        covers.add(state, time)
        for task, then, duration, memory in states.moves(state, room):
            longer = time + duration
            if memory > room:
                continue
            known = came.get(then)
            if known is not None and known[0] <= longer:
                continue
            before = states.time_before(then)
            if before is None or (limit is not None and longer + before >= limit):
                continue
            work.left -= known is None
            came[then] = (longer, state, task)
            ticket -= 1
            heapq.heappush(queue, (longer + before, ticket, then))
    return Path(None, 0, None, True)


def lowest(states: States, floor: int, work: Work) -> Path:
    """Find a schedule of least peak, or any one whose peak is at most `floor`.

    Among states of equal height the search goes where the least time is left.
    """
    came: Came = {}
    settled: set[int] = set()
    covers = Covers()
    queue: list[tuple[int, int, int, int]] = []
    ticket = 0
    floor = max(floor, states.start_memory, states.end_memory)
    before = states.time_before(states.end)
    if before is not None:
        came[states.end] = (floor, -1, -1)
        queue.append((floor, before, 0, states.end))
    while queue:
        height, _, _, state = heapq.heappop(queue)
        if state in settled:
            continue
        if states.is_start(state):
            return Path(*_trace(states, came, state), height, True)
        if work.left < 0 or (len(settled) % EACH == 0 and work.stopped()):
            return Path(None, 0, height, False)
        settled.add(state)
        if covers.has_part(state, 0):
            continue
        covers.add(state, 0)
        for task, then, _, memory in states.moves(state, height):
            higher = max(height, memory)
            known = came.get(then)
            if known is not None and known[0] <= higher:
                continue
            before = states.time_before(then)
            if before is None:
                continue
            work.left -= known is None
            came[then] = (higher, state, task)
            ticket -= 1
            heapq.heappush(queue, (higher, before, ticket, then))
    return Path(None, 0, None, True)


def _trace(states: States, came: Came, state: int) -> tuple[list[int], int]:
    """Return the runs from the start to the end, and what they find resident."""
    tasks, resident = [], states.resident(state)
    _, behind, task = came[state]
    while task >= 0:
        tasks.append(task)
        _, behind, task = came[behind]
    return tasks, resident
