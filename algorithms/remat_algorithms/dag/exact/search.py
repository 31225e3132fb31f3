"""Shortest path from the end of a schedule to its start: in time within a budget, or by its highest place."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from remat_algorithms.dag.exact.dominance import Covers
from remat_algorithms.dag.exact.states import States

EACH = 64
"""States after which it is asked whether to stop."""

PATIENCE = 100
"""Nodes of a trie that are looked at for a state that asks for less: in time it pays less often than in bytes."""

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

    def part(self, states: int) -> Work:
        """Set a part aside."""
        self.left -= states
        return Work(states, self.stopped)

    def give_back(self, part: Work) -> None:
        """Take back what is left of a part."""
        self.left += part.left

    @property
    def over(self) -> bool:
        """Whether nothing is left, or something else says so."""
        return self.left < 0 or self.stopped()


@dataclass(frozen=True, slots=True)
class Path:
    """How a search ended.

    Attributes
    ----------
    tasks : list of int or None
        The runs of the best schedule, in order; None if none was found.
    value : int or None
        Its time, or its peak. Without one, what no schedule can beat; None if no schedule is there to be found.
    finished : bool
        Whether the search came to its end.
    """

    tasks: list[int] | None
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
        return Path(None, None, True)
    came: Came = {}
    settled: set[int] = set()
    covers = Covers(PATIENCE)
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
            return Path(_trace(came, state), time, True)
        if work.left < 0 or (len(settled) % EACH == 0 and work.stopped()):
            return Path(None, whole, False)
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
    return Path(None, None, True)


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
            return Path(_trace(came, state), height, True)
        if work.left < 0 or (len(settled) % EACH == 0 and work.stopped()):
            return Path(None, height, False)
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
    return Path(None, None, True)


def beam(states: States, room: int, width: int, work: Work, limit: int | None) -> Path:
    """Look for a quick schedule within `room` bytes, run by run, and keep only so many states after each.

    Those are kept whose schedules take the least time if nothing else runs twice.

    Parameters
    ----------
    states : States
    room : int
    width : int
        Most states with equally many runs behind them.
    work : Work
    limit : int or None
        Only schedules that take less are looked for.

    Returns
    -------
    Path
        Which never is the end of the search.
    """
    came: Came = {states.end: (0, -1, -1)}
    front = [states.end] if max(states.start_memory, states.end_memory) <= room else []
    best = None
    while front and not work.over:
        ahead: dict[int, int] = {}
        for state in front:
            if states.is_start(state):
                continue
            for task, then, duration, memory in states.moves(state, room):
                longer = came[state][0] + duration
                known = came.get(then)
                if memory > room or (known is not None and known[0] <= longer):
                    continue
                before = states.time_before(then)
                if before is None or (limit is not None and longer + before >= limit):
                    continue
                work.left -= known is None
                came[then] = (longer, state, task)
                ahead[then] = longer + before
                if states.is_start(then):
                    best, limit = then, longer
        front = heapq.nsmallest(width, ahead, key=lambda state: (ahead[state], state))
    return Path(None, None, False) if best is None else Path(_trace(came, best), came[best][0], False)


def _trace(came: Came, state: int) -> list[int]:
    """Return the runs from the start to the end."""
    tasks = []
    _, behind, task = came[state]
    while task >= 0:
        tasks.append(task)
        _, behind, task = came[behind]
    return tasks
