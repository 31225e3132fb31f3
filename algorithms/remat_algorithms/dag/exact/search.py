"""Shortest path from the end of a schedule to its start, by time within a budget or by its highest memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from remat_algorithms.dag.exact.dominance import Covers
from remat_algorithms.dag.exact.states import States

EACH = 64
"""Number of states between two checks whether to stop."""

PATIENCE = 100
"""Maximum number of trie nodes per dominance query: queries save fewer states when minimizing time than bytes."""

TOLD = 4096
"""Number of states between two reports of the bound."""


@dataclass(slots=True)
class Work:
    """Work budget that the searches of one solve share.

    Attributes
    ----------
    left : int
        Number of states that may still be kept.
    stopped : callable
        Whether to stop for another reason.
    """

    left: int
    stopped: Callable[[], bool]

    def part(self, states: int) -> Work:
        """Split off a part of the work."""
        self.left -= states
        return Work(states, self.stopped)

    def give_back(self, part: Work) -> None:
        """Take back the rest of a part."""
        self.left += part.left

    @property
    def over(self) -> bool:
        """Whether the work is used up, or `stopped` asks to stop."""
        return self.left < 0 or self.stopped()


@dataclass(frozen=True, slots=True)
class Path:
    """Result of a search.

    Attributes
    ----------
    tasks : list of int or None
        The runs of the best schedule, in order; None if the search found none.
    value : int or None
        Its time, or its peak. Without a schedule, a lower bound on that; None if no schedule exists.
    finished : bool
        Whether the search was complete.
    """

    tasks: list[int] | None
    value: int | None
    finished: bool


Came = dict[int, tuple[int, int, int]]
"""Maps a state to its price, the state after the run, and the task of the run."""


def quickest(
    states: States, room: int, work: Work, *, limit: int | None = None, told: Callable[[int], None] | None = None
) -> Path:
    """Find the fastest schedule within a memory limit (A*).

    Parameters
    ----------
    states : States
    room : int
        Maximum memory, in bytes.
    work : Work
    limit : int, optional
        Consider only schedules that take less time. If none does, the result is the same as without any schedule.
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
    """Find a schedule of minimum peak, or any schedule whose peak is at most `floor`.

    Among states of equal height, the search prefers the one with the least remaining time.
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
    """Search for a fast schedule within a memory limit, run by run, keeping at most `width` states after each run.

    It keeps the states whose schedules are fastest if no other task runs twice.

    Parameters
    ----------
    states : States
    room : int
        Maximum memory, in bytes.
    width : int
        Maximum number of states with equally many later runs.
    work : Work
    limit : int or None
        Consider only schedules that take less time.

    Returns
    -------
    Path
        Never finished, since a beam search proves nothing.
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
